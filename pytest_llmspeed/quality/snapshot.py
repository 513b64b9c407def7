"""A checked set ⇄ what the store keeps of it: hashes, scores and, if texts may be stored, the answers.

Token ids and log-probabilities are packed: little-endian 32-bit numbers, and 16-bit floats, which keep
a log-probability to a 4000th of its size; compressed, in base64.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.answers import Baseline, CheckedAnswer, CheckedSet, NoiseFloor
from pytest_llmspeed.quality.scores import LEAST_LOGPROB, STORED_TOP

PLAIN = ("prompt", "hash", "finish_reason", "prompt_tokens", "kept", "score", "repeated", "repeated_beside")


MOST_TOKENS = 1 << 18
"""Tokens of one stored answer at most: no engine here answers at such length."""
MOST_TOKENS_IN_ALL = 1 << 23
"""Tokens of all answers of one check together: what fits into memory."""


def to_stored(checked: CheckedSet, *, text: bool) -> dict[str, Any]:
    """Return a set as builtins; `text=False` leaves out all that an answer could be read from."""
    return {
        "prompts": checked.name,
        "precision": checked.precision,
        "width": checked.width,
        "floor": None if checked.floor is None else asdict(checked.floor),
        "answers": [_answer_to_stored(answer, text=text) for answer in checked.answers],
    }


def _answer_to_stored(answer: CheckedAnswer, *, text: bool) -> dict[str, Any]:
    stored = {name: getattr(answer, name) for name in PLAIN}
    stored["answer_hash"] = hash_of(answer)
    if text:
        stored["texts"] = list(answer.texts)
        stored["not_kept"] = list(answer.not_kept)
        if answer.token_ids is not None:
            stored["tokens"] = _packed("I", answer.token_ids)
        if answer.scores is not None:
            stored["scores"] = _scores_to_stored(answer.scores.cut(STORED_TOP))
    return stored


def hash_of(answer: CheckedAnswer) -> str:
    """Return a hash of an answer's texts: whether it has changed shows without them."""
    whole = "\x1e".join(answer.texts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:16]


def _scores_to_stored(scores: TokenScores) -> dict[str, Any]:
    listed = list(chain.from_iterable(scores.top))
    return {
        "width": len(scores.top[0]) if scores.top else 0,
        "logprobs": _packed("e", _halves(scores.logprobs)),
        "top_ids": _packed("I", [token for token, _ in listed]),
        "top_logprobs": _packed("e", _halves(logprob for _, logprob in listed)),
    }


def _halves(logprobs: Iterable[float]) -> list[float]:
    return [max(logprob, LEAST_LOGPROB) for logprob in logprobs]


def _packed(kind: str, numbers: Sequence[float]) -> str:
    raw = struct.pack(f"<{len(numbers)}{kind}", *numbers)
    return b64encode(zlib.compress(raw, 9)).decode("ascii")


def _unpacked(kind: str, packed: str, most: int) -> tuple[Any, ...]:
    """Return packed numbers; raises `ValueError` above `most`, before they are unpacked.

    A kilobyte can be packed so that it becomes a megabyte: a few of them would fill the memory.
    """
    limit = most * struct.calcsize(kind)
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(b64decode(packed), limit + 1)
    if len(raw) > limit or not unpacker.eof:
        raise ValueError(f"an answer of more than {most:,} numbers, or cut")
    return struct.unpack(f"<{len(raw) // struct.calcsize(kind)}{kind}", raw)


def baseline_of(sets: Sequence[Mapping[str, Any]]) -> Baseline:
    """Return the baseline that the stored sets of one level make, oldest first.

    Of each prompt the first answer counts, so that many small changes add up against it; of the
    noise floors the largest.
    """
    answers: dict[str, CheckedAnswer] = {}
    unpacked = 0
    for stored in sets:
        for each in stored["answers"]:
            if each["hash"] not in answers:
                answers[each["hash"]] = _answer_from_stored(each)
                unpacked += len(answers[each["hash"]].token_ids or ())
                if unpacked > MOST_TOKENS_IN_ALL:
                    raise ValueError(f"answers of more than {MOST_TOKENS_IN_ALL:,} tokens together")
    floors = [NoiseFloor(**stored["floor"]) for stored in sets if stored["floor"] is not None]
    floor = NoiseFloor(max(f.delta for f in floors), max(f.kl for f in floors)) if floors else None
    return Baseline(answers, floor, sets[0]["precision"] if sets else None)


def _answer_from_stored(stored: Mapping[str, Any]) -> CheckedAnswer:
    tokens = _unpacked("I", stored["tokens"], MOST_TOKENS) if "tokens" in stored else None
    return CheckedAnswer(
        **{name: stored[name] for name in PLAIN},
        answer_hash=stored["answer_hash"],
        texts=tuple(stored.get("texts", ())),
        not_kept=tuple(stored.get("not_kept", ())),
        token_ids=tokens,
        scores=_scores_from_stored(stored["scores"], tokens) if tokens and "scores" in stored else None,
    )


def _scores_from_stored(stored: Mapping[str, Any], tokens: tuple[int, ...]) -> TokenScores:
    width, most = stored["width"], len(tokens) * STORED_TOP
    top_ids, top_logprobs = (
        _unpacked("I", stored["top_ids"], most),
        _unpacked("e", stored["top_logprobs"], most),
    )
    listed = list(zip(top_ids, top_logprobs, strict=True))
    top = tuple(tuple(listed[place * width : (place + 1) * width]) for place in range(len(tokens)))
    return TokenScores(tokens, _unpacked("e", stored["logprobs"], len(tokens)), top)
