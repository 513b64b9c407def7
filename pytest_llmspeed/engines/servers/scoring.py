"""Given tokens under the model of a server: how likely it says each is after those before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isnan
from typing import Any, NamedTuple

from pytest_llmspeed.engines.local.vllm_output import scores
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import GenerationError, hides_our_frames
from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.transport.client import HTTPClient, get
from pytest_llmspeed.transport.openai_protocol import MOST_ID, error_text, token_id
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.target import Target

__tracebackhide__ = hides_our_frames

TOKENIZE, COMPLETIONS = "/tokenize", "/v1/completions"
OF_THE_TEMPLATE = ("tools", "chat_template", "chat_template_kwargs")
"""Fields of a request that its prompt is made with."""
PROBE_TIMEOUT_S = 10.0
WRONG_METHOD = 405
LONGEST, LONGEST_ID = 300, 20
"""The most characters of a message, and of a token id."""
LARGEST_LOGPROB = 0.001
"""That of a certain token is zero, but for the rounding of some precisions."""


class ListedToken(NamedTuple):
    """One token that a server lists at a place of a prompt."""

    logprob: float
    rank: int


class ServerScorer:
    """Asks a server of vLLM's kind for the tokens of a prompt, and for their log-probabilities."""

    def __init__(self, target: Target) -> None:
        root = replace(target.base, path=target.base.path.removesuffix("/v1"))
        self._client, self._target = HTTPClient(root), target

    def is_offered(self) -> bool:
        """True if the server tells the tokens of a prompt: it knows the path, though not for a GET."""
        try:
            status, _ = get(self._client.base, TOKENIZE, self._target.headers, PROBE_TIMEOUT_S)
        except TransportError:
            return False
        return status == WRONG_METHOD

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return the scores of `token_ids` as the answer to a request; raises `GenerationError`."""
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._scored(request, token_ids, top)
        except TimeoutError as error:
            raise GenerationError(f"timed out after {request.timeout_s:g} s") from error
        except TransportError as error:
            raise GenerationError(str(error)) from error
        except GenerationError:
            raise
        except Exception as error:
            what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise GenerationError(f"the server sent scores of an unknown shape: {what}"[:LONGEST]) from error

    async def _scored(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        prompt = await self._prompt_tokens(request)
        asked = {"prompt": [*prompt, *token_ids], "prompt_logprobs": top, "max_tokens": 1, "temperature": 0.0}
        answer = await self._post(COMPLETIONS, asked)
        choices = _list(answer, "choices")
        listed = _list(choices[0] if choices else None, "prompt_logprobs")
        if len(listed) != len(prompt) + len(token_ids):
            raise ValueError(f"{len(listed)} places for {len(prompt) + len(token_ids)} tokens")
        places = [_listed(place) for place in listed[len(prompt) :]]
        for token, place in zip(token_ids, places, strict=True):
            if token not in place:
                raise ValueError(f"token {token} is missing at its own place")
        return scores(places, token_ids, top)

    async def _prompt_tokens(self, request: Request) -> list[int]:
        if request.endpoint == "chat":
            own = {name: request.extra_body[name] for name in OF_THE_TEMPLATE if name in request.extra_body}
            asked = {"messages": request.messages, "add_generation_prompt": True, **own}
        else:
            asked = {"prompt": request.prompt}
        return [token_id(token) for token in _list(await self._post(TOKENIZE, asked), "tokens")]

    async def _post(self, path: str, asked: Mapping[str, Any]) -> Any:
        body = json.dumps({"model": self._target.model, **asked}).encode()
        response = await self._client.post(path, self._target.headers, body)
        content = await response.body()
        if response.status != 200:
            raise GenerationError(f"HTTP {response.status}: {error_text(content)}")
        return json.loads(content)

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()


def _list(found: Any, name: str) -> list[Any]:
    """A field of an answer; raises ValueError where it is missing or is not a list."""
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, list):
        raise ValueError(f"{name!r} is missing, or is not a list")
    return value


def _number(found: Any, name: str) -> float:
    """The same for a number, which must be in range."""
    value: Any = found.get(name) if isinstance(found, dict) else None
    if type(value) not in (int, float):
        raise ValueError(f"{name!r} is missing, or is not a number")
    if abs(value) > MOST_ID and value != -inf:
        raise ValueError(f"{name!r} is out of range")
    number: float = value
    return number


def _listed(place: Any) -> dict[int, ListedToken]:
    if not isinstance(place, dict):
        raise ValueError("the tokens listed at a place of the prompt are not an object")
    return {_id(token): _as_listed(found) for token, found in place.items()}


def _id(key: str) -> int:
    """The token id that is the name of a field."""
    if not (key.isascii() and key.isdecimal()) or len(key) > LONGEST_ID:
        raise ValueError(f"{key[:LONGEST_ID]!r} is not a token id")
    return token_id(int(key))


def _as_listed(found: Any) -> ListedToken:
    """One token of a place; raises ValueError where its numbers cannot be what they should be."""
    logprob, rank = float(_number(found, "logprob")), _number(found, "rank")
    if isnan(logprob) or logprob > LARGEST_LOGPROB:
        raise ValueError(f"{logprob} is not a log-probability")
    if not isinstance(rank, int) or rank < 0:
        raise ValueError(f"{rank} is not a rank")
    return ListedToken(logprob, rank)
