"""What is asked of vLLM and what is made of its outputs, without vLLM: tests/engine_contract runs it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_llmspeed import EngineError, Event, Request
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._vllm import VLLMEngine
from pytest_llmspeed.engines.local.vllm_arguments import (
    argument_problem,
    arguments,
    precision_that_runs,
    prefix_cache_that_runs,
)
from pytest_llmspeed.engines.local.vllm_output import VLLMAnswer
from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.metrics.sample import sample_of

T0 = 50.0


@dataclass
class EngineArguments:
    """Some of vLLM's."""

    max_model_len: int = 0
    enforce_eager: bool = False


def spec(precision: str | None = None, **options: Any) -> EngineSpec:
    return EngineSpec.of("vllm", "m", precision, options)


def config(dtype: str = "bfloat16", quantization: str | None = None, caching: bool = False) -> Any:
    """vLLM's configuration, as far as it is read."""
    model = SimpleNamespace(dtype=f"torch.{dtype}", quantization=quantization)
    return SimpleNamespace(model_config=model, cache_config=SimpleNamespace(enable_prefix_caching=caching))


def output(text: str, *tokens: int, finish: str | None = None, stop: Any = None, **counts: Any) -> Any:
    """One of vLLM's outputs."""
    completion = SimpleNamespace(
        text=text, token_ids=list(tokens), finish_reason=finish, stop_reason=stop, **counts
    )
    return SimpleNamespace(
        outputs=[completion], prompt_token_ids=[1, 2, 3], num_cached_tokens=2, finished=finish is not None
    )


class Tokenizer:
    """Decodes what is left over."""

    def decode(self, tokens: list[int], *, skip_special_tokens: bool) -> str:
        return "\N{REPLACEMENT CHARACTER}" * len(tokens)


def answered(*outputs: Any, one_token_a_yield: bool = True, on_event: Any = None) -> Any:
    """The exchange of outputs that came 10 ms apart."""
    answer = VLLMAnswer(Request("hello"), Tokenizer(), T0, one_token_a_yield, on_event)
    for place, each in enumerate(outputs, 1):
        answer.take(T0 + place / 100, each)
    return answer.exchange()


def test_an_argument_that_vllm_does_not_have_is_named() -> None:
    """Before anything is loaded, with the nearest name that there is."""
    said = argument_problem(spec(max_model_length=5), EngineArguments)
    assert "no engine argument 'max_model_length'; did you mean 'max_model_len'?" in str(said)


def test_a_prefix_cache_is_cold_or_warm() -> None:
    """Told with all that is wrong in the settings, before anything starts."""
    (said,) = Registry(BUILT_IN).problems(spec(prefix_cache="hot"))
    assert said == "backend 'vllm' has no prefix_cache='hot'; known: cold, warm"


def test_arguments_go_by_their_own_names() -> None:
    """The precision becomes a dtype or a quantisation, the prefix cache is off unless asked for."""
    assert argument_problem(spec(max_model_len=9, prefix_cache="warm"), EngineArguments) is None
    assert arguments(spec("fp16", max_model_len=9), "/m") == {
        "model": "/m",
        "enable_prefix_caching": False,
        "dtype": "float16",
        "max_model_len": 9,
    }
    assert arguments(spec("awq", dtype="float16"), "/m")["quantization"] == "awq"
    assert arguments(spec(prefix_cache="warm"), "/m")["enable_prefix_caching"] is True


def test_speculation_is_counted_where_it_is_asked_for() -> None:
    """vLLM refuses to count it otherwise."""
    asked = arguments(spec(speculative_config={"method": "ngram"}), "/m")
    assert asked["per_request_spec_decode_metrics"] == "summary"
    assert "per_request_spec_decode_metrics" not in arguments(spec(), "/m")


