"""The quality check from run to run, tied to the speed, under a real pytest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

CITIES = {"France": "Paris", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima"}
MARKED = """
    import pytest

    @pytest.mark.llm_backend({backend!r})
    @pytest.mark.llm_quality("prompts.jsonl"{limits})
    def test_chat(llm_client):
        {body}
"""


def asks(countries: dict[str, str]) -> str:
    """A prompt file that asks for capitals."""
    rows = (
        {"id": name, "prompt": f"{name}?", "expect": {"contains": city}} for name, city in countries.items()
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def capitals(project: Project) -> Project:
    """A project whose one test measures and checks four answers, all of them right."""
    (project.path / "prompts.jsonl").write_text(asks(CITIES))
    says(project)
    marked(project)
    return project


def marked(project: Project, backend: str = "scoring", limits: str = "", body: str = "") -> None:
    measure = "llm_client.measure('hello', max_tokens=8)"
    project.write(MARKED.format(backend=backend, limits=limits, body=body or measure))


def says(project: Project, **instead: object) -> None:
    """Let the engine answer with the capitals, but for some countries."""
    answers = {f"{name}?": instead.get(name, f"It is {city} .") for name, city in CITIES.items()}
    (project.path / "answers.json").write_text(json.dumps(answers))


def configure(project: Project, line: str) -> None:
    """Add a line to the ini file."""
    with (project.path / "pytest.ini").open("a") as ini:
        ini.write(f"\n{line}\n")


def rungs(project: Project) -> dict[str, str]:
    """Rung → verdict of the one set of the one test."""
    (found,) = project.test()["quality"]["sets"]
    return {rung["rung"]: rung["verdict"] for rung in found["rungs"]}


def said(project: Project, rung: str) -> str:
    (found,) = project.test()["quality"]["sets"]
    return next(each["sentence"] for each in found["rungs"] if each["rung"] == rung)


def test_without_a_baseline_it_passes_and_says_so(capitals: Project) -> None:
    """The contracts are counted, what needs a baseline is named."""
    result = capitals.run("-v")
    result.assert_outcomes(passed=1)
    assert capitals.test()["quality"]["verdict"] == "no_baseline"
    assert rungs(capitals) == {
        "contracts": "passed",
        "self-consistency": "passed",
        "log-probabilities": "no_baseline",
        "divergence": "no_baseline",
        "task score": "no_baseline",
    }
    assert said(capitals, "contracts") == "4 of 4 contracts kept"
    shows(result, "quality of prompts.jsonl", "no baseline yet")


def test_the_same_answers_pass(capitals: Project) -> None:
    """Every rung is climbed."""
    capitals.record(5)
    capitals.script(seed=1)
    capitals.run().assert_outcomes(passed=1)
    assert set(rungs(capitals).values()) == {"passed"}
    assert said(capitals, "divergence") == "4 of 4 answers unchanged"


def test_its_requests_are_no_part_of_what_is_measured(capitals: Project) -> None:
    """Ten rounds and two warm-ups of `measure`, nothing else."""
    capitals.run()
    measured = capitals.test()["measurement"]
    assert len(measured["requests"]) == 10
    assert measured["warmup_requests"] == 2
    assert capitals.test()["key"]["workload"] == [measured_line(capitals)]


def measured_line(project: Project) -> str:
    (line,) = project.test()["key"]["workload"]
    assert line.startswith("measure ")
    return str(line)


def test_a_broken_answer_makes_a_speedup_invalid(capitals: Project) -> None:
    """Faster and worse fails, shows the broken answer beside its baseline, and is not stored."""
    capitals.record(5)
    stored = capitals.run_files
    says(capitals, Peru="It is Quito .")
    capitals.script(factor=0.6, seed=1)
    result = capitals.run("--llmspeed-update-baseline", "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    shows(
        result,
        "%, but 1 of 4 answers broke",
        "'Peru' was 'It is Lima .', is 'It is Quito .' (it does not contain 'Lima')",
    )
    test = capitals.test()
    assert (test["verdict"], test["quality"]["verdict"]) == ("invalid", "failed")
    assert {found["verdict"] for found in test["comparisons"]} == {"invalid"}
    assert "is faster by " in test["problems"][0]["sentence"]
    assert "--llmspeed-accept" in test["advice"][0]["sentence"]
    assert not any("store it" in line["sentence"] for line in test["advice"])
    assert capitals.run_files == stored
    case = ElementTree.parse(capitals.path / "junit.xml").getroot().find(".//testcase")
    assert case is not None
    properties = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert properties["llmspeed_quality"] == "prompts.jsonl: failed"


def test_a_slowdown_beside_worse_answers_is_told_with_them(capitals: Project) -> None:
    """Slower and worse is one failure, and no slowdown to accept."""
    capitals.record(5)
    says(capitals, Peru="It is Quito .")
    capitals.script(factor=1.6, seed=1)
    capitals.run().assert_outcomes(failed=1)
    problem = capitals.test()["problems"][0]["sentence"]
    assert "is slower by " in problem
    assert "and 1 of 4 answers broke" in problem


def test_an_answer_that_parts_at_a_near_tie_is_no_failure(capitals: Project) -> None:
    """Where the baseline's own lead was a thousandth of a nat, rounding may have turned it."""
    capitals.script(lead=0.0005)
    capitals.record(5)
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=1)
    capitals.run().assert_outcomes(passed=1)
    assert rungs(capitals)["contracts"] == "passed"
    assert said(capitals, "contracts") == "1 of 4 answers broke, 1 of them at a near-tie"
    assert "1 parted at a near-tie" in said(capitals, "divergence")


