"""What machine this is and what code is measured, read from the system."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pytest_llmspeed.system.environment import Machine

JOB = "LLMSPEED_JOB"
"""The variable that names the CI job instead of what the CI system says."""


@dataclass(frozen=True, slots=True)
class JobId:
    """A variable that identifies a running CI job.

    `more` tell jobs, stages and attempts apart that share it. Without `only_with`, where that is named,
    the variable is somebody else's.
    """

    variable: str
    more: tuple[str, ...] = ()
    only_with: str | None = None


JOB_IDS = (
    JobId(JOB),
    JobId("GITHUB_RUN_ID", ("GITHUB_RUN_ATTEMPT", "GITHUB_JOB")),
    JobId("CI_JOB_ID"),  # GitLab
    JobId("BUILDKITE_JOB_ID", ("BUILDKITE_RETRY_COUNT",)),
    JobId("CIRCLE_WORKFLOW_JOB_ID"),
    JobId("BUILD_BUILDID", ("SYSTEM_JOBID", "SYSTEM_JOBATTEMPT"), only_with="TF_BUILD"),  # Azure
    JobId("BITBUCKET_STEP_UUID", ("BITBUCKET_STEP_RUN_NUMBER",)),
    JobId("BITBUCKET_BUILD_NUMBER"),
    JobId("TRAVIS_JOB_ID"),
    JobId("DRONE_BUILD_NUMBER", ("DRONE_STAGE_NUMBER",)),
    JobId("CODEBUILD_BUILD_ID"),
    JobId("APPVEYOR_JOB_ID"),
    JobId("SEMAPHORE_JOB_ID"),
    JobId("CIRRUS_TASK_ID"),
    JobId("BUILD_NUMBER", ("TEAMCITY_BUILDCONF_NAME",), only_with="TEAMCITY_VERSION"),
    JobId("BUILD_TAG", only_with="JENKINS_URL"),
)
"""The variables in which CI systems put the id of the running job; the first one set counts."""


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


def gpu_count(
    environ: Mapping[str, str] = os.environ, folder: Path = Path("/proc/driver/nvidia/gpus")
) -> int | None:
    """Return how many NVIDIA GPUs a program may use, None where none is seen without a library."""
    try:
        count = sum(1 for _ in folder.iterdir())
    except OSError:
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES", "all").strip()
    if visible in ("", "-1"):
        return None
    if visible != "all":
        count = visible.count(",") + 1
    return count or None


def ci_job(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the id of the CI job that this runs in, None outside one."""
    for known in JOB_IDS:
        if environ.get(known.variable) and (known.only_with is None or environ.get(known.only_with)):
            values = (environ.get(name) for name in (known.variable, *known.more))
            return f"{known.variable}={'.'.join(value for value in values if value)}"
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
