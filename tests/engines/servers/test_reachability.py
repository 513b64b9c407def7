"""How a server is reached: its query, certificates and headers on every path, and what is never shown."""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from helpers.project import shows
from helpers.servers import Play, ReplayServer, tokens

from pytest_llmspeed.engines.servers import reachability
from pytest_llmspeed.engines.servers.reachability import base_url, found_server, own_headers
from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.transport import client as http_client

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.project import Project

EVERY_PATH = """
import asyncio
import openai

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

def test_it(llm_client):
    llm_client.generate("hello", warmup=False)
    llm_client.load("hello", concurrency=1, requests=10, warmup=1)
    assert list(llm_client.openai.chat.completions.create(**ASKED, stream=True))
    asyncio.run(once(llm_client.async_openai))

async def once(client):
    assert [chunk async for chunk in await client.chat.completions.create(**ASKED, stream=True)]
"""


def answering(**settings: Any) -> ReplayServer:
    return ReplayServer(lambda _: Play(tokens(8, 2, 2)), **settings)


@pytest.fixture
def remote(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without a key in its environment."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return project


def run_at(project: Project, options: dict[str, Any], *arguments: str, tests: str = EVERY_PATH) -> Any:
    """Run tests against a server that is reached with these options."""
    fixture = "import pytest\n@pytest.fixture(scope='session')\n"
    fixture += f"def llm_backend_options(): return {options!r}\n"
    project.write(tests, conftest=fixture)
    return project.run("--llmspeed-backend=openai", "--llmspeed-model=m", *arguments)


def test_the_query_goes_with_every_request(remote: Project) -> None:
    """With the list of models, answers, loads and both SDK clients; a key in it is not recorded."""
    with answering() as server:
        run_at(remote, {"url": f"{server.url}?api-version=2024-06-01&sig=hunter2"})
    assert {path.partition("?")[2] for path in server.asked} == {"api-version=2024-06-01&sig=hunter2"}
    assert len(server.asked) >= 14
    assert remote.test()["backend"]["options"] == {"url": f"{server.url}?api-version=2024-06-01&sig=***"}
    assert "hunter2" not in json.dumps(remote.report)


def test_headers_go_with_every_request(remote: Project) -> None:
    """Also with those of SDK clients; their values are recorded nowhere."""
    with answering() as server:
        run_at(remote, {"url": server.url, "headers": {"api-key": "hunter2-key", "X-Team": "t"}})
    assert {headers["api-key"] for headers, _ in server.requests} == {"hunter2-key"}
    assert {headers["x-team"] for headers, _ in server.requests} == {"t"}
    assert remote.test()["backend"]["options"]["headers"] == ["api-key", "x-team"]
    assert "hunter2" not in json.dumps(remote.report)


AZURE = """
import asyncio
import openai

def test_it(llm_client):
    base = llm_client.openai.base_url
    settings = {"azure_endpoint": f"{base.scheme}://{base.host}:{base.port}", "api_version": "2024-06-01",
                "api_key": llm_client.openai.api_key, "max_retries": 0}
    asked = {"model": "gpt", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    client = openai.AzureOpenAI(**settings, http_client=llm_client.http_client)
    assert len(list(client.chat.completions.create(**asked))) == 9

    async def once():
        client = openai.AsyncAzureOpenAI(**settings, http_client=llm_client.async_http_client)
        return [chunk async for chunk in await client.chat.completions.create(**asked)]

    assert len(asyncio.run(once())) == 9
    assert [sample.output_tokens for sample in llm_client.measurement.samples] == [8, 8]
"""


@pytest.mark.parametrize("path", ["/v1", ""])
def test_azure_clients_are_measured(remote: Project, path: str) -> None:
    """Whatever the path of the backend: they put the deployment into theirs; the backend's key is sent."""
    with answering() as server:
        url = server.url.removesuffix("/v1") + path
        options = {"url": url, "headers": {"api-key": "hunter2"}}
        run_at(remote, options, tests=AZURE).assert_outcomes(passed=1)
    assert server.asked[-1] == "POST /openai/deployments/gpt/chat/completions?api-version=2024-06-01"
    assert server.requests[-1][0]["api-key"] == "hunter2"
    assert "authorization" not in server.requests[-1][0]


@pytest.mark.parametrize("path", ["", "/", "/v1/chat/completions", "/v1/v1", "/v1/"])
def test_an_address_that_is_nearly_right_is_used_as_it_was_meant(remote: Project, path: str) -> None:
    """Without /v1, with it twice, or with the endpoint in it; the report shows what was used."""
    with answering(below="/v1/", models=("m",)) as server:
        remote.write("def test_it(llm_client): llm_client.generate('hello', warmup=False)")
        url = server.url.removesuffix("/v1") + path

        server.below = "/v1/models" if path == "/v1/v1" else server.below
        if path != "/v1/v1":
            remote.run("--llmspeed-backend=openai", f"--llmspeed-url={url}").assert_outcomes(passed=1)
            assert remote.test()["backend"]["options"]["url"] == server.url
        else:
            assert str(found_server(base_url({"url": url}), {}).base) == server.url


def test_a_server_that_lists_models_anywhere_names_the_missing_v1(remote: Project) -> None:
    """A 404 for the request says which address was probably meant."""
    script = Play([(0, b'{"detail": "Not Found"}')], status=404)
    with ReplayServer(lambda _: script) as server:
        url = server.url.removesuffix("/v1")
        remote.write("def test_it(llm_client): llm_client.generate('hello', warmup=False)")
        result = remote.run("--llmspeed-backend=openai", "--llmspeed-model=m", f"--llmspeed-url={url}")
    shows(result, f"HTTP 404: Not Found (from {url}: does the address lack /v1, as in {url}/v1?)")


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """An authority that nobody trusts by default; its certificate is ca.pem."""
    found = trustme.CA()
    found.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return found


def tls_server(authority: trustme.CA, host: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    return context


def test_own_certificates_are_used_on_every_path(
    remote: Project, authority: trustme.CA, tmp_path: Path
) -> None:
    """The server's authority by ca_file, our own certificate for a server that asks for one."""
    context = tls_server(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    mine = authority.issue_cert("me@example.com")
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "me.pem"))
    mine.private_key_pem.write_to_path(str(tmp_path / "me.key"))
    files = {"ca_file": "ca.pem", "client_cert": "me.pem", "client_key": "me.key"}
    options = {name: str(tmp_path / file) for name, file in files.items()}
    with answering(tls=context) as server:
        run_at(remote, {"url": server.url, **options})
        answered = remote.test()["measurement"]["requests"]
        refused = run_at(remote, {"url": server.url, "ca_file": options["ca_file"]})
    assert len(answered) == 13
    assert {request["error"] for request in answered} == {None}
    shows(refused, "client certificate", "set client_cert= and client_key=")


@pytest.mark.parametrize(
    ("host", "options", "fix"),
    [
        ("127.0.0.1", {}, "is not trusted (unable to get local issuer certificate): name the certificate"),
        ("localhost", {"ca_file": "ca.pem"}, "its certificate is for another host"),
        ("localhost", {"ca_file": "none.pem"}, "none.pem': No such file or directory"),
        ("localhost", {"verify": "ca.pem"}, "name a certificate file with ca_file="),
    ],
)
def test_a_bad_certificate_is_told_as_such(
    authority: trustme.CA, tmp_path: Path, host: str, options: dict[str, Any], fix: str
) -> None:
    """With the option that helps; that there is no server is not said."""
    given = {name: str(tmp_path / value) if name == "ca_file" else value for name, value in options.items()}
    with answering(tls=tls_server(authority, host)) as server, pytest.raises(EngineError) as refused:
        found_server(base_url({"url": server.url, **given}), {})
    assert fix in str(refused.value)
    assert "no server" not in str(refused.value)


def test_the_check_of_certificates_can_be_turned_off(authority: trustme.CA) -> None:
    """By verify=False."""
    with answering(tls=tls_server(authority, "elsewhere")) as server:
        assert found_server(base_url({"url": server.url, "verify": False}), {}).models


def test_http_and_https_that_are_mixed_up_are_named(authority: trustme.CA) -> None:
    """In both directions."""
    with answering(tls=tls_server(authority)) as server, pytest.raises(EngineError, match="write https://"):
        found_server(base_url({"url": server.url.replace("https", "http")}), {})
    with trickling(b"HTTP/1.1 400 Bad Request\r\n", b" ") as url, pytest.raises(EngineError) as refused:
        found_server(base_url({"url": url.replace("http", "https")}), {})
    assert "does not speak TLS: is its address http://?" in str(refused.value)


@contextmanager
def trickling(head: bytes, piece: bytes) -> Iterator[str]:
    """The address of a server that sends a piece of an answer again and again."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=play, args=(connection,), daemon=True).start()

    def play(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.recv(65536)
            connection.sendall(head)
            while not over.wait(0 if len(piece) > 1 else 0.02):
                connection.sendall(piece)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        over.set()
        listener.close()


def test_an_answer_byte_by_byte_cannot_hold_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """All questions of a start have one limit, not each read of them."""
    monkeypatch.setattr(reachability, "PROBE_TIMEOUT_S", 0.3)
    for head in (b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n", b"HTTP/1.1 200 OK\r\nx-y: "):
        with trickling(head, b" ") as url, pytest.raises(EngineError, match="did not answer GET /models"):
            found_server(base_url({"url": url}), {})


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it takes the machine's memory."""
    monkeypatch.setattr(http_client, "LARGEST_GET_BYTES", 2**20)
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with trickling(head, b"10000\r\n" + b"x" * 65536 + b"\r\n") as url, pytest.raises(EngineError) as told:
        found_server(base_url({"url": url}), {})
    assert "is longer than 1,048,576 bytes" in str(told.value)


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"a b": "hunter2"}, "'a b' is not the name of a header"),
        ({"x-key": "hunter2\r\nx: y"}, "the value of 'x-key' has line breaks"),
        ("hunter2", "headers= must map names"),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(headers: object, words: str) -> None:
    """By its name."""
    with pytest.raises(EngineError) as refused:
        own_headers(headers)
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)


