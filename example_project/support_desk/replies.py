"""What the support desk writes to customers, as it would in production: with the OpenAI SDK."""

from __future__ import annotations

from collections.abc import Iterator

from openai import OpenAI

from support_desk.tickets import Ticket

LONGEST_REPLY_TOKENS = 12


def draft(ticket: Ticket, client: OpenAI) -> Iterator[str]:
    """Yield the draft of a reply, piece by piece as the model writes it."""
    stream = client.chat.completions.create(
        model="support-desk",
        messages=[
            {"role": "system", "content": "Draft a short, kind reply to the customer."},
            {"role": "user", "content": f"{ticket.subject}\n\n{ticket.body}"},
        ],
        max_tokens=LONGEST_REPLY_TOKENS,
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        if text := chunk.choices[0].delta.content:
            yield text
