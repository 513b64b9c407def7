"""Where a session was measured: its name, and what changed."""

import pytest

from pytest_llmspeed.system.environment import Hardware, Machine, environment_name, slug, what_changed

MACHINE = Machine("AMD EPYC(tm) 7763 64-Core", 128, 515_000, "Linux", "x86_64", "3.12.1")


def test_a_machine_is_named_by_processor_system_and_architecture():
    """Host names, cores lent and Python versions come and go; they are not in the name."""
    assert environment_name(None, Hardware(), MACHINE) == "amd-epyc-tm-7763-64-core-linux-x86-64"


def test_a_gpu_stands_before_the_machine():
    """What the engine runs on is in the name."""
    name = environment_name(None, Hardware(gpus="1x NVIDIA H200 139 GiB"), MACHINE)
    assert name == "1x-nvidia-h200-139-gib-amd-epyc-tm-7763-64-core-linux-x86-64"


def test_a_url_counts_by_its_host_alone():
    """The client's hardware says nothing of the server's."""
    assert (
        environment_name(None, Hardware(remote="api.example.com:8000"), MACHINE) == "url-api.example.com-8000"
    )


@pytest.mark.parametrize("hardware", [Hardware(), Hardware(gpus="H200"), Hardware(remote="host")])
def test_a_runner_class_stands_instead_of_all_else(hardware):
    """One configured name unites machines that their owner calls alike."""
    assert environment_name("CI large", hardware, MACHINE) == "ci-large"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A  b/c", "a-b-c"),
        ("..", "unknown"),
        ("../../etc", "etc"),
        ("", "unknown"),
        ("v1.2", "v1.2"),
        ("C:\\x", "c-x"),
        ("x86_64", "x86-64"),
        ("Büro Süd", "büro-süd"),
        ("сервер 1", "сервер-1"),
        ("大型机 / H200", "大型机-h200"),
    ],
)
def test_a_name_is_fit_for_a_folder(text, expected):
    """No separators, no leading dots, never empty."""
    assert slug(text) == expected


def test_a_name_is_the_same_however_its_accents_are_written():
    """Composed, or as a letter with a mark behind it."""
    assert slug("Bu\u0308ro") == slug("B\u00fcro") == "b\u00fcro"


def test_what_changed_is_told_old_to_new_in_order_of_name():
    """Only facts that differ are told."""
    before, now = {"torch": "2.5", "cuda": "12", "commit": "a"}, {"torch": "2.6", "cuda": "12", "commit": "b"}
    assert what_changed(before, now) == ["commit: a → b", "torch: 2.5 → 2.6"]


def test_facts_that_came_or_went_are_told():
    """A fact on one side only is shown against none."""
    assert what_changed({"old": 1}, {"new": 2}) == ["new: none → 2", "old: 1 → none"]


def test_a_fact_that_was_unknown_is_shown_as_none():
    """A commit that could not be told before reads like one that was not recorded."""
    assert what_changed({"commit": None}, {"commit": "b"}) == ["commit: none → b"]


def test_nothing_changed_is_an_empty_list():
    """Equal facts, and unknown ones on both sides, are no change."""
    assert what_changed({"torch": "2.5", "commit": None}, {"torch": "2.5"}) == []
