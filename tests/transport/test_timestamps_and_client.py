"""One request over a real socket: framing, reuse, every way to break off, and the stamps of bytes.

The server is a thread that plays a script: for each connection the answers to its requests, each a
series of byte strings to send and functions to call. Nothing here waits for time to pass but the
two tests of time limits.
"""

import asyncio
import json
import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from multiprocessing.connection import wait
from types import SimpleNamespace

import pytest

from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport import send, timestamps
from pytest_llmspeed.transport.client import BaseURL, HTTPClient
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.send import ask
from pytest_llmspeed.transport.timestamps import KERNEL_STAMPS, connect

PATIENCE_S = 5
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
DONE = b"data: [DONE]\n\n"


def chunk_of(content="", finish_reason=None):
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


EVENTS = chunk_of("Hi"), chunk_of(" you"), chunk_of(finish_reason="stop"), DONE


def framed(piece):
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def chunked(*pieces, end=True):
    return [
        HEAD + b"transfer-encoding: chunked\r\n\r\n",
        *map(framed, pieces),
        *([b"0\r\n\r\n"] if end else []),
    ]


def sized(body, status=b"200 OK", headers=b""):
    return [b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n" % (status, headers, len(body)), body]


class ScriptedServer:
    """Plays `connections` in the order in which they are opened, each in a thread of its own."""

    def __init__(self, connections, tls=None):
        self.connections, self.tls = connections, tls
        self.requests = []
        self.opened = 0
        self.go, self.ended, self.teardown = threading.Event(), threading.Event(), threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def hang(self):
        """Do nothing until the test is over."""
        self.teardown.wait(PATIENCE_S)

    def wait(self):
        """Wait until the test says `go`."""
        self.go.wait(PATIENCE_S)

    def _accept(self):
        while True:
            connection, _ = self._listener.accept()
            if self.teardown.is_set():
                connection.close()
                return
            script = self.connections[self.opened] if self.opened < len(self.connections) else []
            self.opened += 1
            thread = threading.Thread(target=self._play, args=(connection, script))
            self._threads.append(thread)
            thread.start()

    def _play(self, connection, script):
        connection.settimeout(PATIENCE_S)
        with suppress(OSError), connection:
            talking = self.tls.wrap_socket(connection, server_side=True) if self.tls else connection
            with talking:
                for answer in script:
                    if not self._request(talking):
                        break
                    for step in answer:
                        talking.sendall(step) if isinstance(step, bytes) else step(talking)
        self.ended.set()

    def _request(self, connection):
        taken = b""
        while b"\r\n\r\n" not in taken:
            taken += (more := connection.recv(65536))
            if not more:
                return False
        head, _, body = taken.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65536)
        self.requests.append((head.decode(), body))
        return True

    def close(self):
        self.teardown.set()
        self.go.set()
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            pass
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()


@pytest.fixture
def server():
    """Start a server that plays the given connections; it is gone when the test is over."""
    started = []

    def start(*connections, tls=None):
        started.append(ScriptedServer(connections, tls))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(params=["kernel", "read"])
def stamping(request, monkeypatch):
    """Run the test with both kinds of socket."""
    if request.param == "kernel" and not KERNEL_STAMPS:
        pytest.skip("this system stamps no packets")
    monkeypatch.setattr(timestamps, "KERNEL_STAMPS", request.param == "kernel")


def asked(server, *requests, headers=None, scheme="http", host="127.0.0.1", between=None):
    """The exchanges of some requests, one after the other over one client."""

    async def run():
        client = HTTPClient(BaseURL.parse(f"{scheme}://{host}:{server.port}/v1"))
        found = []
        for place, request in enumerate(requests or [Request("x")]):
            if place and between:
                await asyncio.to_thread(between)
            found.append(await ask(client, request, headers or {}, "m"))
        client.close()
        await asyncio.sleep(0)
        return found

    found = asyncio.run(run())
    return found if len(found) > 1 else found[0]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(chunked(*EVENTS), id="chunked"),
        pytest.param(chunked(b"".join(EVENTS)), id="all in one chunk"),
        pytest.param(chunked(*(bytes([b]) for b in b"".join(EVENTS))), id="byte by byte"),
        pytest.param(sized(b"".join(EVENTS)), id="with a length"),
        pytest.param([HEAD + b"connection: close\r\n\r\n", *EVENTS], id="until the end"),
        pytest.param([HEAD + b"\r\n", *EVENTS], id="until the end without saying so"),
        pytest.param(chunked(*EVENTS[:-1]), id="without [DONE]"),
    ],
)
def test_an_answer_is_read_in_every_framing(server, stamping, answer):
    """Chunked, of a known length, or until the connection ends: the same events."""
    found = asked(server([answer]))
    assert (found.error, found.finish_reason, found.streamed) == (None, "stop", True)
    assert found.joined("text") == "Hi you"
    times = [found.started_s, *(event.stamp_s for event in found.events), clock.now_s()]
    assert times == sorted(times)


