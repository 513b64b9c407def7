"""`llmspeed baseline list | show | log | diff`: what is in a store. Reads; changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from statistics import median
from typing import Any

from pytest_llmspeed.baselines.renames import read_renames
from pytest_llmspeed.baselines.run_file import RunFile, read_run_file
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.baselines.store import folders, run_files
from pytest_llmspeed.baselines.stored_tests import StoredTest, paired, stored_tests
from pytest_llmspeed.baselines.window import OLD
from pytest_llmspeed.cli.output import Result, counted, listed, named_once, table
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.messages.figures import percent, quantity
from pytest_llmspeed.messages.speed import UPDATE
from pytest_llmspeed.system.environment import machine_facts, what_changed

SCHEMA = "llmspeed-baseline/1"
SHOWN_METRICS = ("ttft_ms", "tpot_ms")
DASH = "–"


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The run files of a store, oldest first; `problems` are sentences on files left out."""

    root: Path
    files: tuple[RunFile, ...]
    problems: tuple[str, ...]

    @property
    def sessions(self) -> list[Session]:
        """All sessions. Their folder names the environment, as it does for the gate."""
        return [session for file in self.files for session in file.sessions]

    @property
    def tests(self) -> list[StoredTest]:
        """The tests that they are of."""
        return stored_tests(self.sessions)


def open_store(root: Path) -> StoreContents:
    """Return what a store holds; raises `StoreError` if there is no store, or nothing in it."""
    if not root.is_dir():
        raise StoreError(f"{root}: no such folder; name the store with --store, or fill it: pytest {UPDATE}")
    files, problems = list[RunFile](), list[str]()
    for folder in folders(root):
        try:
            paths = run_files(folder)
        except StoreError as error:
            problems.append(f"left out: {error}")
            continue
        for path in paths:
            try:
                files.append(_in_its_folder(read_run_file(path)))
            except StoreError as error:
                problems.append(f"left out: {error}")
    if not files and not problems:
        raise StoreError(
            f"{root} contains no baselines; name the store with --store, or fill it: pytest {UPDATE}"
        )
    files.sort(key=lambda file: (file.run["started"], file.path))
    renames = read_renames(root)
    known = (replace(file, sessions=tuple(renames.all_applied(file.sessions))) for file in files)
    return StoreContents(root, tuple(known), (*problems, *renames.problems))


def _in_its_folder(file: RunFile) -> RunFile:
    environment = file.path.parent.name
    return replace(file, sessions=tuple(replace(s, environment=environment) for s in file.sessions))


def list_tests(root: Path, now: datetime) -> Result:
    """Return the tests of a store with the sessions that count, and how old the newest is."""
    store = open_store(root)
    tests = store.tests
    entries = [_entry(test, tests, now) for test in tests]
    headers = ("environment", "test", "backend", "sessions", "newest", "note")
    rows = [
        (
            entry["environment"],
            entry["identity"],
            entry["backend"],
            str(entry["sessions"]),
            _date(entry["newest"]),
            entry["note"],
        )
        for entry in entries
    ]
    lines = [*table(rows, headers), "", _count_of(store), *_age_warning(entries)]
    return _result(store, lines, {"tests": entries})


def _entry(test: StoredTest, others: Sequence[StoredTest], now: datetime) -> dict[str, Any]:
    age = now - datetime.fromisoformat(test.newest.started)
    superseded = _superseded(test, others)
    old = f"{age.days} days old" if age > OLD else ""
    return {
        "environment": test.environment,
        "identity": test.identity,
        "backend": test.engine,
        "key": dict(test.newest.key),
        "sessions": len(test.counting),
        "newest": test.newest.started,
        "age_days": age.days,
        "superseded": bool(superseded),
        "note": superseded or old,
    }


def _superseded(test: StoredTest, others: Sequence[StoredTest]) -> str:
    """Return what of the key changed since, where the same test is stored anew on the same engine."""
    for other in others:
        same = (other.environment, other.identity, other.engine) == (
            test.environment,
            test.identity,
            test.engine,
        )
        if same and other.newest.started > test.newest.started:
            names = [name for name, value in test.place.items() if other.place.get(name) != value]
            return f"superseded: {', '.join(names)} changed since"
    return ""


