"""Files of known shapes, and the errors on rows that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmspeed import read_trace, read_workload
from pytest_llmspeed.core.errors import SettingsError
from pytest_llmspeed.core.exchange import Request
from pytest_llmspeed.core.load_plan import LoadPlan
from pytest_llmspeed.core.workload_shapes import trace_of, workload_of

MESSAGES = [{"role": "user", "content": "hi"}]


def lines(*rows: Any) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def test_openai_batch() -> None:
    """The body's prompt, limit and further fields are taken; model and stream are the load's affair."""
    body = {"model": "gpt", "messages": MESSAGES, "max_tokens": 9, "top_p": 0.5, "stream": False}
    (turn,) = workload_of(lines({"custom_id": "1", "body": body}), "b.jsonl").conversation(0)
    assert (turn.prompt, turn.max_tokens, turn.extra_body) == (tuple(MESSAGES), 9, {"top_p": 0.5})
    assert turn.temperature is None


def test_the_temperature_of_a_batch_row_is_that_of_its_request() -> None:
    """No further field, which engines in process would refuse; rows without one have that of the load."""
    bodies = [{"prompt": "x", "temperature": 0.9}, {"prompt": "x", "temperature": None}, {"prompt": "x"}]
    workload = workload_of(lines(*({"body": body} for body in bodies)), "b.jsonl")
    plan = LoadPlan(workload, Request("", temperature=0.2), slots=1, requests=3)
    requests = [plan.request(planned, 0) for planned in plan.planned()]
    assert [request.temperature for request in requests] == [0.9, 0.2, 0.2]
    assert {tuple(request.extra_body) for request in requests} == {()}


SHARED = {
    "id": "x",
    "conversations": [
        {"from": "system", "value": "be short"},
        {"from": "human", "value": "one"},
        {"from": "gpt", "value": "answer"},
        {"from": "human", "value": "two"},
    ],
}


def test_share_gpt() -> None:
    """What people said, as JSON array or lines: the first turn, or all; a system text goes before it."""
    (first,) = workload_of(json.dumps([SHARED]), "s.json").conversation(0)
    system = {"role": "system", "content": "be short"}
    assert first.prompt == (system, {"role": "user", "content": "one"})
    turns = workload_of(lines(SHARED), "s.jsonl", turns=None).conversation(0)
    assert [turn.prompt for turn in turns] == [first.prompt, "two"]


def test_plain_rows() -> None:
    """A prompt or messages, with the length of the answer; blank lines are nothing."""
    workload = workload_of(
        lines({"prompt": "a\u2028b", "output_tokens": 5}, {"messages": MESSAGES}) + "\n\n", "p"
    )
    assert workload.conversation(0)[0].output_tokens == 5
    assert workload.conversation(1)[0].prompt == tuple(MESSAGES)


def test_a_limit_reads_the_first_rows_only() -> None:
    """Of a long file so many rows are taken."""
    workload = workload_of(lines({"prompt": "a"}, {"prompt": "b"}), "p", limit=1)
    assert workload.conversation(1)[0].prompt == "a"


def test_mooncake_trace() -> None:
    """Times in ms, lengths and blocks."""
    rows = [
        {"timestamp": at, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]} for at in (500, 1500)
    ]
    trace = trace_of(lines(*rows), "m.jsonl")
    assert trace.offsets_s == (0.0, 1.0)
    (turn,) = trace.conversation(1)
    assert (len(str(turn.prompt).split(" ")), turn.output_tokens) == (600, 7)


def test_burst_gpt_trace_as_csv_or_json() -> None:
    """Times in seconds, lengths; as the CSV that was published, or as JSON lines."""
    table = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,12,3,15,API\n"
    row = {"Timestamp": 5, "Request tokens": 12, "Response tokens": 3}
    assert trace_of(table, "b.csv").rows == trace_of(lines(row), "b.jsonl").rows
    assert trace_of(table, "b.csv").rows[0].input_tokens == 12


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "f, line 1: it is no JSON"),
        ("[1]", "f, entry 1: 1 is no JSON object"),
        (lines({"prompt": "a"}, {"question": "b"}), "f, line 2, field 'prompt'"),
        (lines({"messages": "hi"}), "f, line 1, field 'messages': it is no list"),
        (lines({"body": {"messages": [{"content": "x"}]}}), "f, line 1, field 'messages': a message is"),
        (lines({"prompt": "a", "output_tokens": 0}), "f, line 1, field 'output_tokens': 0 is less than 1"),
        (lines({"conversations": [{"from": "human"}]}), "f, line 1, field 'conversations': an entry has"),
        ("", "f: it holds no prompt"),
    ],
)
def test_a_bad_row_is_named(text: str, told: str) -> None:
    """The error says file, line and field."""
    with pytest.raises(SettingsError) as error:
        workload_of(text, "f")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"input_length": 1}, "field 'timestamp': none of"),
        ({"timestamp": "noon", "input_length": 1}, "field 'timestamp': 'noon' is no number"),
        ({"timestamp": 1, "output_length": 1}, "field 'input_length': it is missing"),
        ({"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": "x"}, "field 'hash_ids'"),
    ],
)
def test_a_bad_row_of_a_trace_is_named(row: dict[str, Any], told: str) -> None:
    """The error says file, line and field."""
    with pytest.raises(SettingsError) as error:
        trace_of(lines(row), "t")
    assert f"t, line 1, {told}" in str(error.value)


def test_files_are_read(tmp_path: Path) -> None:
    """From a path, with a byte order mark or not; one that is not there is an error with its name."""
    file = tmp_path / "w.jsonl"
    file.write_text("\ufeff" + lines({"at_s": 1, "prompt": "a"}), encoding="utf-8")
    assert read_workload(file).conversation(0)[0].prompt == "a"
    assert read_trace(file).conversation(0)[0].prompt == "a"
    with pytest.raises(SettingsError, match=r"gone\.jsonl"):
        read_workload(tmp_path / "gone.jsonl")
