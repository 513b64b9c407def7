"""What the client of one test has measured so far, and what it declared of its workload."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock

from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.metrics.load_curve import Curve
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import CallKind, Sample, sample_of
from pytest_llmspeed.recording.series import SeriesNames, SeriesPlace, series_of_load
from pytest_llmspeed.recording.turns import NO_TURNS, TestTurns
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.cpu import CPUWatch
from pytest_llmspeed.system.neighbours import BUSY_SHARE, Neighbour


class PendingRequest:
    """A request on its way, from `Recorder.send` until it is finished, once, or forgotten.

    `so_far`, where given, makes the exchange of a request that the end of the test cuts off.
    """

    def __init__(self, recorder: Recorder, place: SeriesPlace, so_far: Callable[[], Exchange] | None) -> None:
        self.place, self.so_far = place, so_far
        self.since_s = clock.now_s()
        self.overlapped = False
        self.sample: Sample | None = None
        self._recorder = recorder

    def finish(self, exchange: Exchange) -> Sample:
        """Keep the finished exchange and return its sample; that of the first time if it was cut off."""
        self.finish_later(lambda: exchange)
        return self._recorder.sample_of(self)

    def finish_later(self, make: Callable[[], Exchange]) -> None:
        """The same with an exchange that is made when somebody looks: off the caller's path."""
        self._recorder.finish(self, make)

    def forget(self) -> None:
        """Keep nothing: the test itself was interrupted."""
        self._recorder.forget(self)


