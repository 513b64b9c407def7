"""TestRecord and RunRecord ⇄ builtins: the one shape that reports, workers and the store share.

`schema` is "llmspeed/2"; "llmspeed/1", which has sentences without their codes, is read too. Times are in
ms, what is missing is None. Nothing but str, int, float, bool, None, list and dict comes out, so that it
crosses a process boundary and JSON unharmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, cast

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.measurement import Measurement, busy_strata
from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.quality import findings
from pytest_llmspeed.quality.findings import SetFindings
from pytest_llmspeed.records.load_codec import load_to_stored
from pytest_llmspeed.records.measurement_codec import measurement_from_builtins, measurement_to_builtins
from pytest_llmspeed.records.sample_codec import rounded, samples_to_stored
from pytest_llmspeed.records.verdict_codec import (
    budget_check_from_builtins,
    budget_check_to_builtins,
    comparison_from_builtins,
    comparison_to_builtins,
    explanation_from_builtins,
    explanation_to_builtins,
    significant,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.text.harmless import encodable_all

SCHEMA = "llmspeed/2"
READABLE = ("llmspeed/1", SCHEMA)


@dataclass(frozen=True, slots=True)
class EngineRun:
    """Which of several runs of one test a record is: on what engine, and its place in reading order."""

    test: str
    engine: str
    place: int


@dataclass(frozen=True, slots=True)
class TestRecord:
    """All that is known of one test at the end of its body, and its verdicts.

    `workload` is what the test declared of its requests, one line a kind of call. `problems` are
    what fails the test, `advice` what does not. `partial` marks an interrupted one,
    `rerun` one that an earlier attempt of this run did not pass.
    `side` is None of a test that runs on one engine.
    `quality` is what was found of its answers, `snapshots` what the store keeps of them, in builtins.
    `level` is the level of its baseline that it was judged in, None before that.
    """

    __test__ = False

    nodeid: str
    identity: str
    environment: str = "unknown"
    outcome: str = "passed"
    backend: Backend | None = None
    side: EngineRun | None = None
    workload: tuple[str, ...] = ()
    measurement: Measurement = field(default_factory=Measurement)
    budgets: tuple[BudgetCheck, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    verdict: Verdict | None = None
    problems: tuple[Explanation, ...] = ()
    advice: tuple[Explanation, ...] = ()
    accepted: str | None = None
    partial: bool = False
    rerun: bool = False
    quality: tuple[SetFindings, ...] = ()
    snapshots: tuple[Mapping[str, Any], ...] = ()
    level: str | None = None

    @property
    def is_suspect(self) -> bool:
        """True if anything may be slower than its last sessions, and that was not accepted."""
        suspects = (
            comparison.verdict is Verdict.SUSPECT and not comparison.crept for comparison in self.comparisons
        )
        return self.accepted is None and any(suspects)

    @property
    def is_faster(self) -> bool:
        """True if anything became faster, whatever else was found: its session starts a new level."""
        return any(comparison.verdict is Verdict.FASTER for comparison in self.comparisons)

    @property
    def follows_a_shorter_prompt(self) -> bool:
        """True if a prompt shrank and something became faster with it."""
        return any(comparison.follows_a_shorter_prompt for comparison in self.comparisons)

    @property
    def was_disturbed(self) -> bool:
        """True if other programs left too few quiet requests of some stratum to compare."""
        return bool(busy_strata(self.measurement))

    @property
    def key(self) -> dict[str, Any]:
        """The facts that two sessions of one identity and environment must share to be compared."""
        backend = self.backend or Backend("none")
        return {
            "backend": backend.name,
            "model": backend.model,
            "revision": backend.revision,
            "precision": backend.precision,
            "prefix_cache": backend.prefix_cache,
            "workload": list(self.workload),
        }


@dataclass(frozen=True, slots=True)
class SuiteShift:
    """How far all tests of an environment moved together in one metric: ratio and 95 % interval."""

    environment: str
    metric: str
    verdict: Verdict
    delta: float
    ci: tuple[float, float]
    p_session: float
    tests: int
    sessions: int


@dataclass(frozen=True, slots=True)
class SuiteVerdict:
    """What the tests of a run say together.

    `alone` are tests, by node id, that are slower beside the others although their own samples
    did not show it. `accepted` is the reason that a slowdown of either kind was accepted with.
    """

    verdict: Verdict
    shifts: tuple[SuiteShift, ...] = ()
    alone: tuple[tuple[str, Comparison], ...] = ()
    accepted: str | None = None

    def concerns(self, test: TestRecord) -> bool:
        """True if a test is of a suite that became slower as a whole, or is slower beside the others."""
        shifted = {s.environment for s in self.shifts if s.verdict is Verdict.SLOWER}
        return test.environment in shifted or test.nodeid in {nodeid for nodeid, _ in self.alone}

    @property
    def fails(self) -> bool:
        """True if the run should not end well."""
        return self.accepted is None and (self.verdict is Verdict.SLOWER or bool(self.alone))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One pytest invocation. `started` is ISO 8601 in UTC; `job` names the CI job, if there is one."""

    started: str
    run_id: str
    job: str | None
    commit: str | None
    facts: Mapping[str, Any]
    options: Mapping[str, Any]
    tests: tuple[TestRecord, ...] = ()
    suite: SuiteVerdict | None = None


