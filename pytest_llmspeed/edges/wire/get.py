"""One plain GET, for what is asked of a server beside its requests: its health, models, version."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping

from pytest_llmspeed.edges.wire.http import BaseURL


def get(base: BaseURL, path: str, headers: Mapping[str, str], timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of `path` below `base`; raises `OSError` or `http.client.HTTPException`."""
    if base.scheme == "https":
        context = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            base.host, base.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(base.host, base.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{base.path}{path}", headers=dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
