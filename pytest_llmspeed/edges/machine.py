"""What machine this is and what code is measured, read from the system."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pytest_llmspeed.core.environment import Machine

JOB_VARIABLES = (
    "GITHUB_RUN_ID",
    "CI_JOB_ID",
    "BUILDKITE_JOB_ID",
    "CIRCLE_WORKFLOW_JOB_ID",
    "BUILD_TAG",
)
"""Where CI systems put the id of the running job, the first that is set counts."""


@cache
def machine() -> Machine:
    """Return this machine."""
    return Machine(
        cpu=_cpu_model(),
        cpus=os.cpu_count() or 1,
        memory_mib=_memory_mib(),
        system=platform.system().lower(),
        arch=platform.machine().lower(),
        python=platform.python_version(),
    )


def gpus(count: int = 1) -> str | None:
    """Return the first `count` NVIDIA GPUs as "2x NAME 80GiB", None where none is there or may be used."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        name, _, memory_mib = found.stdout.splitlines()[0].rpartition(",")
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    product = f"{name.strip()} {int(memory_mib) // 1024}GiB"
    return product if count == 1 else f"{count}x {product}"


def ci_job(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the id of the CI job that this runs in, None outside one."""
    for name in JOB_VARIABLES:
        if value := environ.get(name):
            attempt = environ.get("GITHUB_RUN_ATTEMPT", "") if name.startswith("GITHUB") else ""
            return f"{name}={value}" + (f".{attempt}" if attempt else "")
    return None


def commit(folder: Path) -> str | None:
    """Return the short commit of the checkout around `folder`, None where there is none."""
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--short=10", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].replace("(R)", "").replace("(TM)", "").split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown cpu"


def _memory_mib() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    except (AttributeError, OSError, ValueError):
        return 0
