"""The text of a file → a workload, whatever known shape its records have.

    {"body": {"messages": […]}, "url": …}               a line of an OpenAI batch
    {"conversations": [{"from": "human", "value": …}]}  ShareGPT, also as one JSON array
    {"prompt": …} or {"messages": […]}                  plain, with output_tokens or max_tokens

A record that cannot be used is left out and counted, with its line and field; what is not sent as it
stands is counted too. A file of nothing but such records is an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pytest_llmspeed.load.file_rows import FileRow, Reading
from pytest_llmspeed.load.workload import Conversation, ListedWorkload, Turn, Workload
from pytest_llmspeed.metrics.exchange import LIMIT_FIELDS, Endpoint, LimitField

ENDPOINTS: dict[str, Endpoint] = {"/chat/completions": "chat", "/completions": "completions"}
PEOPLE = ("human", "user")
MODELS = ("gpt", "assistant", "chatgpt", "model", "bot", "bing", "bard")
SYSTEM = ("system", "system_prompt")
OURS = ("model", "stream", "stream_options")
"""Fields of a batch's body that are the load's own affair."""
ASKED = frozenset(
    {"top_p", "top_k", "min_p", "seed", "stop", "n", "tools", "tool_choice", "parallel_tool_calls"}
    | {"response_format", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias"}
    | {"logprobs", "top_logprobs", "reasoning_effort"}
)
"""Fields of a plain record that are sent with its request."""
BESIDES = frozenset(
    {"prompt", "messages", "output_tokens", "temperature", "id", "custom_id", "at_s", "metadata"}
)


def workload_of(text: str, name: str, *, turns: int | None = 1, limit: int | None = None) -> Workload:
    """Return the workload that a file holds; raises `SettingsError` with file, line and field.

    `turns` limits the turns of each ShareGPT conversation (None: all that people said), `limit` the rows.
    """
    reading = Reading(name)
    ids: Counter[str] = Counter()

    def read_row(row: FileRow) -> Conversation:
        if (given := row.fields.get("custom_id")) is not None:
            ids[str(given)] += 1
            if ids[str(given)] > 1:
                reading.note("a 'custom_id' that another record has; each is asked")
        return _conversation(row, turns, reading)

    conversations = reading.read(text, limit, read_row)
    if not conversations:
        reading.refuse("it contains no prompt")
    return ListedWorkload(tuple(conversations), reading.notes)


def _conversation(row: FileRow, turns: int | None, reading: Reading) -> Conversation:
    if "body" in row.fields:
        return (_batch_turn(row, reading),)
    if "conversations" in row.fields:
        found = tuple(_shared_turns(row, reading))[:turns]
        if not found:
            raise row.refused("conversations", "it has no messages")
        return found
    return (plain_turn(row, reading),)


def _batch_turn(row: FileRow, reading: Reading) -> Turn:
    body = row.fields["body"]
    if not isinstance(body, Mapping):
        raise row.refused("body", f"{body!r:.60} is not a JSON object")
    if str(row.fields.get("method") or "POST").upper() != "POST":
        raise row.refused("method", f"{row.fields['method']!r:.60} is not a request to a model")
    inner, endpoint = FileRow(row.where, body), _endpoint(row)
    if endpoint is not None and (named := "messages" if endpoint == "chat" else "prompt") not in body:
        raise inner.refused(named, f"it is missing, and the url is {row.fields['url']!r}")
    if body.get("model") is not None:
        reading.note(f"the model {body['model']!r:.60} is not asked for, but that of the load")
    if body.get("stream") is False:
        reading.note("asks for an answer that is not streamed, and is streamed anyway")
    other = ("messages", "prompt", "temperature", *LIMIT_FIELDS, *OURS)
    extra = {name: body[name] for name in body if name not in other}
    return _turn(inner, extra, endpoint)


def _endpoint(row: FileRow) -> Endpoint | None:
    """The endpoint that a batch row names; None if it names none."""
    url = row.fields.get("url")
    if url is None:
        return None
    path = urlsplit(url).path.rstrip("/") if isinstance(url, str) else ""
    for ending, endpoint in ENDPOINTS.items():
        if path.endswith(ending):
            return endpoint
    raise row.refused("url", f"{url!r:.80}: a load asks /v1/chat/completions or /v1/completions")


def plain_turn(row: FileRow, reading: Reading) -> Turn:
    """Return the request of a plain record."""
    extra = {name: value for name, value in row.fields.items() if name in ASKED}
    turn = _turn(row, extra, None)
    for name in row.fields:
        if not (name in extra or name in BESIDES or name in LIMIT_FIELDS or name in SYSTEM):
            reading.note(f"the field {name!r:.60} is not sent")
    return turn


def _turn(row: FileRow, extra: Mapping[str, Any], endpoint: Endpoint | None) -> Turn:
    limits: list[LimitField] = [name for name in LIMIT_FIELDS if row.fields.get(name) is not None]
    if len(limits) > 1:
        raise row.refused(limits[1], f"it is given in addition to {limits[0]!r}; give only one")
    return Turn(
        _prompt(row),
        max_tokens=row.tokens(limits[0]) if limits else None,
        output_tokens=row.optional_tokens("output_tokens"),
        extra_body={name: value for name, value in extra.items() if value is not None},
        temperature=None if row.fields.get("temperature") is None else row.number("temperature"),
        endpoint=endpoint,
        limit_field=limits[0] if limits else "max_tokens",
    )


def _prompt(row: FileRow) -> str | tuple[Mapping[str, Any], ...]:
    """The text or messages of a record, after the system text that it may have."""
    system = _system(row)
    if "messages" in row.fields:
        messages = row.fields["messages"]
        if not isinstance(messages, list) or not messages:
            raise row.refused("messages", "it is not a list of messages")
        if not all(isinstance(message, Mapping) and "role" in message for message in messages):
            raise row.refused("messages", "a message is an object with a role")
        return (*system, *messages)
    prompt = row.fields.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise row.refused("prompt", "neither it nor 'messages' contains a prompt")
    return (*system, {"role": "user", "content": prompt}) if system else prompt


def _system(row: FileRow) -> tuple[Mapping[str, Any], ...]:
    """The system text of a record as a message, none if it has none."""
    name = next((name for name in SYSTEM if row.fields.get(name)), None)
    if name is None:
        return ()
    if not isinstance(row.fields[name], str):
        raise row.refused(name, "it is not a string")
    return ({"role": "system", "content": row.fields[name]},)


def _shared_turns(row: FileRow, reading: Reading) -> Iterator[Turn]:
    """Yield what people said in a ShareGPT conversation; a system text goes before the first."""
    messages = row.fields["conversations"]
    if not isinstance(messages, list):
        raise row.refused("conversations", "it is not a list")
    before = list(_system(row))
    tools = row.fields.get("tools")
    extra = {"tools": tools} if isinstance(tools, list) and tools else {}
    if tools and not extra:
        reading.note("'tools' that are not a list are not sent")
    for entry in messages:
        who, text = _who_and_text(row, entry)
        if who == "system":
            before.append({"role": "system", "content": text})
        elif who in PEOPLE and text:
            prompt = (*before, {"role": "user", "content": text}) if before else text
            yield Turn(prompt, extra_body=extra)
            before = []
        elif who not in MODELS:
            reading.note(f"what {who!r:.40} says in a conversation is left out")


def _who_and_text(row: FileRow, message: Any) -> tuple[str, str]:
    if not isinstance(message, Mapping):
        raise row.refused("conversations", f"{message!r:.60} is not a JSON object")
    who, text = message.get("from") or message.get("role"), message.get("value", message.get("content"))
    if not isinstance(who, str) or not isinstance(text, str):
        raise row.refused("conversations", "an entry needs 'from' and 'value', both strings")
    return who, text
