"""What a run file may hold: one table of expected types, checked before anything is made of it.

Files are edited, merged, cut and made by others. What passes here can be read by the gate and by each
command without a further look; what does not is named by its place, as in `tests[3].key.workload`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any

from pytest_llmspeed.metrics.sample import METRICS
from pytest_llmspeed.regression.verdicts import Verdict

MOST_ALIKE = 10_000
"""Requests without a column of their own cost no bytes, so a file may not claim any number of them."""
LARGEST = 1e15
"""No time, rate or count reaches this: larger ones would overflow in sums and logarithms."""

Check = Callable[[Any], bool]
Table = Mapping[str, Check]


def _is_text(value: Any) -> bool:
    return type(value) is str


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < LARGEST


def _is_signed(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_table(value: Any) -> bool:
    return type(value) is dict


def _is_list(value: Any) -> bool:
    return type(value) is list


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list_of(check: Check) -> Check:
    return lambda value: type(value) is list and all(map(check, value))


def _table_of(check: Check) -> Check:
    return lambda value: type(value) is dict and all(map(check, value.values()))


def _is_verdict(value: Any) -> bool:
    return value is None or (type(value) is str and value in KNOWN_VERDICTS)


def _is_metric(value: Any) -> bool:
    return value in KNOWN_METRICS if type(value) is str else False


def _is_summary(value: Any) -> bool:
    return type(value) is dict and "p50" in value and all(map(MAYBE_NUMBER, value.values()))


def _is_explanation(value: Any) -> bool:
    """True of a code with figures and sentence, and of a sentence alone, as in the first schema."""
    if type(value) is not dict:
        return _is_text(value)
    return (
        _is_text(value.get("reason")) and _is_table(value.get("figures")) and _is_text(value.get("sentence"))
    )


def _is_moment(value: Any) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        return False


KNOWN_VERDICTS = frozenset(verdict.value for verdict in Verdict)
KNOWN_METRICS = frozenset(metric.key for metric in METRICS.values())
TEXT, MAYBE_TEXT, TEXTS = _is_text, _or_none(_is_text), _list_of(_is_text)
NUMBER, MAYBE_NUMBER, MAYBE_SIGNED = _is_number, _or_none(_is_number), _or_none(_is_signed)
FLAG, MAYBE_FLAG = _is_flag, _or_none(_is_flag)
EXPLANATIONS = _list_of(_is_explanation)
INTERVAL = _or_none(lambda ends: _list_of(_or_none(_is_signed))(ends) and len(ends) == 2)

RUN: Table = {
    "started": _is_moment,
    "id": TEXT,
    "job": MAYBE_TEXT,
    "commit": MAYBE_TEXT,
    "environment": _is_table,
    "options": _is_table,
}
TEST: Table = {
    "identity": TEXT,
    "environment": TEXT,
    "key": _is_table,
    "backend": _or_none(_is_table),
    "measurement": _is_table,
    "verdict": _is_verdict,
    "accepted": MAYBE_TEXT,
}
TEST_EXTRAS: Table = {
    "nodeid": TEXT,
    "outcome": TEXT,
    "partial": FLAG,
    "faster": FLAG,
    "suspect": FLAG,
    "level": MAYBE_TEXT,
    "side": _or_none(_is_table),
    "gated": TEXTS,
    "snapshots": _list_of(_is_table),
    "problems": EXPLANATIONS,
    "advice": EXPLANATIONS,
    "budgets": _list_of(_is_table),
    "comparisons": _list_of(_is_table),
    "quality": _or_none(_is_table),
}
KEY: Table = {"workload": TEXTS}
BACKEND: Table = {
    "name": TEXT,
    "model": MAYBE_TEXT,
    "revision": MAYBE_TEXT,
    "precision": MAYBE_TEXT,
    "prefix_cache": TEXT,
    "precision_source": MAYBE_TEXT,
    "options": _or_none(_is_table),
    "versions": _or_none(_table_of(_is_text)),
    "load_s": MAYBE_NUMBER,
}
SIDE: Table = {"test": TEXT, "engine": TEXT, "place": NUMBER}
MEASUREMENT: Table = {
    "warmup_requests": NUMBER,
    "peak_memory_mib": MAYBE_NUMBER,
    "cache_hit_rate": MAYBE_NUMBER,
    "loads": _list_of(_is_table),
    "summary": _is_table,
}
REQUEST: Table = {
    "label": MAYBE_TEXT,
    "stratum": TEXT,
    "call": TEXT,
    "error": MAYBE_TEXT,
    "flags": _or_none(TEXTS),
    "text": TEXT,
    "token_source": MAYBE_TEXT,
    "finish_reason": MAYBE_TEXT,
    "output_events": NUMBER,
    "itl_ms": _list_of(_is_number),
    "itl_p50_ms": MAYBE_NUMBER,
    "started_ms": _is_signed,
    **dict.fromkeys(("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps"), MAYBE_NUMBER),
    **dict.fromkeys(("output_tokens", "prompt_tokens", "cached_tokens"), MAYBE_NUMBER),
    **dict.fromkeys(("queue_ms", "foreign_cpu", "acceptance_rate", "tokens_per_step"), MAYBE_SIGNED),
}
LEAST = {MAYBE_NUMBER: 0.0, NUMBER: 0.0, MAYBE_SIGNED: -LARGEST, _is_signed: -LARGEST}
NUMERIC = {name: LEAST[check] for name, check in REQUEST.items() if check in LEAST}
"""Columns of numbers, with the least value that each may have."""
REQUEST_NEEDS = ("stratum", "call", "error", "itl_ms", "output_events", "output_tokens")
LOAD: Table = {
    "label": MAYBE_TEXT,
    "stratum": TEXT,
    "counted": FLAG,
    "invalid": EXPLANATIONS,
    "blocks": _table_of(_list_of(_is_number)),
}
LOAD_EXTRAS: Table = {
    "asked": _is_table,
    "slo": _table_of(_is_signed),
    "medians": _table_of(MAYBE_NUMBER),
    "summary": _table_of(_or_none(_is_summary)),
    "since_schedule": _or_none(_is_table),
    "client": _is_table,
    **dict.fromkeys(("output_tokens", "prompt_tokens", "window_s", "throughput_tps"), MAYBE_NUMBER),
    **dict.fromkeys(("steady_tps", "requests_per_s", "goodput", "offered_per_s"), MAYBE_NUMBER),
    **dict.fromkeys(("warmup_requests", "peak_concurrency", "not_sent"), NUMBER),
}
CLIENT: Table = {
    "processes": NUMBER,
    "piled_up": NUMBER,
    "stamps": TEXT,
    **dict.fromkeys(("cpu_share", "cpu_s_per_1000_tokens", "read_late_ms", "send_late_ms"), MAYBE_SIGNED),
}
BUDGET: Table = {
    "name": TEXT,
    "limit": _is_signed,
    "observed": _or_none(_is_signed),
    "kept": MAYBE_FLAG,
    "ci": INTERVAL,
    "label": MAYBE_TEXT,
    "reason": MAYBE_TEXT,
}
REASON: Table = {"reason": MAYBE_TEXT, "figures": _is_table, "sentence": TEXT}
COMPARISON: Table = {"verdict": _is_verdict, "metric": _is_metric}
SNAPSHOT: Table = {"prompts": TEXT, "answers": _list_of(_is_table), "floor": _or_none(_is_table)}
FLOOR: Table = {"delta": NUMBER, "kl": NUMBER, "is_exact": FLAG}
ANSWER: Table = {"hash": TEXT, "prompt": TEXT}
ANSWER_EXTRAS: Table = {
    "answer_hash": TEXT,
    "finish_reason": MAYBE_TEXT,
    "prompt_tokens": MAYBE_NUMBER,
    "kept": MAYBE_NUMBER,
    "score": _or_none(_is_signed),
    "repeated": MAYBE_FLAG,
    "repeated_beside": MAYBE_FLAG,
    "texts": TEXTS,
    "not_kept": TEXTS,
    "tokens": TEXT,
    "scores": _is_table,
}


def check_run(content: Mapping[str, Any]) -> None:
    """Raise `ValueError` with the place of the first thing in a run file that is not what it should be."""
    _required(content, {"run": _is_table, "tests": _list_of(_is_table)}, "")
    _required(content["run"], RUN, "run")
    for number, test in enumerate(content["tests"]):
        _check_test(test, f"tests[{number}]")


def _check_test(test: Mapping[str, Any], place: str) -> None:
    _required(test, TEST, place)
    _optional(test, TEST_EXTRAS, place)
    _required(test["key"], KEY, f"{place}.key")
    if test["backend"] is not None:
        _optional(test["backend"], BACKEND, f"{place}.backend")
    if test.get("side") is not None:
        _required(test["side"], SIDE, f"{place}.side")
    _check_measurement(test["measurement"], f"{place}.measurement")
    _check_each(test.get("budgets", ()), BUDGET, f"{place}.budgets")
    _check_each(test.get("comparisons", ()), COMPARISON, f"{place}.comparisons")
    for number, snapshot in enumerate(test.get("snapshots", ())):
        _check_snapshot(snapshot, f"{place}.snapshots[{number}]")


def _check_measurement(measured: Mapping[str, Any], place: str) -> None:
    _optional(measured, MEASUREMENT, place)
    requests = measured.get("requests")
    if type(requests) is dict:
        _check_columns(requests, f"{place}.requests")
    elif type(requests) is list:
        for number, row in enumerate(requests):
            _check_row(row, f"{place}.requests[{number}]")
    else:
        raise _wrong(f"{place}.requests", requests)
    for number, load in enumerate(measured.get("loads", ())):
        where = f"{place}.loads[{number}]"
        _required(load, LOAD, where)
        _optional(load, LOAD_EXTRAS, where)
        _optional(load.get("client", {}), CLIENT, f"{where}.client")


def _check_row(row: Any, place: str) -> None:
    if type(row) is not dict:
        raise _wrong(place, row)
    for name in REQUEST_NEEDS:
        if name not in row:
            raise ValueError(f"{place}.{name} is missing")
    _optional(row, REQUEST, place)
    if row["itl_ms"] and not row["output_events"]:
        raise ValueError(f"{place}.output_events is 0, though there are gaps between them")


def _check_columns(requests: Mapping[str, Any], place: str) -> None:
    _required(requests, {"count": _is_count, "same": _is_table, "each": _table_of(_is_list)}, place)
    count, same, each = requests["count"], requests["same"], requests["each"]
    if not each and count > MOST_ALIKE:
        raise ValueError(f"{place}.count is {count}: more than a file without columns can hold")
    if count and not ({"stratum", "call"} <= same.keys() | each.keys()):
        raise ValueError(f"{place} contains no stratum or call")
    _optional(same, REQUEST, f"{place}.same")
    for name, values in each.items():
        if len(values) != count:
            raise ValueError(f"{place}.each.{name} has {len(values)} values for {count} requests")
        if not _is_column(name, values):
            raise ValueError(f"{place}.each.{name} contains a value that does not belong there")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < LARGEST


def _is_column(name: str, values: list[Any]) -> bool:
    check = REQUEST.get(name)
    if check is None:
        return True
    return _are_numbers(values, NUMERIC[name]) if name in NUMERIC else all(map(check, values))


def _are_numbers(values: list[Any], least: float) -> bool:
    """Return whether a column holds finite numbers and None only; fast, since stores are full of them."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, type(None)}:
        return False
    known = [value for value in values if value is not None] if type(None) in kinds else values
    return not known or (min(known) >= least and max(known) < LARGEST and isfinite(sum(known)))


