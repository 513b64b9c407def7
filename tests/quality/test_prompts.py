"""Prompt files: what may stand in one, and what is said of one that cannot be used."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.quality.contracts import Contract, MultipleChoice, Number
from pytest_llmspeed.quality.prompt_files import general_prompt_set, read_prompt_set
from pytest_llmspeed.quality.prompt_rows import rows_of
from pytest_llmspeed.quality.prompts import QualityPrompt, prompts_of

if TYPE_CHECKING:
    from pathlib import Path

YAML = """
- id: capital
  prompt: What is the capital of France?
  max_tokens: 8
  expect:
    contains: Paris
    finish_reason: stop

- id: refund
  messages:
    - {role: system, content: You are brief.}
    - {role: user, content: "May I send it back?"}
  samples: 3
  temperature: 0.7
  expect:
    choice: {options: ["yes", "no"], correct: "yes"}
    number: {value: 30, tolerance: 0.5}
"""


def parsed(text: str, file: str = "support.yaml") -> tuple[QualityPrompt, ...]:
    return prompts_of(rows_of(text, file), file)


def mistake(text: str, file: str = "support.yaml") -> str:
    with pytest.raises(SettingsError) as caught:
        parsed(text, file)
    return str(caught.value)


def test_a_yaml_file_gives_prompts_with_their_contracts() -> None:
    """Texts and messages, with what is expected of the answers."""
    capital, refund = parsed(YAML)
    assert (capital.id, capital.prompt, capital.max_tokens) == (
        "capital",
        "What is the capital of France?",
        8,
    )
    assert capital.contract == Contract(contains=("Paris",), finish_reason="stop")
    assert [message["role"] for message in refund.prompt] == ["system", "user"]  # type: ignore[index]
    assert (refund.samples, refund.temperature) == (3, 0.7)
    assert refund.contract == Contract(choice=MultipleChoice(("yes", "no"), "yes"), number=Number(30.0, 0.5))


def test_jsonl_says_the_same() -> None:
    """One JSON object a line, empty lines left out."""
    row: dict[str, Any] = {"id": "capital", "prompt": "What is the capital of France?", "max_tokens": 8}
    row["expect"] = {"contains": ["Paris"], "finish_reason": "stop"}
    assert parsed(f"\n{json.dumps(row)}\n", "support.jsonl") == parsed(YAML)[:1]


def test_a_prompt_without_a_name_is_called_by_its_place() -> None:
    """Its place among the prompts, not its line."""
    assert [p.id for p in parsed("- prompt: one\n\n\n- prompt: two\n")] == ["prompt 1", "prompt 2"]


def test_what_pairs_a_prompt_is_all_that_it_asks_but_not_its_name() -> None:
    """A new contract makes it another prompt, a new name does not."""
    (before,) = parsed("- {id: a, prompt: hello}")
    (renamed,) = parsed("- {id: b, prompt: hello}")
    (other,) = parsed("- {id: a, prompt: hello, expect: {contains: hi}}")
    assert before.hash == renamed.hash
    assert before.hash != other.hash


def test_each_sample_has_a_seed_of_its_own() -> None:
    """A greedy request has none."""
    capital, refund = parsed(YAML)
    assert capital.request(0, 60).extra_body == {}
    assert [refund.request(n, 60).extra_body for n in (0, 1)] == [{"seed": 0}, {"seed": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "- prompt: hi\n  expct: {}",
            "support.yaml:2: expct: unknown field; did you mean 'expect'?",
        ),
        (
            "- prompt: hi\n  expect:\n    contain: x",
            "support.yaml:3: expect.contain: unknown field; did you mean 'contains'?",
        ),
        ("- prompt: 42", "support.yaml:1: prompt: must be a text, not 42; put quotes around it"),
        (
            "- expect: {contains: x}",
            "support.yaml:1: prompt: a prompt has either 'prompt', a text, or 'messages'",
        ),
        ("- messages: [hello]", "support.yaml:1: messages: must be a list of messages"),
        (
            "- prompt: hi\n  max_tokens: 0",
            "support.yaml:2: max_tokens: must be a whole number, 1 or more",
        ),
        ("- prompt: hi\n  samples: 3", "support.yaml:2: samples: at temperature 0 all samples are the same"),
        (
            "- {prompt: hi, max_tokens: 3, max_completion_tokens: 3}",
            "support.yaml:1: max_completion_tokens: give either it or 'max_tokens'",
        ),
        ("- prompt: hi\n  temperature: -1", "support.yaml:2: temperature: -1 is less than 0"),
        (
            "- prompt: hi\n  expect:\n    contains: x\n    regex: '(['",
            "support.yaml:4: expect.regex: '([' is not a regular expression",
        ),
        (
            "- prompt: hi\n  expect:\n    json_schema: {type: objekt}",
            "support.yaml:3: expect.json_schema: it is not a JSON schema",
        ),
        (
            "- prompt: hi\n  expect:\n    number:\n      value: five",
            "support.yaml:4: expect.number.value: must be a number, not 'five'",
        ),
        (
            "- prompt: hi\n  expect:\n    choice: {options: [yes, no], correct: yes}",
            "support.yaml:3: expect.choice.options: must be a text or a list of texts, not [True,",
        ),
        (
            "- prompt: hi\n  expect:\n    choice: {options: [a, b], correct: c}",
            "support.yaml:3: expect.choice.correct: must be one of 'a', 'b', not 'c'",
        ),
        ("- prompt: hi\n- prompt: hi", "support.yaml:2: prompt: a duplicate of 'prompt 1'"),
        ("- prompt: hi\n  expect: x", "support.yaml:2: expect: must be a mapping, not 'x'"),
        ("prompts: [hi]", "support.yaml:1: must be a list of prompts"),
        ("- hi", "support.yaml:1: a prompt is a mapping"),
        ("- prompt: hi\n  x: [", "support.yaml:2: not YAML"),
        ("[]", "support.yaml: it contains no prompts"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_field(text: str, said: str) -> None:
    """Whatever is wrong, the place is named."""
    assert said in mistake(text)


def test_all_mistakes_are_told_at_once() -> None:
    """One line each."""
    said = mistake("- prompt: 1\n- prompt: ok\n- prompt: hi\n  max_tokens: x").splitlines()
    assert [line.split(":")[1] for line in said] == ["1", "4"]


def test_a_line_that_is_no_json_is_told_with_its_number() -> None:
    """As it stands in the file."""
    assert "a.jsonl:3: not JSON" in mistake('{"prompt": "hi"}\n\n{"prompt": \n', "a.jsonl")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- prompt: a\fb", "support.yaml:1: not YAML: the character U+000C is not allowed"),
        (
            "- prompt: ok\n- prompt: 2024-13-45",
            "support.yaml:2: a value cannot be read: month must be in 1..12",
        ),
        (
            "- prompt: 2024-11-30",
            "support.yaml:1: prompt: datetime.date(2024, 11, 30) is of type date; put quotes",
        ),
        ("- prompt: !!binary aGk=", "support.yaml:1: prompt: b'hi' is of type bytes"),
        ("- {prompt: hi, expect: {1: x}}", "support.yaml:1: expect: the field name 1 has to be a text"),
        (
            "- {prompt: hi, temperature: .nan}",
            "support.yaml:1: temperature: nan is not a number that can be used",
        ),
        ("- {prompt: hi, expect: {number: .inf}}", "support.yaml:1: expect.number: inf is not a number"),
        ("- {prompt: hi, samples: 99999999, temperature: 1}", "samples: 99999999 are more than 1000"),
        ('- prompt: "\\ud800"', "support.yaml:1: "),
        ("- &a [*a]", "support.yaml:1: "),
        ("- prompt: " + "[" * 5000, "support.yaml: it is nested too deep"),
        ("- {prompt: " + "[" * 70 + "]" * 70 + "}", "it is nested more than 64 levels deep"),
        ("- !!python/object:os.system {}", "support.yaml:1: not YAML"),
        ("- ? [a]\n  : b", "support.yaml:1: "),
    ],
)
def test_a_value_that_no_request_can_hold_is_told_with_its_place(text: str, said: str) -> None:
    """YAML knows dates, bytes, NaN and more; none of it ends in a traceback."""
    assert said in mistake(text)


def test_aliases_that_multiply_are_refused() -> None:
    """Some 200 bytes would take gigabytes."""
    lines = ["- &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "with its aliases it has more than 1,000,000 values" in mistake("\n".join(lines))


def test_an_alias_may_share_a_system_message() -> None:
    """That is what they are for."""
    one, two = parsed(
        "- messages: [&system {role: system, content: Be brief.}, {role: user, content: a}]\n"
        "- messages: [*system, {role: user, content: b}]"
    )
    assert one.prompt[0] == two.prompt[0]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"prompt": "a", "prompt": "b"}', "not JSON: the field 'prompt' appears twice"),
        ('{"prompt": "\\ud800"}', "prompt: it contains half of a surrogate pair (U+D800)"),
        ('{"prompt": "hi", "temperature": NaN}', "temperature: nan is not a number"),
        ('{"prompt": "hi", "temperature": 1e999}', "temperature: inf is not a number"),
        ('{"prompt": ' + "[" * 100_000, "not JSON"),
        ('{"prompt": "hi", "max_tokens": ' + "1" * 5000 + "}", "not JSON"),
    ],
)
def test_so_is_one_of_jsonl(line: str, said: str) -> None:
    """With its line."""
    found = mistake(f'{{"prompt": "fine"}}\n{line}', "p.jsonl")
    assert found.startswith("p.jsonl:2: ")
    assert said in found


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody may ever write to it."""
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(SettingsError, match="it is not a regular file"):
        read_prompt_set(tmp_path / "p.jsonl", "p.jsonl")


