"""What the support desk asks of a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Ask = Callable[[list[dict[str, str]]], str]
"""Sends chat messages to a model and returns the text of its answer."""

LONGEST_TICKET = 600
QUEUES = ("billing", "technical", "other")


@dataclass(frozen=True)
class Ticket:
    """A customer's message."""

    subject: str
    body: str


def summarise(ticket: Ticket, ask: Ask) -> str:
    """Return one line that says what the customer wants."""
    answer = ask(
        [
            {"role": "system", "content": "Summarise the ticket in one short line."},
            {"role": "user", "content": f"{ticket.subject}\n\n{ticket.body[:LONGEST_TICKET]}"},
        ]
    )
    return " ".join(answer.split())


def sort(summary: str, ask: Ask) -> str:
    """Return the queue that a summarised ticket belongs to, "other" in doubt."""
    answer = ask(
        [
            {"role": "system", "content": f"Answer with one word of {', '.join(QUEUES)}."},
            {"role": "user", "content": summary},
        ]
    )
    word = answer.strip().lower()
    return word if word in QUEUES else "other"
