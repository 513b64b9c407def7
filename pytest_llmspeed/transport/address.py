"""The address of a server: read from what a user wrote, shown without what is secret in it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.text.secret import MASK, Secret
from pytest_llmspeed.transport.tls import TLS, why_not_connected

EXAMPLE = "http://127.0.0.1:8000/v1"
PORTS = {"http": 80, "https": 443}
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")
"""Endpoint paths that documentation shows after the base address, and that users paste."""
SHOWN_PARAMETERS = frozenset({"api-version", "api_version", "version"})
"""Parameters of a query whose values are not secret; of any other a value may be a key."""
VERSION = re.compile(r"(/v1)+$")
UNRESERVED = "/%:@!$&'()*+,;=~-._"


@dataclass(frozen=True)
class BaseURL:
    """The address of a server, as in `http://127.0.0.1:8000/v1`, and how TLS is spoken with it.

    `query` goes with every request. What is shown of it is without its login.
    """

    scheme: str
    host: str
    port: int
    path: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    query: str = field(default="", repr=False)
    tls: TLS = field(default_factory=TLS)

    @classmethod
    def parse(cls, url: str, tls: TLS | None = None) -> BaseURL:
        """Return the parts of `url`, without an endpoint at its end; raises ValueError on what is wrong."""
        parts = _split(url.strip())
        path = re.sub("//+", "/", quote(parts.path, safe=UNRESERVED)).rstrip("/")
        return cls(
            scheme=parts.scheme,
            host=_host(parts),
            port=_port(parts),
            path=_without_endpoint(path),
            user=None if parts.username is None else Secret(unquote(parts.username)),
            password=None if parts.password is None else Secret(unquote(parts.password)),
            query=Secret(quote(parts.query, safe=UNRESERVED + "?")),
            tls=tls or TLS(),
        )

    @property
    def netloc(self) -> str:
        """Host and port, the host of IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def address(self) -> str:
        """Scheme, host, port and path: what SDK clients take."""
        return f"{self.scheme}://{self.netloc}{self.path}"

    def __str__(self) -> str:
        return self.address + (f"?{self._shown_query}" if self.query else "")

    @property
    def _shown_query(self) -> str:
        parameters = (each.partition("=") for each in self.query.split("&"))
        return "&".join(
            name + equals + (value if name.lower() in SHOWN_PARAMETERS or not value else MASK)
            for name, equals, value in parameters
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """The parts of it that must not be shown."""
        parameters = parse_qsl(self.query, keep_blank_values=True)
        hidden = [value for name, value in parameters if name.lower() not in SHOWN_PARAMETERS]
        return tuple(Secret(each) for each in (self.password, *hidden) if each)

    def target(self, path: str) -> str:
        """Return the request target of `path` below the address, with the query that each request takes.

        A parameter that the path has itself is not added.
        """
        path, _, own = path.partition("?")
        known = {each.partition("=")[0] for each in own.split("&")}
        added = [each for each in self.query.split("&") if each and each.partition("=")[0] not in known]
        query = "&".join([*([own] if own else []), *added])
        return f"{self.path}{path}" + (f"?{query}" if query else "")

    def below(self, path: str) -> BaseURL:
        """Return the same server with another path."""
        return replace(self, path=path)

    def neighbours(self) -> Iterator[BaseURL]:
        """Yield the addresses that may have been meant: with `/v1` where there is none, and without."""
        stem = VERSION.sub("", self.path)
        for path in (f"{stem}/v1", stem):
            if path != self.path:
                yield self.below(path)

    @property
    def has_version(self) -> bool:
        """True if the path ends in a version, as nearly every API's does."""
        return re.search(r"/v\d+[a-z]*\d*$", self.path) is not None

    def unreachable(self, error: OSError) -> str:
        """Return the sentence on a connection to it that could not be opened."""
        return f"cannot connect to {self}: {why_not_connected(self.scheme, self.host, error)}"


def _split(url: str) -> SplitResult:
    """An http or https address in its parts; raises ValueError that shows nothing of a login."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in PORTS:
        shown = harmless(rest if separator else url).rpartition("@")[2].partition("?")[0]
        guess = f", as in {EXAMPLE}" if separator or not shown else f": did you mean http://{shown}?"
        shown = f"{harmless(scheme, 20)}://{shown}" if separator else shown
        raise ValueError(f"{shown!r} is not an http or https address{guess}")
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may show the login
        raise ValueError(f"it is not a valid address, as in {EXAMPLE}") from None
    if "@" in f"{parts.path}?{parts.query}#{parts.fragment}":
        raise ValueError(
            "an '@' follows the host of the address: in a password write / ? # as %2F %3F %23, "
            "elsewhere write @ as %40"
        )
    return parts


def _host(parts: SplitResult) -> str:
    host = parts.hostname
    if parts.netloc.rpartition("@")[2].count(":") > 1 and "[" not in parts.netloc:
        raise ValueError("an IPv6 address needs brackets, as in http://[::1]:8000/v1")
    if not host:
        raise ValueError(f"the address has no host, as in {EXAMPLE}")
    with suppress(ValueError):
        return str(ipaddress.ip_address(host))
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError as error:
        raise ValueError(f"{harmless(host)!r} is not the name of a host") from error


def _port(parts: SplitResult) -> int:
    try:
        return parts.port or PORTS[parts.scheme]
    except ValueError as error:
        raise ValueError(
            f"what follows the host of the address is not a port from 1 to 65535 (in a password write / ? # "
            f"as %2F %3F %23), as in {EXAMPLE}"
        ) from error


def _without_endpoint(path: str) -> str:
    """A path without the endpoint that was pasted along with it."""
    for endpoint in ENDPOINTS:
        if path.endswith(endpoint):
            return path.removesuffix(endpoint)
    return path
