"""Samples of one test, or of one `measure` call, and their summaries.

Quantiles interpolate linearly. One asked of too few samples is refused with the number that it
needs: p90 wants 10, p95 20, p99 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum

from pytest_llmspeed.core.errors import TooFewSamplesError
from pytest_llmspeed.core.metrics import METRICS, Sample

LEAST_QUIET = 5
"""So many undisturbed requests are enough to leave the disturbed ones out."""
SPECULATION = ("acceptance_rate", "tokens_per_step")
SUMMARY_METRICS = (*(m.key for m in METRICS.values() if m.per == "request"), *SPECULATION)


def needed_samples(q: float) -> int:
    """Return how many samples the q quantile needs, so that at least one lies beyond it."""
    beyond = min(q, 1 - q)
    return ceil(round(1 / beyond, 9)) if q != 0.5 else 1


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q quantile by linear interpolation (Hyndman and Fan's type 7).

    Raises `TooFewSamplesError` where there are fewer values than `needed_samples(q)`.
    """
    needed = needed_samples(q)
    if len(values) < needed:
        raise TooFewSamplesError(q, len(values), needed)
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one metric in its unit. A quantile that wants more samples is None."""

    n: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measured requests, in the order sent. `warmup_requests` were sent before and left out.

    `peak_memory_mib` is the most memory that the engine held during the test, known at its end; None
    where nobody could tell.
    """

    samples: tuple[Sample, ...] = ()
    warmup_requests: int = 0
    peak_memory_mib: float | None = None

    @property
    def text(self) -> str:
        """The last answer, empty if no request succeeded."""
        answers = [sample.text for sample in self.samples if sample.ok]
        return answers[-1] if answers else ""

    @property
    def failures(self) -> tuple[Sample, ...]:
        """The requests that failed; they enter no latency figure."""
        return tuple(sample for sample in self.samples if not sample.ok)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels seen, in order of first use."""
        return tuple(dict.fromkeys(s.label for s in self.samples if s.label is not None))

    @property
    def disturbed(self) -> int:
        """How many requests other programs disturbed."""
        return sum(not sample.quiet for sample in self.samples)

    @property
    def told_by(self) -> tuple[Sample, ...]:
        """The requests that figures are made of.

        In a stratum with enough quiet requests its disturbed ones are left out, else all count.
        """
        quiet = Counter(sample.stratum for sample in self.samples if sample.ok and sample.quiet)
        return tuple(s for s in self.samples if s.quiet or quiet[s.stratum] < LEAST_QUIET)

    def labelled(self, label: str | None) -> Measurement:
        """Only the requests of one label; all of them for None."""
        if label is None:
            return self
        kept = tuple(sample for sample in self.samples if sample.label == label)
        return replace(self, samples=kept)

    def values(self, metric: str) -> list[float]:
        """The figures of a metric (`ttft_ms`), one a request; of `itl_ms`, all gaps pooled."""
        if metric == "itl_ms":
            return [gap for s in self.told_by if s.one_token_events for gap in s.itl_ms]
        found = (sample.value(metric) for sample in self.told_by)
        return [value for value in found if value is not None]

    def median(self, metric: str) -> float | None:
        """The median of a metric, None where no request gave it."""
        values = self.values(metric)
        return quantile(values, 0.5) if values else None

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of prompt tokens that the engine took from its prefix cache; None where it never said."""
        told = [s for s in self.samples if s.ok and s.prompt_tokens and s.cached_tokens is not None]
        prompt_tokens = sum(s.prompt_tokens or 0 for s in told)
        return sum(s.cached_tokens or 0 for s in told) / prompt_tokens if prompt_tokens else None

    def summary(self, metric: str) -> Summary | None:
        """Statistics of a metric, None where no request gave it."""
        values = self.values(metric)
        return summarise(values) if values else None


def busy_strata(measurement: Measurement) -> dict[str, tuple[int, int]]:
    """Return the strata that other programs left too few quiet requests of: disturbed, and all."""
    succeeded = [sample for sample in measurement.samples if sample.ok]
    total = Counter(sample.stratum for sample in succeeded)
    disturbed = Counter(sample.stratum for sample in succeeded if not sample.quiet)
    return {
        stratum: (count, total[stratum])
        for stratum, count in disturbed.items()
        if total[stratum] - count < LEAST_QUIET
    }


def summarise(values: Sequence[float]) -> Summary:
    """Return the statistics of one or more values."""
    return Summary(
        n=len(values),
        p50=quantile(values, 0.5),
        p90=_quantile_or_none(values, 0.90),
        p95=_quantile_or_none(values, 0.95),
        p99=_quantile_or_none(values, 0.99),
        mean=fsum(values) / len(values),
        min=min(values),
        max=max(values),
    )


def _quantile_or_none(values: Sequence[float], q: float) -> float | None:
    try:
        return quantile(values, q)
    except TooFewSamplesError:
        return None


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request, with what was measured of it in `sample`.

    `tool_call` holds names and arguments of tool calls, joined as they were streamed.
    """

    sample: Sample
    reasoning: str = ""
    refusal: str = ""
    tool_call: str = ""

    @property
    def text(self) -> str:
        """The visible answer."""
        return self.sample.text

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended, as in "stop", "length" or "tool_calls"."""
        return self.sample.finish_reason

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token; None where the answer was not streamed."""
        return self.sample.ttft_ms

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first; None where undefined."""
        return self.sample.tpot_ms

    @property
    def e2e_ms(self) -> float | None:
        """Time to the last output token."""
        return self.sample.e2e_ms

    @property
    def output_tokens(self) -> int | None:
        """Output tokens that could be seen; None where nobody counted them."""
        return self.sample.output_tokens
