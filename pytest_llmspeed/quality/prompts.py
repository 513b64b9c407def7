"""The rows of a prompt file → prompts with what is expected of their answers, or all their mistakes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pytest_llmspeed.errors import SettingsError, did_you_mean
from pytest_llmspeed.metrics.exchange import LIMIT_FIELDS, LimitField, Request
from pytest_llmspeed.quality.contracts import Contract, MultipleChoice, Number
from pytest_llmspeed.quality.patterns import PatternError, compiled
from pytest_llmspeed.quality.prompt_rows import INSTALL, PromptRow
from pytest_llmspeed.quality.schemas import SchemaMistakeError, check_schema

MAX_TOKENS = 64
MOST_SAMPLES = 1000
FIELDS = ("id", "prompt", "messages", *LIMIT_FIELDS, "samples", "temperature", "expect")
CONTRACT_FIELDS = tuple(each.name for each in fields(Contract))


@dataclass(frozen=True, slots=True)
class QualityPrompt:
    """A prompt of a set. `samples` answers are drawn at `temperature`; at 0 a single, greedy one.

    With None the temperature is the server's own.
    """

    id: str
    prompt: str | tuple[Mapping[str, Any], ...]
    max_tokens: int = MAX_TOKENS
    samples: int = 1
    temperature: float | None = 0.0
    contract: Contract = field(default_factory=Contract)
    limit_field: LimitField = "max_tokens"

    @property
    def is_greedy(self) -> bool:
        """True if its answer is the likeliest one, so that two of them can be compared token by token."""
        return self.temperature == 0

    @property
    def hash(self) -> str:
        """A hash of everything the prompt asks for: all that the store keeps of a prompt."""
        asked = {**asdict(self), "id": None}
        del asked["limit_field"]  # another name of the same limit
        text = json.dumps(asked, sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def request(self, sample: int, timeout_s: float) -> Request:
        """The request for one of its answers; each sample has a seed of its own."""
        return Request(
            self.prompt,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            timeout_s=timeout_s,
            extra_body={} if self.is_greedy else {"seed": sample},
            wants_token_ids=True,
            limit_field=self.limit_field,
        )


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts that are checked together; `name` is told in reports and pairs the set with its baseline."""

    name: str
    prompts: tuple[QualityPrompt, ...]


def prompts_of(rows: Iterable[PromptRow], file: str) -> tuple[QualityPrompt, ...]:
    """Return the prompts of a file; raises `SettingsError` with file, line and field of every mistake."""
    prompts: dict[str, QualityPrompt] = {}
    mistakes: list[str] = []
    for place, row in enumerate(rows, 1):
        try:
            prompt = _prompt(row, f"prompt {place}")
        except _MistakeError as mistake:
            mistakes.append(f"{file}:{row.line_of(mistake.field)}: {mistake.field}: {mistake}")
            continue
        if prompt.hash in prompts:
            mistakes.append(f"{file}:{row.line}: prompt: a duplicate of {prompts[prompt.hash].id!r}")
        prompts[prompt.hash] = prompt
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return tuple(prompts.values())


class _MistakeError(Exception):
    """A field that cannot be used."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(what)
        self.field = field


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a mapping, each read with the check that it needs; `prefix` is where they stand."""

    given: Mapping[str, Any]
    prefix: str = ""

    def check_names(self, known: Iterable[str]) -> None:
        known = tuple(known)
        for name in self.given:
            if name not in known:
                raise self.wrong(str(name), f"unknown field; {did_you_mean(str(name), known)}")

    def wrong(self, name: str, what: str) -> _MistakeError:
        return _MistakeError(f"{self.prefix}{name}", what)

    def text(self, name: str) -> str | None:
        value = self.given.get(name)
        if value is None or (isinstance(value, str) and value):
            return value
        raise self.wrong(name, f"must be a text, not {value!r}{_quote_it(value)}")

    def texts(self, name: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self.given.get(name, [])
        listed = [value] if isinstance(value, str) else value
        if isinstance(listed, list) and all(isinstance(each, str) and each for each in listed):
            return tuple(listed)
        raise self.wrong(name, f"must be a text or a list of texts, not {value!r}{_quote_it(value)}")

    def number(self, name: str, default: float | None = None, least: float | None = None) -> float:
        value = self.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, f"must be a number, not {value!r}")
        if least is not None and value < least:
            raise self.wrong(name, f"{value} is less than {least:g}")
        return value

    def count(self, name: str, default: int | None = None) -> int | None:
        value = self.given.get(name, default)
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
            return value
        raise self.wrong(name, f"must be a whole number, 1 or more, not {value!r}")

    def flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if isinstance(value, bool):
            return value
        raise self.wrong(name, f"must be true or false, not {value!r}")

    def inner(self, name: str) -> _Fields:
        value = self.given.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, f"must be a mapping, not {value!r}")
        return _Fields(value, f"{self.prefix}{name}.")


