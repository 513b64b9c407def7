"""The quality check on SmolLM2-135M-Instruct: what it says of unchanged engines, and of damaged ones.

Twelve prompts of the general set, 32 tokens each, in fp32 and bf16, on transformers:

unchanged   five fresh starts of each precision against its own baseline: no failure is right
kernels     the same with another implementation of attention: rounding changes, the model does not
damaged     five damages in five variants each (quality_damage.py), in bf16: each should fail
noise       the stored log-probabilities with rounding errors on every logit, a thousand times
agreement   scores against a direct computation with transformers, on the same tokens
near-tie    the first token of "What is the capital of France?"

Writes what it found as JSON lines. Exits with 0 if nothing unchanged failed and every damage was caught.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from quality_bench import (
    DAMAGED,
    MAX_TOKENS,
    RUNS,
    Bench,
    Line,
    smollm2_folder,
    summary,
    told,
    wrong_verdicts,
)
from quality_damage import DAMAGES

from pytest_llmspeed import EngineSpec, Request
from pytest_llmspeed.engines.local._tiny import TinyEngine
from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.answers import Baseline, PlannedCheck, Probed
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.probe import Probe
from pytest_llmspeed.quality.prompt_files import general_prompt_set
from pytest_llmspeed.quality.scores import ScoreChange, pooled, token_changes
from pytest_llmspeed.quality.snapshot import baseline_of, to_stored
from pytest_llmspeed.quality.thresholds import LOGIT_EXPONENT, MANTISSA_BITS, kl_limit, near_tie_nats

RESCORINGS = 1000
CAPITAL = "What is the capital of France?"
OTHER_KERNELS = "eager"


class TransformersBench(Bench):
    """With a model, as transformers reads it."""

    def __init__(self, model: Path, out: Path, threads: int | None) -> None:
        super().__init__(out)
        self.model, self.threads = model, threads

    def engine(self, precision: str, **options: Any) -> TransformersEngine:
        """Start the model anew."""
        options = {"threads": self.threads, **options} if self.threads else options
        return TransformersEngine.start(EngineSpec.of("transformers", str(self.model), precision, options))


def stored(probed: Probed) -> Baseline:
    """The baseline as it comes back from a run file."""
    return baseline_of([json.loads(json.dumps(to_stored(probed.now, text=True)))])


def unchanged(bench: TransformersBench, precision: str, runs: int) -> Baseline:
    """Fresh starts against the first one, then one with other kernels."""
    engine = bench.engine(precision)
    baseline = stored(bench.probed(engine))
    bench.loop.run(engine.close())
    for run in range(1, runs + 1):
        bench.fresh("unchanged", partial(bench.engine, precision), baseline, precision=precision, run=run)
    engine = bench.engine(precision, attn_implementation=OTHER_KERNELS)
    other = bench.probed(engine, baseline)
    bench.add("kernels", precision=precision, attention=OTHER_KERNELS, **summary(findings_of(other)))
    rescored(bench, precision, other)
    bench.loop.run(engine.close())
    return baseline


def rescored(bench: Bench, precision: str, probed: Probed) -> None:
    """The baseline's scores a thousand times, each logit off by up to one unit in the last place."""
    ulp = 2.0 ** (LOGIT_EXPONENT - MANTISSA_BITS[precision])
    before = probed.baseline.answers
    draw = random.Random(1)
    kls = []
    for _ in range(RESCORINGS):
        scores = (before[a.hash].scores for a in probed.now.answers)
        changes = [token_changes(each, _noisy(each, ulp, draw)) for each in scores if each]
        kls.append(ScoreChange.of(list(pooled(changes))).kl)
    limit = kl_limit(precision, probed.baseline.floor)
    failed = sum(kl > limit for kl in kls)
    bench.add("noise", precision=precision, rescorings=RESCORINGS, largest_kl=max(kls), failed=failed)


