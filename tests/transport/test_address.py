"""Addresses as users write them: what is read, what is sent, and what is shown of them."""

from __future__ import annotations

import pickle

import pytest

from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.tls import TLS


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://host:8000/v1/chat/completions", "http://host:8000/v1"),
        ("http://host:8000/v1/completions/", "http://host:8000/v1"),
        ("https://host/v1/models", "https://host:443/v1"),
        ("http://host//v1//", "http://host:80/v1"),
        ("http://[2001:db8::1]/v1", "http://[2001:db8::1]:80/v1"),
        ("HTTP://Host/v1", "http://host:80/v1"),
        ("http://bücher.example/v1", "http://xn--bcher-kva.example:80/v1"),
        ("http://host/a b/ü", "http://host:80/a%20b/%C3%BC"),
        (
            "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-06-01",
            "https://x.openai.azure.com:443/openai/deployments/gpt?api-version=2024-06-01",
        ),
    ],
)
def test_an_address_is_read_however_it_was_pasted(url: str, address: str) -> None:
    """Without the endpoint at its end; the query stays."""
    assert str(BaseURL.parse(url)) == address


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/models", "/v1/models?api-version=1&key=k"),
        ("/chat/completions?api-version=2", "/v1/chat/completions?api-version=2&key=k"),
        ("/files?limit=3", "/v1/files?limit=3&api-version=1&key=k"),
    ],
)
def test_the_query_of_an_address_goes_with_every_request(path: str, target: str) -> None:
    """Unless the request has that parameter itself."""
    assert BaseURL.parse("http://host/v1?api-version=1&key=k").target(path) == target


def test_values_of_a_query_are_not_shown() -> None:
    """They may be keys; a version of the API is not one."""
    base = BaseURL.parse("http://host/v1?api-version=1&key=AIza-secret")
    assert str(base) == "http://host:80/v1?api-version=1&key=***"
    assert "AIza" not in repr(base)
    assert base.secrets == ("AIza-secret",)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunt/er2@host:8000/v1",
        "http://user:hunt?er2@host:8000/v1",
        "http://user:hunt#er2@host:8000/v1",
        "http://user:12/hunter2@host/v1",
        "http://user:a@b/hunter2@host/v1",
        "user:hunt/er2@host/v1",
        "ftp://user:hunter2@host/v1",
        "http://user:hunter2@[host/v1",
        "http://user:hunter2@host:port/v1",
        "http://user:hunter2@/v1",
    ],
)
def test_a_login_in_a_wrong_address_is_not_shown(url: str) -> None:
    """Neither the user's name nor a piece of the password."""
    with pytest.raises(ValueError, match=r".+") as refused:
        BaseURL.parse(url)
    assert not any(word in str(refused.value) for word in ("hunt", "er2", "user"))


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("localhost:8000/v1", "did you mean http://localhost:8000/v1?"),
        ("http://::1:8000/v1", "http://[::1]:8000/v1"),
        ("http://host:99999/v1", "not a port from 1 to 65535"),
        ("http://user:a/b@host/v1", "%2F"),
        ("http:///v1", "no host"),
    ],
)
def test_a_wrong_address_is_refused_with_the_fix(url: str, fix: str) -> None:
    """Before any connection is tried."""
    with pytest.raises(ValueError, match=r".+") as refused:
        BaseURL.parse(url)
    assert fix in str(refused.value)


@pytest.mark.parametrize(
    ("path", "meant"),
    [("", ["/v1"]), ("/v1", [""]), ("/v1/v1", ["/v1", ""]), ("/api", ["/api/v1"])],
)
def test_the_addresses_next_to_it_are_known(path: str, meant: list[str]) -> None:
    """With /v1 where there is none, without it where there is one too many."""
    assert [each.path for each in BaseURL.parse(f"http://host{path}").neighbours()] == meant


def test_an_address_reaches_another_process_whole() -> None:
    """With its login, query and certificates: the workers of a load use them all."""
    base = BaseURL.parse("https://me:word@host/v1?key=k", TLS(ca_file="/ca.pem", client_cert="/me.pem"))
    assert pickle.loads(pickle.dumps(base)) == base
    assert "word" not in repr(base)
