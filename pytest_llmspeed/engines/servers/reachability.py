"""Where a server is and how it is reached, from the options of a backend; whether it answers there."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.system import clock
from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.text.secret import SHORTEST, Secret
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import get
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.tls import TLS

KEY_VARIABLE = "OPENAI_API_KEY"
PROBE_TIMEOUT_S = 10.0
TLS_OPTIONS = frozenset(TLS.__dataclass_fields__)
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
NOT_SECRET = frozenset({"accept", "accept-language", "content-type", "user-agent"})
SHOWN_MODELS = 10
OTHER_PLACE = (404, 405)
"""Statuses of a server that has no such path, or no such method there."""


class FoundServer(NamedTuple):
    """A server that answers: its address, and each model that it lists with its owner (None: no list)."""

    base: BaseURL
    models: dict[str, str] | None


def base_url(options: Mapping[str, Any]) -> BaseURL:
    """Return the address that the options name; raises `EngineError` for what cannot be used of them."""
    url = options.get("url")
    if not url:
        raise EngineError(
            "backend 'openai' needs the address of a server: set llmspeed_url, --llmspeed-url or "
            "url= in the llm_backend mark, as in http://127.0.0.1:8000/v1"
        )
    try:
        base = BaseURL.parse(str(url), _tls(options))
    except ValueError as error:
        raise EngineError(f"llmspeed_url: {error}") from error
    if base.scheme == "https":
        try:
            base.tls.context()
        except ValueError as error:
            raise EngineError(str(error)) from error
    return base


def _tls(options: Mapping[str, Any]) -> TLS:
    given = {name: options[name] for name in TLS_OPTIONS if options.get(name) is not None}
    verify = given.pop("verify", True)
    if not isinstance(verify, bool):
        raise EngineError(f"verify={verify!r}: must be True or False; name a certificate file with ca_file=")
    return TLS(**{name: os.path.expanduser(path) for name, path in given.items()}, verify=verify)


def api_key(variable: str) -> Secret | None:
    """Return the key in an environment variable; raises `EngineError` that does not show an unusable one."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(character.isspace() or not character.isprintable() for character in key):
        raise EngineError(
            f"the environment variable {variable} is not an API key: it has spaces or unusual characters"
        )
    return Secret(key) if key else None


def own_headers(value: object) -> dict[str, str]:
    """Return the user's own headers, names in lower case; raises `EngineError` that shows no value."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise EngineError("headers= must map names of HTTP headers to their values")
    headers: dict[str, str] = {}
    for name, content in value.items():
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise EngineError(f"headers: {harmless(repr(name))} is not the name of a header")
        text = content if isinstance(content, str) else str(content)
        if any(character in "\r\n\0" or ord(character) > 0xFF for character in text):
            raise EngineError(f"headers: the value of {name!r} has line breaks or characters beyond Latin-1")
        headers[name.lower()] = Secret(text.strip())
    return headers


def headers_for(base: BaseURL, key: str | None, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of our requests: with the key or the login of the address, the user's own on top."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "user-agent": "pytest-llmspeed",
    }
    if key:
        headers["authorization"] = Secret(f"Bearer {key}")
    elif base.user is not None:
        login = f"{base.user}:{base.password or ''}".encode()
        headers["authorization"] = Secret(f"Basic {b64encode(login).decode()}")
    return headers | dict(own or {})


def secrets_of(base: BaseURL, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what must not be shown of an address and its headers, also where a server echoes it."""
    hidden = [value for name, value in headers.items() if name not in NOT_SECRET]
    words = [word for value in hidden for word in value.split() if word not in ("Bearer", "Basic")]
    found = {*base.secrets, *hidden, *words}
    return tuple(Secret(each) for each in sorted(found) if len(each) >= SHORTEST)


def found_server(base: BaseURL, headers: Mapping[str, str]) -> FoundServer:
    """Return the server at `base`, or at the address next to it that was meant: with `/v1`, or without.

    All questions together take `PROBE_TIMEOUT_S`. Raises `EngineError` if no server answers.
    """
    deadline_s = clock.now_s() + PROBE_TIMEOUT_S
    try:
        status, body = get(base, "/models", headers, PROBE_TIMEOUT_S)
    except TransportError as error:
        fix = "" if "accepted the connection" in str(error) else "; start it, or correct llmspeed_url"
        raise EngineError(f"{error}{_other_scheme(base)}{fix}") from error
    if status in (401, 403):
        raise EngineError(
            f"the server at {base} answers HTTP {status}: it requires an API key: put it into "
            f"the environment variable {KEY_VARIABLE} (or the one that api_key_env= names), or into headers="
        )
    models = listed_models(body) if status == 200 else None
    if models is None and (status == 200 or status in OTHER_PLACE):
        for other in base.neighbours():
            with suppress(TransportError):
                status, body = get(other, "/models", headers, deadline_s - clock.now_s())
                if status == 200 and (listed := listed_models(body)) is not None:
                    return FoundServer(other, listed)
    return FoundServer(base, models)


def _other_scheme(base: BaseURL) -> str:
    """The advice to write https, if a server that does not answer over http speaks TLS."""
    if base.scheme == "https":
        return ""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((base.host, base.port), timeout=1.0) as connection,
            context.wrap_socket(connection),
        ):
            return ": it speaks TLS, write https://"
    except OSError:
        return ""


def listed_models(body: bytes) -> dict[str, str] | None:
    """Return the models of an answer to GET /models, each with its owner; None if it is no such list."""
    try:
        listed: Any = json.loads(body)["data"]
        return {str(model["id"]): str(model.get("owned_by")) for model in listed}
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
        return None


def only_model(served: FoundServer) -> str:
    """Return the single model that a server lists; raises `EngineError` if it lists several, or none."""
    models = served.models
    if models and len(models) == 1:
        return next(iter(models))
    if models:
        some = ", ".join(harmless(name, 100) for name in list(models)[:SHOWN_MODELS])
        more = ", …" if len(models) > SHOWN_MODELS else ""
        raise EngineError(
            f"the server at {served.base} has {len(models)} models; say which with llmspeed_model or "
            f"model= in the mark: {some}{more}"
        )
    raise EngineError(
        f"the server at {served.base} does not list its models; name one with llmspeed_model or model="
    )