def test_log_probabilities_that_moved_fail_although_no_answer_changed(capitals: Project) -> None:
    """The same tokens, but with half of their lead."""
    capitals.record(5)
    capitals.script(lead=1, seed=1)
    result = capitals.run()
    result.assert_outcomes(failed=1)
    assert rungs(capitals)["log-probabilities"] == "failed"
    shows(result, "KL 0.067 nats per token (at most 0.01)")


def test_an_engine_that_starts_to_draw_fails(capitals: Project) -> None:
    """Answers that come out differently again, with log-probabilities that repeat to the last bit."""
    capitals.record(5)
    says(capitals, Peru=["It is Lima .", "It is , well , Lima ."])
    capitals.script(seed=1)
    capitals.run().assert_outcomes(failed=1)
    assert rungs(capitals)["self-consistency"] == "failed"
    assert "changed when the prompt was sent again" in said(capitals, "self-consistency")


def test_answers_that_change_in_company_are_told(capitals: Project) -> None:
    """As many others as the set has, where the engine would take more."""
    capitals.record(5)
    capitals.script(company=1, seed=1)
    capitals.run()
    assert "4 of 4 answers repeated exactly, 1 alongside up to 3 other requests" in said(
        capitals, "self-consistency"
    )


def test_an_accepted_change_starts_anew(capitals: Project) -> None:
    """With a reason it passes, is stored, and later runs are compared with it."""
    capitals.record(3)
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=7)
    result = capitals.run("--llmspeed-update-baseline", "--llmspeed-accept=they moved")
    result.assert_outcomes(passed=1)
    shows(result, "quality of 'prompts.jsonl' changed, accepted (they moved)")
    capitals.script(seed=8)
    capitals.run().assert_outcomes(passed=1)
    assert "4 of 4 answers unchanged" in said(capitals, "divergence")


def test_many_small_losses_add_up(capitals: Project) -> None:
    """The answers of the level's beginning are what counts, not the last ones stored."""
    capitals.script(lead=2.0)
    capitals.record(1)
    capitals.script(lead=1.65, seed=50)
    capitals.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    capitals.script(lead=1.3, seed=51)
    capitals.run("--llmspeed-update-baseline").assert_outcomes(failed=1)
    assert rungs(capitals)["log-probabilities"] == "failed"
    assert len(capitals.run_files) == 2


