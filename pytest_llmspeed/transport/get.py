"""One plain GET, for what is asked of a server in addition to its requests: its health, models, version."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import broke, request_message, tls_for
from pytest_llmspeed.transport.parser import ResponseParser, TransportError

LARGEST_BYTES = 8 * 2**20
"""A list of some ten thousand models fits."""
READ_SIZE = 65536
LEAST_S = 0.001


def get(base: BaseURL, path: str, headers: Mapping[str, str], timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of `path` below `base`, all of it within `timeout_s`.

    Raises `TransportError` that says in words why there is no such answer.
    """
    deadline_s = clock.now_s() + timeout_s
    with _connected(base, timeout_s) as connection:
        try:
            connection.sendall(request_message(base, "GET", path, {**headers, "connection": "close"}, b""))
            return _read(connection, ResponseParser(base), f"GET {path}", deadline_s)
        except TimeoutError as error:
            raise TransportError(
                f"the server at {base} accepted the connection but did not answer GET {path} "
                f"within {timeout_s:g} s: is it still loading, or hung?"
            ) from error
        except OSError as error:
            raise TransportError(f"GET {path} of {base}: {broke(error)}{_advice(base, error)}") from error


def _advice(base: BaseURL, error: OSError) -> str:
    """What may help where a server ends a TLS connection: without saying why, many want a certificate."""
    ends = isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError)
    if base.scheme == "https" and base.tls.client_cert is None and ends:
        return "; if it requires a client certificate, set client_cert= and client_key="
    return ""


def _connected(base: BaseURL, timeout_s: float) -> socket.socket:
    context = tls_for(base)
    deadline_s = clock.now_s() + timeout_s
    try:
        connection = socket.create_connection((base.host, base.port), max(timeout_s, LEAST_S))
    except TimeoutError as error:
        raise TransportError(f"could not connect to {base} within {timeout_s:g} s") from error
    except OSError as error:
        raise TransportError(base.unreachable(error)) from error
    try:
        connection.settimeout(max(deadline_s - clock.now_s(), LEAST_S))
        return context.wrap_socket(connection, server_hostname=base.host) if context else connection
    except TimeoutError as error:
        connection.close()
        raise TransportError(
            f"{base} did not finish the TLS handshake within {timeout_s:g} s: is its address http://?"
        ) from error
    except OSError as error:
        connection.close()
        raise TransportError(base.unreachable(error)) from error


def _read(
    connection: socket.socket, framing: ResponseParser, asked: str, deadline_s: float
) -> tuple[int, bytes]:
    body = bytearray()
    read_bytes = 0
    while not framing.complete:
        connection.settimeout(max(deadline_s - clock.now_s(), LEAST_S))
        chunk = connection.recv(READ_SIZE)
        if clock.now_s() > deadline_s:  # bytes that trickle in would never let a single read time out
            raise TimeoutError
        framing.feed(chunk)
        body += framing.take()
        read_bytes += len(chunk)
        if read_bytes > LARGEST_BYTES:
            raise TransportError(f"the server's answer to {asked} is longer than {LARGEST_BYTES:,} bytes")
    return framing.status, bytes(body)