def run_to_builtins(run: RunRecord, *, text: bool) -> dict[str, Any]:
    """Return a run as the report shows it; `text=False` leaves the answers out."""
    tests = [test_to_builtins(test, text=text) for test in run.tests]
    return {"schema": SCHEMA, "run": _facts_to_builtins(run), "tests": tests}


def run_to_stored(run: RunRecord) -> dict[str, Any]:
    """Return a run as the store keeps it: as the report, without what its samples give anew."""
    tests = [test_to_stored(test) for test in run.tests]
    return {"schema": SCHEMA, "run": _facts_to_builtins(run), "tests": tests}


def _facts_to_builtins(run: RunRecord) -> dict[str, Any]:
    facts = {
        "started": run.started,
        "id": run.run_id,
        "job": run.job,
        "commit": run.commit,
        "environment": dict(run.facts),
        "options": dict(run.options),
        "suite_verdict": None if run.suite is None else _suite_to_builtins(run.suite),
    }
    return cast(dict[str, Any], encodable_all(facts))


def _suite_to_builtins(suite: SuiteVerdict) -> dict[str, Any]:
    return {
        "verdict": suite.verdict.value,
        "accepted": suite.accepted,
        "shifts": [
            {
                "environment": shift.environment,
                "metric": shift.metric,
                "verdict": shift.verdict.value,
                "delta": significant(shift.delta),
                "ci": [significant(bound) for bound in shift.ci],
                "p_session": significant(shift.p_session),
                "tests": shift.tests,
                "sessions": shift.sessions,
            }
            for shift in suite.shifts
        ],
        "alone": [{"nodeid": nodeid, **comparison_to_builtins(found)} for nodeid, found in suite.alone],
    }


def suite_from_builtins(shown: Mapping[str, Any] | None) -> SuiteVerdict | None:
    """Return the verdict on the suite that `run_to_builtins` showed (figures as rounded there)."""
    if shown is None:
        return None
    return SuiteVerdict(
        verdict=Verdict(shown["verdict"]),
        shifts=tuple(
            SuiteShift(**{**shift, "verdict": Verdict(shift["verdict"]), "ci": tuple(shift["ci"])})
            for shift in shown["shifts"]
        ),
        alone=tuple(
            (each["nodeid"], comparison_from_builtins({k: v for k, v in each.items() if k != "nodeid"}))
            for each in shown["alone"]
        ),
        accepted=shown["accepted"],
    )


