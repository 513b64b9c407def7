"""`transformers` on a GPU, in each precision: what loads, what it costs, and what measuring it adds.

A Llama of 1.6 billion seeded random weights is built from its configuration, with a vocabulary of made-up
words: nothing is downloaded. The product loads it in fp32, fp16, bf16, int8 and int4, and tells the
precision that it reads back, the peak of memory (of the GPU with CUDA, else of the process), TTFT and TPOT.
Beside it, in alternated pairs in the same process, `model.generate` alone makes the same tokens: the last
column is how much longer ours took, the median of the pairs with its 95 % interval (`instrumentation_cost`;
target: at most 1 % more). Exits with 0 if all precisions met it, 1 if one missed it, could not be had, or
gave different tokens on the two sides, 2 if an interval reaches past it.

It wants a GPU, and there at 30 ms a token some five minutes: `python benchmarks/transformers_device.py --out
device.jsonl`. On a CPU a small model shows that it runs, in two minutes on one core: `--device cpu
--threads 1 --layers 8 --hidden 512 --tokens 32`. There noise alone moves a pair by more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from instrumentation_cost import PAIRS, TARGET, TOKENS, bare_call, check, our_call
from pairs import EXIT, add_pairs, alternated, interval, seconds, verdict
from tabulate import tabulate

from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._transformers import TransformersEngine, first_line, import_libraries
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.errors import EngineError, GenerationError
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system import machine

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "int4")
LAYERS, HIDDEN, HEAD = 24, 2048, 64
WORDS, UNKNOWN = 32_000, "?"
PROMPT_TOKENS = 256
SEED = 20260101
COLUMNS = ("asked", "read back", "load s", "peak MiB", "TTFT ms", "TPOT ms", "bare s", "ours s", "ours more")


@dataclass(frozen=True)
class Found:
    """What was seen in one precision; times in seconds unless named otherwise, those of pairs in order."""

    machine: str
    versions: dict[str, str]
    weights: int
    asked: str
    read_back: str
    load_s: float | None
    peak_memory_mib: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    bare_s: tuple[float, ...]
    ours_s: tuple[float, ...]

    @property
    def more(self) -> list[float]:
        """By what share ours took longer, in each pair."""
        return [ours_s / bare_s - 1 for bare_s, ours_s in zip(self.bare_s, self.ours_s, strict=True)]

    @property
    def verdict(self) -> str:
        """What that says of the target."""
        return verdict(median(self.more), interval(self.more)[1], TARGET)

    @property
    def row(self) -> tuple[object, ...]:
        """The same in the order of `COLUMNS`."""
        low, high = interval(self.more)
        more = f"{median(self.more):+.2%} ({low:+.2%} to {high:+.2%}): {self.verdict}"
        figures = (self.load_s, self.peak_memory_mib, self.ttft_ms, self.tpot_ms)
        return (self.asked, self.read_back, *figures, median(self.bare_s), median(self.ours_s), more)


def build(folder: Path, given: argparse.Namespace) -> int:
    """Write the model in bf16, with its tokenizer; return how many weights it has."""
    torch, transformers = import_libraries()
    config = transformers.LlamaConfig(
        vocab_size=WORDS + 1,
        hidden_size=given.hidden,
        intermediate_size=4 * given.hidden,
        num_hidden_layers=given.layers,
        num_attention_heads=given.hidden // HEAD,
        num_key_value_heads=max(given.hidden // HEAD // 4, 1),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(SEED)
    try:
        with torch.device(given.device):
            model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        raise SystemExit(f"--device {given.device}: {first_line(error)}") from error
    model.save_pretrained(folder)
    tokenizer(transformers).save_pretrained(folder)
    return int(model.num_parameters())


def tokenizer(transformers: Any) -> Any:
    """Return a tokenizer whose tokens are made-up words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{number}": number for number in range(WORDS)} | {UNKNOWN: WORDS}
    made = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token=UNKNOWN, chat_template=template
    )


def found_in(pool: Pool, spec: EngineSpec, weights: int, given: argparse.Namespace) -> Found:
    """Return what is seen in the precision of a spec; raises `EngineError` if it cannot be had."""
    engine = pool.lease(spec)
    assert isinstance(engine, TransformersEngine)
    prompt = " ".join(f"w{number}" for number in range(given.prompt_tokens))
    recorder = Recorder()
    bare = bare_call(engine, given.tokens, prompt)
    ours = our_call(LLMClient(engine, pool.loop, recorder), given.tokens, prompt)
    check(bare, ours, engine._tokenizer, given.tokens)
    warmed_up = recorder.count
    pairs = alternated(lambda: seconds(bare), lambda: seconds(ours), given.pairs)
    bare_s, ours_s = zip(*pairs, strict=True)
    seen, running = recorder.since(warmed_up), pool.running(engine)
    return Found(
        machine=engine.hardware.gpus or machine.machine().cpu,
        versions=dict(engine.backend.versions),
        weights=weights,
        asked=spec.precision,
        read_back=engine.backend.precision or "",
        load_s=running.load_s,
        peak_memory_mib=running.peak_memory_mib,
        ttft_ms=seen.median("ttft_ms"),
        tpot_ms=seen.median("tpot_ms"),
        bare_s=bare_s,
        ours_s=ours_s,
    )


def results(folder: Path, weights: int, given: argparse.Namespace) -> Iterator[Found]:
    """Yield what is seen, precision by precision; say of one that cannot be had why."""
    pool = Pool(Registry(BUILT_IN))
    options = {"device": given.device} | ({"threads": given.threads} if given.threads else {})
    try:
        for precision in given.precisions:
            spec = EngineSpec.of("transformers", str(folder), precision, options)
            try:
                yield found_in(pool, spec, weights, given)
            except (EngineError, GenerationError, SystemExit) as error:  # the last from `check`
                print(f"{precision}: {error}", file=sys.stderr)
    finally:
        pool.close()


def report(found: list[Found], tokens: int) -> None:
    """Print the table under the name of the machine."""
    one = found[0]
    versions = ", ".join(f"{name} {version}" for name, version in found[-1].versions.items())
    print(f"{one.machine}; {versions}")
    print(f"{one.weights / 1e9:.2f} billion weights, {tokens} tokens, {len(one.more)} pairs")
    print(tabulate([each.row for each in found], headers=COLUMNS, floatfmt=".3f", missingval="-"))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, mps or cpu (default: cuda)")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--layers", type=int, default=LAYERS, help=f"default: {LAYERS}")
    parser.add_argument("--hidden", type=int, default=HIDDEN, help=f"a multiple of {HEAD}; default: {HIDDEN}")
    add_pairs(parser, PAIRS)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"default: {TOKENS}")
    parser.add_argument("--prompt-tokens", type=int, default=PROMPT_TOKENS, help=f"default: {PROMPT_TOKENS}")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own)")
    parser.add_argument("--out", type=Path, help="add a line of JSON for each precision to this file")
    return parser.parse_args()


def main() -> int:
    given, found = arguments(), []
    with tempfile.TemporaryDirectory() as folder:
        weights = build(Path(folder), given)
        for each in results(Path(folder), weights, given):
            found.append(each)
            if given.out:
                with given.out.open("a", encoding="utf-8") as file:
                    print(json.dumps(asdict(each)), file=file)
    if found:
        report(found, given.tokens)
    missing = ["missed"] * (len(given.precisions) - len(found))
    words = {*missing, *(each.verdict for each in found)}
    return EXIT[next(word for word in ("missed", "undecided", "met") if word in words)]


if __name__ == "__main__":
    sys.exit(main())
