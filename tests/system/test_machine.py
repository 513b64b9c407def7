"""What is read of the machine: its GPUs, where there are any, and the CI job that runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmspeed.system import machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's tool that lists two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771'\necho 'NVIDIA H200, 143771'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_are_named_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are used; none where none may be used."""
    assert machine.gpus() == "NVIDIA H200 140GiB"
    assert machine.gpus(2) == "2x NVIDIA H200 140GiB"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpus() is None


def test_a_machine_without_a_driver_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool, no GPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() is None


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"CI": "true"}, None),
        ({"GITHUB_RUN_ID": "77"}, "GITHUB_RUN_ID=77"),
        (
            {"GITHUB_RUN_ID": "77", "GITHUB_RUN_ATTEMPT": "2", "GITHUB_JOB": "gpu"},
            "GITHUB_RUN_ID=77.2.gpu",
        ),
        ({"CI_JOB_ID": "5"}, "CI_JOB_ID=5"),
        (
            {"TF_BUILD": "True", "BUILD_BUILDID": "8", "SYSTEM_JOBID": "a-b", "SYSTEM_JOBATTEMPT": "1"},
            "BUILD_BUILDID=8.a-b.1",
        ),
        ({"BITBUCKET_BUILD_NUMBER": "3", "BITBUCKET_STEP_UUID": "{1}"}, "BITBUCKET_STEP_UUID={1}"),
        ({"BITBUCKET_BUILD_NUMBER": "3"}, "BITBUCKET_BUILD_NUMBER=3"),
        (
            {"TEAMCITY_VERSION": "2024", "BUILD_NUMBER": "12", "TEAMCITY_BUILDCONF_NAME": "gpu"},
            "BUILD_NUMBER=12.gpu",
        ),
        ({"TRAVIS_JOB_ID": "9"}, "TRAVIS_JOB_ID=9"),
        ({"DRONE_BUILD_NUMBER": "4", "DRONE_STAGE_NUMBER": "2"}, "DRONE_BUILD_NUMBER=4.2"),
        ({"CODEBUILD_BUILD_ID": "p:1"}, "CODEBUILD_BUILD_ID=p:1"),
        ({"BUILD_TAG": "jenkins-x-1", "JENKINS_URL": "http://ci"}, "BUILD_TAG=jenkins-x-1"),
        ({"LLMSPEED_JOB": "gpu-3", "GITHUB_RUN_ID": "77"}, "LLMSPEED_JOB=gpu-3"),
    ],
)
def test_a_ci_job_is_known_by_what_its_system_sets(environ: dict[str, str], job: str | None) -> None:
    """Attempts, stages and jobs that share an id are told apart; our own variable wins."""
    assert machine.ci_job(environ) == job


@pytest.mark.parametrize("environ", [{"BUILD_TAG": "latest"}, {"BUILD_NUMBER": "1"}, {"BUILD_BUILDID": "1"}])
def test_a_variable_that_anyone_may_set_names_no_job(environ: dict[str, str]) -> None:
    """A docker tag would make all sessions one."""
    assert machine.ci_job(environ) is None


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 2), ("0", 1), ("0,1", 2), ("", None), ("-1", None), ("MIG-a,MIG-b,MIG-c", 3)],
)
def test_gpus_are_counted_without_a_library(tmp_path: Path, visible: str | None, count: int | None) -> None:
    """Those that the driver lists and CUDA_VISIBLE_DEVICES leaves; None where nothing is known."""
    for bus in ("0000:1b:00.0", "0000:43:00.0"):
        (tmp_path / bus).mkdir()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert machine.gpu_count(environ, tmp_path) == count
    assert machine.gpu_count(environ, tmp_path / "none") is None