def _noisy(before: TokenScores, ulp: float, draw: random.Random) -> TokenScores:
    """Scores of logits that moved, the likeliest tokens one by one and the rest as it was."""
    top = []
    for place in before.top:
        moved = [(token, logprob + draw.uniform(-ulp, ulp)) for token, logprob in place]
        rest = max(1 - sum(exp(logprob) for _, logprob in place), 0.0)
        total = log(sum(exp(logprob) for _, logprob in moved) + rest)
        top.append(tuple(sorted(((t, logprob - total) for t, logprob in moved), key=lambda each: -each[1])))
    listed = [dict(place) for place in top]
    known = zip(before.token_ids, before.logprobs, listed, strict=True)
    logprobs = tuple(place.get(token, logprob) for token, logprob, place in known)
    return TokenScores(before.token_ids, logprobs, tuple(top))


def damaged(bench: TransformersBench, baseline: Baseline, precision: str, variants: int) -> None:
    engine = bench.engine(precision)
    for variant in range(variants):
        for name, damage in DAMAGES.items():
            with damage(engine, variant):
                bench.check(DAMAGED, engine, baseline, damage=name, variant=variant, precision=precision)
    bench.check("unchanged", engine, baseline, precision=precision, run="after all damage is undone")
    bench.loop.run(engine.close())


def agreement(bench: TransformersBench) -> None:
    """The largest difference between the engine's scores and transformers called by hand, in fp32."""
    import torch

    engine = bench.engine("fp32")
    request = Request(CAPITAL, max_tokens=MAX_TOKENS)
    tokens = bench.loop.run(engine.exchange(request)).token_ids
    assert tokens is not None
    found = bench.loop.run(engine.score(request, tokens, 20))
    prompt = engine._tokenizer.apply_chat_template(
        request.messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    with torch.inference_mode():
        logits = engine._model(torch.cat([prompt, torch.tensor([tokens])], dim=1)).logits[0]
    by_hand = torch.log_softmax(logits[prompt.shape[1] - 1 : -1].double(), dim=-1)
    off = [
        abs(logprob - float(by_hand[place, token]))
        for place, top in enumerate(found.top)
        for token, logprob in top
    ]
    bench.add("agreement", tokens=len(tokens), compared=len(off), largest_difference=max(off))
    tie = found.top[0]
    names = [engine._tokenizer.decode([token]) for token, _ in tie[:2]]
    gap = tie[0][1] - tie[1][1]
    called = {precision: gap <= near_tie_nats(precision, None) for precision in ("fp32", "fp16", "bf16")}
    bench.add("near-tie", prompt=CAPITAL, first=names, gap_nats=round(gap, 4), called_a_near_tie=called)
    bench.loop.run(engine.close())


def general_set_on_tiny(bench: Bench) -> None:
    engine = TinyEngine.start(EngineSpec.of("tiny", None, None, {}))
    plan = PlannedCheck(general_prompt_set())
    probe = Probe(engine, bench.loop, lambda _: Baseline())
    started_s, started_cpu_s = time.monotonic(), time.process_time()
    probe.check(plan)
    bench.add(
        "general set on tiny",
        prompts=len(plan.prompt_set.prompts),
        seconds=round(time.monotonic() - started_s, 1),
        cpu_seconds=round(time.process_time() - started_cpu_s, 1),
        stored_bytes=len(json.dumps(to_stored(probe.probed["general"].now, text=True))),
    )
    bench.loop.run(engine.close())


def failures(lines: list[Line]) -> Iterator[str]:
    """What is not as it should be."""
    yield from wrong_verdicts(lines)
    for line in lines:
        if line["kind"] == "noise" and line["failed"]:
            yield f"{line['failed']} of {line['rescorings']} re-scorings failed in {line['precision']}"


def main() -> int:
    """Run everything, or a part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("quality.jsonl"), help="where the lines go")
    parser.add_argument("--runs", type=int, default=RUNS, help="unchanged runs of each precision")
    parser.add_argument("--variants", type=int, default=RUNS, help="variants of each damage")
    parser.add_argument("--threads", type=int, help="threads of torch")
    given = parser.parse_args()
    given.out.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = TransformersBench(smollm2_folder(Path(folder)), given.out, given.threads)
        general_set_on_tiny(bench)
        agreement(bench)
        damaged(bench, unchanged(bench, "bf16", given.runs), "bf16", given.variants)
        unchanged(bench, "fp32", given.runs)
        bench.loop.close()
    return told(list(failures(bench.lines)))


if __name__ == "__main__":
    raise SystemExit(main())
