"""Given tokens under a real model: what the engine says of them, held against the model itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers

from pytest_llmspeed import EngineSpec, GenerationError, Request
from pytest_llmspeed.engines.local._tiny import TinyEngine
from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.scores import ScoreChange, token_changes, truncated_kl

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = "What is the capital of France?"
VOCABULARY = 99


def started(model: Path, precision: str) -> TransformersEngine:
    return TransformersEngine.start(EngineSpec.of("transformers", str(model), precision, {}))


def answered(engine: TransformersEngine, max_tokens: int = 24) -> tuple[int, ...]:
    exchange = asyncio.run(engine.exchange(Request(PROMPT, max_tokens=max_tokens)))
    assert exchange.token_ids is not None
    return exchange.token_ids


def scored(engine: TransformersEngine, tokens: tuple[int, ...], top: int = 20) -> TokenScores:
    return asyncio.run(engine.score(Request(PROMPT), tokens, top))


def logprobs_by_hand(model: Path, dtype: torch.dtype, tokens: tuple[int, ...]) -> Any:
    """The log-probabilities of all tokens at each position of an answer, by transformers, in one pass."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], add_generation_prompt=True, tokenize=False
    )
    prompt = tokenizer(text)["input_ids"]
    with torch.inference_mode():
        logits = loaded(torch.tensor([[*prompt, *tokens]])).logits[0]
    return torch.log_softmax(logits[len(prompt) - 1 : -1].float(), dim=-1)


def test_an_engine_in_process_can_score() -> None:
    """It implements `score`, which is all that the quality check asks for."""
    assert TinyEngine.start(EngineSpec.of("tiny", None, None, {})).can_score


def test_the_tokens_of_an_answer_are_its_text(tiny_model: Path) -> None:
    """As many as were counted, and the tokenizer makes the same text of them."""
    engine = started(tiny_model, "fp32")
    exchange = asyncio.run(engine.exchange(Request(PROMPT, max_tokens=12)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    assert exchange.token_ids is not None
    assert len(exchange.token_ids) == 12
    assert tokenizer.decode(exchange.token_ids) == exchange.joined("text")


@pytest.mark.parametrize(
    ("precision", "dtype", "rounding"), [("fp32", torch.float32, 1e-3), ("bf16", torch.bfloat16, 0.05)]
)
def test_scores_are_those_of_the_model(
    tiny_model: Path, precision: str, dtype: torch.dtype, rounding: float
) -> None:
    """To a thousandth of a nat, for the tokens themselves and the likeliest ones; in bf16 to its rounding."""
    engine = started(tiny_model, precision)
    tokens = answered(engine)
    found, expected = scored(engine, tokens), logprobs_by_hand(tiny_model, dtype, tokens)
    for place, token in enumerate(tokens):
        assert found.logprobs[place] == pytest.approx(float(expected[place, token]), abs=rounding)
        best = expected[place].topk(20)
        assert [logprob for _, logprob in found.top[place]] == pytest.approx(
            best.values.tolist(), abs=rounding
        )


def test_what_is_wrong_in_the_cache_shows(tiny_model: Path) -> None:
    """A position that is one too high while decoding leaves the first token as it was, and no other."""
    engine = started(tiny_model, "fp32")
    tokens = answered(engine)
    before = scored(engine, tokens)

    def one_too_high(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options["input_ids"].shape[1] == 1:
            options["position_ids"] = options["position_ids"] + 1
        return arguments, options

    engine._model.register_forward_pre_hook(one_too_high, with_kwargs=True)
    first, *others = token_changes(before, scored(engine, tokens))
    assert first.kl == 0
    assert all(change.kl > 0 for change in others)


def test_no_tokens_have_no_scores(tiny_model: Path) -> None:
    """An empty answer is none to ask about."""
    assert scored(started(tiny_model, "fp32"), ()) == TokenScores((), (), ())


def test_the_divergence_is_that_of_the_whole_distributions(tiny_model: Path) -> None:
    """With all tokens listed it is KL(fp32‖bf16) by hand; with twenty it is less."""
    exact, rounded = started(tiny_model, "fp32"), started(tiny_model, "bf16")
    tokens = answered(exact)
    before = scored(exact, tokens, VOCABULARY)
    now = scored(rounded, tokens, VOCABULARY)
    p = logprobs_by_hand(tiny_model, torch.float32, tokens)
    q = logprobs_by_hand(tiny_model, torch.bfloat16, tokens)
    by_hand = (p.exp() * (p - q)).sum(dim=-1)
    for place, expected in enumerate(by_hand.tolist()):
        assert truncated_kl(before.top[place], now.top[place]) == pytest.approx(expected, abs=1e-4, rel=0.2)
        assert truncated_kl(before.cut(20).top[place], now.cut(20).top[place]) <= expected + 1e-5
    assert ScoreChange.of(token_changes(before, now)).kl == pytest.approx(float(by_hand.mean()), rel=0.2)


def test_greedy_tokens_are_the_likeliest_by_their_own_scores(tiny_model: Path) -> None:
    """Scoring goes the way of decoding: not even rounding lies between them."""
    engine = started(tiny_model, "bf16")
    assert max(scored(engine, answered(engine)).shortfalls) == 0


def test_scoring_the_same_tokens_again_gives_the_same(tiny_model: Path) -> None:
    """To the last bit, on a CPU."""
    engine = started(tiny_model, "fp32")
    tokens = answered(engine)
    assert scored(engine, tokens) == scored(engine, tokens)


def test_messages_that_the_model_cannot_take_are_an_error(tiny_model: Path) -> None:
    """The library's error becomes ours."""
    engine = started(tiny_model, "fp32")
    request = Request(({"role": "user", "content": "hi"},), endpoint="completions")
    with pytest.raises(GenerationError, match="takes a text, not messages"):
        asyncio.run(engine.score(request, (1, 2), 5))
