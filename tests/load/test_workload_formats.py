"""Files of known shapes, and the errors on rows that cannot be used."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmspeed import Workload, read_trace, read_workload
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.plan import LoadPlan
from pytest_llmspeed.load.trace_formats import trace_of
from pytest_llmspeed.load.workload_formats import workload_of
from pytest_llmspeed.metrics.exchange import Request

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
        ("{", "f, line 1: it is not JSON"),
        ("[1]", "f, entry 1: 1 is not a JSON object"),
        (lines({"question": "a"}, {"question": "b"}), "f, line 1, field 'prompt'"),
        (lines({"question": "a"}, {"question": "b"}), "contains a prompt (and 1 more)"),
        (lines({"prompt": ""}), "f, line 1, field 'prompt': neither"),
        (lines({"prompt": "a", "max_tokens": 1e999}), "it is not JSON: Infinity"),
        (lines({"prompt": "a", "max_tokens": 10**400}), "field 'max_tokens': 1000"),
        (lines({"prompt": "a", "max_tokens": True}), "field 'max_tokens': True is not a number"),
        (lines({"prompt": "a", "max_tokens": 1.5}), "field 'max_tokens': 1.5 is not a count of tokens"),
        (lines({"prompt": "a", "max_tokens": 5, "max_completion_tokens": 5}), "give only one"),
        ("[" * 100_000, "it is not JSON"),
        ('{"prompt": ' * 30_000, "f, line 1: it is not JSON"),
        (lines({"conversations": [{"from": "gpt", "value": "x"}]}), "it has no messages"),
        (lines({"messages": "hi"}), "f, line 1, field 'messages': it is not a list"),
        (lines({"body": {"messages": [{"content": "x"}]}}), "f, line 1, field 'messages': a message is"),
        (lines({"prompt": "a", "output_tokens": 0}), "f, line 1, field 'output_tokens': 0 is less than 1"),
        (lines({"conversations": [{"from": "human"}]}), "f, line 1, field 'conversations': an entry needs"),
        ("", "f: it contains no prompt"),
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
        ({"input_length": 1}, "field 'timestamp': a request needs its arrival time"),
        ({"timestamp": "noon", "input_length": 1}, "field 'timestamp': 'noon' is not a number"),
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


CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def asked_of(*rows: dict[str, Any], **template: Any) -> list[Request]:
    """The requests of a load of such records."""
    workload = workload_of(lines(*rows), "f")
    plan = LoadPlan(workload, Request("", **template), slots=1, requests=len(rows))
    return [plan.request(planned, 0) for planned in plan.planned()]


def test_a_batch_row_is_asked_at_its_url() -> None:
    """Chat and completions; one without a url as the load says."""
    chat, completion, either = asked_of(
        {"url": CHAT, "body": {"messages": MESSAGES}},
        {"url": f"https://host{COMPLETION}?v=1", "body": {"prompt": "Once"}},
        {"body": {"prompt": "Once"}},
        endpoint="completions",
    )
    assert [request.endpoint for request in (chat, completion, either)] == ["chat", *["completions"] * 2]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"url": "/v1/embeddings", "body": {"input": "x"}}, "field 'url': '/v1/embeddings': a load asks"),
        ({"url": "/v1/responses", "body": {"input": "x"}}, "field 'url': '/v1/responses'"),
        ({"url": 7, "body": {"prompt": "x"}}, "field 'url': 7"),
        ({"url": CHAT, "body": {"prompt": "x"}}, "field 'messages': it is missing"),
        ({"url": COMPLETION, "body": {"messages": MESSAGES}}, "field 'prompt': it is missing"),
        ({"url": CHAT, "method": "GET", "body": {"messages": MESSAGES}}, "field 'method': 'GET'"),
    ],
)
def test_a_batch_row_of_another_endpoint_is_refused_by_its_url(row: dict[str, Any], told: str) -> None:
    """It would be another request."""
    with pytest.raises(SettingsError) as error:
        workload_of(lines(row), "f")
    assert f"f, line 1, {told}" in str(error.value)


def test_the_limit_of_a_batch_row_keeps_its_name() -> None:
    """Models that refuse max_tokens are asked with max_completion_tokens, also where it is a text."""
    newer, older, none = asked_of(
        {"body": {"prompt": "x", "max_completion_tokens": 16}},
        {"body": {"prompt": "x", "max_tokens": "8"}},
        {"body": {"prompt": "x", "max_tokens": None}},
        max_tokens=99,
        limit_field="max_completion_tokens",
    )
    assert [(each.limit_field, each.limit) for each in (newer, older, none)] == [
        ("max_completion_tokens", 16),
        ("max_tokens", 8),
        ("max_completion_tokens", 99),
    ]


def test_what_a_record_asks_is_sent() -> None:
    """All further fields of a batch's body, and those of a plain record that requests have."""
    fields = {
        "top_p": 0.5,
        "seed": 3,
        "stop": ["."],
        "n": 2,
        "tools": [{}],
        "response_format": {"type": "text"},
    }
    batch, plain = asked_of(
        {"body": {"messages": MESSAGES, "temperature": 0.3, "user": None, **fields}},
        {"prompt": "x", "temperature": "0.3", "id": 1, **fields},
    )
    assert batch.extra_body == plain.extra_body == fields
    assert batch.temperature == plain.temperature == 0.3


