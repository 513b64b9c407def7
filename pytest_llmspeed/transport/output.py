"""A choice of a chat or a completion → its output, as fields of Event. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

REASONING = ("reasoning_content", "reasoning", "thinking")
"""The names that servers give it; some send two, with the same text."""
REASONING_PARTS = frozenset(
    {
        "thinking",
        "reasoning",
        "reasoning_text",
        "reasoning.text",
        "reasoning.summary",
        "summary_text",
    }
)
MEDIA_PARTS = {
    "image": "image",
    "image_url": "image",
    "output_image": "image",
    "audio": "audio",
    "output_audio": "audio",
    "video": "video",
    "video_url": "video",
}
NOT_GENERATED = frozenset(
    {
        "id",
        "call_id",
        "index",
        "type",
        "status",
        "role",
        "object",
        "server_label",
        "extra_content",
        "thought_signature",
    }
)
"""Fields of a call that the server adds to what the model wrote."""


def output_of(choice: Mapping[str, Any], part: str) -> dict[str, str]:
    """Return the non-empty output of a choice, whose message is its `part` ("delta" or "message")."""
    message = choice.get(part) or {}
    if len(message) == 1 and (only := message.get("content")) and isinstance(only, str):
        return {"text": only}  # nearly every chunk
    content, audio = message.get("content"), message.get("audio")
    parts = content if isinstance(content, list) else ()
    reasoning = next((text for name in REASONING if (text := text_in(message.get(name)))), "")
    fields = {
        "text": text_in(content) + _field(audio, "transcript") + text_in(choice.get("text")),
        "reasoning": (reasoning or _reasoning(message.get("reasoning_details") or ())) + _reasoning(parts),
        "refusal": text_in(message.get("refusal")) + _refusal(parts),
        "tool_call": _tool_calls(message),
        "media": _media(parts, audio, message.get("images")),
    }
    return {name: value for name, value in fields.items() if value}


def text_in(content: Any) -> str:
    """Return a content field as text: a string, or a list of parts that hold some."""
    if isinstance(content, list):
        return "".join(map(_text_of_part, content))
    return content if isinstance(content, str) else ""


def generated(call: Any) -> str:
    """Return what a model wrote of a tool call, of whatever kind: its name, then its arguments or input.

    They lie in an object that is named as the kind is (`function`, `custom`, …), or in the call itself.
    """
    if not isinstance(call, dict):
        return ""
    own = {name: value for name, value in call.items() if name not in NOT_GENERATED and value}
    kind = own.get(str(call.get("type"))) or own.get("function") or own.get("custom")
    written = kind if isinstance(kind, dict) else own
    if written is not own:
        written = {name: value for name, value in written.items() if name not in NOT_GENERATED and value}
    names = sorted(written, key=lambda name: name != "name")
    return "".join(value if isinstance(value := written[name], str) else json.dumps(value) for name in names)


def media_of(part: Any) -> str:
    """Return the kind of sound or picture that a part of a content list is, empty if it is neither."""
    return MEDIA_PARTS.get(str(part.get("type")), "") if isinstance(part, dict) else ""


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type") in REASONING_PARTS:
        return ""
    return _field(part, "text") or _field(part, "transcript") or _field(part.get("audio"), "transcript")


def _reasoning(parts: Iterable[Any]) -> str:
    """The reasoning among the parts of a content list."""
    found = (part for part in parts if isinstance(part, dict) and part.get("type") in REASONING_PARTS)
    return "".join(map(_text_of_reasoning, found))


def _text_of_reasoning(part: Any) -> str:
    """The text of such a part: in one of its fields, as a string or as parts of its own."""
    for name in ("thinking", "reasoning", "text", "summary", "content"):
        inner = part.get(name)
        text = "".join(_field(each, "text") for each in inner) if isinstance(inner, list) else text_in(inner)
        if text:
            return text
    return ""


def _refusal(parts: Iterable[Any]) -> str:
    return "".join(_field(part, "refusal") for part in parts)


def _tool_calls(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    legacy = message.get("function_call")
    if not calls and not legacy:
        return ""
    return "".join(map(generated, calls)) + (generated({"function": legacy}) if legacy else "")


def _media(parts: Iterable[Any], audio: Any, images: Any) -> str:
    """The kinds of sound and pictures that came; of their data nothing is held."""
    kinds = [media_of(part) for part in parts]
    kinds += ["audio"] if _field(audio, "data") else []
    kinds += ["image"] if images else []
    return " ".join(dict.fromkeys(kind for kind in kinds if kind))


def _field(holder: Any, name: str) -> str:
    text = holder.get(name) if isinstance(holder, dict) else None
    return text if isinstance(text, str) else ""
