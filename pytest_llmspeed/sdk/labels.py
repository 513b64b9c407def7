"""The label of a call: from its body, its header, or the `with` block that it is made in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from pytest_llmspeed.metrics.exchange import plain_text

LABEL_HEADER = "X-LLMSpeed-Label"
"""A header of an SDK call that names its label. It is not sent on."""
LABEL_FIELD = "llmspeed_label"
"""A field of an SDK call's JSON body (`extra_body`) that names its label. It is not sent on."""

# A ContextVar has to live at module level: contexts keep their variables alive.
_of_the_block: ContextVar[str | None] = ContextVar("llmspeed_label", default=None)


@contextmanager
def labelled(label: str) -> Iterator[None]:
    """Label the calls made inside, in this task or thread; the innermost block wins."""
    token = _of_the_block.set(plain_text(label))
    try:
        yield
    finally:
        with suppress(ValueError):  # a generator that another task closes: that context has no block open
            _of_the_block.reset(token)


def current_label() -> str | None:
    """Return the label of the innermost block around the caller, None outside one."""
    return _of_the_block.get()


def label_of(label: str | None) -> str | None:
    """Return the label that a call was given, else that of the block around it."""
    return current_label() if label is None else plain_text(label)


def take_label(headers: Mapping[str, str], body: bytes) -> tuple[str | None, dict[str, str], bytes]:
    """Return the label of an SDK call, and its headers and body without it.

    The body's field wins over the header, and the header over the block around the call. Header names
    are in lower case. A body without the field is returned to the byte. Raises ValueError for a field
    that holds no text.
    """
    kept = {name: value for name, value in headers.items() if name != LABEL_HEADER.lower()}
    named = headers.get(LABEL_HEADER.lower())
    if LABEL_FIELD.encode() in body:
        field, body = _without_field(body)
        named = field or named
    return named or current_label(), kept, body


def _without_field(body: bytes) -> tuple[str | None, bytes]:
    """The label in a JSON body, None if it is only mentioned there, and the body without it."""
    try:
        fields = json.loads(body)
    except ValueError:
        return None, body
    if not isinstance(fields, dict) or LABEL_FIELD not in fields:
        return None, body
    label = fields.pop(LABEL_FIELD)
    if label is not None and not isinstance(label, str):
        raise ValueError(f"{LABEL_FIELD}={label!r}: a label must be a string")
    return label, json.dumps(fields).encode()
