"""Answers with their times, and the figures, flags and errors that they must be read as."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from helpers.servers import Play, chunk, event, tokens, usage
from pytest_llmspeed import Sample

TOLERANCE_MS = 25
INCIDENTAL = {"new_connection", "k_assumed"}
"""Flags of what came before an answer, and of what its server does not tell."""
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


def counted(n: int, **details: Any) -> bytes:
    return event({"choices": [], "usage": {**usage(n), **details}})


def word(text: str, **fields: Any) -> bytes:
    return chunk({"content": text}, **fields)


def call(arguments: str) -> bytes:
    return chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]})


def ended(text: str, **counts: Any) -> bytes:
    """The last word of an answer, its finish reason, a usage object and [DONE]."""
    return word(text) + STOP + event({"choices": [], "usage": counts}) + DONE


def words(count: int, last: bytes) -> list[tuple[float, bytes]]:
    """One-token chunks, the first after 40 ms, 20 ms apart; `last` comes with the time of the last."""
    return [*((40 + 20 * place, word(f"w{place} ")) for place in range(count - 1)), (20 + 20 * count, last)]


def choice(index: int, text: str, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": {"content": text}, "finish_reason": finish}


def with_crlf(part: bytes) -> bytes:
    """The same event in the manner of other servers: CRLF, no space after the colon, a comment before."""
    return b": ping\r\n\r\n" + part.replace(b"data: ", b"data:").replace(b"\n", b"\r\n")


TWO_CHOICES = event({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]})
MESSAGE = {"index": 0, "message": {"role": "assistant", "content": "all of it"}, "finish_reason": "stop"}
WIDE = json.dumps(
    {"choices": [{"index": 0, "delta": {"content": "né"}, "finish_reason": None}]}, ensure_ascii=False
)
BETWEEN = WIDE.encode().index("é".encode()) + 1
"""Between the two bytes of a character."""
HIDDEN = {"completion_tokens_details": {"reasoning_tokens": 40}}
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
        Play([(40, chunk({"content": "a"}) + TWO_CHOICES + STOP + DONE)]),
        {},
        flags={"several_choices"},
        error="without a finish reason",
    ),
    "an error object after the finish reason is a failure": Case(
        Play([(40, chunk({"content": "a"}) + STOP + event({"error": {"message": "late"}}))]), {}, error="late"
    ),
    "a half event at the end is invalid": Case(
        Play([(40, chunk({"content": "a"}) + b'data: {"choi')]), {}, error="invalid JSON"
    ),
    "an HTML page is no answer": Case(
        Play([(5, b"<html>login</html>")], content_type="text/html"),
        {},
        error="its content type is text/html",
    ),
    "HTTP 503 keeps the message": Case(
        Play([(0, b'{"detail": "loading model"}')], status=503), {}, error="HTTP 503: loading model"
    ),
    "a role and null content are no output": Case(
        Play(
            [
                (5, chunk({"role": "assistant", "content": ""}) + chunk({"content": None})),
                (60, word("a")),
                (80, word("b") + STOP + counted(2) + DONE),
            ]
        ),
        {"ttft_ms": 60, "tpot_ms": 20, "itl_ms": [20], "output_tokens": 2},
    ),
    "tokens of the first chunk are not divided by": Case(
        Play(
            [
                (60, word("a b c ", usage=usage(3))),
                (80, word("d ", usage=usage(4))),
                (100, word("e ", usage=usage(5)) + STOP + counted(5) + DONE),
            ]
        ),
        {"ttft_ms": 60, "tpot_ms": 20, "output_tokens": 5},
    ),
    "several tokens a chunk are counted by the usage": Case(
        Play([(60, word("a ")), (100, word("b c ")), (140, word("d e ") + STOP + counted(5) + DONE)]),
        {"ttft_ms": 60, "tpot_ms": 20, "itl_ms": [40, 40], "output_tokens": 5},
    ),
    "without a usage tokens are unknown, times stand": Case(
        Play([(60, word("a", usage=None)), (80, word("b", usage=None) + STOP + DONE)]),
        {"ttft_ms": 60, "e2e_ms": 80, "tpot_ms": None, "output_tokens": None, "token_source": None},
    ),
    "reasoning that was not streamed does not count": Case(
        Play([(60, word("a")), (80, word("b")), (100, word("c") + STOP + counted(43, **HIDDEN) + DONE)]),
        {"ttft_ms": 60, "tpot_ms": 20, "output_tokens": 3},
        flags={"hidden_reasoning"},
    ),
    "reasoning alone is no answer": Case(
        Play([(40, chunk({"reasoning": "a"})), (60, chunk({"reasoning": "b"}) + STOP + counted(2) + DONE)]),
        {"ttft_ms": 40, "ttfo_ms": None, "tpot_ms": 20, "output_tokens": 2},
        flags={"no_answer"},
    ),
    "a tool call is output": Case(
        Play([(40, call('{"a":')), (80, call("1}") + STOP + counted(5) + DONE)]),
        {"ttft_ms": 40, "ttfo_ms": 40, "e2e_ms": 80, "output_tokens": 5, "text": ""},
    ),
    "one token has no time per token": Case(
        Play([(40, word("a")), (60, STOP + counted(1) + DONE)]),
        {"ttft_ms": 40, "e2e_ms": 40, "tpot_ms": None, "itl_ms": [], "output_tokens": 1},
    ),
    "events of one write share a stamp": Case(
        Play([(40, word("a") + word("b") + word("c")), (100, word("d") + STOP + counted(4) + DONE)]),
        {"ttft_ms": 40, "e2e_ms": 100, "itl_ms": [0, 0, 60], "output_tokens": 4},
    ),
    "CRLF, no spaces and comments are read alike": Case(
        Play([(60, with_crlf(word("a"))), (80, with_crlf(word("b") + STOP + counted(2) + DONE))]),
        {"ttft_ms": 60, "tpot_ms": 20, "output_tokens": 2, "text": "ab"},
    ),
    "a character cut in two comes with its second half": Case(
        Play(
            [
                (40, b"data: " + WIDE.encode()[:BETWEEN]),
                (80, WIDE.encode()[BETWEEN:] + b"\n\n" + STOP + counted(1) + DONE),
            ]
        ),
        {"ttft_ms": 80, "text": "né", "output_tokens": 1},
    ),
    "fewer tokens than were forced are short": Case(
        Play([(40, word("a")), (60, word("b") + STOP + counted(2) + DONE)]),
        {"tpot_ms": 20, "output_tokens": 2},
        flags={"short"},
        request={"extra_body": {"ignore_eos": True}},
    ),
    "an error event is a failure": Case(
        Play([(40, word("a")), (60, b"event: error\ndata: out of memory\n\n")]),
        {"ttft_ms": None, "text": "a"},
        error="out of memory",
    ),
    "a stream that only ends was cut": Case(
        Play([(40, word("a")), (60, word("b"))]), {"e2e_ms": None}, error="without a finish reason"
    ),
    "a reset in the middle is a failure": Case(
        Play([(40, word("a")), (60, word("b"))], ending="reset"), {"e2e_ms": None}, error="broke"
    ),
    "[DONE] without a finish reason was cut": Case(
        Play([(40, word("a") + DONE)]), {}, error="without a finish reason"
    ),
    "nothing but [DONE] is no answer": Case(Play([(20, DONE)]), {"ttft_ms": None}, error="without"),
    "a line that is no JSON is a failure": Case(
        Play([(40, word("a")), (60, b'data: {"choices": [\n\n' + STOP + DONE)]), {}, error="invalid JSON"
    ),
    "silence ends at the time limit": Case(
        Play([(20, chunk({"content": "a"}))], ending="hang"),
        {"ttft_ms": None},
        error="timed out after 0.3 s with 1 output events",
        request={"timeout_s": 0.3},
    ),
}


TEN = {"ttft_ms": 40, "e2e_ms": 220, "output_tokens": 10, "tpot_ms": 20}
UNCOUNTED = {"ttft_ms": 40, "e2e_ms": 220, "output_tokens": None, "tpot_ms": None, "token_source": None}
KEEP_ALIVES = (b"data\n\n", b"data:\n\n", b"data: \n\n", b"event: ping\ndata:\n\n", b"id: 3\ndata: \n\n")

CASES |= {
    f"an event without data is a sign of life: {line!r}": Case(
        Play([(20, line), *words(10, line + ended("z", **usage(10)))]), TEN
    )
    for line in (*KEEP_ALIVES, b"event: ping\ndata: ping\n\n")
}
CASES |= {
    f"{about} count is not believed": Case(
        Play(words(10, ended("z", prompt_tokens=12, completion_tokens=count))),
        UNCOUNTED,
        flags={"count_doubted"},
    )
    for about, count in {
        "a zero": 0,
        "a far too small": 4,
        "a far too large": 10_000,
        "a negative": -10,
        "an infinite": float("inf"),
        "a spelled": "ten",
        "an endless": int("9" * 400),
    }.items()
}
CASES |= {
    f"a count may be written as {count!r}": Case(
        Play(words(10, ended("z", prompt_tokens=12, completion_tokens=count))), TEN
    )
    for count in (10.0, "10")
}
CASES |= {
    f"{hidden} hidden tokens may be counted in addition to the output": Case(
        Play(
            words(
                10,
                ended(
                    "z",
                    prompt_tokens=12,
                    completion_tokens=10,
                    total_tokens=22 + hidden,
                    completion_tokens_details={"reasoning_tokens": hidden},
                ),
            )
        ),
        TEN,
        flags={"hidden_reasoning"},
    )
    for hidden in (5, 40)
}
CASES |= {
    "hidden tokens may stand in the total only": Case(
        Play(words(10, ended("z", prompt_tokens=12, completion_tokens=10, total_tokens=72))),
        TEN,
        flags={"hidden_reasoning"},
    ),
    "reasoning that was streamed may be counted in addition to the output": Case(
        Play(
            [
                (40, chunk({"reasoning_content": "a"})),
                (60, chunk({"reasoning_content": "b"})),
                (80, word("c")),
                (
                    100,
                    ended(
                        "d",
                        prompt_tokens=12,
                        completion_tokens=2,
                        total_tokens=16,
                        completion_tokens_details={"reasoning_tokens": 2},
                    ),
                ),
            ]
        ),
        {"ttft_ms": 40, "ttfo_ms": 80, "tpot_ms": 20, "output_tokens": 4},
    ),
    "the usage may lie in the choice": Case(
        Play(words(10, event({"choices": [{**choice(0, "z", "stop"), "usage": usage(10)}]}) + DONE)), TEN
    ),
    "two choices are two streams": Case(
        Play(
            [
                *((40 + 20 * place, event({"choices": [choice(place % 2, "a")]})) for place in range(8)),
                (180, event({"choices": [choice(0, "", "stop"), choice(1, "", "stop")]}) + counted(8) + DONE),
            ]
        ),
        {"ttft_ms": 40, "e2e_ms": 180, "output_tokens": 8, "tpot_ms": 40, "itl_ms": [40] * 6, "text": "aaaa"},
        flags={"several_choices"},
    ),
    "choices of one chunk are two streams": Case(
        Play(
            [
                *(
                    (40 + 20 * place, event({"choices": [choice(0, "a"), choice(1, "b")]}))
                    for place in range(4)
                ),
                (110, event({"choices": [choice(0, "", "stop"), choice(1, "", "stop")]}) + counted(8) + DONE),
            ]
        ),
        {"ttft_ms": 40, "e2e_ms": 100, "output_tokens": 8, "tpot_ms": 20, "itl_ms": [20] * 6, "text": "aaaa"},
        flags={"several_choices"},
    ),
    "a custom tool call is output": Case(
        Play(
            [
                (40, chunk({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "shell"}}]})),
                (60, chunk({"tool_calls": [{"index": 0, "custom": {"input": "ls"}}]})),
                (80, chunk(finish="tool_calls") + counted(2) + DONE),
            ]
        ),
        {"ttft_ms": 40, "ttfo_ms": 40, "e2e_ms": 60, "output_tokens": 2},
    ),
    "sound and its transcript are output": Case(
        Play(
            [
                (40, chunk({"audio": {"id": "a", "data": "UklGRg=="}})),
                (60, chunk({"audio": {"transcript": "hi"}}) + STOP + counted(40) + DONE),
            ]
        ),
        {"ttft_ms": 40, "e2e_ms": 60, "output_tokens": 40, "text": "hi"},
    ),
    "reasoning may be a part of a content list": Case(
        Play(
            [
                (40, chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]})),
                (60, chunk({"content": [{"type": "text", "text": "b"}]}) + STOP + counted(2) + DONE),
            ]
        ),
        {"ttft_ms": 40, "ttfo_ms": 60, "tpot_ms": 20, "output_tokens": 2, "text": "b"},
    ),
    "a limit spent on hidden reasoning is told": Case(
        Play([(40, chunk(finish="length") + counted(40, **HIDDEN) + DONE)]),
        {},
        flags={"hidden_reasoning"},
        error="all 40 output tokens were hidden reasoning (finish reason 'length'): raise max_tokens",
    ),
    "a filtered answer is told": Case(
        Play([(40, chunk(finish="content_filter") + DONE)]), {}, error="the server's content filter withheld"
    ),
    "an empty answer is told": Case(
        Play([(40, STOP + counted(0) + DONE)]), {}, error="ended its answer at once"
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
    assert sample.flags - INCIDENTAL == case.flags
    for metric, expected in case.expect.items():
        near = expected if isinstance(expected, str | int | None) and not metric.endswith("_ms") else None
        got = getattr(sample, metric)
        got = list(got) if isinstance(got, tuple) else got
        assert got == (
            near if near is not None or expected is None else pytest.approx(expected, abs=tolerance_ms)
        )