def test_the_request_is_sent_whole(server, stamping):
    """Path, host, headers, length and JSON body arrive as they were meant."""
    started = server([chunked(*EVENTS)])
    asked(started, Request("Grüße", max_tokens=8), headers={"authorization": "Bearer key"})
    ((head, body),) = started.requests
    first, *headers = head.split("\r\n")
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert f"host: 127.0.0.1:{started.port}" in headers
    assert "authorization: Bearer key" in headers
    assert f"content-length: {len(body)}" in headers
    assert json.loads(body)["messages"] == [{"role": "user", "content": "Grüße"}]
    assert json.loads(body)["model"] == "m"


def test_a_completion_goes_to_its_own_path(server):
    """The other endpoint has another address."""
    started = server([chunked(*EVENTS)])
    asked(started, Request("Once", endpoint="completions"))
    assert started.requests[0][0].startswith("POST /v1/completions ")


def test_a_long_prompt_is_sent_whole(server, stamping):
    """More than a socket takes at once."""
    started = server([chunked(*EVENTS)])
    text = "word " * 400_000
    assert asked(started, Request(text)).error is None
    assert json.loads(started.requests[0][1])["messages"][0]["content"] == text


def test_the_second_request_uses_the_connection_of_the_first(server, stamping):
    """Only the first is flagged as having had to connect."""
    started = server([chunked(*EVENTS)] * 3)
    found = asked(started, *[Request("x")] * 3)
    assert [each.new_connection for each in found] == [True, False, False]
    assert [each.error for each in found] == [None] * 3
    assert started.opened == 1


def test_an_answer_of_known_length_leaves_its_connection_usable(server, stamping):
    """Keep-alive does not depend on the framing."""
    started = server([sized(b"".join(EVENTS))] * 2)
    assert [each.new_connection for each in asked(started, *[Request("x")] * 2)] == [True, False]


def test_an_error_leaves_its_connection_usable(server, stamping):
    """A refused request was read to its end, so the next needs no new connection."""
    started = server([sized(b'{"error": {"message": "no"}}', b"400 Bad Request"), chunked(*EVENTS)])
    first, second = asked(started, *[Request("x")] * 2)
    assert first.error == "HTTP 400: no"
    assert (second.error, second.new_connection) == (None, False)


@pytest.mark.parametrize(
    "first",
    [
        [HEAD + b"connection: close\r\n\r\n", *EVENTS],
        sized(b"".join(EVENTS), headers=b"connection: close\r\n"),
    ],
)
def test_a_connection_that_was_announced_to_close_is_not_used_again(server, stamping, first):
    """The next request opens its own and succeeds."""
    found = asked(server([first], [chunked(*EVENTS)]), *[Request("x")] * 2)
    assert [(each.error, each.new_connection) for each in found] == [(None, True)] * 2


def test_a_connection_that_was_closed_while_idle_is_replaced(server, stamping):
    """A server's idle limit is no failure of the next request: it connects anew, and says so."""
    started = server([chunked(*EVENTS)], [chunked(*EVENTS)])
    started.connections[0][0].append(lambda _: started.wait())

    def let_it_close():
        started.go.set()
        assert started.ended.wait(PATIENCE_S)

    found = asked(started, *[Request("x")] * 2, between=let_it_close)
    assert [(each.error, each.new_connection) for each in found] == [(None, True)] * 2
    assert started.opened == 2


def test_a_body_that_is_given_up_closes_its_connection(server):
    """Nobody is to read what is left of it, and no other request is to find it there."""
    closed = []
    cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"
    started = server([[cut, lambda connection: closed.append(connection.recv(1) == b"")]])

    async def given_up():
        client = HTTPClient(BaseURL.parse(f"http://127.0.0.1:{started.port}"))
        response = await client.post("/count", {}, b"{}")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await response.body()
        await asyncio.to_thread(started.ended.wait, PATIENCE_S)
        client.close()

    asyncio.run(given_up())
    assert closed == [True]


