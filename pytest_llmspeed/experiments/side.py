"""One side of an experiment: the code, the environment and the settings that its runs have."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_llmspeed.errors import LLMSpeedError, SettingsError, did_you_mean
from pytest_llmspeed.text.secret import names_a_secret

SETTINGS = ("backend", "model", "precision", "url")
PLACES = ("ref", "python", "pip", "setup")
OPTION, VARIABLE = "option.", "env."
KEYS = (*PLACES, *SETTINGS, f"{OPTION}NAME", f"{VARIABLE}NAME")


class SideError(LLMSpeedError):
    """A side cannot be measured; `ref` is its revision, if it is one."""

    def __init__(self, ref: str | None, message: str) -> None:
        super().__init__(message)
        self.ref = ref


@dataclass(frozen=True, slots=True)
class Side:
    """What one side is made of; what it does not name is as it is where the command was started.

    `ref` is a git revision, `setup` a shell command that is run in its checkout before its first run.
    `python` is another environment's interpreter, `pip` names requirements that are laid over this one.
    `settings` are the plugin's, `options` the engine's, `env` environment variables.
    """

    ref: str | None = None
    python: str | None = None
    pip: str | None = None
    setup: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, words: Iterable[str]) -> Side:
        """Return the side that `key=value` words describe; raises `SettingsError` for a wrong one."""
        places: dict[str, str] = {}
        settings: dict[str, str] = {}
        options: dict[str, str] = {}
        env: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals or (not value and not key.startswith(VARIABLE)):
                raise SettingsError(f"{word!r}: a side is made of key=value, as in ref=v1.4 or backend=vllm")
            for group, prefix in ((options, OPTION), (env, VARIABLE)):
                if key.startswith(prefix) and len(key) > len(prefix):
                    group[key.removeprefix(prefix)] = value
                    break
            else:
                if key not in (*PLACES, *SETTINGS):
                    raise SettingsError(f"{word!r}: a side has no {key!r}; {did_you_mean(key, KEYS)}")
                (places if key in PLACES else settings)[key] = value
        if secret := next((name for name in (*env, *options) if names_a_secret(name)), None):
            raise SettingsError(
                f"{secret!r} names a secret, and sides are printed and stored: set the environment variable "
                "before the command instead, where both sides find it"
            )
        side = cls(**places, settings=settings, options=options, env=env)
        if side.python and side.pip:
            raise SettingsError("python= and pip= both choose the environment of a side: name one of them")
        if side.setup and not side.ref:
            raise SettingsError("setup= prepares the checkout of a revision: name that too, with ref=")
        return side

    @classmethod
    def parse_text(cls, text: str) -> Side:
        """Return the side that one text describes, its words quoted as for a shell."""
        try:
            return cls.parse(shlex.split(text))
        except ValueError as error:
            raise SettingsError(f"{text!r}: {error}; quote a side as a shell would") from error

    @classmethod
    def from_builtins(cls, shown: Mapping[str, Any]) -> Side:
        """Return the side that `asdict` made builtins of."""
        return cls(**shown)

    def to_builtins(self) -> dict[str, Any]:
        """Return the side as builtins."""
        return asdict(self)

    @property
    def words(self) -> Iterator[str]:
        """The `key=value` words that describe it."""
        for key in PLACES:
            if (value := getattr(self, key)) is not None:
                yield f"{key}={value}"
        for prefix, group in (("", self.settings), (OPTION, self.options), (VARIABLE, self.env)):
            for key, value in group.items():
                yield f"{prefix}{key}={value}"

    @property
    def pytest_arguments(self) -> list[str]:
        """The options of pytest that its settings are."""
        settings = [f"--llmspeed-{key}={value}" for key, value in self.settings.items()]
        return settings + [f"--llmspeed-option={key}={value}" for key, value in self.options.items()]

    def __str__(self) -> str:
        return " ".join(map(_quoted, self.words)) or "as it is here"


def _quoted(word: str) -> str:
    key, _, value = word.partition("=")
    return f"{key}={shlex.quote(value)}"


def differences(old: Side, new: Side) -> Sequence[str]:
    """Return the words in which two sides differ, "key: old → new"."""
    before, now = (dict(word.split("=", 1) for word in side.words) for side in (old, new))
    keys = dict.fromkeys((*before, *now))
    return [
        f"{key}: {before.get(key, 'not set')} → {now.get(key, 'not set')}"
        for key in keys
        if before.get(key) != now.get(key)
    ]
