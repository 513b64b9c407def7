"""How fast the support desk is: limits that must hold, and no slowdown against the baseline."""

from __future__ import annotations

import pytest
from support_desk.replies import draft
from support_desk.tickets import QUEUES, Ticket, sort, summarise

from pytest_llmspeed import LLMClient

TICKET = Ticket(
    subject="Charged twice",
    body="Hello, my card was charged twice for the October invoice. Please refund one of the payments.",
)


@pytest.mark.llm_budget(ttft_ms=400, tpot_ms=200, throughput_tps=5)
def test_a_summary_is_quick(llm_client: LLMClient) -> None:
    """The application itself is repeated; each call that it makes is measured."""

    def ask(messages: list[dict[str, str]]) -> str:
        return llm_client.generate(messages, max_tokens=16).text

    for _ in llm_client.rounds(10):
        assert "\n" not in summarise(TICKET, ask)


@pytest.mark.llm_budget(e2e_ms=4000, label="summary")
@pytest.mark.llm_budget(e2e_ms=1000, label="queue")
def test_each_step_of_a_ticket_has_its_budget(llm_client: LLMClient) -> None:
    """Two calls in one body, told apart by their labels."""
    for _ in llm_client.rounds(10):
        summary = summarise(TICKET, lambda m: llm_client.generate(m, max_tokens=16, label="summary").text)
        queue = sort(summary[:80], lambda m: llm_client.generate(m, max_tokens=4, label="queue").text)
        assert queue in QUEUES


@pytest.mark.llm_backend("tiny", precision="bf16")
@pytest.mark.llm_backend("tiny", precision="fp32")
def test_a_greeting_in_two_precisions(llm_client: LLMClient) -> None:
    """One prompt, repeated; the test runs once for each of its backends."""
    greeting = llm_client.measure("Write a one-line greeting to a customer.", max_tokens=16)
    assert greeting.text


@pytest.mark.llm_budget(ttft_ms=400, tpot_ms=200)
def test_a_reply_begins_at_once(llm_client: LLMClient) -> None:
    """Code that uses the OpenAI SDK is handed a client of it: each of its calls is measured."""
    for _ in llm_client.rounds(10):
        assert "".join(draft(TICKET, llm_client.openai))
