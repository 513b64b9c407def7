"""The `openai` backend in a real run: addresses, keys, TLS, servers that fail, a real engine behind HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from helpers.project import shows
from helpers.servers import Play, ReplayServer, chunk, event, tokens, transformers_serve, usage

from pytest_llmspeed import Exchange, Request
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers import _openai, reachability
from pytest_llmspeed.system import clock

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.project import Project

MEASURE = "def test_it(llm_client): llm_client.measure('hello', max_tokens=8, rounds=6)"
URL_RUN = ("--llmspeed-backend=openai", "--llmspeed-model=m")


def answering(first_ms: float = 2, gap_ms: float = 2) -> ReplayServer:
    return ReplayServer(lambda _: Play(tokens(8, first_ms, gap_ms)))


@pytest.fixture
def remote(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose one test measures six requests on whatever URL it is given."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    project.write(MEASURE)
    return project


def test_a_url_is_measured(remote: Project) -> None:
    """The server's only model is found; its host keys the baseline, not this machine."""
    with answering() as server:
        remote.run("--llmspeed-backend=openai", f"--llmspeed-url={server.url}").assert_outcomes(passed=1)
    test = remote.test()
    assert test["backend"] == {
        "name": "openai",
        "model": "m",
        "revision": None,
        "precision": None,
        "prefix_cache": "unknown",
        "options": {"url": server.url},
        "versions": {},
        "precision_source": None,
        "load_s": None,
    }
    assert test["environment"].startswith("url-local-")
    assert str(server.port) not in test["environment"]
    assert all("new_connection" not in r["flags"] for r in test["measurement"]["requests"])


def test_a_listener_is_told_each_event_as_it_comes() -> None:
    """The events of the exchange, the first before the last has arrived."""
    told = []

    async def run(url: str) -> Exchange:
        engine = _openai.OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": url}))
        try:
            return await engine.exchange(Request("hello"), lambda e: told.append((e, clock.now_s())))
        finally:
            await engine.close()

    with answering(gap_ms=20) as server:
        found = asyncio.run(run(server.url))
    assert tuple(event for event, _ in told) == found.events
    assert told[0][1] < found.events[-1].stamp_s