def test_another_format_is_refused() -> None:
    """The suffix says the format."""
    assert "a prompt file is .jsonl, .yaml or .yml" in mistake("hi", "prompts.txt")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_line_of_jsonl_ends_at_a_newline_alone(separator: str) -> None:
    """JSON lets other separators stand in a text, where editors and models put them."""
    row = json.dumps({"prompt": f"one{separator}two"}, ensure_ascii=False)
    (prompt,) = parsed(f"{row}\r\n", "p.jsonl")
    assert prompt.prompt == f"one{separator}two"


@pytest.mark.parametrize(("name", "text"), [("p.jsonl", '{"prompt": "hi"}\n'), ("p.yaml", "- prompt: hi\n")])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, name: str, text: str) -> None:
    """Editors of some systems write one."""
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    (prompt,) = read_prompt_set(tmp_path / name, name).prompts
    assert prompt.prompt == "hi"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With why it cannot be read."""
    with pytest.raises(SettingsError, match=r"gone\.yaml cannot be read: No such file"):
        read_prompt_set(tmp_path / "gone.yaml", "gone.yaml")


def test_the_general_set_covers_the_usual_tasks() -> None:
    """Twenty to forty prompts, each with a contract, in three languages, one with a long answer."""
    prompts = general_prompt_set().prompts
    assert 20 <= len(prompts) <= 40
    assert all(prompt.contract.asks for prompt in prompts)
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert {"german", "chinese", "json-person", "add", "long-context"} <= {prompt.id for prompt in prompts}
    assert max(prompt.max_tokens for prompt in prompts) >= 150
