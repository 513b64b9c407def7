"""Settings: command line > closest mark > ini > default, and where a path starts from."""

from pathlib import Path

import pytest

from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.settings import BackendMark, Settings, spec_for

URL = "http://127.0.0.1:8000/v1"


@pytest.fixture
def registry():
    return Registry(BUILT_IN)


def test_with_nothing_configured_the_error_says_what_to_write(registry):
    """A toy is never measured silently."""
    with pytest.raises(SettingsError, match='llmspeed_backend = "tiny"'):
        spec_for(Settings(), registry)


def test_the_command_line_comes_before_the_mark_and_the_mark_before_the_ini_file(registry):
    """Backend by backend, each place wins over the next."""
    ini, mark = {"backend": "tiny"}, BackendMark("transformers")
    assert spec_for(Settings(ini=ini), registry).backend == "tiny"
    assert spec_for(Settings(ini=ini), registry, mark).backend == "transformers"
    assert spec_for(Settings(backends=("openai",), ini=ini), registry, mark).backend == "openai"


@pytest.mark.parametrize("key", ["model", "precision"])
def test_each_key_is_taken_from_the_first_place_that_sets_it(registry, key):
    """Model and precision on their own, whoever named the backend."""
    ini = {"backend": "transformers", key: "of-ini"}
    mark = BackendMark("transformers", **{key: "of-mark"})
    found = [
        getattr(spec_for(settings, registry, marked), key)
        for settings, marked in (
            (Settings(ini=ini), None),
            (Settings(ini=ini), mark),
            (Settings(ini=ini, **{key: "of-line"}), mark),
        )
    ]
    assert found == ["of-ini", "of-mark", "of-line"]


def test_without_a_precision_the_engine_chooses(registry):
    """Absent is "auto"."""
    assert spec_for(Settings(ini={"backend": "tiny"}), registry).precision == "auto"


def test_an_origin_says_which_place_set_a_value():
    """For messages and for paths."""
    mark = BackendMark("tiny", model="m", folder=Path("/tests"))
    settings = Settings(ini={"model": "i"}, cwd=Path("/cwd"), ini_folder=Path("/ini"))
    assert settings.origin("model").place == "llmspeed_model"
    assert settings.origin("model", mark).place == "the llm_backend mark"
    assert Settings(model="c").origin("model", mark).place == "--llmspeed-model"
    assert Settings().origin("model", BackendMark("tiny")) is None


def test_one_of_several_backends_can_be_asked_for(registry):
    """A test that runs on each names the one that this run is for."""
    settings = Settings(backends=("tiny", "openai"), url=URL)
    assert spec_for(settings, registry, backend="openai").backend == "openai"


def test_options_of_a_mark_apply_to_its_own_backend_only(registry):
    """--llmspeed-backend moves a marked suite, without options that the other engine does not know."""
    mark = BackendMark("tiny", options={"token_delay_ms": 3})
    assert spec_for(Settings(), registry, mark).options == {"token_delay_ms": 3}
    assert spec_for(Settings(backends=("transformers",)), registry, mark).options == {}


def test_options_known_only_at_run_time_are_taken(registry):
    """Such as the address of a server that a fixture started."""
    settings = Settings(backends=("openai",))
    assert spec_for(settings, registry, run_time={"url": URL}).options == {"url": URL}


def test_options_at_run_time_that_only_others_take_are_left_aside(registry):
    """One fixture serves a suite that runs on several backends."""
    settings = Settings(backends=("tiny",))
    assert spec_for(settings, registry, run_time={"url": URL}).options == {}


def test_an_option_at_run_time_that_nobody_takes_is_refused(registry):
    """A misspelt option is not dropped in silence."""
    with pytest.raises(SettingsError, match="'ulr'"):
        spec_for(Settings(backends=("openai",)), registry, run_time={"ulr": URL})


def test_options_of_a_mark_win_over_those_at_run_time(registry):
    """The closer place wins."""
    mark = BackendMark("openai", options={"url": "http://mark/v1"})
    found = spec_for(Settings(), registry, mark, run_time={"url": URL, "tokenizer": "t"})
    assert found.options == {"url": "http://mark/v1", "tokenizer": "t"}


def test_a_model_at_run_time_is_taken_where_no_other_is_named(registry):
    """A served model's name may be known only then."""
    run_time = {"url": URL, "model": "served"}
    assert spec_for(Settings(backends=("openai",)), registry, run_time=run_time).model == "served"
    named = spec_for(Settings(backends=("openai",), model="named"), registry, run_time=run_time)
    assert named.model == "named"
    assert "model" not in named.options


def test_the_address_of_the_command_line_wins(registry):
    """Over the mark, the run time and the ini file."""
    mark = BackendMark("openai", options={"url": "http://mark/v1"})
    settings = Settings(url=URL, ini={"url": "http://ini/v1"})
    assert spec_for(settings, registry, mark, run_time={"url": "http://late/v1"}).options["url"] == URL


def test_the_address_of_the_ini_file_is_the_last_resort(registry):
    """It is taken where neither line, mark nor run time has one."""
    settings = Settings(backends=("openai",), ini={"url": "http://ini/v1"})
    assert spec_for(settings, registry).options["url"] == "http://ini/v1"
    mark = BackendMark("openai", options={"url": "http://mark/v1"})
    assert spec_for(settings, registry, mark).options["url"] == "http://mark/v1"
    assert spec_for(settings, registry, run_time={"url": URL}).options["url"] == URL


