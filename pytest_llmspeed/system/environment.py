"""Where a session was measured: what keys it, and what is only recorded."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware and system under the test run. `cpus` counts logical cores, memory is in MiB."""

    cpu: str
    cpus: int
    memory_mib: int
    system: str
    arch: str
    python: str

    @property
    def name(self) -> str:
        """The machine as a key: processor, system and architecture, never a host name."""
        return slug(f"{self.cpu} {self.system} {self.arch}")


@dataclass(frozen=True, slots=True)
class Hardware:
    """What an engine runs on, where that is not the machine's CPU: `remote` host or `gpus`."""

    remote: str | None = None
    gpus: str | None = None

    @property
    def is_this_cpu(self) -> bool:
        """True if the engine runs on this machine's own processor."""
        return self.remote is None and self.gpus is None


MACHINE_FACTS = ("cpu", "cpus", "system", "arch", "python")


def is_this_machine(host: str) -> bool:
    """Return True if a host's name or address is that of this machine to itself, however it is written."""
    if host in ("localhost", "ip6-localhost") or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def environment_name(runner_class: str | None, hardware: Hardware, machine: Machine) -> str:
    """Return the environment that keys a session, fit for a folder name.

    A configured runner class stands instead of all else; a URL counts by its host, since the
    client's hardware says nothing of the server's, unless that is this machine too.
    """
    if runner_class:
        return slug(runner_class)
    if hardware.remote and is_this_machine(hardware.remote):
        return slug(f"url local {machine.name}")
    if hardware.remote:
        return slug(f"url {hardware.remote}")
    return slug(f"{hardware.gpus} {machine.name}") if hardware.gpus else machine.name


def slug(text: str) -> str:
    """Return `text` in lower case with runs of other characters than letters, digits and dots as one dash.

    Letters of any script: machines that are named apart stay apart.
    """
    composed = unicodedata.normalize("NFC", text.lower())
    return re.sub(r"(?:[^\w.]|_)+", "-", composed).strip("-.") or "unknown"


def machine_facts(recorded: Mapping[str, object]) -> dict[str, object]:
    """Return what a run recorded of its machine, as a failure names it; memory to whole GiB.

    The number of CPUs is named here and not part of the environment: containers report that of their
    host, and runner classes that differ in it are told apart by `llmspeed_environment`.
    """
    facts = {name: recorded[name] for name in MACHINE_FACTS if name in recorded}
    memory_mib = recorded.get("memory_mib")
    if isinstance(memory_mib, int | float):
        facts["memory"] = f"{memory_mib / 1024:.0f} GiB"
    return facts


def what_changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return "name: old → new" of every recorded fact that differs, in order of name."""
    names = sorted(before.keys() | now.keys())
    return [
        f"{name}: {_shown(before.get(name))} → {_shown(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _shown(fact: object) -> str:
    return "none" if fact is None else str(fact)
