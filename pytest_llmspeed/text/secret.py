"""Keys, passwords and headers: held without showing themselves, and taken out of text that echoes them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

MASK = "***"
SHORTEST = 4
"""A shorter value would be found in half of all words."""
SHORTEST_UNNAMED = 6
"""The same for a value whose name does not say that it is secret."""
SECRET_NAME = re.compile(
    r"(?i)(^|[-_.])(api)?(key|token|secret|password|passwd|pwd|credentials?|auth|authorization|cookie|sig"
    r"|signature|code)($|[-_.])"
)


class Secret(str):
    """A text that is a text to whoever sends it, and `'***'` to whoever shows the object that holds it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)


class Unshown(bytes):
    """Bytes of a request, which hold keys and the prompt: shown by their size alone."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{len(self):,} bytes>"


def names_a_secret(name: str) -> bool:
    """True if the name of a header, variable, argument or query parameter says that its value is secret."""
    return SECRET_NAME.search(name) is not None


def secret_values(named: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return the values that must not be shown, of variables or headers that a user has given."""
    return tuple(
        Secret(value)
        for name, value in named.items()
        if len(value) >= (SHORTEST if names_a_secret(name) else SHORTEST_UNNAMED)
    )


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with each secret replaced, also where it is percent-encoded or escaped as JSON."""
    spelled = {form for secret in secrets if len(secret) >= SHORTEST for form in _spellings(secret)}
    for form in sorted(spelled, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text


def arguments_without_secrets(arguments: str | Sequence[object]) -> str | list[str]:
    """Return a command, as a text or as words, with the values of arguments that name a secret masked."""
    if not isinstance(arguments, str):
        return _without_secrets([str(word) for word in arguments])
    try:
        words = shlex.split(arguments)
    except ValueError:
        return MASK
    shown = _without_secrets(words)
    return arguments if shown == words else " ".join(shown)


def _without_secrets(words: Sequence[str]) -> list[str]:
    shown: list[str] = []
    for word in words:
        follows = bool(shown) and shown[-1].startswith("-") and names_a_secret(shown[-1])
        name, equals, _ = word.partition("=")
        is_named = bool(equals) and names_a_secret(name)
        shown.append(MASK if follows else f"{name}={MASK}" if is_named else word)
    return shown


def _spellings(secret: str) -> tuple[str, ...]:
    plain = str.__str__(secret)
    return plain, quote(plain, safe=""), quote(plain), json.dumps(plain)[1:-1]
