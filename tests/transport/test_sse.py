"""Bytes to server-sent events: any cut, any line end, and the stamp of the last byte of data."""

from itertools import combinations

import pytest

from pytest_llmspeed.transport.sse import EventParser

STREAM = (
    b': hello\ndata: {"a": 1}\n\nevent: error\ndata: broke\n\ndata: one\ndata: two\nid: 7\n\ndata: [DONE]\n\n'
)
EXPECTED = [("message", b'{"a": 1}'), ("error", b"broke"), ("message", b"one\ntwo"), ("message", b"[DONE]")]


def parsed(*chunks):
    """Kind and data of all events of a stream that came in these chunks and then ended."""
    parser = EventParser()
    found = [event for at, chunk in enumerate(chunks) for event in parser.feed(chunk, float(at))]
    return [(event.event, event.data) for event in [*found, *parser.close()]]


def stamps(*chunks):
    """Data and stamp of all events; the n-th chunk arrived at n."""
    parser = EventParser()
    found = [event for at, chunk in enumerate(chunks) for event in parser.feed(chunk, float(at))]
    return [(event.data, event.stamp_s) for event in [*found, *parser.close()]]


def ending(text, end):
    return text.replace(b"\n", end)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_stream_cut_at_any_place_gives_the_same_events(end):
    """Wherever the network cuts, within a line end too, the events are the same."""
    stream = ending(STREAM, end)
    assert parsed(stream) == EXPECTED
    for cut in range(len(stream) + 1):
        assert parsed(stream[:cut], stream[cut:]) == EXPECTED, cut


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_stream_cut_at_two_places_gives_the_same_events(end):
    """A short stream, cut at every pair of places."""
    stream = ending(b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", end)
    for first, second in combinations(range(len(stream) + 1), 2):
        chunks = stream[:first], stream[first:second], stream[second:]
        assert parsed(*chunks) == [("message", b"a"), ("message", b"b")], (first, second)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_stream_that_comes_byte_by_byte_gives_the_same_events(end):
    """The slowest network there is."""
    stream = ending(STREAM, end)
    assert parsed(*(bytes([byte]) for byte in stream)) == EXPECTED


def test_line_ends_may_be_mixed():
    """CR, LF and CRLF each end one line, in one stream."""
    assert parsed(b"data: a\r\rdata: b\r\n\ndata: c\n\r\n") == [("message", d) for d in (b"a", b"b", b"c")]


def test_a_byte_order_mark_is_skipped_at_the_start_only():
    """The first three bytes may be a mark; later ones belong to what they stand in."""
    mark = b"\xef\xbb\xbf"
    assert parsed(mark + b"data: a\n\n") == [("message", b"a")]
    assert parsed(b"data: " + mark + b"a\n\n") == [("message", mark + b"a")]
    assert parsed(b"data: a\n\n" + mark + b"data: b\n\n") == [("message", b"a")]


def test_comments_are_no_events():
    """Lines that begin with a colon keep the connection alive and mean nothing."""
    assert parsed(b": ping\n\n:\n\n: OPENROUTER PROCESSING\n\n") == []
    assert parsed(b": ping\ndata: a\n: ping\n\n") == [("message", b"a")]


def test_one_space_after_the_colon_is_left_out():
    """Only the first space: others belong to the data."""
    assert parsed(b"data:a\n\ndata: a\n\ndata:  a\n\n") == [("message", d) for d in (b"a", b"a", b" a")]


def test_several_data_lines_are_one_event():
    """They are joined by line feeds, empty ones too."""
    assert parsed(b"data: a\ndata:\ndata: c\n\n") == [("message", b"a\n\nc")]


def test_a_field_without_a_colon_is_empty():
    """A bare `data` is an empty line of data."""
    assert parsed(b"data\n\n") == [("message", b"")]


def test_unknown_fields_are_passed_over():
    """id, retry and inventions change nothing."""
    assert parsed(b"id: 1\nretry: 3\nfoo: bar\ndatax: no\ndata: a\n\n") == [("message", b"a")]


def test_blank_lines_alone_are_no_events():
    """Nothing was said."""
    assert parsed(b"\n\n\r\n\n") == []


def test_a_named_event_keeps_its_name_for_one_event():
    """The next event is a message again."""
    assert parsed(b"event: error\ndata: a\n\ndata: b\n\n") == [("error", b"a"), ("message", b"b")]


def test_an_error_event_without_data_is_still_an_error():
    """Other events without data are not dispatched, and their name is forgotten."""
    assert parsed(b"event: error\n\n") == [("error", b"")]
    assert parsed(b"event: ping\n\ndata: a\n\n") == [("message", b"a")]


@pytest.mark.parametrize("tail", [b"data: last", b"data: last\n", b"data: last\r"])
def test_a_stream_that_ends_without_its_blank_line_gives_its_last_event(tail):
    """Servers that close right after the last line are read to the end."""
    assert parsed(b"data: first\n\n" + tail) == [("message", b"first"), ("message", b"last")]


def test_a_stream_that_ended_well_has_nothing_left():
    """Closing gives no event twice."""
    parser = EventParser()
    assert len(parser.feed(b"data: a\n\n", 1.0)) == 1
    assert parser.close() == []


def test_the_stamp_is_that_of_the_data_though_the_blank_line_comes_later():
    """A blank line held back by the network does not make the token later."""
    assert stamps(b"data: a\n", b"\n") == [(b"a", 0.0)]
    assert stamps(b"data: a", b"\n\n") == [(b"a", 0.0)]
    assert stamps(b"data: a\r", b"\n\r\n") == [(b"a", 0.0)]
    assert stamps(b"data: a\r\n\r", b"\n") == [(b"a", 0.0)]


def test_the_stamp_is_that_of_the_last_byte_of_data():
    """Data that came in two reads is complete with the second."""
    assert stamps(b"data: a", b"b\n\n") == [(b"ab", 1.0)]
    assert stamps(b"da", b"ta: a\n", b"\n") == [(b"a", 1.0)]
    assert stamps(b"data: a\n", b"data: b\n", b"\n") == [(b"a\nb", 1.0)]


def test_an_empty_read_does_not_move_a_stamp():
    """No byte arrived, so nothing became later."""
    assert stamps(b"data: a", b"", b"\n\n") == [(b"a", 0.0)]


def test_fields_after_the_data_do_not_move_its_stamp():
    """An id or a comment after the data is no data."""
    assert stamps(b"data: a\n", b"id: 1\n: ping\n\n") == [(b"a", 0.0)]


def test_events_of_one_read_share_its_stamp():
    """Two events in one chunk arrived together; the next has its own time."""
    assert stamps(b"data: a\n\ndata: b\n\nda", b"ta: c\n\n") == [(b"a", 0.0), (b"b", 0.0), (b"c", 1.0)]


def test_an_event_that_the_end_of_the_stream_completes_has_the_stamp_of_its_bytes():
    """Closing is no arrival."""
    assert stamps(b"data: a\n\n", b"data: b") == [(b"a", 0.0), (b"b", 1.0)]


def test_an_error_event_without_data_has_the_stamp_of_its_name():
    """There is no other byte that it could be of."""
    (found,) = EventParser().feed(b"event: error\n\n", 3.0)
    assert found.stamp_s == 3.0


def test_a_parser_knows_whether_anything_has_come():
    """Until the first line or part of one, an answer could still turn out to be a JSON body."""
    parser = EventParser()
    assert not parser.started
    parser.feed(b": ping\n\n", 0.0)
    assert parser.started