UNASKED = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"


def test_an_answer_that_nobody_asked_for_is_not_the_next_ones(server, stamping):
    """What a server says while its connection is idle, as that it gives up waiting, belongs to no request."""
    started = server([chunked(*EVENTS)], [chunked(*EVENTS)])

    def say_it(connection):
        started.wait()
        connection.sendall(UNASKED)
        started.ended.set()
        started.hang()

    def let_it_speak():
        started.go.set()
        assert started.ended.wait(PATIENCE_S)

    started.connections[0][0].append(say_it)
    found = asked(started, *[Request("x")] * 2, between=let_it_speak)
    assert [(each.error, each.new_connection) for each in found] == [(None, True)] * 2


def test_an_answer_that_follows_in_the_same_read_does_not_change_the_first(server, stamping):
    """Status and text of an answer are its own, whatever comes right behind it."""
    found = asked(server([[b"".join(chunked(*EVENTS)) + UNASKED]], [chunked(*EVENTS)]), *[Request("x")] * 2)
    assert [(each.error, each.joined("text")) for each in found] == [(None, "Hi you")] * 2


def test_nothing_listens(server, stamping):
    """A refused connection names the address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    found = asked(SimpleNamespace(port=port))
    assert found.error.startswith(f"cannot connect to http://127.0.0.1:{port}/v1")
    assert found.new_connection
    assert not sample_of(found).ok


def test_a_server_that_closes_without_an_answer(server, stamping):
    """Neither a status nor a body came."""
    found = asked(server([[]]))
    assert "closed the connection without an answer" in found.error


def test_a_server_that_closes_within_the_headers(server, stamping):
    """Half a head is no answer."""
    assert "without an answer" in asked(server([[b"HTTP/1.1 200 OK\r\ncontent-ty"]])).error


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(chunked(*EVENTS[:2], end=False), id="chunked"),
        pytest.param([*sized(b"".join(EVENTS))[:1], EVENTS[0]], id="with a length"),
    ],
)
def test_an_answer_that_breaks_off_has_failed(server, stamping, answer):
    """The connection ended before the answer did: what came is kept, no latency is measured."""
    found = asked(server([answer]))
    assert found.error == "the connection was closed in the middle of the answer"
    assert found.joined("text").startswith("Hi")
    assert sample_of(found).ttft_ms is None


def test_an_answer_until_the_end_that_breaks_off_has_failed(server, stamping):
    """Without a length the missing finish reason tells."""
    sample = sample_of(asked(server([[HEAD + b"\r\n", *EVENTS[:2]]])))
    assert "finish reason" in sample.error


def test_an_answer_that_is_complete_but_badly_closed_counts(server, stamping):
    """After the finish reason a missing last chunk is noted, no failure."""
    found = asked(server([chunked(*EVENTS[:3], end=False)]))
    assert found.error is None
    assert "closed_after_finish" in found.notes


def test_a_reset_in_the_middle_has_failed(server, stamping):
    """A connection that the peer tore down is told as broken."""

    def tear(connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    found = asked(server([[*chunked(*EVENTS[:1], end=False), tear]]))
    assert found.error


def test_a_reset_while_the_request_is_sent_has_failed(server, stamping):
    """A server that hangs up on a long prompt makes a failed request, never a raised error."""

    class Rude(ScriptedServer):
        def _request(self, connection):
            connection.recv(10)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False

    rude = Rude([[[]]])
    try:
        found = asked(rude, Request("word " * 2_000_000))
    finally:
        rude.close()
    assert found.error
    assert not sample_of(found).ok


@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\x01\x02\x03\r\n\r\n", b"220 smtp ready\r\n"]
)
def test_what_speaks_no_http_is_named(server, stamping, greeting):
    """Another service on the port is told with its address."""
    started = server([[greeting]])
    assert f"http://127.0.0.1:{started.port}/v1 does not speak HTTP/1.1" in asked(started).error


@pytest.mark.parametrize(
    "interim",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
    ],
)
def test_an_interim_response_is_passed_over(server, stamping, interim):
    """The final status and body are those of the answer, and the connection lives on."""
    found = asked(server([[interim, *chunked(*EVENTS)], chunked(*EVENTS)]), *[Request("x")] * 2)
    assert [(each.error, each.joined("text")) for each in found] == [(None, "Hi you")] * 2
    assert [each.new_connection for each in found] == [True, False]


def test_an_interim_response_in_one_read_with_the_final_one(server, stamping):
    """Both heads in one packet."""
    found = asked(server([[b"HTTP/1.1 100 Continue\r\n\r\n" + b"".join(chunked(*EVENTS))]]))
    assert (found.error, found.joined("text")) == (None, "Hi you")


@pytest.mark.parametrize(
    "status", [b"301 Moved Permanently", b"307 Temporary Redirect", b"308 Permanent Redirect"]
)
def test_a_redirect_is_not_followed_but_named(server, stamping, status):
    """A second request would hide in the first one's time: the address to configure is told."""
    found = asked(server([sized(b"", status, b"location: http://other/v1\r\n")]))
    assert found.error.startswith(f"HTTP {status[:3].decode()}")
    assert "http://other/v1" in found.error


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model"}}', "HTTP 404: no such model"),
        (b'{"detail": "Not Found"}', "HTTP 404: Not Found"),
        (b"<html>nginx</html>", "HTTP 404: <html>nginx</html>"),
        (b"", "HTTP 404: an error without a message"),
    ],
)
def test_an_http_error_is_told_with_status_and_message(server, stamping, body, words):
    """The sample has failed and has no latency, however fast the error came."""
    found = asked(server([sized(body, b"404 Not Found")]))
    assert found.error == words
    assert sample_of(found).e2e_ms is None


