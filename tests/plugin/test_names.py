"""What names a test: the same on each checkout, and another for each test of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import CONFTEST, INI, shows

if TYPE_CHECKING:
    from helpers.project import Project

ONE = "def test_x(llm_client): llm_client.measure('hello', max_tokens=4)\n"
OUTSIDE = ("-c", "cfg/other.ini", "--rootdir=cfg", "--confcutdir=.", "--import-mode=importlib", "a", "b")


@pytest.fixture
def monorepo(project: Project) -> Project:
    """Two folders with a file of one name each, beside the root folder that holds the configuration."""
    for folder in ("a", "b"):
        (project.pytester.mkdir(folder) / "test_same.py").write_text(ONE)
    (project.pytester.mkdir("cfg") / "other.ini").write_text(INI.replace("pythonpath = .", "pythonpath = .."))
    (project.path / "pytest.ini").unlink()
    (project.path / "conftest.py").write_text(CONFTEST)
    return project


def test_tests_outside_the_root_folder_have_relative_names(monorepo: Project) -> None:
    """Neither identity nor name holds the place of the checkout; files of one name stay apart."""
    result = monorepo.run(*OUTSIDE, "--llmspeed-markdown=report.md", "-v")
    result.assert_outcomes(passed=2)
    names = ["../a/test_same.py::test_x", "../b/test_same.py::test_x"]
    assert [test["identity"] for test in monorepo.report["tests"]] == names
    assert [test["nodeid"] for test in monorepo.report["tests"]] == names
    shows(result, "2 tests measured", *names)
    assert all(name in (monorepo.path / "report.md").read_text() for name in names)


def test_a_failed_teardown_belongs_to_its_own_test(monorepo: Project) -> None:
    """Of two tests with one node id only the one whose teardown fails is an error."""
    (monorepo.path / "b" / "test_same.py").write_text(
        "import pytest\n@pytest.fixture\ndef breaks():\n    yield\n    raise OSError\n"
        + ONE.replace("(llm_client)", "(llm_client, breaks)")
    )
    monorepo.run(*OUTSIDE).assert_outcomes(passed=2, errors=1)
    assert [test["outcome"] for test in monorepo.report["tests"]] == ["passed", "error"]


def test_each_worker_has_records_of_its_own(project: Project) -> None:
    """Under --dist each all workers run all tests: as many records, each with its worker's name."""
    project.write(ONE)
    result = project.run("--dist=each", "--tx=2*popen", "-v")
    result.assert_outcomes(passed=2)
    names = sorted(test["nodeid"] for test in project.report["tests"])
    assert names == ["[gw0] test_it.py::test_x", "[gw1] test_it.py::test_x"]
    assert {test["identity"] for test in project.report["tests"]} == {"test_it.py::test_x"}
    shows(result, *names)


def test_the_usual_distribution_leaves_node_ids_alone(project: Project) -> None:
    """Where each test runs once, its node id names it."""
    project.write(ONE)
    project.run("-n", "2")
    assert project.test()["nodeid"] == "test_it.py::test_x"