def test_an_engine_without_log_probabilities_skips_that_rung_aloud(capitals: Project) -> None:
    """Answers are compared all the same; what cannot be explained is a suspicion."""
    marked(capitals, backend="scripted", limits=", min_score=0")
    capitals.record(2)
    capitals.script(seed=1)
    result = capitals.run()
    result.assert_outcomes(passed=1)
    assert rungs(capitals)["log-probabilities"] == "skipped"
    shows(result, "check 3 (log-probabilities) is skipped: this backend cannot score given tokens")


def test_without_texts_the_store_keeps_hashes_only(capitals: Project) -> None:
    """Neither text nor tokens; that an answer changed still shows, and rung 3 is skipped aloud."""
    configure(capitals, "llmspeed_store_text = false")
    capitals.record(3)
    (snapshot,) = json.loads(capitals.run_files[0].read_text())["tests"][0]["snapshots"]
    assert not {"texts", "tokens", "scores", "not_kept"} & snapshot["answers"][0].keys()
    assert "Lima" not in capitals.run_files[0].read_text()
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=1)
    result = capitals.run()
    assert rungs(capitals)["log-probabilities"] == "skipped"
    assert rungs(capitals)["contracts"] == "suspect"
    shows(result, "llmspeed_store_text = false", "quality of 'prompts.jsonl' may be worse")
    assert "1 changed without an explanation" in said(capitals, "divergence")


def test_answers_that_were_stored_corruptly_are_told(capitals: Project) -> None:
    """With the test and the fix, before anything is compared with them."""
    capitals.record(1)
    (path,) = capitals.run_files
    stored = json.loads(path.read_text())
    stored["tests"][0]["snapshots"][0]["answers"][0]["tokens"] = "eJw="
    path.write_text(json.dumps(stored))
    result = capitals.run()
    result.assert_outcomes(failed=1)
    shows(result, "the stored answers of test_it.py::test_chat to 'prompts.jsonl' are corrupt")


def test_strict_fails_what_is_suspect(capitals: Project) -> None:
    """As it does for the speed."""
    configure(capitals, "llmspeed_store_text = false")
    capitals.record(3)
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=1)
    result = capitals.run("--llmspeed-strict")
    result.assert_outcomes(failed=1)
    shows(result, "the test fails because of --llmspeed-strict")


def test_a_limit_of_the_users_holds_without_a_baseline(capitals: Project) -> None:
    """A share of contracts that has to be kept."""
    marked(capitals, limits=", min_score=0.9")
    says(capitals, Peru="It is Quito .")
    result = capitals.run()
    result.assert_outcomes(failed=1)
    shows(result, "the mean score is 0.75, min_score is 0.9")


def test_another_precision_is_compared_under_explicit_limits(capitals: Project) -> None:
    """bf16 against the stored fp32: it may answer differently, as far as the limits go."""
    capitals.record(2, "--llmspeed-precision=fp32")
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=1)
    marked(capitals, limits=", quality_vs='fp32', max_kl=5, min_top1=0.5")
    capitals.run("--llmspeed-precision=bf16").assert_outcomes(passed=1)
    assert rungs(capitals)["log-probabilities"] == "passed"
    marked(capitals, limits=", quality_vs='fp32', max_kl=0.01, min_top1=0.5")
    capitals.run("--llmspeed-precision=bf16").assert_outcomes(failed=1)
    assert rungs(capitals)["log-probabilities"] == "failed"


def test_a_body_checks_and_sees_the_answers(capitals: Project) -> None:
    """check_quality returns them; a test that measures nothing else is stored and compared by them."""
    body = "\n        ".join(
        [
            "checked = llm_client.check_quality('prompts.jsonl')",
            "assert checked.score == 1",
            "assert checked.answers[0].text.split()[2] == 'Paris'",
        ]
    )
    marked(capitals, body=body)
    capitals.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    assert capitals.test()["verdict"] == "no_baseline"
    capitals.run().assert_outcomes(passed=1)
    assert capitals.test()["verdict"] == "passed"