def test_to_builtins(record: TestRecord, *, text: bool) -> dict[str, Any]:
    """Return a test as the report shows it; `text=False` leaves the answers out."""
    backend = record.backend
    shown = {
        "nodeid": record.nodeid,
        "identity": record.identity,
        "environment": record.environment,
        "outcome": record.outcome,
        "partial": record.partial,
        "backend": None if backend is None else backend_to_builtins(backend),
        "side": None if record.side is None else asdict(record.side),
        "key": record.key,
        "measurement": measurement_to_builtins(record.measurement, text=text),
        "budgets": [budget_check_to_builtins(check) for check in record.budgets],
        "comparisons": [comparison_to_builtins(comparison) for comparison in record.comparisons],
        "verdict": None if record.verdict is None else record.verdict.value,
        "faster": record.is_faster,
        "problems": [explanation_to_builtins(problem) for problem in record.problems],
        "advice": [explanation_to_builtins(each) for each in record.advice],
        "accepted": record.accepted,
        "quality": findings.to_builtins(record.quality, text=text),
    }
    return cast(dict[str, Any], encodable_all(shown))


test_to_builtins.__test__ = False  # type: ignore[attr-defined]


def test_to_stored(record: TestRecord) -> dict[str, Any]:
    """Return a test as the store keeps it: samples as columns, of the gaps between tokens the median.

    No answer, no budget, no comparison: these are the run's own, and follow from the samples.
    """
    backend, measurement = record.backend, record.measurement
    stored = {
        "nodeid": record.nodeid,
        "identity": record.identity,
        "environment": record.environment,
        "outcome": record.outcome,
        "backend": None if backend is None else backend_to_builtins(backend),
        "key": record.key,
        "measurement": {
            "requests": samples_to_stored([s for s in measurement.samples if s.call != "load"]),
            "warmup_requests": measurement.warmup_requests,
            "peak_memory_mib": rounded(measurement.peak_memory_mib),
            "loads": [load_to_stored(load) for load in measurement.loads],
        },
        "verdict": None if record.verdict is None else record.verdict.value,
        "faster": record.is_faster,
        "suspect": record.is_suspect,
        "level": record.level,
        "gated": sorted({comparison.metric for comparison in record.comparisons}),
        "accepted": record.accepted,
        **({"snapshots": list(record.snapshots)} if record.snapshots else {}),
    }
    return cast(dict[str, Any], encodable_all(stored))


test_to_stored.__test__ = False  # type: ignore[attr-defined]


def backend_to_builtins(backend: Backend) -> dict[str, Any]:
    """Return what a record says of its engine, options of any kind as builtins."""
    shown = {field.name: getattr(backend, field.name) for field in fields(Backend)}
    shown |= {"options": _plain(backend.options), "versions": _texts(backend.versions)}
    return {**shown, "load_s": rounded(backend.load_s)}


def _texts(versions: Mapping[str, str]) -> dict[str, str]:
    return {str(name): str(version) for name, version in versions.items()}


def _plain(value: Any) -> Any:
    """A user's option value as builtins; what is none of them is shown by its repr."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    return repr(value)


def test_from_builtins(shown: Mapping[str, Any]) -> TestRecord:
    """Return the record that `test_to_builtins` made (figures as rounded there)."""
    backend, side = shown["backend"], shown.get("side")
    return TestRecord(
        nodeid=shown["nodeid"],
        identity=shown["identity"],
        environment=shown["environment"],
        outcome=shown["outcome"],
        backend=None if backend is None else Backend(**backend),
        side=None if side is None else EngineRun(**side),
        workload=tuple(shown["key"]["workload"]),
        measurement=measurement_from_builtins(shown["measurement"]),
        budgets=tuple(budget_check_from_builtins(check) for check in shown["budgets"]),
        comparisons=tuple(comparison_from_builtins(found) for found in shown["comparisons"]),
        verdict=None if shown["verdict"] is None else Verdict(shown["verdict"]),
        problems=tuple(map(explanation_from_builtins, shown["problems"])),
        advice=tuple(map(explanation_from_builtins, shown["advice"])),
        accepted=shown["accepted"],
        partial=shown["partial"],
        quality=findings.from_builtins(shown["quality"]),
        snapshots=tuple(shown.get("snapshots", ())),
        level=shown.get("level"),
    )


test_from_builtins.__test__ = False  # type: ignore[attr-defined]
