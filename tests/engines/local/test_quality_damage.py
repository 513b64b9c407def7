"""The quality check on a real engine that is damaged on purpose: a small part of benchmarks/quality.py."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_llmspeed import EngineSpec
from pytest_llmspeed.engines.local._tiny import TinyEngine
from pytest_llmspeed.quality.answers import Baseline, PlannedCheck
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.findings import QualityStatus, SetFindings
from pytest_llmspeed.quality.probe import Probe
from pytest_llmspeed.quality.prompts import PromptSet, QualityPrompt
from pytest_llmspeed.quality.snapshot import baseline_of, to_stored
from pytest_llmspeed.system.event_loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPTS = PromptSet(
    "small",
    tuple(
        QualityPrompt(text, text, max_tokens=24)
        for text in (
            "What is the capital of France?",
            "Write a JSON object with the keys name and age for a woman of 34 years.",
            "Explain to a new colleague how to plan a birthday party for ten people.",
            "Name four seasons of the year as a numbered list, one on each line, please.",
        )
    ),
)


def damages() -> dict[str, Any]:
    """The damages of the benchmark."""
    path = Path(__file__).parents[3] / "benchmarks" / "quality_damage.py"
    spec = spec_from_file_location("quality_damage", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault("quality_damage", module_from_spec(spec))
    spec.loader.exec_module(module)
    found: dict[str, Any] = module.DAMAGES
    return found


def as_sure_as_a_trained_one(engine: TinyEngine) -> TinyEngine:
    """The small random model with larger weights: what it says hangs on its prompt, and on its cache."""
    with torch.no_grad():
        for module in engine._model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight *= 3
        engine._model.lm_head.weight *= 4
    return engine


class Checked:
    """An engine with the baseline that it gave when it was well."""

    def __init__(self, precision: str, loop: LoopThread) -> None:
        started = TinyEngine.start(EngineSpec.of("tiny", None, precision, {}))
        self.engine, self._loop = as_sure_as_a_trained_one(started), loop
        self._baseline = Baseline()
        now = self._probed().now
        self._baseline = baseline_of([json.loads(json.dumps(to_stored(now, text=True)))])

    def _probed(self) -> Any:
        probe = Probe(self.engine, self._loop, lambda _: self._baseline)
        probe.check(PlannedCheck(PROMPTS))
        return probe.probed["small"]

    def found(self) -> SetFindings:
        """What the ladder finds now."""
        return findings_of(self._probed())


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def checked(request: pytest.FixtureRequest, loop: LoopThread) -> Checked:
    return Checked(request.param, loop)


def test_an_unchanged_engine_passes(checked: Checked) -> None:
    """Every rung but those that need expectations."""
    found = checked.found()
    assert found.status is QualityStatus.PASSED
    assert {finding.rung: finding.status for finding in found.rungs} == {
        "contracts": QualityStatus.SKIPPED,
        "self-consistency": QualityStatus.PASSED,
        "log-probabilities": QualityStatus.PASSED,
        "divergence": QualityStatus.PASSED,
        "task score": QualityStatus.SKIPPED,
    }


@pytest.mark.parametrize(
    ("damage", "variant"),
    [
        ("1 % of the weights zeroed", 0),
        ("a wrong chat template", 0),
        ("a truncated context", 0),
        ("a truncated context", 1),
        ("an off-by-one in the cache", 0),
        ("an off-by-one in the cache", 2),
    ],
)
def test_a_damaged_engine_fails(checked: Checked, damage: str, variant: int) -> None:
    """Whatever is broken, by the log-probabilities of the stored answers."""
    with damages()[damage](checked.engine, variant):
        assert "log-probabilities" in {finding.rung for finding in checked.found().failures}


def test_an_engine_that_draws_among_ties_fails(loop: LoopThread) -> None:
    """In bf16, where two tokens often tie for the first place."""
    checked = Checked("bf16", loop)
    with damages()["top_k=1 taken for greedy"](checked.engine, 1):
        assert "self-consistency" in {finding.rung for finding in checked.found().failures}
