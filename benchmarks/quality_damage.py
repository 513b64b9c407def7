"""Five ways to damage a running transformers engine, each in five variants, and how to undo it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.engines.local.transformers_generation import Generation

Damage = Callable[[TransformersEngine, int], AbstractContextManager[None]]

ZEROED = 0.01
KEPT_TOKENS = (32, 48, 96, 160, 256)
"""So many of the last tokens of each prompt are left: of the long one in the set, half at the most."""
TEMPLATES = (
    "{% for m in messages %}{{ m.content }}\n{% endfor %}",
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ",
    "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}",
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages %}<|user|>\n{{ m.content }}</s>\n{% endfor %}<|assistant|>\n",
)


@contextmanager
def zeroed_weights(engine: TransformersEngine, variant: int) -> Iterator[None]:
    """One percent of the weights of all linear layers is 0; another one percent in each variant."""
    import torch

    draw = torch.Generator().manual_seed(variant)
    linear = [m.weight for m in engine._model.modules() if isinstance(m, torch.nn.Linear)]
    saved = []
    with torch.no_grad():
        for weight in linear:
            where = (torch.rand(weight.shape, generator=draw) < ZEROED).to(weight.device)
            saved.append((weight, where, weight[where].clone()))
            weight[where] = 0
    yield
    with torch.no_grad():
        for weight, where, values in saved:
            weight[where] = values


@contextmanager
def wrong_chat_template(engine: TransformersEngine, variant: int) -> Iterator[None]:
    """The template of another model, or none."""
    before, engine._tokenizer.chat_template = engine._tokenizer.chat_template, TEMPLATES[variant]
    yield
    engine._tokenizer.chat_template = before


@contextmanager
def truncated_context(engine: TransformersEngine, variant: int) -> Iterator[None]:
    """Only the last tokens of a prompt reach the model."""
    tokenizer, kept = engine._tokenizer, KEPT_TOKENS[variant]
    whole = tokenizer.apply_chat_template

    def cut(*arguments: Any, **options: Any) -> Any:
        encoded = whole(*arguments, **options)
        for name, tokens in encoded.items():
            encoded[name] = tokens[:, -kept:]
        return encoded

    tokenizer.apply_chat_template = cut
    yield
    del tokenizer.apply_chat_template


@contextmanager
def drawn_among_ties(_: TransformersEngine, variant: int) -> Iterator[None]:
    """Greedy is carried out as sampling with top_k=1, which draws among tokens that tie for the first."""
    import torch

    torch.manual_seed(variant)
    greedy = Generation._generation_config

    def sampling(self: Generation, prompt_tokens: int) -> Any:
        config = greedy(self, prompt_tokens)
        config.update(do_sample=True, top_k=1, temperature=1.0, top_p=1.0)
        return config

    Generation._generation_config = sampling  # type: ignore[method-assign]
    yield
    Generation._generation_config = greedy  # type: ignore[method-assign]


@contextmanager
def cache_off_by_one(engine: TransformersEngine, variant: int) -> Iterator[None]:
    """In decoding, the position is one too high or too low, or the newest cache entry is the one before it.

    The latter in all layers, in the first half, or in the second half of them.
    """

    def shifted(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        cache, tokens = options.get("cache") or options.get("past_key_values"), options.get("input_ids")
        if cache is None or tokens is None or tokens.shape[1] != 1 or not cache.get_seq_length():
            return arguments, options
        if variant < 2:
            import torch

            place = cache.get_seq_length() + (1 if variant == 0 else -1)
            options["position_ids"] = torch.tensor([[place]], device=tokens.device)
        else:
            layers, half = cache.layers, len(cache.layers) // 2
            for layer in (layers, layers[:half], layers[half:])[variant - 2]:
                layer.keys[..., -1, :] = layer.keys[..., -2, :]
                layer.values[..., -1, :] = layer.values[..., -2, :]
        return arguments, options

    hook = engine._model.register_forward_pre_hook(shifted, with_kwargs=True)
    yield
    hook.remove()


DAMAGES: dict[str, Damage] = {
    "1 % of the weights zeroed": zeroed_weights,
    "a wrong chat template": wrong_chat_template,
    "a truncated context": truncated_context,
    "top_k=1 taken for greedy": drawn_among_ties,
    "an off-by-one in the cache": cache_off_by_one,
}
