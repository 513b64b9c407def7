"""The quality check on SmolLM2-135M-Instruct in llama.cpp and vLLM, each configuration by its own baseline.

The twelve prompts of quality.py, 32 tokens each:

unchanged     five fresh starts of each configuration against its own first one: no failure is right
same weights  n-gram speculation against none, the file of four bits against its copy in eight: the same
damaged       the weights in two bits against those in eight, by two sets of limits: it should fail

Run it with the interpreter of the engine's environment, which `.ci/engines.py --build-only` makes and
names. Adds what it finds to a file as JSON lines, and keeps the baselines in a folder beside it, so that a
call that was cut short can be made again: it goes on where it ended. Exits with 0 if nothing in the file
failed but what is damaged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from quality_bench import DAMAGED, RUNS, Bench, smollm2_folder, smollm2_gguf, summary, told, wrong_verdicts

from pytest_llmspeed import EngineSpec
from pytest_llmspeed.engines.local._llama_cpp import LlamaCppEngine
from pytest_llmspeed.engines.local._vllm import VLLMEngine
from pytest_llmspeed.quality.answers import Baseline, Limits, Probed
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.snapshot import baseline_of, to_stored

SAME = "same weights"
GGUF_TYPES = {"q8_0": 7, "q2_k": 10}
"""`llama_ftype` of the files that are made here; the package's own one is q4_1."""
LIMITS = Limits(max_kl=0.05, min_top1=0.9)
"""What a user allows another precision, as in docs/quality.md."""
ONE_THREAD = {"n_threads": 1, "n_threads_batch": 1}
"""Where others are busy too, two threads of llama.cpp wait for each other most of the time."""
SMALL = {"enforce_eager": True, "max_model_len": 1024, "kv_cache_memory_bytes": 2**28}
NGRAM = {
    "block_size": 32,
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
}


@dataclass(frozen=True)
class Configuration:
    """How an engine is started, what its first answers are `against`, and whether fresh starts follow."""

    start: Callable[[], Any]
    kind: str = ""
    against: str | None = None
    repeated: bool = True


def llama_cpp_configurations(folder: Path) -> dict[str, Configuration]:
    def started(file: Path) -> Callable[[], LlamaCppEngine]:
        return lambda: LlamaCppEngine.start(EngineSpec.of("llama-cpp", str(file), None, ONE_THREAD))

    q4 = smollm2_gguf()
    q8, q2 = (quantised(q4, folder, name) for name in GGUF_TYPES)
    return {
        "q8_0": Configuration(started(q8)),
        "q2_k": Configuration(started(q2), DAMAGED, "q8_0", repeated=False),
        "q4_1": Configuration(started(q4), SAME, "q8_0"),
    }


def quantised(file: Path, folder: Path, name: str) -> Path:
    """The weights of a file in another type."""
    import llama_cpp

    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.allow_requantize = GGUF_TYPES[name], True
    made = folder / f"smollm2.{name}.gguf"
    if llama_cpp.llama_model_quantize(str(file).encode(), str(made).encode(), parameters):
        raise SystemExit(f"{file} cannot be written as {name}")
    return made


def vllm_configurations(folder: Path) -> dict[str, Configuration]:
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    model = str(smollm2_folder(folder))

    def started(width: int, **options: Any) -> Callable[[], VLLMEngine]:
        options |= {**SMALL, "max_num_seqs": width}
        return lambda: VLLMEngine.start(EngineSpec.of("vllm", model, "bf16", options))

    return {
        "bf16, width 8": Configuration(started(8)),
        "bf16, n-gram": Configuration(started(8, **NGRAM), SAME, "bf16, width 8"),
        "bf16, width 1": Configuration(started(1), SAME, "bf16, width 8"),
    }


CONFIGURATIONS = {"llama-cpp": llama_cpp_configurations, "vllm": vllm_configurations}


class EngineBench(Bench):
    """Configurations of one engine; what an earlier call found is taken up again."""

    def __init__(self, engine: str, configurations: dict[str, Configuration], out: Path) -> None:
        super().__init__(out)
        self._engine, self._configurations = engine, configurations
        self._kept = out.with_suffix(".baselines")
        if out.exists():
            self.lines += map(json.loads, out.read_text().splitlines())

    def run(self, name: str, runs: int) -> None:
        """Note what is missing of one configuration."""
        chosen, baseline = self._configurations[name], self.first(name)
        done = sum(line["kind"] == "unchanged" and line["configuration"] == name for line in self.lines)
        for run in range(done + 1, runs + 1 if chosen.repeated else 0):
            self.fresh("unchanged", chosen.start, baseline, backend=self._engine, configuration=name, run=run)

    def first(self, name: str) -> Baseline:
        """The answers of the first start of a configuration."""
        path = self._kept / f"{self._engine}, {name}.json"
        if not path.exists():
            self._kept.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._first_started(name)))
        return baseline_of([json.loads(path.read_text())])

    def _first_started(self, name: str) -> dict[str, Any]:
        chosen = self._configurations[name]
        before = self.first(chosen.against) if chosen.against else None
        engine = chosen.start()
        probed = self.probed(engine, before)
        self.loop.run(engine.close())
        if chosen.against:
            self._compare(
                chosen.kind, probed, backend=self._engine, configuration=f"{name} vs {chosen.against}"
            )
        return to_stored(probed.now, text=True)

    def _compare(self, kind: str, probed: Probed, **facts: Any) -> None:
        """Note what the rule says by its own limits, and by those of a user."""
        self.add(kind, **facts, **summary(findings_of(probed)))
        limits = replace(LIMITS, quality_vs=probed.baseline.precision)
        probed = replace(probed, plan=replace(probed.plan, limits=limits))
        self.add(kind, **facts, limits=asdict(limits), **summary(findings_of(probed)))


def main() -> int:
    """Run all configurations of an engine, or some."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("engine", choices=CONFIGURATIONS, help="whose environment this is")
    parser.add_argument("--configuration", action="append", help="one of them; may be repeated")
    parser.add_argument("--out", type=Path, default=Path("quality_engines.jsonl"), help="where the lines go")
    parser.add_argument("--runs", type=int, default=RUNS, help="unchanged runs of each configuration")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        configurations = CONFIGURATIONS[given.engine](Path(folder))
        chosen = given.configuration or list(configurations)
        if unknown := [name for name in chosen if name not in configurations]:
            parser.error(f"no configuration {unknown[0]!r}: there are {', '.join(map(repr, configurations))}")
        bench = EngineBench(given.engine, configurations, given.out)
        for name in chosen:
            bench.run(name, given.runs)
        bench.loop.close()
    return told(list(wrong_verdicts(bench.lines)))


if __name__ == "__main__":
    raise SystemExit(main())