def test_a_record_that_cannot_be_used_is_left_out_and_named() -> None:
    """The others are asked; how many there were is said, and the first."""
    text = lines({"prompt": "a"}, {"question": "b"}) + "\n{broken\n" + lines({"prompt": "c"})
    workload = workload_of(text, "f")
    assert [workload.conversation(place)[0].prompt for place in range(2)] == ["a", "c"]
    (note,) = workload.notes
    assert note.startswith("f: 2 of 4 records left out, the first: f, line 2, field 'prompt': neither it")
    assert workload.hash == workload_of(lines({"prompt": "a"}, {"prompt": "c"}), "g").hash
    assert Workload.mix((1, workload), (2, workload)).notes == workload.notes


def test_what_is_not_sent_as_it_stands_is_counted() -> None:
    """Once for each kind, however many records it is of."""
    body = {"messages": MESSAGES, "model": "gpt", "stream": False}
    batch = workload_of(lines(*[{"custom_id": "a", "body": body}] * 3), "f")
    assert set(batch.notes) == {
        "f: the model 'gpt' is not asked for, but that of the load (records: 3)",
        "f: asks for an answer that is not streamed, and is streamed anyway (records: 3)",
        "f: a 'custom_id' that another record has; each is asked (records: 2)",
    }
    plain = workload_of(lines({"prompt": "x", "max_token": 5}), "f")
    assert plain.notes == ("f: the field 'max_token' is not sent (records: 1)",)


def test_a_system_text_and_tools_of_a_conversation_are_asked() -> None:
    """Wherever the record has them; what other roles say is left out and counted."""
    said = [{"from": who, "value": who} for who in ("human", "gpt", "tool", "human")]
    shared = {"system": "be short", "tools": [{"type": "function"}], "conversations": said}
    workload = workload_of(lines(shared), "f", turns=None)
    first, second = workload.conversation(0)
    assert [message["content"] for message in first.prompt] == ["be short", "human"]  # type: ignore[index]
    assert (second.prompt, second.extra_body) == ("human", {"tools": [{"type": "function"}]})
    assert workload.notes == ("f: what 'tool' says in a conversation is left out (records: 1)",)
    (plain,) = workload_of(lines({"system": "be short", "prompt": "hi"}), "f").conversation(0)
    assert [message["role"] for message in plain.prompt] == ["system", "user"]  # type: ignore[index]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_table_has_a_heading(separator: str, end: str) -> None:
    """Whatever separates its cells and ends its lines."""
    rows = [["id", "prompt", "max_tokens"], ["1", '"a, b; c"', "5"], ["2", "d", ""]]
    workload = workload_of(end.join(separator.join(row) for row in rows), "f")
    first, second = (workload.conversation(place)[0] for place in range(2))
    assert (first.prompt, first.max_tokens, second.prompt, second.max_tokens) == ("a, b; c", 5, "d", None)


QWEN = [
    {"chat_id": 1, "timestamp": 0.0, "input_length": 80, "output_length": 12, "hash_ids": [1, 2, 3, 4, 5]},
    {"chat_id": 2, "timestamp": 2.5, "input_length": 96, "output_length": 9, "hash_ids": [1, 2, 3, 4, 5, 6]},
    {"chat_id": 3, "timestamp": 4.0, "input_length": 80, "output_length": 7, "hash_ids": [1, 10, 11, 12, 13]},
]


