"""Each reason has its words, and they need no more than the figures that come with it."""

import inspect

import pytest

from pytest_llmspeed import messages
from pytest_llmspeed.metrics import reasons
from pytest_llmspeed.metrics.reasons import Explanation, Reason


def test_each_reason_has_a_wording_of_its_own() -> None:
    """None is missing, and none is shared by accident."""
    wordings = reasons._WORDINGS
    assert set(wordings) == set(Reason)
    assert len(set(wordings.values())) == len(Reason)


@pytest.mark.parametrize("reason", Reason)
def test_a_wording_is_a_documented_function_of_messages(reason: Reason) -> None:
    """It stands in `messages`, where a translator or an editor would look."""
    wording = reasons._WORDINGS[reason]
    assert wording.__module__.startswith(messages.__name__)
    assert inspect.getdoc(wording)


def test_an_explanation_reads_as_its_sentence() -> None:
    """As text, it is what people see."""
    explanation = Reason.TOO_FEW_REQUESTS(requests=3, least=5)
    assert explanation == Explanation(Reason.TOO_FEW_REQUESTS, {"requests": 3, "least": 5})
    assert str(explanation).startswith("3 requests were measured, at least 5 are needed")
