"""Certificates that must not be accepted: refused on every path, named as the problem, with the fix."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from helpers.servers import Play, ReplayServer, tokens

from pytest_llmspeed import Backend, EngineError, EngineSpec, GenerationError, LLMClient
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.tls import TLS

DAY = datetime.timedelta(days=1)
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TRUST = "name the certificate of its authority with ca_file="
REFUSED = {
    "expired": ("its certificate has expired: renew it", True),
    "not yet valid": ("its certificate is not yet valid: renew it", True),
    "self-signed": (f"its certificate is not trusted (self-signed certificate): {TRUST}", False),
    "of an unknown authority": ("its certificate is not trusted (unable to get local issuer", False),
}
"""Certificate → the words, and whether its authority is named in ca_file."""


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


def self_signed(folder: Path) -> ssl.SSLContext:
    """A server whose certificate vouches for itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    signed = made.not_valid_before(now - DAY).not_valid_after(now + DAY).sign(key, hashes.SHA256())
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "own.pem").write_bytes(private + signed.public_bytes(encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem")
    return context


def serving(kind: str, authority: trustme.CA, folder: Path) -> ssl.SSLContext:
    """A server with a certificate of that kind."""
    if kind == "self-signed":
        return self_signed(folder)
    now = datetime.datetime.now(datetime.UTC)
    begin, end = {
        "expired": (now - 2 * DAY, now - DAY),
        "not yet valid": (now + DAY, now + 2 * DAY),
    }.get(kind, (now - DAY, now + DAY))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_before=begin, not_after=end).configure_cert(context)
    return context


@pytest.mark.parametrize("path", ["start", "generate", "load", "sdk"])
@pytest.mark.parametrize("kind", REFUSED)
def test_a_certificate_that_must_not_be_accepted_is_refused(
    loop: LoopThread, tmp_path: Path, kind: str, path: str
) -> None:
    """When the engine is started, and where the certificate has become so since: by each kind of request."""
    words, is_named = REFUSED[kind]
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    options = {"ca_file": str(tmp_path / "ca.pem")} if is_named else {}
    with ReplayServer(lambda _: Play(tokens(2, 1, 1)), tls=serving(kind, authority, tmp_path)) as server:
        message = _refusal(loop, path, server.url, options)
        assert server.requests == []
    assert words in message
    assert "no server answers" not in message


def _refusal(loop: LoopThread, path: str, url: str, options: dict[str, str]) -> str:
    """The error that asking on one path ends with."""
    if path == "start":
        with pytest.raises(EngineError) as refused:
            OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": url, **options}))
        return str(refused.value)
    base = BaseURL.parse(url, TLS(**options))
    engine = OpenAIEngine(base, Backend("openai", "m"), {}, None)
    recorder = Recorder()
    client = LLMClient(engine, loop, recorder)
    ask: dict[str, Callable[[], object]] = {
        "generate": lambda: client.generate("x", warmup=False),
        "load": lambda: client.load("x", concurrency=1, requests=2),
        "sdk": lambda: client.openai.chat.completions.create(**ASKED),
    }
    try:
        with pytest.raises((GenerationError, openai.APIConnectionError)) as failed:
            ask[path]()
    finally:
        client.close()
        loop.run(engine.close())
    return str(failed.value if path != "sdk" else recorder.measurement.samples[0].error)
