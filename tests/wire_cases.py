"""Answers with their times, and the figures, flags and errors that they must be read as."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from servers import Play, chunk, event, tokens, usage

from pytest_llmspeed import Sample

TOLERANCE_MS = 25
DONE = b"data: [DONE]\n\n"
STOP = chunk(finish="stop")


@dataclass(frozen=True)
class Case:
    """An answer, and the figures that it must be read as."""

    play: Play
    expect: dict[str, Any]
    flags: set[str] = field(default_factory=set)
    error: str | None = None
    request: dict[str, Any] = field(default_factory=dict)


def counted(n: int) -> bytes:
    return event({"choices": [], "usage": usage(n)})


TWO_CHOICES = event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]})
MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "all of it"}, "finish_reason": "stop"}
BODY = json.dumps({"object": "chat.completion", "choices": [MESSAGE], "usage": usage(3)}).encode()

CASES = {
    "a plain answer": Case(
        Play(tokens(5, 60, 20)),
        {"ttft_ms": 60, "tpot_ms": 20, "e2e_ms": 140, "output_tokens": 5, "itl_ms": [20] * 4},
    ),
    "a buffered answer has no time per token": Case(
        Play([(80, b"".join([*(chunk({"content": w}) for w in "abcd"), STOP, counted(4), DONE]))]),
        {"ttft_ms": 80, "e2e_ms": 80, "tpot_ms": None, "itl_ms": [], "output_tokens": 4},
        flags={"buffered"},
    ),
    "an answer as one JSON body has an end-to-end time only": Case(
        Play([(30, BODY[:40]), (70, BODY[40:])], content_type="application/json"),
        {"ttft_ms": None, "tpot_ms": None, "e2e_ms": 70, "output_tokens": 3, "text": "all of it"},
        flags={"non_streaming"},
    ),
    "reasoning and answer in one chunk are one event": Case(
        Play(
            [
                (40, chunk({"reasoning": "r", "reasoning_content": "r"})),
                (60, chunk({"reasoning": "r", "content": "a"})),
                (80, chunk({"content": "b"}) + STOP + counted(4) + DONE),
            ]
        ),
        {"ttft_ms": 40, "ttfo_ms": 60, "e2e_ms": 80, "itl_ms": [20, 20], "text": "ab"},
    ),
    "a late blank line does not delay its event": Case(
        Play(
            [(40, chunk({"content": "a"})[:-2]), (120, b"\n\n" + chunk({"content": "b"}) + STOP + counted(2))]
        ),
        {"ttft_ms": 40, "e2e_ms": 120, "tpot_ms": 80},
    ),
    "a finish chunk, usage and [DONE] do not stretch the end": Case(
        Play(
            [
                (40, chunk({"content": "a"})),
                (60, chunk({"content": "b"})),
                (120, STOP),
                (160, counted(2) + DONE),
            ]
        ),
        {"e2e_ms": 60, "tpot_ms": 20},
    ),
    "a character escaped in two halves is one": Case(
        Play([(40, chunk({"content": "\ud83d"})), (60, chunk({"content": "\ude00"}) + STOP + counted(1))]),
        {"text": "😀", "ttft_ms": 40},
    ),
    "a refusal is output": Case(
        Play([(50, chunk({"refusal": "no"})), (60, STOP + counted(1) + DONE)]),
        {"ttft_ms": 50, "ttfo_ms": 50, "text": ""},
    ),
    "a reset after the finish reason is a success": Case(
        Play([(40, chunk({"content": "a"}) + STOP)], ending="reset"),
        {"output_tokens": None},
        {"closed_after_finish"},
    ),
    "a choice without a finish reason was cut": Case(
        Play([(40, chunk({"content": "a"}) + TWO_CHOICES + STOP + DONE)]), {}, error="without a finish reason"
    ),
    "an error object after the finish reason is a failure": Case(
        Play([(40, chunk({"content": "a"}) + STOP + event({"error": {"message": "late"}}))]), {}, error="late"
    ),
    "a half event at the end is invalid": Case(
        Play([(40, chunk({"content": "a"}) + b'data: {"choi')]), {}, error="invalid JSON"
    ),
    "an HTML page is no answer": Case(
        Play([(5, b"<html>login</html>")], content_type="text/html"), {}, error="without any output"
    ),
    "HTTP 503 keeps the message": Case(
        Play([(0, b'{"detail": "loading model"}')], status=503), {}, error="HTTP 503: loading model"
    ),
    "silence ends at the time limit": Case(
        Play([(20, chunk({"content": "a"}))], ending="hang"),
        {"ttft_ms": None},
        error="timed out after 0.3 s with 1 output events",
        request={"timeout_s": 0.3},
    ),
}


def slower(case: Case, factor: float) -> Case:
    """The same case with all its times stretched, for where a machine may be later than usual."""
    play = replace(case.play, pieces=[(at_ms * factor, part) for at_ms, part in case.play.pieces])
    expect = {
        name: _stretched(value, factor) if name.endswith("_ms") else value
        for name, value in case.expect.items()
    }
    request = {
        name: _stretched(value, factor) if name == "timeout_s" else value
        for name, value in case.request.items()
    }
    error = case.error and case.error.replace("after 0.3 s", f"after {0.3 * factor:g} s")
    return replace(case, play=play, expect=expect, request=request, error=error)


def _stretched(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [each * factor for each in value]
    return None if value is None else value * factor


def check(case: Case, sample: Sample, tolerance_ms: float = TOLERANCE_MS) -> None:
    """Assert that a request was read as its case says."""
    if case.error is None:
        assert sample.error is None
    else:
        assert case.error in (sample.error or "")
    assert case.flags <= sample.flags
    for metric, expected in case.expect.items():
        near = expected if isinstance(expected, str | int | None) and not metric.endswith("_ms") else None
        got = getattr(sample, metric)
        got = list(got) if isinstance(got, tuple) else got
        assert got == (
            near if near is not None or expected is None else pytest.approx(expected, abs=tolerance_ms)
        )
