"""Selecting, disabling and shortening LLM tests; default budgets; budgets by environment; named engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

MIXED = """
    import pytest

    def test_plain(): pass
    def test_llm(llm_client): llm_client.measure("hello", max_tokens=4)

    @pytest.mark.llm_budget(ttft_ms=300)
    def test_budgeted(llm_client): llm_client.generate("hello", max_tokens=4)
"""


@pytest.mark.parametrize(("expression", "names"), [("llm", {"llm", "budgeted"}), ("not llm", {"plain"})])
def test_tests_that_use_an_llm_are_selected_by_a_mark(
    project: Project, expression: str, names: set[str]
) -> None:
    """They have it by themselves, and it is registered."""
    project.write(MIXED)
    result = project.run("-m", expression, "--strict-markers", "-v")
    result.assert_outcomes(passed=len(names), deselected=3 - len(names))
    shows(result, *(f"test_{name} PASSED" for name in names))


def test_disabled_tests_are_skipped_and_start_nothing(project: Project) -> None:
    """Whatever their marks say; the others run, and a client that is asked for late skips too."""
    project.write(
        MIXED
        + """
    @pytest.mark.llm_backend("no such engine")
    def test_wrong(llm_client): pass
    def test_late(request): request.getfixturevalue("llm_client")
    """
    )
    result = project.run("--llmspeed-disable", "-rs")
    result.assert_outcomes(passed=1, skipped=4)
    shows(result, "LLM tests are disabled (--llmspeed-disable)")
    assert project.engine_log == []


def test_a_smoke_run_makes_few_rounds_and_compares_nothing(project: Project) -> None:
    """Budgets are checked where the rounds allow it; a tail is said to be unchecked, and nothing is red."""
    project.write(
        """
    import pytest

    @pytest.mark.llm_budget(ttft_p95_ms=300, tpot_ms=90)
    def test_it(llm_client):
        assert len(llm_client.measure("hello", max_tokens=4).samples) == 2
        for _ in llm_client.rounds(10):
            llm_client.generate("other", max_tokens=4)
    """
    )
    project.record(5)
    project.script(factor=1.6)
    result = project.run("--llmspeed-rounds=2", "-v")
    result.assert_outcomes(passed=1)
    measured = project.test()["measurement"]
    assert (len(measured["requests"]), measured["warmup_requests"]) == (4, 2)
    assert project.verdicts() == {}
    shows(
        result,
        "--llmspeed-rounds=2: only budgets were checked; nothing was compared with a baseline",
        "not checked: needs 20 requests, --llmspeed-rounds=2",
        "budget kept",
    )
    assert {each["name"]: each["kept"] for each in project.test()["budgets"]} == {
        "ttft_p95_ms": None,
        "tpot_ms": True,
    }


def test_a_smoke_run_still_misses_budgets(project: Project) -> None:
    """Few rounds are enough for a median."""
    project.write(MIXED.replace("ttft_ms=300", "ttft_ms=1"))
    project.run("--llmspeed-rounds=1", "-k", "budgeted").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llmspeed-rounds=0"], "--llmspeed-rounds=0: at least one round is needed"),
        (["--llmspeed-rounds=2", "--llmspeed-update-baseline"], "--llmspeed-rounds=2 makes none"),
        (["--llmspeed-disable", "--llmspeed-update-baseline"], "--llmspeed-disable makes none"),
    ],
)
def test_too_little_is_not_stored(project: Project, options: list[str], message: str) -> None:
    """The options contradict each other: a usage error."""
    project.write(MIXED)
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, message)


def test_budgets_of_the_settings_hold_where_no_mark_says_otherwise(project: Project) -> None:
    """They are the lowest layer, may be lifted, and ask nothing of a test that measures nothing."""
    ini = project.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nllmspeed_budget =\n  ttft_ms=50\n  label=plan tpot_ms=1\n")
    project.write(
        """
    import pytest

    def test_default(llm_client): llm_client.generate("hello", max_tokens=4)

    @pytest.mark.llm_budget(ttft_ms=300)
    def test_marked(llm_client): llm_client.generate("hello", max_tokens=4)

    @pytest.mark.llm_budget(ttft_ms=None)
    def test_lifted(llm_client): llm_client.generate("hello", max_tokens=4)

    def test_nothing(llm_client): pass
    """
    )
    result = project.run()
    result.assert_outcomes(failed=1, passed=3)
    shows(result, "ttft_ms is", "above its budget of 50 ms")


def test_a_wrong_budget_of_the_settings_is_a_usage_error(project: Project) -> None:
    """It names the setting."""
    project.write(MIXED)
    result = project.run("-o", "llmspeed_budget=ttf_ms=300")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "llmspeed_budget: llm_budget(ttf_ms=…): no such budget")


@pytest.mark.parametrize(("environment", "outcome"), [("h100", "failed"), ("a100", "passed")])
def test_a_budget_of_an_environment_holds_there_only(
    project: Project, environment: str, outcome: str
) -> None:
    """Elsewhere -v says that it was not checked, and the general one counts."""
    project.write(
        """
    import pytest

    @pytest.mark.llm_budget(ttft_ms=300)
    @pytest.mark.llm_budget(environment="h100", ttft_ms=50)
    def test_it(llm_client): llm_client.generate("hello", max_tokens=4)
    """
    )
    result = project.run("-o", f"llmspeed_environment={environment}", "-v")
    result.assert_outcomes(**{outcome: 1})
    if outcome == "passed":
        shows(result, "not checked: for environment 'h100', this is 'a100'")


def test_configurations_of_an_engine_are_named(project: Project) -> None:
    """By their mark, else by the options that tell them apart; the id is in the identity."""
    project.write(
        """
    import pytest

    @pytest.mark.llm_backend("scripted", ttft_ms=100)
    @pytest.mark.llm_backend("scripted", ttft_ms=90)
    @pytest.mark.llm_backend("scripted", ttft_ms=80, id="quick")
    def test_it(llm_client): llm_client.generate("hello", max_tokens=4)
    """
    )
    project.run().assert_outcomes(passed=3)
    assert {test["identity"] for test in project.report["tests"]} == {
        "test_it.py::test_it",
        "test_it.py::test_it[scripted-ttft_ms=90]",
        "test_it.py::test_it[quick]",
    }


def test_named_configurations_keep_their_baselines_in_any_order(project: Project) -> None:
    """Each name is part of the identity, that of the first one too."""
    marks = [
        '@pytest.mark.llm_backend("scripted", ttft_ms=100, id="plain")',
        '@pytest.mark.llm_backend("scripted", ttft_ms=90, id="quick")',
    ]
    found = []
    for order in (marks, marks[::-1]):
        body = "def test_it(llm_client): llm_client.generate('hello', max_tokens=4)"
        project.write("\n".join(["import pytest", *order, body]))
        project.run().assert_outcomes(passed=2)
        found.append({test["identity"] for test in project.report["tests"]})
    assert found[0] == found[1] == {"test_it.py::test_it[plain]", "test_it.py::test_it[quick]"}


def test_an_id_that_does_not_fit_into_a_test_id_is_refused(project: Project) -> None:
    """Before anything runs."""
    project.write(
        """
    import pytest

    @pytest.mark.llm_backend("scripted", id="a b")
    def test_it(llm_client): pass
    """
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "llm_backend(id='a b'): an id may contain letters, digits and any of _ . = + -")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('"transformers"', "backend 'transformers' needs a model"),
        ('"transformers", model="./nowhere"', "there is no such file or folder"),
        ('"llama-cpp", model="./nowhere.gguf"', "there is no such file or folder"),
        ('"openai"', "backend 'openai' needs the address of a server"),
    ],
)
def test_what_is_missing_is_found_at_collection(project: Project, mark: str, message: str) -> None:
    """Before a library is imported or a device is waited for; nothing of the run is lost to it."""
    project.write(
        f"""
    import pytest

    @pytest.mark.llm_backend({mark})
    def test_it(llm_client): pass
    """
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, message)


def test_what_a_fixture_may_still_name_is_not_missed_at_collection(project: Project) -> None:
    """It is asked for in set-up, where the project's options are known."""
    project.write(
        """
    import pytest

    @pytest.fixture(scope="session")
    def llm_backend_options(): return {}

    @pytest.mark.llm_backend("openai")
    def test_it(llm_client): pass
    """
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    shows(result, "needs the address of a server")


def test_an_engine_with_a_start_of_its_own_is_not_held_to_that_of_its_base(project: Project) -> None:
    """As `tiny` is, which builds its model."""
    project.write("def test_it(llm_client): pass")
    result = project.run("--llmspeed-backend=tiny", "--collect-only")
    assert result.ret == pytest.ExitCode.OK
