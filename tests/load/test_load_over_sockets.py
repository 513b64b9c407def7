"""Loads over real sockets: worker processes, timed answers, and what becomes of every request.

Tolerances are those of a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import Play, ReplayServer, event, tokens
from helpers.wire_cases import CASES, TOLERANCE_MS, Case, check, slower

from pytest_llmspeed import EngineError, EngineSpec, LLMClient, LoadResult, Rate, Request, Workload
from pytest_llmspeed.engines.servers import recipes
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.load import worker_pool
from pytest_llmspeed.load.plan import LoadPlan
from pytest_llmspeed.load.run import Arrivals, Load, ask_load, result_of, run_load
from pytest_llmspeed.load.send_loop import LoadRequest
from pytest_llmspeed.load.worker import Done
from pytest_llmspeed.load.worker_pool import Outcome, run_in_workers, workers_for
from pytest_llmspeed.metrics.sample import Sample, sample_of
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.transport import recording_client
from pytest_llmspeed.transport.client import BaseURL
from pytest_llmspeed.transport.recorded_response import Part, RecordedResponse
from pytest_llmspeed.transport.recording_client import RecordingClient
from pytest_llmspeed.transport.target import Target

PLAIN = Play(tokens(6, 100, 20))
LENGTH_MS = 200


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


def engine_of(server: ReplayServer) -> OpenAIEngine:
    return OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": server.url}))


def load(server: ReplayServer, loop: LoopThread, **asked: Any) -> LoadResult:
    client = LLMClient(engine_of(server), loop, Recorder())
    return client.load(asked.pop("workload", "hello"), **{"timeout_s": 10, **asked})


def closed(slots: int, workload: Any = "hello", **fields: Any) -> Load:
    """The shortest closed loop of so many slots, as `load` is asked for it."""
    return ask_load(
        Workload.of(workload),
        Request("", **fields),
        Arrivals(concurrency=slots),
        requests=10 * slots,
        duration_s=None,
        least_requests=1,
        warmup=slots,
        slo=None,
        label=None,
    )


def test_a_closed_loop_over_sockets(loop: LoopThread) -> None:
    """Latencies are those of the server; the slots are filled; warm-up opened the connections."""
    with ReplayServer(lambda _: PLAIN) as server:
        found = load(server, loop, concurrency=16)
        assert len(server.requests) == 176
    assert (len(found.samples), found.peak_concurrency, found.failures) == (160, 16, ())
    assert found.summary("ttft_ms").p50 == pytest.approx(100, abs=TOLERANCE_MS)
    assert found.summary("tpot_ms").p50 == pytest.approx(20, abs=3)
    assert found.requests_per_s == pytest.approx(16 / LENGTH_MS * 1000, rel=0.25)
    assert not any("new_connection" in sample.flags for sample in found.samples)
    assert found.client.processes == 1
    assert found.client.cpu_s_per_1000_tokens > 0


def test_an_open_loop_is_not_throttled_by_slow_answers(loop: LoopThread) -> None:
    """Requests are sent when they are due, however many are still under way."""
    slow = Play(tokens(2, 900, 100))
    with ReplayServer(lambda _: slow) as server:
        found = load(server, loop, rate=Rate.constant(50), warmup=2)
    starts = sorted(sample.started_ms for sample in found.samples)
    assert starts[-1] - starts[0] == pytest.approx(980, abs=200)
    assert found.peak_concurrency > 40
    assert found.summary("queue_ms").p50 < TOLERANCE_MS
    assert found.summary("ttft_ms", since="schedule").mean >= found.summary("ttft_ms").mean


def test_a_load_ends_by_time(loop: LoopThread) -> None:
    """No request is sent after its end; those under way are answered and count."""
    with ReplayServer(lambda _: PLAIN) as server:
        found = load(server, loop, concurrency=4, duration_s=1.1)
    last_ms = max(sample.started_ms for sample in found.samples)
    assert last_ms <= 1100 + TOLERANCE_MS
    assert not found.failures
    assert len(found.samples) == pytest.approx(24, abs=8)


def test_several_processes_send_the_same_requests(loop: LoopThread) -> None:
    """Each its share: the same prompts, the same figures, the asked concurrency."""
    workload = Workload.synthetic(input_tokens=(3, 9), output_tokens=6, turns=2)
    prompts = []
    for processes in (1, 3):
        with ReplayServer(lambda _: PLAIN) as server:
            asked = closed(6, workload, timeout_s=10)
            found = run_load(asked, engine_of(server), loop, Recorder(), None, processes=processes)
            prompts.append(sorted(str(body["messages"]) for _, body in server.requests))
        assert (len(found.samples), found.failures, found.peak_concurrency) == (60, (), 6)
        assert found.client.processes == processes
        assert found.summary("ttft_ms").p50 == pytest.approx(100, abs=TOLERANCE_MS)
    assert prompts[0] == prompts[1]


OTHERS = Play(tokens(60, 100, 40))
STRETCH = 5
FIRST_S, GAP_S = 0.2, 0.05
"""When the cases are asked, one after the other, while the others stream from 0.1 to 2.5 s."""


@dataclass(frozen=True)
class Beside:
    """How an answer of the wire's table was read beside 64 others, and how late it was sent and read."""

    case: Case
    sample: Sample
    late_ms: float


