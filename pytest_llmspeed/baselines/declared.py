"""What a test declares of its requests, one line a kind of call, and how two declarations differ.

A line is words: the kind of call, the endpoint, then `name=value`; its label, if it has one, is the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

HASHED = {
    "prompt": "another prompt",
    "workload": "other requests",
    "extra_body": "other fields in extra_body",
}
"""Words whose values are hashes, which tell a reader nothing."""

Call = tuple[str, str | None]
"""The kind of call with its endpoint, and the label."""


def extends(new: Sequence[str], old: Sequence[str]) -> bool:
    """Return True if `new` declares all of `old`, and beyond that only calls under labels of their own.

    What is labelled is compared by itself: such a call leaves the others comparable.
    """
    before, now = _by_label(old), _by_label(new)
    return bool(before) and all(now.get(label) == lines for label, lines in before.items())


def _by_label(lines: Sequence[str]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for line in sorted(lines):
        found.setdefault(_call(line)[1], []).append(line)
    return found


def what_differs(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return what is not the same of two declarations, as in "max_tokens 8 → 9"; empty if nothing is."""
    before = _by_call([line for line in old if line not in new])
    now = _by_call([line for line in new if line not in old])
    found, gone, added = list[str](), list[str](), list[str]()
    for call in [*before, *(call for call in now if call not in before)]:
        ours, theirs = before.get(call, []), now.get(call, [])
        for one, other in zip(ours, theirs, strict=False):
            found += [f"{each}{_of_label(call)}" for each in _changes(one, other)]
        gone += ours[len(theirs) :]
        added += theirs[len(ours) :]
    found += [f"{one} → {other}" for one, other in zip(gone, added, strict=False)]
    found += [f"no longer {line}" for line in gone[len(added) :]]
    found += [f"now also {line}" for line in added[len(gone) :]]
    return list(dict.fromkeys(found))


def _by_call(lines: Sequence[str]) -> dict[Call, list[str]]:
    found: dict[Call, list[str]] = {}
    for line in lines:
        found.setdefault(_call(line), []).append(line)
    return found


def _call(line: str) -> Call:
    words, _, label = line.partition(" label=")
    return " ".join(words.split()[:2]), label or None


def _of_label(call: Call) -> str:
    return "" if call[1] is None else f" of {call[1]}"


def _changes(old: str, new: str) -> Iterator[str]:
    before, now = _words(old), _words(new)
    for name in [*before, *(name for name in now if name not in before)]:
        if before.get(name) == now.get(name):
            continue
        if name in HASHED:
            yield HASHED[name]
        else:
            yield f"{name} {before.get(name, 'none')} → {now.get(name, 'none')}"


def _words(line: str) -> dict[str, str]:
    words = line.partition(" label=")[0].split()[2:]
    return {name: value for name, _, value in (word.partition("=") for word in words)}
