"""Samples of one test, or of one `measure` call, and their summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_llmspeed.metrics.load_curve import Curve
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.metrics.sample import METRICS, Sample
from pytest_llmspeed.metrics.summary import Summary, quantile, spelled_out, summarise
from pytest_llmspeed.system.neighbours import Neighbour

LEAST_QUIET = 5
"""The number of undisturbed requests that is enough to leave out the disturbed ones."""
SPECULATION = ("acceptance_rate", "tokens_per_step")
WHOLE_LOAD = ("throughput_tps", "requests_per_s")
"""Metrics that a load has one figure of, from its whole window."""
COUNTED_CALLS = ("measure", "load", "sdk")
SHOWN_METRICS = ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tps")
SUMMARY_METRICS = (*(m.key for m in METRICS.values() if m.per == "request"), *SPECULATION)


@dataclass(frozen=True, slots=True, repr=False)
class Measurement:
    """The measured requests, in the order sent. `warmup_requests` were sent before and left out.

    The requests of `loads` are among the samples; `curves` are those of its sweeps. `peak_memory_mib` is
    the most memory that the engine held during the test, known at its end; None where nobody could tell.
    `neighbours` are the busiest other programs meanwhile, noted if they disturbed a request.
    """

    samples: tuple[Sample, ...] = ()
    warmup_requests: int = 0
    peak_memory_mib: float | None = None
    loads: tuple[LoadResult, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    curves: tuple[Curve, ...] = ()

    def __repr__(self) -> str:
        """The number of requests, and the medians."""
        medians = ((metric, self.median(metric)) for metric in SHOWN_METRICS)
        shown = (f" {metric}={value:.4g}" for metric, value in medians if value is not None)
        return f"<Measurement of {self._requests}{''.join(shown)}>"

    def __str__(self) -> str:
        """The figures of each metric, a line each; then loads and curves."""
        summaries = ((metric, self.outside_loads.summary(metric)) for metric in SHOWN_METRICS)
        figures = [f"  {metric}  {spelled_out(summary)}" for metric, summary in summaries if summary]
        return "\n".join([self._requests, *figures, *map(str, self.loads), *map(str, self.curves)])

    @property
    def culprits(self) -> list[tuple[str, float]]:
        """The programs that ran beside the engine: name and cores."""
        return [(each.name, each.cores) for each in self.neighbours]

    @property
    def not_compared(self) -> tuple[Explanation, ...]:
        """The reasons why loads are too short to compare; a level of a sweep is never compared."""
        known = (load.not_compared for load in self.loads if load.counted and load.not_compared)
        return tuple(dict.fromkeys(known))

    @property
    def _requests(self) -> str:
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"{len(self.samples)} request{'' if len(self.samples) == 1 else 's'}{failed}"

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
        """The number of requests that other programs disturbed."""
        return sum(not sample.quiet for sample in self.samples)

    @property
    def figures_from(self) -> tuple[Sample, ...]:
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
        return replace(self, samples=kept, loads=tuple(load for load in self.loads if load.label == label))

    def of_stratum(self, stratum: str) -> Measurement:
        """Only the requests of one stratum."""
        return replace(
            self,
            samples=tuple(sample for sample in self.samples if sample.stratum == stratum),
            loads=tuple(load for load in self.loads if load.stratum == stratum),
        )

    @property
    def outside_loads(self) -> Measurement:
        """The requests outside loads, which have figures of their own."""
        return replace(self, samples=tuple(s for s in self.samples if s.call != "load"), loads=())

    @property
    def parts(self) -> tuple[Measurement, ...]:
        """The parts that a budget is checked against: each counted load, and all other requests together."""
        others = self.outside_loads
        loads = (self.of_load(load) for load in self.loads if load.counted)
        return (*([others] if others.samples else []), *loads)

    def of_load(self, load: LoadResult) -> Measurement:
        """One load and its requests."""
        return replace(self, samples=load.samples, loads=(load,))

    @property
    def counted(self) -> tuple[Sample, ...]:
        """The requests whose failure is the test's own: of `measure`, SDK clients, and loads that count.

        That of `generate` raises, and the body may expect it.
        """
        left_out = {load.stratum for load in self.loads if not load.counted}
        return tuple(s for s in self.samples if s.call in COUNTED_CALLS and s.stratum not in left_out)

    @property
    def load(self) -> LoadResult | None:
        """The one load that this is the part of, None of other requests."""
        return self.loads[0] if len(self.loads) == 1 else None

    def values(self, metric: str) -> list[float]:
        """The figures of a metric (`ttft_ms`), one a request; of `itl_ms`, all gaps pooled.

        Of a load they are those that its `LoadResult` gives.
        """
        if self.load and len(self.load.samples) == len(self.samples):
            return self.load.values(metric)
        if metric == "itl_ms":
            return [gap for s in self.figures_from if s.one_token_events for gap in s.itl_ms]
        found = (sample.value(metric) for sample in self.figures_from)
        return [value for value in found if value is not None]

    def median(self, metric: str) -> float | None:
        """The median of a metric, None where no request gave it."""
        values = self.values(metric)
        return quantile(values, 0.5) if values else None

    def figure(self, metric: str) -> float | None:
        """Return the figure that reports show under the metric's name: a load's own, else the median."""
        if self.load and metric in WHOLE_LOAD:
            return self.load.figure(metric)
        return self.median(metric)

    @property
    def cache_hit_rate(self) -> float | None:
        """The share of prompt tokens that the engine took from its prefix cache; None where it never said."""
        return _hit_rate(self.samples)

    @property
    def cache_hit_rates(self) -> dict[str, float]:
        """The same for each stratum of which the engine said it."""
        strata: dict[str, list[Sample]] = {}
        for sample in self.samples:
            strata.setdefault(sample.stratum, []).append(sample)
        rates = {stratum: _hit_rate(samples) for stratum, samples in strata.items()}
        return {stratum: rate for stratum, rate in rates.items() if rate is not None}

    def summary(self, metric: str) -> Summary | None:
        """Statistics of a metric, None where no request gave it."""
        values = self.values(metric)
        return summarise(values) if values else None


def _hit_rate(samples: Sequence[Sample]) -> float | None:
    known = [s for s in samples if s.ok and s.prompt_tokens and s.cached_tokens is not None]
    prompt_tokens = sum(s.prompt_tokens or 0 for s in known)
    return sum(s.cached_tokens or 0 for s in known) / prompt_tokens if prompt_tokens else None


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
        """The reason the answer ended, such as "stop", "length" or "tool_calls"."""
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