def test_the_api_key_comes_from_the_environment_and_is_never_shown(
    remote: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is sent, and stands in no report and no store, not even where the server echoes it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with answering() as server:
        remote.run(*URL_RUN, f"--llmspeed-url={server.url}", "--llmspeed-update-baseline")
        headers, _ = server.requests[0]
    assert headers["authorization"] == "Bearer sk-very-secret"
    assert "sk-very-secret" not in json.dumps(remote.report) + remote.run_files[0].read_text()
    echo = Play([(0, b'{"error": {"message": "bad key sk-very-secret"}}')], status=400)
    with ReplayServer(lambda _: echo) as server:
        result = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
    shows(result, "bad key ***")
    assert "sk-very-secret" not in result.stdout.str() + json.dumps(remote.report)


def test_an_unusable_api_key_is_told_without_showing_it(
    remote: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with a line end is stripped; one with a space inside is refused, and not printed."""
    with answering() as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret\n")
        remote.run(*URL_RUN, f"--llmspeed-url={server.url}").assert_outcomes(passed=1)
        monkeypatch.setenv("OPENAI_API_KEY", "sk secret")
        result = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
    result.assert_outcomes(errors=1)
    shows(result, "the environment variable OPENAI_API_KEY is not an API key")
    assert "sk secret" not in result.stdout.str()


def test_credentials_in_the_address_are_used_and_not_kept(remote: Project) -> None:
    """http://user:word@host sends them, and records the address without them."""
    with answering() as server:
        url = server.url.replace("http://", "http://me:pass-word@")
        remote.run(*URL_RUN, f"--llmspeed-url={url}").assert_outcomes(passed=1)
        headers, _ = server.requests[0]
    assert headers["authorization"].startswith("Basic ")
    assert "pass-word" not in json.dumps(remote.report)
    locks = [path.name for path in (remote.path / "locks").rglob("*.lock")]
    assert locks == [f"server-localhost-{server.port}.lock"]


def test_https(remote: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server with a trusted certificate is measured; one without is refused by name."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with ReplayServer(lambda _: Play(tokens(8, 2, 2)), tls=context) as server:
        refused = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        trusted = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
    refused.assert_outcomes(errors=1)
    shows(refused, f"cannot connect to {server.url}: its certificate is not trusted", "ca_file=")
    trusted.assert_outcomes(passed=1)
    assert remote.test()["measurement"]["summary"]["tpot_ms"]["n"] == 6


def refuses() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    yield f"http://127.0.0.1:{port}/v1"


def hangs() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}/v1"


UNREACHABLE = {
    refuses: "Connection refused; start it, or correct llmspeed_url",
    hangs: "accepted the connection but did not answer GET /models within 0.3 s",
}


@pytest.mark.parametrize("server", UNREACHABLE, ids=lambda server: server.__name__)
def test_a_server_that_is_not_there(remote: Project, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear message in the set-up, no traceback of ours."""
    monkeypatch.setattr(reachability, "PROBE_TIMEOUT_S", 0.3)
    for url in server():
        result = remote.run(*URL_RUN, f"--llmspeed-url={url}")
    result.assert_outcomes(errors=1)
    shows(result, UNREACHABLE[server])
    assert "pytest_llmspeed/" not in result.stdout.str()
    assert "exception" not in result.stdout.str()


def test_an_address_without_a_scheme_is_a_usage_error(remote: Project) -> None:
    """It is known before any test runs, with the address that was probably meant."""
    result = remote.run(*URL_RUN, "--llmspeed-url=localhost:8000")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "'localhost:8000' is not an http or https address: did you mean http://localhost:8000?")


def test_a_server_that_answers_500(remote: Project) -> None:
    """Its message is told with the number of failed requests; nothing is retried."""
    broken = Play([(0, b'{"error": {"message": "no free blocks"}}')], status=500)
    with ReplayServer(lambda _: broken) as server:
        result = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
        sent = len(server.requests)
    result.assert_outcomes(failed=1)
    shows(result, "6 of 6 requests failed, the last with: HTTP 500: no free blocks")
    assert "Traceback" not in result.stdout.str()
    assert sent == 8


def test_several_models_need_a_choice(remote: Project) -> None:
    """A server with two models, and none configured: they are named."""
    with ReplayServer(lambda _: Play(tokens(2, 1, 1)), models=("big", "small")) as server:
        result = remote.run("--llmspeed-backend=openai", f"--llmspeed-url={server.url}")
    shows(result, "has 2 models; say which with llmspeed_model", "big, small")


def test_no_address_at_all(remote: Project) -> None:
    """The openai backend without a URL says where to put one."""
    shows(remote.run(*URL_RUN), "backend 'openai' needs the address of a server: set llmspeed_url")


def test_a_local_tokenizer_counts_where_the_server_does_not(remote: Project, tiny_model: Path) -> None:
    """With tokenizer=, token figures exist without usage, and say where they come from."""
    bare = [piece for piece in tokens(8, 5, 5) if b"usage" not in piece[1]]

    with ReplayServer(lambda _: Play([*bare, (45, chunk(finish="stop"))])) as server:
        remote.write(
            f"""
            import pytest

            @pytest.mark.llm_budget(tpot_ms=500)
            @pytest.mark.llm_backend("openai", url={server.url!r}, tokenizer={str(tiny_model)!r})
            def test_it(llm_client): llm_client.measure("hello", rounds=6)
            """
        )
        remote.run().assert_outcomes(passed=1)
    request = remote.test()["measurement"]["requests"][0]
    assert (request["token_source"], request["output_tokens"]) == ("tokenizer", len("w0 " * 8))


def test_a_server_that_became_four_times_slower_fails_ci(remote: Project) -> None:
    """Over a real socket, on a busy machine too: five sessions stored, then TPOT up: exit code 1."""
    gap_ms = [10.0]
    with ReplayServer(lambda _: Play(tokens(8, 20, gap_ms[0]))) as server:
        arguments = (*URL_RUN, f"--llmspeed-url={server.url}")
        for _ in range(5):
            remote.run(*arguments, "--llmspeed-update-baseline")
        gap_ms[0] = 40.0
        result = remote.run(*arguments, "--junitxml=junit.xml")
    assert result.ret == 1
    assert remote.verdicts()["tpot_ms"] == "slower"
    assert 'failures="1"' in (remote.path / "junit.xml").read_text()


@pytest.fixture(scope="module")
def served(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `transformers serve` with a small model."""
    with transformers_serve(tiny_model, tmp_path_factory.mktemp("serve") / "serve.log") as url:
        yield url


def test_a_real_engine_behind_a_real_server(remote: Project, tiny_model: Path, served: str) -> None:
    """`transformers serve` with a small model: streamed, counted, budgeted, stored and compared."""
    remote.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=5000, tpot_ms=1000, error_rate=0)
        def test_it(llm_client):
            answer = llm_client.measure("hello", max_tokens=16)
            assert answer.text
        """
    )
    arguments = ("--llmspeed-backend=openai", f"--llmspeed-url={served}", f"--llmspeed-model={tiny_model}")
    remote.run(*arguments, "--llmspeed-update-baseline").assert_outcomes(passed=1)
    remote.run(*arguments)
    requests = remote.test()["measurement"]["requests"]
    assert {request["output_tokens"] for request in requests} == {16}
    assert {request["token_source"] for request in requests} == {"usage"}
    assert {found["sessions"] for found in remote.test()["comparisons"]} == {1}


def test_sdk_clients_of_a_real_server(remote: Project, tiny_model: Path, served: str) -> None:
    """Chat and responses, streamed: the caller reads a text, the record counts its tokens."""
    remote.write(
        f"""
        MODEL = {str(tiny_model)!r}

        def test_it(llm_client):
            client = llm_client.openai
            chat = client.chat.completions.create(
                model=MODEL, messages=[{{"role": "user", "content": "hello"}}], max_tokens=16, stream=True
            )
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chat)
            events = client.responses.create(
                model=MODEL, input="hello", max_output_tokens=16, stream=True
            )
            assert "".join(e.delta for e in events if e.type == "response.output_text.delta")
        """
    )
    remote.run(
        "--llmspeed-backend=openai", f"--llmspeed-url={served}", f"--llmspeed-model={tiny_model}"
    ).assert_outcomes(passed=1)
    chat, response = remote.test()["measurement"]["requests"]
    assert (chat["error"], chat["output_tokens"], chat["call"]) == (None, 16, "sdk")
    assert (response["error"], response["output_tokens"]) == (None, 16)
    assert response["ttft_ms"] < response["e2e_ms"]


def test_a_server_that_dies_in_the_middle_fails_its_test_and_the_next_runs(remote: Project) -> None:
    """A connection that breaks in a stream is one failed request, not a crash."""
    broken = Play(tokens(8, 5, 5)[:4], ending="reset")
    with ReplayServer(lambda _: broken) as server:
        remote.write(
            f"""
            import pytest

            @pytest.mark.llm_backend("openai", url={server.url!r})
            def test_broken(llm_client): llm_client.generate("hello", warmup=False)

            def test_fine(llm_client): llm_client.generate("hello")
            """
        )
        result = remote.run()
    result.assert_outcomes(failed=1, passed=1)
    shows(result, "GenerationError: the connection broke")


FORCED = """
import pytest

@pytest.mark.llm_backend("openai", prefix_cache="cold")
def test_it(llm_client): llm_client.measure("hello", output_tokens=8, rounds=6, warmup=0)
"""


def test_a_server_that_names_itself_is_asked_in_its_own_words(remote: Project) -> None:
    """Of vLLM the length is forced, and each request has a salt of its own; the workload stays one."""
    remote.write(FORCED)
    with ReplayServer(lambda _: Play(tokens(8, 2, 2)), owned_by="vllm") as server:
        remote.run(*URL_RUN, f"--llmspeed-url={server.url}").assert_outcomes(passed=1)
        bodies = [body for _, body in server.requests]
    assert {(body["ignore_eos"], body["min_tokens"], body["max_tokens"]) for body in bodies} == {(True, 8, 8)}
    assert len({body["cache_salt"] for body in bodies}) == len(bodies) == 6
    assert remote.test()["backend"]["prefix_cache"] == "cold"
    assert len(remote.test()["key"]["workload"]) == 1


def test_a_server_that_nobody_knows_is_asked_by_the_protocol_alone(remote: Project) -> None:
    """Only max_tokens is sent; that answers are too short is flagged and said."""
    remote.write(FORCED)
    with ReplayServer(lambda _: Play(tokens(5, 2, 2))) as server:
        result = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
        _, body = server.requests[0]
    assert body.keys() == {"model", "messages", "stream", "stream_options", "max_tokens", "temperature"}
    assert all("short" in request["flags"] for request in remote.test()["measurement"]["requests"])
    shows(result, "6 of 6 answers are shorter than the forced length")


def test_a_cache_that_was_to_be_cold_and_was_not_is_told(remote: Project) -> None:
    """The server's own count of cached tokens is held against the declaration, and recorded."""
    cached = {**usage(8, prompt=40), "prompt_tokens_details": {"cached_tokens": 32}}
    told = event({"choices": [], "usage": cached})
    remote.write(FORCED)
    with ReplayServer(lambda _: Play([*tokens(8, 2, 2)[:-1], (20, chunk(finish="length") + told)])) as server:
        result = remote.run(*URL_RUN, f"--llmspeed-url={server.url}")
    shows(result, "the prefix cache should be cold, but 80% of the prompt tokens came from it")
    assert remote.test()["measurement"]["cache_hit_rate"] == 0.8