def test_every_check_of_a_set_is_judged(capitals: Project) -> None:
    """A later one of the same prompts, with milder limits or none, forgives the first nothing."""
    scorer = "scorer=lambda prompt, answer: 0.2, min_score=0.9"
    marked(capitals, body=f"llm_client.check_quality('prompts.jsonl', {scorer})")
    result = capitals.run("--llmspeed-update-baseline")
    result.assert_outcomes(failed=1)
    shows(result, "the mean score is 0.2, min_score is 0.9")
    assert capitals.run_files == []
    marked(capitals, limits=f", {scorer}", body="llm_client.check_quality('prompts.jsonl')")
    capitals.run().assert_outcomes(failed=1)
    assert [each["verdict"] for each in capitals.test()["quality"]["sets"]] == ["no_baseline", "failed"]


def test_each_check_of_a_set_has_a_baseline_of_its_own(capitals: Project) -> None:
    """Scores of one scorer are not held against those of another."""
    half = "llm_client.check_quality('prompts.jsonl', scorer=lambda prompt, answer: 0.5)"
    marked(capitals, body=half)
    capitals.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    capitals.run().assert_outcomes(passed=1)
    names = ["prompts.jsonl", "prompts.jsonl #2"]
    assert [each["prompts"] for each in capitals.test()["quality"]["sets"]] == names
    assert {each["verdict"] for each in capitals.test()["quality"]["sets"]} == {"passed"}


def test_a_check_that_the_body_has_made_is_not_made_again(capitals: Project) -> None:
    """The mark asks for nothing else."""
    marked(capitals, body="llm_client.check_quality('prompts.jsonl')")
    capitals.run().assert_outcomes(passed=1)
    assert len(capitals.test()["quality"]["sets"]) == 1


def test_a_real_engine_is_held_against_itself_and_against_another_precision(capitals: Project) -> None:
    """The embedded model: the same to the last token in fp32, and close enough in bf16."""
    marked(capitals, backend="tiny", body="pass")
    capitals.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    capitals.run().assert_outcomes(passed=1)
    assert set(rungs(capitals).values()) == {"passed"}
    assert said(capitals, "divergence") == "4 of 4 answers unchanged"
    marked(capitals, backend="tiny", limits=", quality_vs='fp32', max_kl=0.01, min_top1=0.8", body="pass")
    capitals.run("--llmspeed-precision=bf16").assert_outcomes(passed=1)
    assert rungs(capitals)["log-probabilities"] == "passed"
    assert "over 256 stored tokens" in said(capitals, "log-probabilities")


def test_a_scorer_of_ones_own_goes_through_the_paired_test(project: Project) -> None:
    """Eight answers that became longer, judged by their length, are a loss that chance does not explain."""
    countries = {f"country {number}": "x" for number in range(8)}
    (project.path / "prompts.jsonl").write_text(
        "".join(json.dumps({"id": name, "prompt": f"{name}?"}) + "\n" for name in countries)
    )
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_quality("prompts.jsonl", scorer=lambda prompt, answer: -len(answer))
        def test_chat(llm_client):
            pass
        """
    )
    project.script(tokens=3)
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    project.script(tokens=5)
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "of 8 scores, 8 fell and 0 rose (p = 0.0039)")


@pytest.mark.parametrize(
    ("score", "told"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("float('nan')", "4 of 4 requests failed, the first with: the scorer returned nan"),
    ],
)
def test_a_scorer_that_gives_no_number_fails_the_test(capitals: Project, score: str, told: str) -> None:
    """Its error is the user's own, as in the body; NaN is below no limit, and fails every one."""
    marked(capitals, limits=f", min_score=0.9, scorer=lambda prompt, answer: {score}")
    result = capitals.run("--llmspeed-update-baseline")
    result.assert_outcomes(failed=1)
    shows(result, told)
    assert capitals.run_files == []