def test_an_answer_as_one_json_body_is_read(server, stamping):
    """A server that does not stream is measured end to end, and flagged."""
    body = {
        "choices": [{"index": 0, "message": {"content": "Hi you"}, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 2},
    }
    content = json.dumps(body).encode()
    (head, _) = sized(content, headers=b"content-type: application/json\r\n")
    found = asked(server([[head, content[:20], content[20:]]]))
    assert (found.error, found.streamed, found.joined("text")) == (None, False, "Hi you")
    assert "non_streaming" in sample_of(found).flags


def test_a_json_body_after_blank_lines_is_read(server, stamping):
    """Some servers send blank lines to keep the connection alive before the body."""
    content = b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}'
    head, blank, *rest = chunked(b"\n\n\n\n", content)
    found = asked(server([[head, blank, lambda _: time.sleep(0.02), *rest]]))
    assert (found.error, found.joined("text")) == (None, "Hi")


def test_an_empty_answer_has_failed(server, stamping):
    """Status 200 and nothing in it is no answer."""
    assert sample_of(asked(server([sized(b"")]))).error == "the stream ended without any output"


def test_an_error_within_the_stream_ends_the_request(server, stamping):
    """What comes after it is not read as an answer."""
    broken = b'data: {"error": {"message": "out of memory"}}\n\n'
    found = asked(server([chunked(EVENTS[0], broken, *EVENTS[1:])]))
    assert found.error == "out of memory"
    assert found.joined("text") == "Hi"


def test_what_follows_done_is_not_read_as_an_answer(server, stamping):
    """[DONE] ends the answer, in the same read too."""
    found = asked(server([sized(b"".join(EVENTS) + chunk_of("more"))]))
    assert (found.error, found.joined("text")) == (None, "Hi you")


def test_a_server_that_goes_on_after_done_is_not_waited_for(server, stamping, monkeypatch):
    """The answer counts; its connection is given up, so the next request opens one."""
    monkeypatch.setattr(send, "DRAIN_S", 0.01)
    started = server([chunked(*EVENTS, end=False)], [chunked(*EVENTS)])
    started.connections[0][0].append(lambda _: started.hang())
    found = asked(started, *[Request("x")] * 2)
    assert [(each.error, each.new_connection) for each in found] == [(None, True)] * 2


@pytest.mark.parametrize(
    ("steps", "seen"),
    [([], "no output"), (chunked(*EVENTS[:2], end=False), "2 output events")],
    ids=["before the headers", "within the stream"],
)
def test_a_request_that_takes_too_long_has_failed(server, stamping, steps, seen):
    """The limit and what had come are told."""
    started = server([[*steps]])
    started.connections[0][0].append(lambda _: started.hang())
    found = asked(started, Request("x", timeout_s=0.15))
    assert found.error.startswith("timed out after 0.15 s")
    assert seen in found.error
    assert sample_of(found).ttft_ms is None