def _count_of(store: StoreContents) -> str:
    tests = len({test.identity for test in store.tests})
    return f"{counted(len(store.files), 'run file')}, {counted(tests, 'test')} in {store.root}"


def _age_warning(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    old = [e for e in entries if e["age_days"] > OLD.days and not e["superseded"]]
    if old:
        yield (
            f"{counted(len(old), 'baseline')} older than {OLD.days} days: the machine may have "
            f"changed since; renew: pytest {UPDATE}"
        )


def show_test(root: Path, wanted: str) -> Result:
    """Return the sessions of a test, named by its identity or a part of it."""
    store = open_store(root)
    tests = named_tests(store, wanted)
    lines: list[str] = []
    for test in tests:
        lines += [f"{test.identity} on {test.engine}, {test.environment}", ""]
        lines += [*table(_session_rows(test), ("started", "commit", "job", "series", *_NAMES, "note")), ""]
    return _result(store, lines[:-1], {"tests": [_shown_test(test) for test in tests]})


_NAMES = ("TTFT", "TPOT", "requests")


def named_tests(store: StoreContents, wanted: str) -> list[StoredTest]:
    """Return the tests of this identity, else those whose identity contains it; raises `StoreError`."""
    exact = [test for test in store.tests if test.identity == wanted]
    found = exact or [test for test in store.tests if wanted in test.identity]
    if not found:
        raise StoreError(f"{store.root} has no baseline of {wanted!r}; {near(store, wanted)}")
    return found


def near(store: StoreContents, wanted: str) -> str:
    """Return which stored tests may be meant, for a message."""
    known = sorted({test.identity for test in store.tests})
    return f"stored: {listed(get_close_matches(wanted, known, n=3, cutoff=0.3) or known)}"


def _session_rows(test: StoredTest) -> Iterator[tuple[str, ...]]:
    for session in test.sessions:
        head = (_date(session.started), session.facts.get("commit") or DASH, session.job or DASH)
        note = _note(session, test)
        for stratum, series in session.series.items():
            medians = [_median_of(series.values.get(metric), metric) for metric in SHOWN_METRICS]
            requests = max(map(len, series.values.values()), default=0)
            yield (*head, stratum, *medians, str(requests), note)
            head, note = ("", "", ""), ""


def _note(session: Session, test: StoredTest) -> str:
    """Return what a session means for the level: that it starts it, or why it does not count."""
    level = test.level
    start = ""
    if session.starts_level:
        start = f"starts a level: {'faster' if session.reason is None else f'accepted: {session.reason}'}"
    if session.run_id in {each.run_id for each in test.counting}:
        return start
    if session in level:
        return "suspect: does not count until a later session is clear"
    if session.replicate not in {each.replicate for each in level}:
        return f"{start}{', ' if start else ''}an earlier level"
    return "does not count: an earlier session of the same CI job does"


def _shown_test(test: StoredTest) -> dict[str, Any]:
    counting = {session.run_id for session in test.counting}
    return {
        "identity": test.identity,
        "environment": test.environment,
        "key": dict(test.newest.key),
        "sessions": [_shown_session(session, session.run_id in counting) for session in test.sessions],
    }


def _shown_session(session: Session, counts: bool) -> dict[str, Any]:
    return {
        "started": session.started,
        "id": session.run_id,
        "commit": session.facts.get("commit"),
        "job": session.job,
        "starts_level": session.starts_level,
        "reason": session.reason,
        "in_current_level": counts,
        "medians": {
            stratum: {metric: median(values) for metric, values in series.values.items()}
            for stratum, series in session.series.items()
        },
    }


def log(root: Path) -> Result:
    """Return the runs of a store, oldest first, with what they accepted or found faster."""
    store = open_store(root)
    entries = [_run_entry(file) for file in store.files]
    headers = ("started", "id", "commit", "job", "environment", "tests", "new levels")
    rows = [
        (
            _date(entry["started"]),
            entry["id"],
            entry["commit"] or DASH,
            entry["job"] or DASH,
            entry["environment"],
            str(entry["tests"]),
            "; ".join(entry["new_levels"]),
        )
        for entry in entries
    ]
    return _result(store, table(rows, headers), {"runs": entries})


def _run_entry(file: RunFile) -> dict[str, Any]:
    starts = Counter(
        "faster" if session.reason is None else f"accepted: {session.reason}"
        for session in file.sessions
        if session.starts_level
    )
    return {
        "file": str(file.path),
        **{name: file.run[name] for name in ("started", "id", "commit", "job")},
        "environment": file.path.parent.name,
        "tests": len(file.sessions),
        "new_levels": [f"{word} ({counted(count, 'test')})" for word, count in starts.items()],
    }


def diff(root: Path, first: str, second: str) -> Result:
    """Return what changed from one run file to another: recorded facts, and medians."""
    files = [find_run(root, name) for name in (first, second)]
    pairing = paired(*(stored_tests(file.sessions) for file in files))
    changed = what_changed(*(machine_facts(file.run["environment"]) for file in files))
    moves = list[dict[str, Any]]()
    for pair in pairing.pairs:
        changed += what_changed(pair.old.newest.facts, pair.new.newest.facts)
        changed += pair.differs
        moves += _moves(pair.old.newest, pair.new.newest)
    changed = list(dict.fromkeys(changed))
    lines = [
        f"{side}: {file.path}, {_date(file.run['started'])}" for side, file in zip("AB", files, strict=True)
    ]
    lines += [f"changed: {each}" for each in changed] or ["changed: nothing recorded"]
    lines += ["", *table(named_once(map(_move_row, moves)), ("test", "metric", "A", "B", "change")), ""]
    for side, names in (("A", pairing.only_old), ("B", pairing.only_new)):
        lines += [f"only in {side}: {listed(names)}"] if names else []
    lines.append("medians of one run each; to see what exceeds chance, run llmspeed compare A B")
    shown = {"a": str(files[0].path), "b": str(files[1].path), "changed": changed, "medians": moves}
    only = {"only_a": list(pairing.only_old), "only_b": list(pairing.only_new)}
    return Result(tuple(lines), {"schema": SCHEMA, **shown, **only})


def find_run(root: Path, name: str) -> RunFile:
    """Return the run file at a path, or that of a run's id; raises `StoreError`."""
    if Path(name).is_file() or "/" in name:
        return read_run_file(Path(name))
    store = open_store(root)
    found = [file for file in store.files if name == file.path.name or str(file.run["id"]).startswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        paths = ", ".join(str(file.path) for file in found)
        raise StoreError(f"{name!r} matches {len(found)} run files; give the path of one: {paths}")
    raise StoreError(f"{store.root} has no run {name!r}; llmspeed baseline log shows the ids, or name a path")


def _moves(old: Session, new: Session) -> Iterator[dict[str, Any]]:
    for stratum in [stratum for stratum in old.series if stratum in new.series]:
        for metric in SHOWN_METRICS:
            before, after = (side.series[stratum].values.get(metric) for side in (old, new))
            yield {
                "identity": new.identity,
                "series": stratum,
                "metric": metric,
                "a": median(before) if before else None,
                "b": median(after) if after else None,
            }


def _move_row(move: Mapping[str, Any]) -> tuple[str, ...]:
    a, b, metric = move["a"], move["b"], move["metric"]
    change = percent(b / a) if a and b is not None else DASH
    shown = (DASH if value is None else quantity(value, metric) for value in (a, b))
    return (move["identity"], f"{metric} of {move['series']}", *shown, change)


def _median_of(values: Sequence[float] | None, metric: str) -> str:
    return quantity(median(values), metric) if values else DASH


def _date(started: str) -> str:
    """A date to the minute, in UTC as stored."""
    return started[:16].replace("T", " ")


def _result(store: StoreContents, lines: Iterable[str], shown: Mapping[str, Any]) -> Result:
    whole = {"schema": SCHEMA, "store": str(store.root), **shown, "left_out": list(store.problems)}
    return Result(tuple(lines), whole, warnings=store.problems)
