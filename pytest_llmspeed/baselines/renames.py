"""Tests that were renamed: small files beside the run files, which themselves are never changed.

Each `llmspeed baseline rename` writes one, `<store>/<time>-<id>.rename`, JSON of old and new identities. A
reader takes the sessions of an old identity that were stored before that time for those of the new one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_llmspeed.baselines.run_file import read_regular
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.errors import StoreError

SCHEMA = "llmspeed-rename/1"
SUFFIX = ".rename"


@dataclass(frozen=True, slots=True)
class Rename:
    """The identities that were renamed at a time, old → new."""

    at: str
    tests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Renames:
    """All renames of a store, oldest first, and a sentence for each file that could not be read."""

    renames: tuple[Rename, ...] = ()
    problems: tuple[str, ...] = ()

    def applied(self, session: Session) -> Session:
        """Return a session under the identity that its test has now."""
        identity, started = session.identity, datetime.fromisoformat(session.started)
        for rename in self.renames:
            if started <= datetime.fromisoformat(rename.at):
                identity = rename.tests.get(identity, identity)
        return session if identity == session.identity else replace(session, identity=identity)

    def all_applied(self, sessions: Sequence[Session]) -> list[Session]:
        """Return sessions under the identities that their tests have now."""
        return [self.applied(session) for session in sessions] if self.renames else list(sessions)


def read_renames(root: Path) -> Renames:
    """Return the renames of a store; none if there is no such folder."""
    found, problems = list[Rename](), list[str]()
    for path in sorted(root.glob(f"*{SUFFIX}")):
        try:
            found.append(_rename(json.loads(read_regular(path))))
        except (
            OSError,
            StoreError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            problems.append(f"a rename is left out: {path} cannot be read ({error}); restore or delete it")
    found.sort(key=lambda rename: datetime.fromisoformat(rename.at))
    return Renames(tuple(found), tuple(problems))


def _rename(content: Any) -> Rename:
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r}, this version reads {SCHEMA!r}")
    if datetime.fromisoformat(content["at"]).tzinfo is None:
        raise ValueError(f"the time {content['at']!r} has no time zone")
    tests = {str(old): str(new) for old, new in content["tests"].items()}
    return Rename(content["at"], tests)


def write_rename(root: Path, rename: Rename) -> Path:
    """Write one rename and return its path; raises `StoreError`."""
    stamp = rename.at.partition("+")[0].replace("-", "").replace(":", "").replace(".", "")
    path = root / f"{stamp}-{uuid.uuid4().hex[:8]}{SUFFIX}"
    content = {"schema": SCHEMA, "at": rename.at, "tests": dict(rename.tests)}
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    return path