def test_a_cancelled_request_closes_its_connection(server, stamping):
    """The server sees the end at once, and does not generate for nobody."""
    seen = []
    started = server([chunked(*EVENTS[:1], end=False)])

    def watch(connection):
        try:
            seen.append(connection.recv(1) == b"")
        except ConnectionError:
            seen.append(True)

    started.connections[0][0].append(watch)

    async def run():
        client = HTTPClient(BaseURL.parse(f"http://127.0.0.1:{started.port}/v1"))
        task = asyncio.create_task(ask(client, Request("x"), {}, "m"))
        while not started.requests:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(started.ended.wait, PATIENCE_S)
        client.close()

    asyncio.run(run())
    assert seen == [True]


def test_two_requests_at_once_have_a_connection_each(server, stamping):
    """Requests that overlap do not wait for each other."""
    started = server([chunked(*EVENTS)], [chunked(*EVENTS)])

    async def run():
        client = HTTPClient(BaseURL.parse(f"http://127.0.0.1:{started.port}/v1"))
        found = await asyncio.gather(*(ask(client, Request("x"), {}, "m") for _ in range(2)))
        client.close()
        await asyncio.sleep(0)
        return found

    assert [(each.error, each.new_connection) for each in asyncio.run(run())] == [(None, True)] * 2
    assert started.opened == 2


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        (" https://api.example.com/v1 ", "https://api.example.com:443/v1"),
        ("http://localhost", "http://localhost:80"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://user:secret@host:1/v1", "http://host:1/v1"),
    ],
)
def test_an_address_is_shown_in_full_without_credentials(url, expected):
    """The port is always told, a password never."""
    assert str(BaseURL.parse(url)) == expected


def test_credentials_of_an_address_are_kept_apart():
    """They are decoded, and for the engine only."""
    base = BaseURL.parse("http://us%40er:p%3Aw@host/v1")
    assert (base.user, base.password) == ("us@er", "p:w")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/", "http://", "", "http://host:port/v1"])
def test_what_is_no_address_is_refused(url):
    """Before any connection is tried."""
    with pytest.raises(ValueError, match=r".+"):
        BaseURL.parse(url)


def test_a_transport_error_is_one_of_ours(server):
    """`post` raises TransportError for what the socket does."""

    async def run():
        client = HTTPClient(BaseURL.parse(f"http://127.0.0.1:{server([[]]).port}"))
        with pytest.raises(TransportError):
            await client.post("/x", {}, b"")

    asyncio.run(run())


@pytest.fixture
def tls(monkeypatch, tmp_path):
    """A certificate for 127.0.0.1 that this process trusts, as the server's TLS context."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_an_encrypted_answer_is_read(server, tls):
    """Over TLS too, with the second request on the first one's connection."""
    found = asked(server([chunked(*EVENTS)] * 2, tls=tls), *[Request("x")] * 2, scheme="https")
    assert [(each.error, each.new_connection) for each in found] == [(None, True), (None, False)]


def test_a_certificate_that_nobody_trusts_is_told(server, tls, monkeypatch):
    """The connection cannot be made, and why."""
    monkeypatch.delenv("SSL_CERT_FILE")
    found = asked(server([chunked(*EVENTS)], tls=tls), scheme="https")
    assert found.error.startswith("cannot connect to https://127.0.0.1")
    assert "certificate" in found.error.lower()


@pytest.fixture(scope="module", autouse=True)
def _kernel_that_stamps():
    """A socket that wants stamps, held open: the kernel begins to stamp a moment after the first one asks."""
    if not KERNEL_STAMPS:
        yield
        return
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setsockopt(socket.SOL_SOCKET, timestamps._SO_TIMESTAMPNS, 1)
        receiver.settimeout(PATIENCE_S)
        stamped = False
        while not stamped:
            receiver.sendto(b"x", receiver.getsockname())
            stamped = bool(receiver.recvmsg(1, 64)[1])
        yield