def test_log_probabilities_that_are_nan_fail_the_check(capitals: Project) -> None:
    """A model whose values overflow gives them, and any answer; no limit compares with NaN."""
    capitals.record(5)
    stored = capitals.run_files
    capitals.script(lead="nan", seed=1)
    result = capitals.run("--llmspeed-update-baseline")
    result.assert_outcomes(failed=1)
    shows(
        result, "4 of 4 requests failed, the first with: its tokens cannot be scored: the log-probabilities"
    )
    assert "NaN" not in (capitals.path / "report.json").read_text().replace("are NaN or Inf", "")
    assert capitals.run_files == stored


def test_failed_requests_fail_the_check(capitals: Project) -> None:
    """No answer is no quality, and nothing of it is stored."""
    capitals.script(fail_every=3)
    marked(capitals, body="pass")
    result = capitals.run("--llmspeed-update-baseline")
    result.assert_outcomes(failed=1)
    shows(result, "requests failed, the first with: scripted failure")
    assert capitals.run_files == []


def test_a_body_that_fails_asks_nothing(capitals: Project) -> None:
    """The check comes after the body, if that passed."""
    marked(capitals, body="assert False")
    capitals.run().assert_outcomes(failed=1)
    assert capitals.test()["quality"] is None


def test_the_report_leaves_answers_out_if_asked(capitals: Project) -> None:
    """llmspeed_json_text = false."""
    configure(capitals, "llmspeed_json_text = false")
    capitals.record(2)
    says(capitals, Peru="It is Quito .")
    capitals.script(seed=1)
    result = capitals.run()
    shows(result, "1 of 4 answers broke", "'Peru'")
    assert "Quito" not in (capitals.path / "report.json").read_text()


def test_workers_store_what_one_process_stores(capitals: Project) -> None:
    """Answers and their log-probabilities cross to the controller."""
    capitals.run("--llmspeed-update-baseline", "-n1").assert_outcomes(passed=1)
    (snapshot,) = json.loads(capitals.run_files[0].read_text())["tests"][0]["snapshots"]
    assert snapshot["answers"][0]["texts"] == ["It is Paris . "]
    assert "scores" in snapshot["answers"][0]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (", max_lk=1", "a quality check takes no 'max_lk'; did you mean 'max_kl'?"),
        (", min_top1=90", "min_top1=90: must be between 0 and 1"),
        (", max_kl='low'", "max_kl='low': must be a number, 0 or more"),
        (", quality_vs='bf16'", "set how far they may differ, as in max_kl=0.05, min_top1=0.9"),
        (", scorer=3", "scorer=3: must be a function of prompt and answer"),
    ],
)
def test_a_mistake_in_a_mark_is_a_usage_error(capitals: Project, limits: str, message: str) -> None:
    """Before any engine starts."""
    marked(capitals, limits=limits)
    result = capitals.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, message)
    assert capitals.engine_log == []


def test_a_bad_prompt_file_is_a_usage_error(capitals: Project) -> None:
    """With file, line and field."""
    (capitals.path / "prompts.jsonl").write_text('{"prompt": "hi"}\n{"prompt": 4}\n')
    result = capitals.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "prompts.jsonl:2: prompt: must be a text, not 4")


def test_a_mark_without_the_client_is_a_usage_error(capitals: Project) -> None:
    """There would be nobody to ask."""
    capitals.write("import pytest\n\n@pytest.mark.llm_quality('prompts.jsonl')\ndef test_it(): pass")
    result = capitals.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "llm_quality sends its prompts through llm_client")


def test_the_ini_file_names_the_set_of_checks_that_name_none(capitals: Project) -> None:
    """A path from the ini file's folder."""
    configure(capitals, "llmspeed_quality = prompts.jsonl")
    capitals.write(
        "import pytest\n\n@pytest.mark.llm_quality\n@pytest.mark.llm_backend('scoring')\n"
        "def test_chat(llm_client): pass"
    )
    capitals.run().assert_outcomes(passed=1)
    (found,) = capitals.test()["quality"]["sets"]
    assert (found["prompts"], len(found["answers"])) == ("prompts.jsonl", 4)