def _quote_it(value: object) -> str:
    """YAML reads yes, no and 42 as other things than texts."""
    return "; put quotes around it" if isinstance(value, bool | int | float) else ""


def _prompt(row: PromptRow, name: str) -> QualityPrompt:
    given = _Fields(row.fields)
    given.check_names(FIELDS)
    samples, temperature = given.count("samples", 1) or 1, _temperature(given)
    limit_field = _limit_field(given)
    if samples > MOST_SAMPLES:
        raise given.wrong("samples", f"{samples} are more than {MOST_SAMPLES}")
    if samples > 1 and temperature == 0:
        raise given.wrong("samples", "at temperature 0 all samples are the same; set a temperature above 0")
    return QualityPrompt(
        id=given.text("id") or name,
        prompt=_asked(given),
        max_tokens=given.count(limit_field, MAX_TOKENS) or MAX_TOKENS,
        samples=samples,
        temperature=temperature,
        contract=_contract(given.inner("expect")),
        limit_field=limit_field,
    )


def _limit_field(given: _Fields) -> LimitField:
    """The name under which the prompt's limit is sent: that of its row."""
    named = [name for name in LIMIT_FIELDS if given.given.get(name) is not None]
    if len(named) > 1:
        raise given.wrong(named[1], f"give either it or {named[0]!r}")
    return named[0] if named else LIMIT_FIELDS[0]


def _temperature(given: _Fields) -> float | None:
    """The temperature of a row; null leaves it to the server."""
    if "temperature" in given.given and given.given["temperature"] is None:
        return None
    return float(given.number("temperature", 0.0, least=0))


def _asked(given: _Fields) -> str | tuple[Mapping[str, Any], ...]:
    """The text of a prompt, or its messages."""
    text, messages = given.text("prompt"), given.given.get("messages")
    if (text is None) == (messages is None):
        raise given.wrong("prompt", "a prompt has either 'prompt', a text, or 'messages', a list")
    if text is not None:
        return text
    listed = messages if isinstance(messages, list) else []
    if not listed or not all(
        isinstance(each, Mapping) and {"role", "content"} <= each.keys() for each in listed
    ):
        raise given.wrong("messages", "must be a list of messages, each with 'role' and 'content'")
    return tuple(dict(each) for each in listed)


def _contract(given: _Fields) -> Contract:
    given.check_names(CONTRACT_FIELDS)
    return Contract(
        equals=given.text("equals"),
        contains=given.texts("contains"),
        regex=_regex(given),
        json_schema=_schema(given),
        number=_number(given) if "number" in given.given else None,
        choice=_choice(given.inner("choice")) if "choice" in given.given else None,
        finish_reason=given.text("finish_reason"),
        min_chars=given.count("min_chars"),
        max_chars=given.count("max_chars"),
        no_repetition=given.flag("no_repetition"),
    )


def _regex(given: _Fields) -> str | None:
    pattern = given.text("regex")
    if pattern is None:
        return None
    try:
        compiled(pattern)
    except ImportError as error:
        raise given.wrong("regex", f"the package regex is not installed: {INSTALL}") from error
    except PatternError as error:
        raise given.wrong("regex", str(error)) from error
    return pattern


def _schema(given: _Fields) -> Mapping[str, Any] | None:
    if "json_schema" not in given.given:
        return None
    schema = given.inner("json_schema").given
    try:
        check_schema(schema)
    except ImportError as error:
        raise given.wrong("json_schema", f"{error.name} is not installed: {INSTALL}") from error
    except SchemaMistakeError as error:
        raise given.wrong("json_schema", str(error)) from error
    return schema


def _number(given: _Fields) -> Number:
    """A number as it stands, or `value` with a `tolerance`."""
    if not isinstance(given.given["number"], Mapping):
        return Number(float(given.number("number")))
    inner = given.inner("number")
    inner.check_names(("value", "tolerance"))
    return Number(float(inner.number("value")), float(inner.number("tolerance", 0.0, least=0)))


def _choice(given: _Fields) -> MultipleChoice:
    given.check_names(("options", "correct"))
    options, correct = given.texts("options"), given.text("correct")
    if len(options) < 2:
        raise given.wrong("options", "at least two options are needed")
    if correct is None or correct not in options:
        raise given.wrong("correct", f"must be one of {', '.join(map(repr, options))}, not {correct!r}")
    return MultipleChoice(options, correct)