def read_beside_64_others(cases: dict[str, Case], request: dict[str, Any]) -> dict[str, Beside]:
    """The answers of cases that are asked alike, all by one process."""
    template = Request("", **{"max_tokens": 64, "timeout_s": 10, **request})
    workload = Workload.prompts([*["another"] * 64, *cases])
    due_s = (*[0.0] * 64, *(FIRST_S + GAP_S * place for place in range(len(cases))))

    def script(body: dict[str, Any]) -> Play:
        case = cases.get(body["messages"][0]["content"])
        return case.play if case else OTHERS

    with ReplayServer(script) as server:
        plan = LoadPlan(workload, template, due_s=due_s, requests=len(due_s))
        outcome = run_in_workers(plan, engine_of(server).target, 1)
    assert sorted(sent.place for sent in outcome.sent) == list(range(len(due_s)))
    answers = {sent.place - 64: sent.answer for sent in outcome.sent}
    return {
        name: Beside(
            case, sample_of(answers[place].exchange(template)), late_ms(name, answers[place], server)
        )
        for place, (name, case) in enumerate(cases.items())
    }


def late_ms(name: str, answer: RecordedResponse, server: ReplayServer) -> float:
    """How long after its time a piece of an answer was sent at most, and lay unread after that."""
    sent_ms = [
        (sent_s - answer.started_s) * 1000 - at_ms
        for body, at_ms, sent_s in server.sends
        if body["messages"][0]["content"] == name
    ]
    unread_s = [late for late in answer.late_s if not isnan(late)]
    return max(sent_ms, default=0.0) + max(unread_s, default=0.0) * 1000


@pytest.fixture(scope="module")
def beside_64_others() -> dict[str, Beside]:
    """Each answer of the wire's table, read by a process that reads 64 others meanwhile."""
    slow = {name: slower(case, STRETCH) for name, case in CASES.items()}
    requests = {str(case.request): case.request for case in slow.values()}
    found: dict[str, Beside] = {}
    for request in requests.values():
        asked = {name: case for name, case in slow.items() if case.request == request}
        found |= read_beside_64_others(asked, request)
    return found


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_read_rightly_beside_64_others(name: str, beside_64_others: dict[str, Beside]) -> None:
    """Text, counts, flags and errors exactly; times as near as the machine let it be sent and read."""
    found = beside_64_others[name]
    check(found.case, found.sample, TOLERANCE_MS + found.late_ms)


def test_every_request_to_a_server_that_fails_some_is_accounted_for(loop: LoopThread) -> None:
    """Errors of HTTP, errors inside a stream, and broken connections, each once."""
    error = event({"error": {"message": "broken"}})
    faults = {
        20: Play([(0, b'{"detail": "overloaded"}')], status=503),
        40: Play([*tokens(6, 60, 20)[:3], (110, error)]),
        60: Play(tokens(6, 60, 20)[:3], ending="reset"),
    }
    numbers = count(1)
    with ReplayServer(lambda _: faults.get(next(numbers) % 100, PLAIN)) as server:
        found = load(server, loop, concurrency=16, requests=300, warmup=0)
        assert len(server.requests) == 300
    assert len(found.samples) == 300
    errors = sorted(str(sample.error).partition(":")[0] for sample in found.failures)
    assert errors == [*["HTTP 503"] * 3, *["broken"] * 3, *["the connection broke"] * 3]