def _check_snapshot(snapshot: Mapping[str, Any], place: str) -> None:
    _required(snapshot, SNAPSHOT, place)
    _optional(snapshot, {"precision": MAYBE_TEXT}, place)
    if snapshot["floor"] is not None:
        _optional(snapshot["floor"], FLOOR, f"{place}.floor")
    for number, answer in enumerate(snapshot["answers"]):
        _required(answer, ANSWER, f"{place}.answers[{number}]")
        _optional(answer, ANSWER_EXTRAS, f"{place}.answers[{number}]")


def _check_each(shown: Iterable[Mapping[str, Any]], table: Table, place: str) -> None:
    for number, each in enumerate(shown):
        _required(each, table, f"{place}[{number}]")
        _optional(each, REASON, f"{place}[{number}]")


def _required(shown: Mapping[str, Any], table: Table, place: str) -> None:
    for name, check in table.items():
        if name not in shown:
            raise ValueError(f"{place}{'.' if place else ''}{name} is missing")
        if not check(shown[name]):
            raise _wrong(f"{place}{'.' if place else ''}{name}", shown[name])


def _optional(shown: Mapping[str, Any], table: Table, place: str) -> None:
    for name, value in shown.items():
        check = table.get(name)
        if check is not None and not check(value):
            raise _wrong(f"{place}.{name}", value)


def _wrong(place: str, value: Any) -> ValueError:
    shown = repr(value)
    return ValueError(f"{place} is {shown if len(shown) <= 60 else shown[:60] + '…'}")