@pytest.mark.parametrize(
    ("runs", "name"),
    [
        (config("float32"), "fp32"),
        (config("bfloat16"), "bf16"),
        (config("float16", "awq_marlin"), "awq"),
        (config("bfloat16", "compressed-tensors"), "compressed-tensors"),
    ],
)
def test_the_precision_is_that_of_the_configuration(runs: Any, name: str) -> None:
    """A quantised model goes by its quantisation, whatever kernel runs it."""
    assert precision_that_runs(runs, spec()) == name
    assert precision_that_runs(runs, spec(name)) == name


def test_what_runs_is_what_was_asked_for_or_an_error() -> None:
    """Another precision, another prefix cache."""
    with pytest.raises(EngineError, match="requested in fp16, but vLLM runs it in awq"):
        precision_that_runs(config("float16", "awq"), spec("fp16"))
    with pytest.raises(EngineError, match="prefix_cache='warm' was requested, but vLLM runs with a cold one"):
        prefix_cache_that_runs(config(), spec(prefix_cache="warm"))
    assert prefix_cache_that_runs(config(caching=True), spec(enable_prefix_caching=True)) == "warm"


def test_a_gguf_file_is_refused_with_the_way_out(tmp_path: Any) -> None:
    """vLLM does not read it."""
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(EngineError, match="which vLLM does not read: give a folder"):
        VLLMEngine.start(EngineSpec.of("vllm", str(file), None, {}))


def test_an_address_is_no_argument_of_vllm() -> None:
    """Whatever it takes else: the url of the settings is for servers."""
    registry = Registry(BUILT_IN)
    assert registry.takes("vllm", "enforce_eager")
    assert not registry.takes("vllm", "url")


def test_the_end_token_is_no_part_of_the_answer() -> None:
    """It is neither counted nor an event; the token that completes no character waits for the next."""
    found = answered(output("a", 7), output("", 8), output("b", 9), output("", 2, finish="stop"))
    assert [(event.text, event.tokens) for event in found.events] == [("a", 1), ("b", 2)]
    assert (found.usage.prompt_tokens, found.usage.output_tokens, found.usage.cached_tokens) == (3, 3, 2)
    assert (found.finish_reason, found.token_source, found.error) == ("stop", "engine", None)
    assert found.token_ids == (7, 8, 9, 2)


def test_a_stop_string_ends_an_answer_whose_tokens_all_count() -> None:
    """No end token was made."""
    assert answered(output("a", 7), output("", 8, finish="stop", stop="END")).usage.output_tokens == 2


def test_half_a_character_at_the_limit_is_shown() -> None:
    """The last tokens of a cut answer are seen, so they count with their time."""
    found = answered(output("a", 7), output("", 8, finish="length"))
    assert found.events[-1] == Event(T0 + 0.02, text="\N{REPLACEMENT CHARACTER}", tokens=1)


def test_several_tokens_at_once_are_a_lag_of_the_client() -> None:
    """Unless the engine gives them so, as it does when it speculates."""
    outputs = (output("a", 7), output("bc", 8, 9), output("d", 10, finish="length"))
    assert "client_lag" in sample_of(answered(*outputs)).flags
    assert "client_lag" not in sample_of(answered(*outputs, one_token_a_yield=False)).flags


def test_each_event_is_told_as_it_comes() -> None:
    """To whoever listens."""
    told: list[Event] = []
    found = answered(output("a", 7), output("", 8), output("b", 9, finish="length"), on_event=told.append)
    assert tuple(told) == found.events


def test_speculation_is_summed_up() -> None:
    """Of ten drafts of three, four were taken whole, two in part, and the rest not at all."""
    counts = SimpleNamespace(histogram=[4, 2, 0, 4], num_draft_tokens=30)
    sample = sample_of(answered(output("a", 7, finish="length", spec_decode_metrics=counts)))
    assert sample.acceptance_rate == pytest.approx(14 / 30)
    assert sample.tokens_per_step == pytest.approx(2.4)


def test_a_request_that_the_engine_gave_up_has_failed() -> None:
    """An abort is no answer."""
    assert answered(output("a", 7), output("", finish="abort")).error == "vLLM ended the request: abort"
