"""A small seeded transformer, built on the spot: no download, for trying the tool and testing it."""

from __future__ import annotations

import string
import time
from typing import Any, ClassVar, Self

from pytest_llmspeed.engines.base import AUTO, EngineSpec
from pytest_llmspeed.engines.local._transformers import TransformersEngine, import_libraries

SEED = 20260101
CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n\t"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "
)


class TinyEngine(TransformersEngine):
    """A random Llama of four layers over single characters. Its answers mean nothing.

    It runs in one thread: it is too small for more, and threads that wait for each other on a shared
    machine are the largest noise there is. It never ends an answer by itself, so every answer has
    `max_tokens` tokens. Option: `token_delay_ms`, a sleep before each token, to see what a slowdown
    looks like.
    """

    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16")
    options: ClassVar[frozenset[str]] = frozenset({"token_delay_ms", "prefix_cache"})
    needs_model: ClassVar[bool] = False

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Nothing can be wrong: a model that is named is ignored."""

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the model, built from its seed; raises `EngineError` if a library is missing."""
        torch, transformers = import_libraries()
        precision = "fp32" if spec.precision == AUTO else spec.precision
        model = _build(torch, transformers, precision)
        if delay_ms := float(spec.options.get("token_delay_ms", 0)):
            _slow_down(model, delay_ms)
        shown = EngineSpec.of(spec.backend, "tiny", precision, {"threads": 1, **spec.options})
        return cls("tiny", model, _tokenizer(transformers), shown, None)


def _build(torch: Any, transformers: Any, precision: str) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=len(CHARACTERS) + 1,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=8192,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = transformers.LlamaForCausalLM(config)
    return model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[precision]).eval()


def _slow_down(model: Any, delay_ms: float) -> None:
    model.register_forward_pre_hook(lambda *_: time.sleep(delay_ms / 1000))


def _tokenizer(transformers: Any) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    vocabulary = {character: place for place, character in enumerate(CHARACTERS)}
    vocabulary["�"] = len(CHARACTERS)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="�"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="�", chat_template=CHAT_TEMPLATE
    )