FAILING = """
def generate(llm_client):
    llm_client.generate("a prompt of mine", warmup=False)

def load(llm_client):
    llm_client.load("a prompt of mine", concurrency=1, requests=10)

def openai(llm_client):
    asked = [{"role": "user", "content": "hi"}]
    llm_client.openai.chat.completions.create(model="m", messages=asked)

def test_it(llm_client):
    %s(llm_client)
"""


@pytest.mark.parametrize("call", ["generate", "load", "openai"])
@pytest.mark.parametrize("ending", ["echo", "reset"])
def test_a_failure_shows_no_secret_and_no_frame_of_ours(
    remote: Project, monkeypatch: pytest.MonkeyPatch, call: str, ending: str
) -> None:
    """With -vv -l: the user's line; the key and the header are masked where a server echoes them."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    echo = b'{"error": {"message": "no: Bearer sk-hunter2, hunter2-extra"}}'
    play = Play([(0, echo)], status=400) if ending == "echo" else Play(tokens(8, 2, 2)[:3], ending="reset")
    with ReplayServer(lambda _: play) as server:
        options = {"url": server.url, "headers": {"x-extra": "hunter2-extra"}}
        result = run_at(remote, options, "-vv", "-l", "--junitxml=j.xml", tests=FAILING % call)
    shown = result.stdout.str()
    everything = shown + (remote.path / "j.xml").read_text() + json.dumps(remote.report)
    if call != "openai" or ending != "echo":  # the SDK's own error holds the server's own words
        assert "hunter2" not in everything.replace("headers': {'x-extra': 'hunter2-extra'}", "")
    assert "pytest_llmspeed/" not in shown
    assert f"{call}(llm_client)" in shown


def test_text_of_a_server_forges_no_line_and_no_command(remote: Project) -> None:
    """Escape sequences and commands of CI systems are shown escaped; a long message is cut."""
    message = json.dumps({"error": {"message": "\x1b[2J\n::error::x\n##[error]y" + "z" * 2**14}})
    with ReplayServer(lambda _: Play([(0, message.encode())], status=500)) as server:
        tests = "def test_it(llm_client): llm_client.measure('hello', rounds=3)"
        result = run_at(remote, {"url": server.url}, tests=tests)
    shown = result.stdout.str()
    shows(result, r"HTTP 500: \x1b[2J\n::error::x\n#\x23[error]yzzz", "characters)")
    assert "\x1b[2J" not in shown
    assert not any(line.lstrip().startswith(("::error", "##[")) for line in shown.splitlines())
    assert len(shown) < 20_000


TRICKLES = """
import socket, sys, time
print("HF_TOKEN is", __import__("os").environ["HF_TOKEN"], flush=True)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.recv(65536)
    try:
        connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 100000\\r\\n\\r\\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.1)
    except OSError:
        pass
"""


def test_a_start_has_one_limit_and_its_log_shows_no_secret(remote: Project) -> None:
    """A server that answers its health path byte by byte is given up in time."""
    (remote.path / "trickles.py").write_text(TRICKLES)
    command = [sys.executable, str(remote.path / "trickles.py"), "{port}"]
    remote.write(
        f"""
        import pytest

        @pytest.mark.llm_backend("server", command={command!r}, model="m", start_timeout_s=1,
                                 env={{"HF_TOKEN": "hf_hunter2"}}, extra_args=["--api-key", "hunter2"])
        def test_it(llm_client): pass
        """
    )
    result = remote.run("-l", "-vv")
    shows(result, "did not answer within 1 s: allow more time with start_timeout_s=", "HF_TOKEN is ***")
    assert "hunter2" not in result.stdout.str() + json.dumps(remote.report)
