"""`llmspeed baseline rename OLD NEW`: a test keeps its baselines under its new name."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from pytest_llmspeed.baselines.renames import Rename, write_rename
from pytest_llmspeed.cli.baseline import SCHEMA, StoreContents, near, open_store
from pytest_llmspeed.cli.output import Result, counted
from pytest_llmspeed.errors import StoreError


def rename(root: Path, old: str, new: str, now: datetime, *, dry_run: bool = False) -> Result:
    """Rename the stored tests that OLD names (with `dry_run`, only say so). Raises `StoreError`.

    OLD is a test, or a file, class or folder (ending in /), or the beginning of parametrised ones; NEW
    takes its place. A * in both stands for the same text.
    """
    store = open_store(root)
    known = sorted({session.identity for session in store.sessions})
    tests = renamed(known, old, new)
    if not tests:
        raise StoreError(f"{root} has no baseline of {old!r}; {near(store, old)}")
    lines = [f"{before} → {after}{_joined(store, after)}" for before, after in tests.items()]
    if dry_run:
        lines.append(f"would rename {counted(len(tests), 'test')}")
    else:
        path = write_rename(root, Rename(now.isoformat(), tests))
        lines.append(f"renamed {counted(len(tests), 'test')}; to undo it, delete {path}")
    shown = {"schema": SCHEMA, "store": str(root), "dry_run": dry_run, "renamed": tests}
    return Result(tuple(lines), shown, warnings=store.problems)


def _joined(store: StoreContents, identity: str) -> str:
    own = sum(session.identity == identity for session in store.sessions)
    return f" (joins {counted(own, 'session')} stored under that name)" if own else ""


def renamed(known: list[str], old: str, new: str) -> dict[str, str]:
    """Return old → new identity of the tests that `old` names; raises `StoreError` for unequal stars."""
    if old.count("*") != new.count("*"):
        raise StoreError(f"{old!r} and {new!r} have different numbers of *: each stands for the same text")
    if "*" in old:
        pattern = re.compile("(.*)".join(map(re.escape, old.split("*"))))
        matches = {identity: pattern.fullmatch(identity) for identity in known}
        return {
            identity: _filled(new, match.groups()) for identity, match in matches.items() if match is not None
        }
    if old in known:
        return {old: new}
    parts = [identity for identity in known if _is_part_of(identity, old)]
    return {identity: new + identity.removeprefix(old) for identity in parts}


def _filled(new: str, texts: tuple[str, ...]) -> str:
    """The new name with the texts that its stars stand for."""
    first, *rest = new.split("*")
    return first + "".join(text + part for text, part in zip(texts, rest, strict=True))


def _is_part_of(identity: str, old: str) -> bool:
    """True if `old` names the file, class, folder or function that a test is of."""
    rest = identity.removeprefix(old)
    return rest != identity and (old.endswith("/") or rest.startswith(("::", "[")))