def test_an_address_is_no_option_of_an_engine_that_takes_none(registry):
    """A configured server does not get in the way of an engine in the process."""
    settings = Settings(backends=("tiny",), url=URL, ini={"url": URL})
    assert spec_for(settings, registry).options == {}


def test_settings_are_not_changed_by_asking(registry):
    """Mark and run-time options are handed on, not used up."""
    options, run_time = {"url": "http://mark/v1"}, {"model": "served", "url": URL}
    spec_for(Settings(), registry, BackendMark("openai", options=options), run_time=run_time)
    assert (options, run_time) == ({"url": "http://mark/v1"}, {"model": "served", "url": URL})


def test_equal_settings_make_equal_specs(registry):
    """So that one engine serves all tests that ask alike, whatever the order of their options."""
    one = BackendMark("openai", options={"url": URL, "tokenizer": "t"})
    other = BackendMark("openai", options={"tokenizer": "t", "url": URL}, folder=Path("elsewhere"))
    assert spec_for(Settings(), registry, one) == spec_for(Settings(), registry, other)
    assert hash(spec_for(Settings(), registry, one)) == hash(spec_for(Settings(), registry, other))
    changed = BackendMark("openai", options={"url": URL, "tokenizer": "u"})
    assert spec_for(Settings(), registry, one) != spec_for(Settings(), registry, changed)


def test_a_path_starts_where_it_was_written(registry, tmp_path):
    """Of an option from the working directory, of an ini value from the ini file, of a mark from the test."""
    folders = {name: tmp_path / name for name in ("cwd", "ini", "tests")}
    for folder in folders.values():
        (folder / "model").mkdir(parents=True)
    base = {"cwd": folders["cwd"], "ini_folder": folders["ini"]}
    mark = BackendMark("transformers", model="model", folder=folders["tests"])
    of_line = spec_for(Settings(model="model", **base), registry, mark)
    of_mark = spec_for(Settings(**base), registry, mark)
    of_ini = spec_for(Settings(ini={"backend": "transformers", "model": "model"}, **base), registry)
    found = [of_line.model, of_mark.model, of_ini.model]
    assert found == [str((folders[name] / "model").resolve()) for name in ("cwd", "tests", "ini")]


def test_a_model_that_is_no_path_stays_a_name(registry, tmp_path):
    """A hub id is not turned into a file name."""
    settings = Settings(backends=("transformers",), model="Qwen/Qwen2.5-1.5B", cwd=tmp_path)
    assert spec_for(settings, registry).model == "Qwen/Qwen2.5-1.5B"


def test_the_store_is_found_from_where_it_was_named(tmp_path):
    """Option from the working directory, ini value from the ini file, default beside the ini file."""
    base = {"cwd": tmp_path / "cwd", "ini_folder": tmp_path / "ini"}
    assert Settings(**base).store_folder == tmp_path / "ini" / ".llmspeed" / "baselines"
    assert Settings(ini={"store": "kept"}, **base).store_folder == tmp_path / "ini" / "kept"
    assert Settings(store="mine", ini={"store": "kept"}, **base).store_folder == tmp_path / "cwd" / "mine"
    assert Settings(store=str(tmp_path / "abs"), **base).store_folder == tmp_path / "abs"


def test_the_report_is_written_from_the_working_directory(tmp_path):
    """And nowhere without the option."""
    assert Settings(json="out.json", cwd=tmp_path).json_file == tmp_path / "out.json"
    assert Settings(cwd=tmp_path).json_file is None


def test_the_report_shows_answers_unless_told_otherwise():
    """`llmspeed_json_text = false` leaves them out; without a report they go nowhere."""
    assert Settings(json="report.json").json_text
    assert not Settings(json="report.json", ini={"json_text": False}).json_text
    assert not Settings().json_text


def test_an_empty_runner_class_is_none():
    """An ini value that was left empty names nothing."""
    assert Settings(ini={"environment": ""}).environment is None
    assert Settings(ini={"environment": "ci"}).environment == "ci"


def test_what_was_given_is_shown_in_the_report():
    """Options as given, those that were not given left out."""
    assert Settings(backends=("tiny",), update=True, accept="why").shown == {
        "backend": ["tiny"],
        "update_baseline": True,
        "accept": "why",
    }
    assert Settings().shown == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"accept": "why"}, "--llmspeed-update-baseline"),
        ({"accept": ""}, "--llmspeed-update-baseline"),
        ({"accept": " ", "update": True}, "needs a reason"),
        (
            {"ini": {"environment": "—!"}, "update": True},
            "llmspeed_environment = '—!' needs a letter or a digit",
        ),
    ],
)
def test_options_that_contradict_each_other_are_named(given, words):
    """Accepting needs an update beside it and a reason, an environment a name that a folder can have."""
    (problem,) = Settings(**given).problems()
    assert words in problem


def test_options_that_fit_are_no_problem():
    """An update with or without a reason to accept."""
    assert Settings().problems() == []
    assert Settings(update=True).problems() == []
    assert Settings(update=True, accept="why").problems() == []