def test_requests_that_take_too_long_have_failed(loop: LoopThread) -> None:
    """A server that stops answering for a while costs the requests that it held, and no others."""
    numbers = count(1)
    stopped = Play(tokens(1, 20, 0)[:1], ending="hang")
    with ReplayServer(lambda _: stopped if next(numbers) in (30, 31) else PLAIN) as server:
        found = load(server, loop, concurrency=4, requests=60, warmup=0, timeout_s=1.0)
    assert len(found.samples) == 60
    assert [sample.error for sample in found.failures] == ["timed out after 1 s with 1 output events"] * 2


def test_the_requests_of_a_killed_worker_are_accounted_for(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had handed back counts, the rest has failed, and the load says that it is no such load."""
    numbers, start = count(1), worker_pool._started
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(worker_pool, "_started", lambda: started.append(start()) or started[-1])

    def script(_: dict[str, Any]) -> Play:
        if next(numbers) == 30:
            started[0].kill()
        return PLAIN

    with ReplayServer(script) as server:
        recorder = Recorder()
        found = run_load(closed(8, timeout_s=10), engine_of(server), loop, recorder, None, processes=2)
    assert len(found.samples) == 80
    assert 20 < len(found.failures) < 40
    assert {sample.error for sample in found.failures} == {"its worker process died (exit code -9)"}
    assert any("a part of the load was lost" in str(reason) for reason in found.invalid)


def with_workers_that_first(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """Have worker processes do something before they begin."""
    paths, begin = worker_pool._program().rsplit("; ", 1)
    monkeypatch.setattr(worker_pool, "_program", lambda: f"{paths}; {statement}; {begin}")


def test_a_worker_may_write_much_to_its_standard_error(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before it reads a job that is larger than a pipe holds, as under PYTHONVERBOSE."""
    with_workers_that_first(monkeypatch, "sys.stderr.write('import this\\n' * 50_000)")
    with ReplayServer(lambda _: PLAIN) as server:
        found = load(server, loop, workload=["long " * 50_000, "short"], concurrency=2)
    assert (len(found.samples), found.failures) == (20, ())


def test_a_worker_that_gives_no_sign_of_life_is_ended(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests have failed; those of the other worker count."""
    numbers, start = count(1), worker_pool._started
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(worker_pool, "_started", lambda: started.append(start()) or started[-1])
    monkeypatch.setattr(worker_pool, "SILENT_S", 3.0)

    def script(_: dict[str, Any]) -> Play:
        if next(numbers) == 30:
            started[0].send_signal(signal.SIGSTOP)
        return PLAIN

    with ReplayServer(script) as server:
        found = run_load(closed(8, timeout_s=10), engine_of(server), loop, Recorder(), None, processes=2)
    assert len(found.samples) == 80
    assert {sample.error for sample in found.failures} == {
        "its worker process was stopped (it did not respond for 3 s)"
    }
    assert 20 < len(found.failures) < 40


def test_a_load_ends_though_its_worker_does_not(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once every request must have been given up; each is accounted for."""
    monkeypatch.setattr(worker_pool, "SILENT_S", 2.0)
    never = "from pytest_llmspeed.load.send_loop import LoadRunner as r, asyncio as a"
    with_workers_that_first(monkeypatch, f"{never}; r.run = lambda *_: a.sleep(3600)")
    with ReplayServer(lambda _: PLAIN) as server:
        found = load(server, loop, concurrency=2, timeout_s=0.5)
    told = "its worker process was stopped (it had not ended 8 s after the load began)"
    assert [sample.error for sample in found.failures] == [told] * 20
    assert any("a part of the load was lost" in str(reason) for reason in found.invalid)


def test_a_worker_that_never_gets_warm_is_an_error_of_ours(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the time that it was given."""
    monkeypatch.setattr(worker_pool, "SILENT_S", 1.0)
    with_workers_that_first(monkeypatch, "import time; time.sleep(3600)")
    with (
        ReplayServer(lambda _: PLAIN) as server,
        pytest.raises(EngineError, match="it did not respond for 1 s"),
    ):
        load(server, loop, concurrency=2)


def test_a_server_that_closes_idle_connections_costs_no_request(loop: LoopThread) -> None:
    """They are neither asked again nor closed twice."""
    with ReplayServer(lambda _: Play(tokens(2, 1, 1), ending="close")) as server:
        found = load(server, loop, rate=Rate.constant(50), warmup=10)
    assert (len(found.samples), found.failures, found.client.processes) == (50, (), 1)
    assert not any("lost" in str(reason) for reason in found.invalid)


def test_a_connection_that_its_server_closed_while_idle_is_closed_once() -> None:
    """Its client, which still has it, can be closed all the same."""

    async def asked(engine: OpenAIEngine) -> bool:
        client = RecordingClient(engine.target)
        await client.prepare(Request("hello", timeout_s=10)).send()
        (connection,) = client._idle
        while connection.is_open:
            await asyncio.sleep(0.001)
        client.close()
        return connection.is_usable()

    with ReplayServer(lambda _: Play(tokens(2, 1, 1), ending="close")) as server:
        assert asyncio.run(asyncio.wait_for(asked(engine_of(server)), 10)) is False


def test_the_requests_of_a_timed_load_are_accounted_for(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that were due after their worker had died: the plan of an open load has them."""
    numbers, start = count(1), worker_pool._started
    started: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(worker_pool, "_started", lambda: started.append(start()) or started[-1])

    def script(_: dict[str, Any]) -> Play:
        if next(numbers) == 20:
            started[0].kill()
        return PLAIN

    with ReplayServer(script) as server:
        found = load(server, loop, rate=Rate.constant(50), duration_s=1.5, warmup=2)
    assert len(found.samples) == 75
    assert len(found.failures) > 40


def test_a_worker_that_cannot_start_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own last words."""
    monkeypatch.setattr(sys, "executable", str(Path(sys.executable).with_name("no-python-here")))
    with ReplayServer(lambda _: PLAIN) as server:
        target = engine_of(server).target
        with pytest.raises(EngineError, match="cannot be started"):
            run_in_workers(LoadPlan(Workload.of("x"), Request(""), 1, None, 1), target, 1)


def test_a_worker_is_light() -> None:
    """It loads neither an SDK nor SciPy, nor pytest, and stays below 60 MB."""
    program = (
        "import sys; import pytest_llmspeed.load.worker; "
        "print(*sys.modules); print(open('/proc/self/status').read() if sys.platform == 'linux' else '')"
    )
    shown = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    modules, *status = shown.stdout.splitlines()
    heavy = {"openai", "scipy", "numpy", "pytest", "torch", "transformers", "tabulate"}
    assert not heavy & {name.split(".")[0] for name in modules.split()}
    peak = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    assert all(memory_kib < 60 * 1024 for memory_kib in peak)


def test_the_number_of_processes_follows_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """One core is to be enough for each, and one core stays free."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    one = LoadPlan(Workload.of("x"), Request(""))
    assert [workers_for(replace(one, slots=slots)) for slots in (1, 512, 513, 4000, 10_000)] == [
        1,
        1,
        2,
        7,
        7,
    ]
    assert workers_for(replace(one, due_s=tuple(place / 1000 for place in range(5000)))) == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert workers_for(replace(one, slots=4000)) == 1


def result_with(answers: Sequence[RecordedResponse], *done: Done) -> LoadResult:
    """The result of a load that brought these answers, and what its processes said in the end."""
    outcome = Outcome(
        sent=[LoadRequest(place, 0, Request(""), None, answer) for place, answer in enumerate(answers)],
        done=list(done),
    )
    exchanges = [answer.exchange(Request("")) for answer in answers]
    return result_of(closed(4), outcome, exchanges, Recorder(), queues_here=False)


@pytest.mark.parametrize(("late_s", "piled_up"), [(0.0001, 0.0), (0.0024, 0.0), (0.0026, 0.5)])
def test_what_was_let_lie_on_purpose_raises_no_alarm(late_s: float, piled_up: float) -> None:
    """Two tokens in one read: sent so by the server, unless they lay for longer than reads are gathered."""
    both = b"".join(event({"choices": [{"delta": {"content": text}}]}) for text in ("one ", "two"))
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(both)
    answer = RecordedResponse("server", reads=[head, both])
    answer.stamps_s.extend([0.1, 0.2])
    answer.late_s.extend([0.0, late_s])
    assert result_with([answer], Done(1.0, 10.0, gathered_s=0.002)).client.piled_up == piled_up


def test_a_client_that_lags_raises_the_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mean time per token hides it: clumped reads cancel out. What piled up unread does not."""
    answers = Play(tokens(200, 50, 5))

    async def lagging(engine: OpenAIEngine) -> list[RecordedResponse]:
        client = RecordingClient(engine.target)
        prepared = [client.prepare(Request("hello", timeout_s=10)) for _ in range(4)]
        asking = asyncio.gather(*(each.send() for each in prepared))
        while not asking.done():
            time.sleep(0.04)  # what keeps the loop from its sockets
            await asyncio.sleep(0)
        client.close()
        return [each.answer for each in prepared]

    with ReplayServer(lambda _: answers) as server:
        found = result_with(asyncio.run(lagging(engine_of(server))))
    assert found.summary("tpot_ms").p50 == pytest.approx(5, rel=0.2)
    assert found.client.piled_up > 0.3
    assert any("before the client had read earlier ones" in str(reason) for reason in found.invalid)


def test_long_answers_are_handed_over_while_they_come(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker does not hold them to their end, and none loses or doubles a token."""
    put_back, parts = RecordedResponse.put_back, list[int]()
    paths, begin = worker_pool._program().rsplit("; ", 1)
    eager = "import pytest_llmspeed.transport.recording_client as k; k.LEAST_PART = 4; k.MOST_HELD = 0"
    monkeypatch.setattr(worker_pool, "_program", lambda: f"{paths}; {eager}; {begin}")

    def counted(answer: RecordedResponse, taken: Sequence[Part]) -> None:
        parts.append(len(taken))
        put_back(answer, taken)

    monkeypatch.setattr(RecordedResponse, "put_back", counted)
    with ReplayServer(lambda _: Play(tokens(40, 50, 10))) as server:
        found = load(server, loop, concurrency=2)
    assert sum(parts) > len(parts) == 20
    assert {sample.output_tokens for sample in found.samples} == {40}
    assert found.summary("ttft_ms").p50 == pytest.approx(50, abs=TOLERANCE_MS)
    assert found.invalid == ()


def test_each_request_lets_a_server_on_this_machine_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Woken on our core it would wait for the rest of a burst, and that wait would be in its TTFT."""
    yields: list[None] = []
    monkeypatch.setattr(recording_client, "let_others_run", lambda: yields.append(None))

    async def burst(engine: OpenAIEngine) -> None:
        client = RecordingClient(engine.target)
        await asyncio.gather(*(client.prepare(Request("hello", timeout_s=10)).send() for _ in range(4)))
        client.close()

    with ReplayServer(lambda _: Play(tokens(2, 1, 1))) as server:
        asyncio.run(burst(engine_of(server)))
    assert len(yields) == 4


def test_a_server_is_asked_with_its_own_fields() -> None:
    """As by single requests: what forces a length, and what keeps it from the prefix cache."""
    target = Target(BaseURL.parse("http://127.0.0.1:1/v1"), {}, "m", recipes.VLLM.vendor_fields, cold=True)
    prepared = [RecordingClient(target).prepare(Request("hello", output_tokens=7)) for _ in range(2)]
    bodies = [json.loads(each._message.partition(b"\r\n\r\n")[2]) for each in prepared]
    assert [(body["min_tokens"], body["ignore_eos"]) for body in bodies] == [(7, True)] * 2
    assert bodies[0]["cache_salt"] != bodies[1]["cache_salt"]


def test_a_request_without_an_answer_held_its_slot_until_it_was_given_up(loop: LoopThread) -> None:
    """So the load is what was asked, and its failures are what they are: not a client that was late."""
    order = count()

    def play(_: bytes) -> Play:
        return Play([], ending="hang") if next(order) == 20 else Play(tokens(4, 50, 10))

    with ReplayServer(play) as server:
        found = load(server, loop, concurrency=4, warmup=0, timeout_s=2)
    assert [sample.error for sample in found.failures] == ["timed out after 2 s with no output"]
    assert found.invalid == ()
