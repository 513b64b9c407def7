"""`llmspeed baseline prune`: deletes the run files that no window needs. Never rewrites one."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from pytest_llmspeed.baselines.run_file import RunFile
from pytest_llmspeed.baselines.stored_tests import needed_runs
from pytest_llmspeed.cli.baseline import SCHEMA, StoreContents, near, open_store
from pytest_llmspeed.cli.output import Result, counted
from pytest_llmspeed.errors import StoreError


def prune(root: Path, gone: Sequence[str] = (), *, dry_run: bool = False, everything: bool = False) -> Result:
    """Delete what is not needed (with `dry_run`, only say so). Raises `StoreError`.

    A run file is needed if one of its sessions is in the window of its test, or among the first of
    the current level. Sessions of tests that match a pattern of `gone` need nothing; patterns that match
    every stored test want `everything`. A file that cannot be read is left alone.
    """
    store = open_store(root)
    _check_patterns(store, gone)
    if not (dry_run or everything):
        _check_something_is_left(store, gone)
    unneeded = plan(store, gone)
    if not dry_run:
        for file in unneeded:
            _delete(file.path)
    return _result(store, unneeded, dry_run=dry_run)


def plan(store: StoreContents, gone: Sequence[str] = ()) -> list[RunFile]:
    """Return the run files that no window needs, oldest first."""
    alive = [session for session in store.sessions if not _matches(session.identity, gone)]
    needed = needed_runs(alive)
    return [file for file in store.files if (file.path.parent.name, file.run["id"]) not in needed]


def _matches(identity: str, patterns: Sequence[str]) -> bool:
    """True if a pattern matches the identity. Its brackets stand for themselves: they are in many ids."""
    return any(fnmatchcase(identity, pattern.replace("[", "[[]")) for pattern in patterns)


def _check_patterns(store: StoreContents, gone: Sequence[str]) -> None:
    known = {session.identity for session in store.sessions}
    for pattern in gone:
        if not any(_matches(identity, [pattern]) for identity in known):
            raise StoreError(f"--gone {pattern!r} matches no stored test; {near(store, pattern)}")


def _check_something_is_left(store: StoreContents, gone: Sequence[str]) -> None:
    """Raise `StoreError` for a wildcard that, perhaps by a slip, takes all that there is."""
    known = {session.identity for session in store.sessions}
    by_wildcard = [pattern for pattern in gone if pattern not in known]
    if known and by_wildcard and all(_matches(identity, gone) for identity in known):
        raise StoreError(
            f"--gone {by_wildcard[0]!r} would empty the store: it matches every one of "
            f"{counted(len(known), 'stored test')}; list them with --dry-run, or add --all to confirm"
        )


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be deleted: {error.strerror or error}; delete it by hand") from error


def _result(store: StoreContents, unneeded: Sequence[RunFile], *, dry_run: bool) -> Result:
    kept = len(store.files) - len(unneeded)
    verb = "would delete" if dry_run else "deleted"
    lines = [f"{verb} {file.path}" for file in unneeded]
    lines.append(f"{verb} {counted(len(unneeded), 'run file')}, {kept} kept")
    shown = {
        "schema": SCHEMA,
        "store": str(store.root),
        "dry_run": dry_run,
        "deleted": [str(file.path) for file in unneeded],
        "kept": kept,
        "left_out": list(store.problems),
    }
    return Result(tuple(lines), shown, warnings=store.problems)