def without(column: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != column} for row in QWEN]


def test_a_trace_is_read_in_its_own_unit_and_blocks() -> None:
    """Prompts share the blocks that they name, and no more."""
    trace = trace_of(lines(*QWEN), "q", unit="s", block_tokens=16)
    assert trace.offsets_s == (0.0, 2.5, 4.0)
    first, second, third = (str(trace.conversation(place)[0].prompt).split() for place in range(3))
    assert [len(first), len(second), len(third)] == [80, 96, 80]
    assert second[:80] == first != third
    assert third[:16] == first[:16]
    assert trace.hash != trace_of(lines(*QWEN), "q", unit="s", block_tokens=32).hash


def test_the_size_of_blocks_is_found_where_the_unit_is_given() -> None:
    """If only one fits the lengths of the prompts."""
    found = trace_of(lines(*without("chat_id")), "q", unit="s")
    assert {row.block_tokens for row in found.rows} == {16}
    assert found.offsets_s == (0.0, 2.5, 4.0)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            QWEN,
            "the Qwen (Bailian) traces; say what it is: read_trace(…, unit='s', block_tokens=16)",
        ),
        (without("chat_id"), "its blocks seem to have 16 tokens; say what it is"),
        (
            [{"timestamp": 1, "input_length": 9, "output_length": 1}],
            "its blocks do not show their size; say what it is",
        ),
    ],
)
def test_a_trace_that_need_not_be_mooncake_s_is_refused(rows: list[dict[str, Any]], told: str) -> None:
    """Never replayed a thousand times too fast without a word: the error says how to read it."""
    with pytest.raises(SettingsError) as error:
        trace_of(lines(*rows), "q")
    assert told in str(error.value)


def test_a_trace_without_blocks_is_read_in_the_unit_that_is_named() -> None:
    """Nothing in it tells what its unit is."""
    rows = [{"timestamp": at, "input_length": 9, "output_length": 1} for at in (1, 3)]
    units = {unit: trace_of(lines(*rows), "t", unit=unit).offsets_s[1] for unit in ("s", "ms", "us")}
    assert units == pytest.approx({"s": 2.0, "ms": 2e-3, "us": 2e-6})
    with pytest.raises(SettingsError, match="unit='minutes'"):
        trace_of(lines(*rows), "t", unit="minutes")


def test_an_azure_trace() -> None:
    """Its times are dates."""
    table = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,0\nnoon,1,1\n"
    )
    trace = trace_of(table, "a.csv")
    assert trace.offsets_s == pytest.approx((0.0, 4.314579))
    assert [(row.input_tokens, row.output_tokens) for row in trace.rows] == [(374, 44), (396, 1)]
    assert trace.notes == (
        "a.csv: 1 of 3 records left out, the first: a.csv, line 4, field 'TIMESTAMP': 'noon' is not a number",
        "a.csv: 'GeneratedTokens' is 0, so one token is requested (records: 1)",
    )
    assert trace.faster(2).notes == trace.notes


def test_only_the_blocks_that_a_prompt_needs_are_made() -> None:
    """However many a record names; more blocks than tokens are refused."""
    row = {"timestamp": 1, "input_length": 200_000, "output_length": 1, "hash_ids": [*range(200_000)]}
    found = trace_of(lines(row), "t", unit="ms", block_tokens=512)
    assert len(str(found.conversation(0)[0].prompt).split()) == 200_000
    with pytest.raises(SettingsError, match="200000 blocks for 9 tokens"):
        trace_of(lines({**row, "input_length": 9}), "t", unit="ms", block_tokens=512)


def test_a_file_may_be_compressed(tmp_path: Path) -> None:
    """With gzip; a file of another kind is named."""
    file = tmp_path / "w.jsonl.gz"
    file.write_bytes(gzip.compress(("\ufeff" + lines({"prompt": "a"}) + "\r\n").encode()))
    assert read_workload(file).conversation(0)[0].prompt == "a"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(SettingsError, match="it cannot be read"):
        read_workload(file)
    (tmp_path / "w.parquet").write_bytes(b"PAR1\x15\x04")
    with pytest.raises(SettingsError, match=r"w\.parquet: it is a Parquet file; save it as JSON"):
        read_workload(tmp_path / "w.parquet")