class Recorder:
    """Takes the exchanges of one test and keeps their samples, in the order sent.

    Any thread may send and finish. `watch` tells what the engine lost of the processor to others meanwhile.
    `turns` are those of a run that is measured beside another: sending waits for them.
    """

    def __init__(self, watch: CPUWatch | None = None, turns: TestTurns = NO_TURNS) -> None:
        self.watch, self._turns = watch, turns
        self._samples: list[Sample] = []
        self._loads: list[LoadResult] = []
        self._curves: list[Curve] = []
        self._unread: list[tuple[PendingRequest, Callable[[], Exchange], float | None]] = []
        self._warmup_requests = 0
        self._workload: dict[str, None] = {}
        self._series = SeriesNames()
        self._origin_s: float | None = None
        self._warming = False
        self._lock, self._reading = RLock(), RLock()
        self._under_way: list[PendingRequest] = []

    @property
    def measurement(self) -> Measurement:
        """Everything measured so far, in the order sent."""
        samples = _in_order_sent(self._read())
        return Measurement(
            samples, self._warmup_requests, loads=tuple(self._loads), curves=tuple(self._curves)
        )

    def _read(self) -> list[Sample]:
        """Return the samples, those made now of what has ended unread.

        Others may send and finish meanwhile: to make an exchange may need the loop that they run in.
        """
        with self._reading:
            with self._lock:
                unread, self._unread = deque(self._unread), []
            while unread:
                sent, make, foreign_cpu = unread.popleft()
                try:
                    exchange = make()
                except BaseException:  # the others are still to be read
                    with self._lock:
                        self._unread[:0] = unread
                    raise
                if sent.overlapped:
                    exchange = replace(exchange, notes=exchange.notes | {"overlapped"})
                with self._lock:
                    sent.sample = self._keep(exchange, sent.place, foreign_cpu)
            return self._samples

    @property
    def busy_share(self) -> float:
        """From which share of lost processor time on a request counts as disturbed."""
        return self.watch.busy_share if self.watch else BUSY_SHARE

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """The busiest other programs so far, where they disturbed a request."""
        disturbed = self.watch and not all(sample.quiet for sample in self._read())
        return self.watch.neighbours() if self.watch and disturbed else ()

    @property
    def workload(self) -> tuple[str, ...]:
        """The declared workload, one line for each kind of call."""
        self._read()
        return tuple(sorted(self._workload))

    @property
    def in_body(self) -> bool:
        """True inside a repeated body, which warms up as a whole."""
        return self._series.in_body

    def since(self, start: int) -> Measurement:
        """Return what was measured after the first `start` requests."""
        samples = tuple(self._read()[start:])
        return Measurement(samples, self._warmup_requests)

    def was_quiet_since(self, start: int) -> bool:
        """True if none of the requests after the first `start` was disturbed."""
        return all(sample.quiet for sample in self._read()[start:])

    @property
    def count(self) -> int:
        """The number of requests measured so far."""
        return len(self._read())

    def send(
        self,
        request: Request,
        call: CallKind,
        label: str | None,
        so_far: Callable[[], Exchange] | None = None,
    ) -> PendingRequest:
        """Note that a request is on its way.

        Those that were, at any time, on their way together are flagged `overlapped`, and not compared:
        what an application sends at once competes for the engine as chance will have it.
        """
        with self._lock:
            self._turns.begin()
            if self.watch:
                self.watch.look()
            sent = PendingRequest(
                self, self._series.place(request, call, label, is_warmup=self._warming), so_far
            )
            self._under_way.append(sent)
            if len(self._under_way) > 1:
                for each in self._under_way:
                    each.overlapped = True
        return sent

    def finish(self, sent: PendingRequest, make: Callable[[], Exchange]) -> None:
        """Note that a request has ended, once; its exchange is made when somebody looks."""
        with self._lock:
            if sent in self._under_way:
                self._under_way.remove(sent)
                self._turns.end()
                share = self.watch.foreign_share(clock.now_s() - sent.since_s) if self.watch else None
                self._unread.append((sent, make, share))

    def sample_of(self, sent: PendingRequest) -> Sample:
        """The sample of a request that was finished."""
        self._read()
        assert sent.sample is not None
        return sent.sample

    def forget(self, sent: PendingRequest) -> None:
        """Keep nothing of a request that was sent."""
        with self._lock:
            if sent in self._under_way:
                self._under_way.remove(sent)
                self._turns.end()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """What is sent inside, other than by `send`, is one turn of a run that is measured beside another."""
        with self._lock:
            self._turns.begin()
        try:
            yield
        finally:
            with self._lock:
                self._turns.end()

    def cut_off(self) -> None:
        """Finish, with what they have so far, the requests that are still on their way."""
        for sent in list(self._under_way):
            if sent.so_far is not None:
                self.finish(sent, sent.so_far)
        self._turns.close()
        self._read()

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Requests inside are warm-up: counted, and left out of every figure."""
        before, self._warming = self._warming, True
        try:
            yield
        finally:
            self._warming = before

    @contextmanager
    def body(self, *, first: bool) -> Iterator[None]:
        """One round of a repeated body; `first` opens a new one."""
        with self._series.body(first=first):
            yield

    def record(
        self, exchange: Exchange, call: CallKind, label: str | None, foreign_cpu: float | None = None
    ) -> Sample:
        """Keep one exchange that was made elsewhere; return its sample."""
        with self._lock:
            place = self._series.place(exchange.request, call, label, is_warmup=self._warming)
            return self._keep(exchange, place, foreign_cpu)

    def _keep(self, exchange: Exchange, place: SeriesPlace, foreign_cpu: float | None) -> Sample:
        if not place.is_warmup and self._origin_s is None:
            self._origin_s = exchange.started_s
        sample = sample_of(
            exchange,
            label=place.label,
            stratum=place.stratum,
            call=place.call,
            origin_s=self._origin_s,
            foreign_cpu=foreign_cpu,
            busy_share=self.busy_share,
        )
        if place.is_warmup:
            self._warmup_requests += 1
        else:
            self._samples.append(sample)
            self._workload[place.declared] = None
        return sample

    def origin_s(self, first_s: float) -> float:
        """The zero of `started_ms`: the first measured request of the test, which may be this one."""
        if self._origin_s is None:
            self._origin_s = first_s
        return self._origin_s

    def series_of_load(self, declared: str, label: str | None) -> str:
        """Return the series of a load of that kind; a second such load in the test has one of its own."""
        return series_of_load(declared, label, [load.stratum for load in self._loads])

    def record_load(self, load: LoadResult, declared: str) -> None:
        """Keep a load and its requests."""
        self._loads.append(load)
        self._samples += load.samples
        self._warmup_requests += load.warmup_requests
        self._workload[declared] = None

    def record_curve(self, curve: Curve) -> None:
        """Keep the curve of a sweep whose loads were recorded; one without any load is nothing."""
        if curve.points:
            self._curves.append(curve)

    def replace_loads(self, loads: Sequence[LoadResult]) -> None:
        """Put loads in the place of those of the same stratum."""
        new = {load.stratum: load for load in loads}
        self._loads = [new.get(load.stratum, load) for load in self._loads]


def _in_order_sent(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Samples as they began, counted from the first; they were kept as they ended."""
    ordered = sorted(samples, key=lambda sample: sample.started_ms)
    early_ms = min(ordered[0].started_ms, 0.0) if ordered else 0.0
    if not early_ms:
        return tuple(ordered)
    return tuple(replace(sample, started_ms=sample.started_ms - early_ms) for sample in ordered)
