"""Where a model's files are: a folder or GGUF file here, or a hub id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pytest_llmspeed.engines import gguf
from pytest_llmspeed.errors import EngineError

HASHED_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What `from_pretrained` is given. `name` is free of this machine's paths.

    `fingerprint` tells two local models of one name apart; a hub model has its commit instead.
    """

    name: str
    location: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str | None = None

    @property
    def path(self) -> str:
        """The folder, GGUF file or hub id itself, for a program that takes it as one argument."""
        return str(Path(self.location, file)) if (file := self.arguments.get("gguf_file")) else self.location

    @property
    def is_local(self) -> bool:
        """True for a folder or file, False for a hub id."""
        return self.fingerprint is not None

    @property
    def is_gguf(self) -> bool:
        """True for a .gguf file."""
        return "gguf_file" in self.arguments

    def gguf_type(self) -> str:
        """The type of most weights in a .gguf file, as in "q4_1"; raises `EngineError` for a broken file."""
        return gguf.weights_type(Path(self.location, self.arguments["gguf_file"]))

    @classmethod
    def find(cls, model: str) -> Self:
        """Return the source that `model` names; raises `EngineError` for a path that holds no model."""
        path = Path(model).expanduser()
        if path.is_file():
            return cls._gguf(path)
        if path.is_dir():
            return cls._folder(path)
        if _looks_like_a_path(model):
            raise EngineError(f"model {model!r}: there is no such file or folder")
        return cls(model, model)

    @classmethod
    def _gguf(cls, path: Path) -> Self:
        if path.suffix != ".gguf":
            raise EngineError(
                f"model {str(path)!r} is a file, but not a .gguf file: give a folder written by "
                "save_pretrained, a .gguf file or a hub id"
            )
        return cls(path.name, str(path.parent), {"gguf_file": path.name}, _fingerprint([path]))

    @classmethod
    def _folder(cls, path: Path) -> Self:
        if not (path / "config.json").is_file():
            raise EngineError(
                f"model {str(path)!r} is a folder without a config.json: give a folder written by "
                "save_pretrained, a .gguf file or a hub id"
            )
        files = sorted(file for file in path.iterdir() if file.is_file())
        return cls(path.resolve().name, str(path), {}, _fingerprint(files))


def _looks_like_a_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.endswith(".gguf") or model.count("/") > 1


def _fingerprint(files: list[Path]) -> str:
    """A hash of the names, sizes and first MiB of some files: enough to tell models apart."""
    digest = hashlib.sha256()
    for part in _identifying(files):
        digest.update(part)
    return digest.hexdigest()[:12]


def _identifying(files: list[Path]) -> Iterator[bytes]:
    for file in files:
        yield f"{file.name} {file.stat().st_size}\n".encode()
        with file.open("rb") as content:
            yield content.read(HASHED_BYTES)
