"""A side of an experiment: from words, and back."""

import pytest

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments.side import Side, differences


def test_each_kind_of_word_has_its_place():
    """Code, environment, settings of the plugin, options of the engine, variables."""
    side = Side.parse_text(
        "ref=v1.4 pip='vllm==0.32.0 torch==2.9' model=a/b option.max_num_seqs=64 env.OMP_NUM_THREADS=1"
    )
    assert side == Side(
        ref="v1.4",
        pip="vllm==0.32.0 torch==2.9",
        settings={"model": "a/b"},
        options={"max_num_seqs": "64"},
        env={"OMP_NUM_THREADS": "1"},
    )
    assert side.pytest_arguments == ["--llmspeed-model=a/b", "--llmspeed-option=max_num_seqs=64"]


def test_its_text_makes_the_same_side_again():
    """It can be copied from the output into a command."""
    side = Side.parse(["ref=main", "setup=pip install -e .", "env.EMPTY=", "option.rope={'a': 1}"])
    assert Side.parse_text(str(side)) == side
    assert Side.from_builtins(side.to_builtins()) == side


def test_a_side_that_changes_nothing_says_so():
    """The working tree, the environment and the settings of here."""
    assert str(Side.parse([])) == "as it is here"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model"], "'model': a side is made of key=value"),
        (["model="], "'model=': a side is made of key=value"),
        (["modle=x"], "a side has no 'modle'; did you mean 'model'?"),
        (["option.=1"], "a side has no 'option.'"),
        (["python=a", "pip=b"], "python= and pip= both choose"),
        (["env.OPENAI_API_KEY=sk-1"], "'OPENAI_API_KEY' names a secret"),
        (["setup=make"], "name that too, with ref="),
    ],
)
def test_a_wrong_word_is_named_with_the_fix(words, said):
    """Before anything is started."""
    with pytest.raises(SettingsError, match=said.replace("?", r"\?").replace(".", r"\.")):
        Side.parse(words)


def test_an_open_quote_is_a_mistake_in_the_text():
    """Not a traceback of the library that splits it."""
    with pytest.raises(SettingsError, match="quote a side as a shell would"):
        Side.parse_text("pip='vllm")


def test_what_differs_is_told_key_by_key():
    """What both have in common is not."""
    old, new = Side.parse(["backend=tiny", "precision=bf16"]), Side.parse(["backend=tiny", "env.A=1"])
    assert differences(old, new) == ["precision: bf16 → not set", "env.A: not set → 1"]