class HeldClock:
    """Both clocks, standing still until the test moves them."""

    def __init__(self, monkeypatch):
        self.wall_ns, self.now_s = time.time_ns(), 500.0
        monkeypatch.setattr(clock, "wall_ns", lambda: self.wall_ns)
        monkeypatch.setattr(clock, "now_s", lambda: self.now_s)

    def move(self, seconds, *, wall=None):
        """Let time pass on the monotonic clock, and as much (or `wall`) on the time of day."""
        self.now_s += seconds
        self.wall_ns += int((seconds if wall is None else wall) * 1e9)


def read_late(server, held, monkeypatch, *moves):
    """The stamp of a byte that came before the clocks were moved, and when it had come at the latest."""
    started = server([[b"x"]])

    async def run():
        connection = await connect("127.0.0.1", started.port, None)
        await connection.send(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert await asyncio.to_thread(started.ended.wait, PATIENCE_S)
        latest = held.now_s + (time.time_ns() - held.wall_ns) / 1e9
        for move in moves:
            held.move(**move)
        chunk, stamp_s = await connection.read()
        assert chunk == b"x"
        connection.close()
        return stamp_s, latest

    return asyncio.run(run())


@pytest.mark.skipif(not KERNEL_STAMPS, reason="this system stamps no packets")
def test_a_byte_that_was_read_late_has_the_stamp_of_its_arrival(server, monkeypatch):
    """Ten seconds in which the loop was busy do not make the token later."""
    held = HeldClock(monkeypatch)
    sent_from = held.now_s
    stamp_s, latest = read_late(server, held, monkeypatch, {"seconds": 10.0})
    assert sent_from <= stamp_s <= latest + 1e-5


@pytest.mark.skipif(not KERNEL_STAMPS, reason="this system stamps no packets")
@pytest.mark.parametrize("wall", [5.0, 11.0, -3600.0])
def test_a_stamp_is_not_believed_where_the_time_of_day_was_set(server, monkeypatch, wall):
    """The kernel stamps with a clock that may jump; then the moment of the read counts."""
    held = HeldClock(monkeypatch)
    stamp_s, _ = read_late(server, held, monkeypatch, {"seconds": 10.0, "wall": wall})
    assert stamp_s == held.now_s


def test_without_kernel_stamps_the_moment_of_the_read_counts(server, monkeypatch):
    """Elsewhere than on Linux, and under TLS, the stamp is our clock's own reading."""
    monkeypatch.setattr(timestamps, "KERNEL_STAMPS", False)
    held = HeldClock(monkeypatch)
    stamp_s, _ = read_late(server, held, monkeypatch)
    assert stamp_s == held.now_s


def test_a_clock_that_is_slewed_is_believed(monkeypatch):
    """Over a long silence the time of day may have drifted; only a step is none that a stamp survives."""
    held = HeldClock(monkeypatch)
    offset = timestamps.WallOffset()
    held.move(10.0, wall=10.004)
    assert offset.at(held.now_s) is not None
    held.move(10.0, wall=10.1)
    assert offset.at(held.now_s) is None
    held.move(1.0)
    assert offset.at(held.now_s) is not None


def test_two_clocks_are_read_together(monkeypatch):
    """A process that was put to sleep between the readings reads again."""
    pauses = iter([0.0, 0.02, 0.0, 0.0])

    class Sleepy(HeldClock):
        def __init__(self, monkeypatch):
            super().__init__(monkeypatch)
            monkeypatch.setattr(clock, "wall_ns", self.slow_wall_ns)

        def slow_wall_ns(self):
            seen = self.wall_ns
            self.move(next(pauses))
            return seen

    held = Sleepy(monkeypatch)
    offset = timestamps.WallOffset()
    first = offset.at(held.now_s)
    held.move(0.02)
    assert offset.at(held.now_s) == pytest.approx(first, abs=1e-5)


@pytest.mark.skipif(not KERNEL_STAMPS, reason="this system stamps no packets")
def test_bytes_that_arrive_as_their_reader_is_cancelled_are_not_lost():
    """A reader that is stopped between the arrival and its turn leaves them to the next one."""

    async def cancelled_late(listener):
        connection = await connect(*listener.getsockname(), None)
        peer, _ = listener.accept()
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        peer.sendall(b"early")
        wait([connection._socket], PATIENCE_S)
        asyncio.get_running_loop().call_later(0, reading.cancel)  # timers come after arrivals
        with pytest.raises(asyncio.CancelledError):
            await reading
        peer.close()
        try:
            return [(await connection.read())[0] for _ in range(2)]
        finally:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(cancelled_late(listener)) == [b"early", b""]
