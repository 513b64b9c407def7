"""What a load showed: its figures, its requests, and how the client itself fared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.metrics.sample import METRICS, Sample
from pytest_llmspeed.metrics.summary import Summary, quantile, spelled_out, summarise

Origin = Literal["send", "schedule"]
SHOWN_FIGURES = ("throughput_tps", "steady_tps", "offered_per_s", "requests_per_s", "goodput")
LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms")


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How the client fared. `cpu_share` is that of its busiest process, of one core, None in this process.

    `read_late_ms` is how long bytes lay unread (99% quantile), None without kernel stamps; `piled_up`
    the share of output events without a stamp of their own, because more came before they were read;
    `send_late_ms` how long a free slot, or a due request, waited for the client (99% quantile).
    """

    processes: int = 0
    cpu_share: float | None = None
    cpu_s_per_1000_tokens: float | None = None
    read_late_ms: float | None = None
    send_late_ms: float | None = None
    piled_up: float = 0.0
    stamps: Literal["kernel", "read", "engine"] = "engine"


@dataclass(frozen=True, slots=True, repr=False)
class LoadResult:
    """What one load showed. Its window opens with the first measured request, after warm-up.

    `asked` is what was asked, in builtins. `window_s` ends with the last output event. `blocks` are
    ten consecutive parts of equal request count, metric → values: what baselines compare. `invalid`
    says why the figures are not those of the load that was asked. With `counted=False` no budget
    and no baseline is held against it. `not_sent` counts the planned requests that an interruption kept
    from being sent: they are not among the samples. `offered_per_s` is the rate at which an open load
    was sent. `notes` say what the file of its workload held that was not asked, or not as it stands.
    Undefined figures are None.
    """

    asked: Mapping[str, Any]
    samples: tuple[Sample, ...]
    warmup_requests: int = 0
    window_s: float | None = None
    throughput_tps: float | None = None
    steady_tps: float | None = None
    requests_per_s: float | None = None
    peak_concurrency: int = 0
    slo: Mapping[str, float] = field(default_factory=dict)
    goodput: float | None = None
    label: str | None = None
    stratum: str = ""
    client: ClientHealth = field(default_factory=ClientHealth)
    blocks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    invalid: tuple[Explanation, ...] = ()
    counted: bool = True
    not_compared: Explanation | None = None
    """Why no baseline is held against it although one should be: it is too short."""
    not_sent: int = 0
    offered_per_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Sample, ...]:
        """The requests that failed."""
        return tuple(sample for sample in self.samples if not sample.ok)

    @property
    def error_rate(self) -> float | None:
        """The share of requests that failed."""
        return len(self.failures) / len(self.samples) if self.samples else None

    @property
    def goodput_per_s(self) -> float | None:
        """Requests per second that kept the slo."""
        if self.goodput is None or not self.window_s:
            return None
        return self.goodput * len(self.samples) / self.window_s

    def values(self, metric: str, *, since: Origin = "send") -> list[float]:
        """The figures of a metric (`ttft_ms`), one a request; of `itl_ms` all gaps.

        `since="schedule"` counts TTFT, TTFO and E2E from when a request of an open load was due.
        """
        if metric == "itl_ms":
            return [gap for s in self._told_by if s.one_token_events for gap in s.itl_ms]
        shift = since == "schedule" and metric in ("ttft_ms", "ttfo_ms", "e2e_ms")
        found = ((sample, sample.value(metric)) for sample in self._told_by)
        return [
            value + (sample.queue_ms or 0.0 if shift else 0.0) for sample, value in found if value is not None
        ]

    @property
    def _told_by(self) -> list[Sample]:
        return [sample for sample in self.samples if "cancelled" not in sample.flags]

    def summary(self, metric: str, *, since: Origin = "send") -> Summary | None:
        """Statistics of a metric over the requests; None where none gave it."""
        values = self.values(metric, since=since)
        return summarise(values) if values else None

    def quantile(self, metric: str, q: float, *, since: Origin = "send") -> float:
        """A quantile of a metric; raises `TooFewSamplesError` with the number of requests that it needs."""
        return quantile(self.values(metric, since=since), q)

    def figure(self, metric: str) -> float | None:
        """The one value that the load has of a metric, None where it has none."""
        found: dict[str, float | None] = {
            "throughput_tps": self.throughput_tps,
            "steady_tps": self.steady_tps,
            "requests_per_s": self.requests_per_s,
            "offered_per_s": self.offered_per_s,
            "goodput": self.goodput,
            "error_rate": self.error_rate,
        }
        return found.get(metric)

    def __repr__(self) -> str:
        """Return the request and the figures of the whole window."""
        given = {name: self.asked.get(name) for name in ("concurrency", "rate", "trace")}
        asked = [f"{name}={value}" for name, value in given.items() if value is not None]
        figures = [
            f"{name}={value:.4g}" for name in SHOWN_FIGURES if (value := self.figure(name)) is not None
        ]
        return f"<LoadResult of {len(self.samples)} requests {' '.join([*asked, *figures])}>"

    def __str__(self) -> str:
        """The figures in a few lines."""
        return "\n".join(_lines(self))


def _lines(load: LoadResult) -> Sequence[str]:
    asked = " ".join(f"{name}={value}" for name, value in load.asked.items() if value is not None)
    failed = f", {len(load.failures)} failed" if load.failures else ""
    failed += f", {load.not_sent} more never sent" if load.not_sent else ""
    lines = [f"load {asked}: {len(load.samples)} requests{failed}, at most {load.peak_concurrency} at once"]
    figures = [f"{name} {value:.4g}" for name in SHOWN_FIGURES if (value := load.figure(name)) is not None]
    lines.append("  " + "  ".join(figures))
    summaries = ((metric, load.summary(metric)) for metric in (*LATENCIES, "queue_ms"))
    lines += [f"  {metric}  {spelled_out(summary)}" for metric, summary in summaries if summary]
    lines += (f"  note: {note}" for note in load.notes)
    return [*lines, *(f"  invalid: {reason}" for reason in load.invalid)]


def request_metrics() -> tuple[str, ...]:
    """Return the metrics that a request is held against: what an slo may name."""
    return tuple(m.key for m in METRICS.values() if m.per == "request" and m.better == "lower")
