"""Answers kept while a load runs: where they end, wherever a server or a read cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from helpers.servers import chunk, event, usage

from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.transport import recording_client
from pytest_llmspeed.transport.recorded_response import Part, RecordedResponse
from pytest_llmspeed.transport.recording_client import Excess, _Connection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n%s\r\n"
CHUNKED = HEAD % b"transfer-encoding: chunked\r\n"
OUTPUT = [chunk({"content": "five"}), chunk(finish="stop"), event({"choices": [], "usage": usage(1)})]
DONE, LAST = b"data: [DONE]\n\n", b"0\r\n\r\n"


def framed(part: bytes) -> bytes:
    """A part of a body as a chunk."""
    return b"%x\r\n%s\r\n" % (len(part), part)


ENDS = {
    "as usual": framed(DONE) + LAST,
    "without [DONE]": LAST,
    "in one chunk with its usage": framed(OUTPUT[2] + DONE) + LAST,
    "with lines that end in CR LF": framed(DONE.replace(b"\n", b"\r\n")) + LAST,
    "with a trailer": framed(DONE) + b"0\r\nx-checksum: 1\r\n\r\n",
    "without [DONE], with a trailer": b"0\r\nx-checksum: 1\r\n\r\n",
}


class Pushed:
    """A connection whose bytes the test brings."""

    def push_to(self, sink: _Connection) -> None:
        self.sink = sink

    async def send(self, content: bytes) -> None:
        pass

    def close(self) -> None:
        pass


async def answered(reads: Sequence[bytes], *, at_once: bool, parts: int = 0) -> RecordedResponse:
    """Bring an answer read by read; it ends with the last one, `at_once` or a while later.

    What has come is taken out, where that is worth it, so many times, and put back at the end.
    """
    socket, answer = Pushed(), RecordedResponse("server")
    idle: list[_Connection] = []
    taken: list[Part] = []
    connection = _Connection(socket, idle, Excess())  # type: ignore[arg-type]
    asking = asyncio.ensure_future(connection.ask(b"", answer))
    await asyncio.sleep(0)
    for place, read in enumerate(reads):
        assert not connection._over.done()
        connection.arrived(read, float(place), 0.0)
        if part := connection.part():
            taken.append(part)
    assert connection._over.done() is at_once
    await asyncio.wait_for(asking, timeout=5)
    assert len(taken) == parts
    answer.put_back(taken)
    return answer


def texts(answer: RecordedResponse) -> tuple[str, str | None, str | None]:
    found = answer.exchange(Request("hello"))
    return found.joined("text"), found.finish_reason, found.error


@pytest.mark.parametrize("name", ENDS)
def test_an_answer_ends_wherever_its_end_is_cut(name: str) -> None:
    """One cut or two in its last bytes: it ends with the last of them, not later."""
    body = b"".join(map(framed, OUTPUT)) + ENDS[name]

    async def all_cuts() -> None:
        for head in (CHUNKED, CHUNKED + body[:5]):
            rest = (CHUNKED + body)[len(head) :]
            for cut in range(max(1, len(rest) - 60), len(rest)):
                for second in {cut, min(cut + 1, len(rest) - 1), min(cut + 3, len(rest) - 1)}:
                    reads = [head, rest[:cut], rest[cut:second], rest[second:]]
                    answer = await answered([read for read in reads if read], at_once=True)
                    assert texts(answer) == ("five", "stop", None)

    asyncio.run(all_cuts())


@pytest.mark.parametrize("cut", [0, 1, 8, 12])
@pytest.mark.parametrize("head", [CHUNKED, HEAD % b""])
def test_an_answer_that_says_it_is_done_is_over(
    monkeypatch: pytest.MonkeyPatch, head: bytes, cut: int
) -> None:
    """Also where nothing follows [DONE], in one read with the head, or cut in two."""
    monkeypatch.setattr(recording_client, "DRAIN_S", 0.0)
    parts = [*OUTPUT, DONE]
    whole = head + b"".join(map(framed, parts) if head == CHUNKED else parts)
    place = whole.index(b"[DONE]") - 6 + cut
    reads = [whole] if cut == 0 else [whole[:place], whole[place:]]
    answer = asyncio.run(answered(reads, at_once=False))
    assert texts(answer) == ("five", "stop", None)
    answer.over_s = 99.0
    assert answer.ended_s == 99.0  # its slot was not free before


@pytest.mark.parametrize("name", [*ENDS, "of a known length"])
def test_a_long_answer_is_taken_out_in_parts(name: str) -> None:
    """What is left is enough to see its end, and put together again it is whole; so are its stamps."""
    framing, end = (framed, ENDS[name]) if name in ENDS else (bytes, DONE)
    texts = [framing(chunk({"content": f"{place} "})) for place in range(50)]
    rest = b"".join(map(framing, OUTPUT[1:])) + end
    length = sum(map(len, texts)) + len(rest)
    head = CHUNKED if name in ENDS else HEAD % b"content-length: %d\r\n" % length
    reads = [head, *texts, rest[: len(rest) // 2], rest[len(rest) // 2 :]]
    answer = asyncio.run(answered(reads, at_once=True, parts=3))
    assert (answer.reads, list(answer.stamps_s)) == (reads, list(map(float, range(len(reads)))))
    found = answer.exchange(Request("hello"))
    assert (found.joined("text").split(), found.finish_reason) == ([str(n) for n in range(50)], "stop")


@pytest.mark.parametrize("text", ["[DONE]", "data: [DONE]", "\ndata: [DONE]\n"])
def test_the_end_mark_in_a_text_ends_nothing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Only a line of its own does; no text can hold one, as JSON writes it."""
    monkeypatch.setattr(recording_client, "DRAIN_S", 0.0)

    async def told_and_waited() -> RecordedResponse:
        socket, answer = Pushed(), RecordedResponse("server")
        connection = _Connection(socket, [], Excess())  # type: ignore[arg-type]
        asking = asyncio.ensure_future(connection.ask(b"", answer))
        await asyncio.sleep(0)
        connection.arrived(CHUNKED + framed(chunk({"content": text})), 0.0, 0.0)
        await asyncio.sleep(0.01)
        assert not asking.done()
        connection.arrived(framed(OUTPUT[1] + DONE) + LAST, 1.0, 0.0)
        await asking
        return answer

    answer = asyncio.run(told_and_waited())
    assert (texts(answer), answer.unended) == ((text, "stop", None), False)
