"""Why: a code with its figures. Decisions are made in these; `messages` words them.

A sentence is written once, in `messages`, by a function that is registered for its code with `words`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar


class Reason(StrEnum):
    """A code for each thing that a verdict, a problem or a piece of advice can say.

    Call one with its figures to get an `Explanation`: `Reason.TOO_FEW_REQUESTS(requests=3, least=5)`.
    """

    AS_WRITTEN = "as_written"

    # what a test comes to
    SLOWER = "slower"
    FASTER = "faster"
    SUSPECT = "suspect"
    UNDECIDED = "undecided"
    MACHINE_BUSY = "machine_busy"
    NO_BASELINE = "no_baseline"
    INCOMPARABLE = "incomparable"
    LENGTH_NOT_COMPARED = "length_not_compared"
    BUDGET_MISSED = "budget_missed"
    CLOSE_CALL = "close_call"
    REQUESTS_FAILED = "requests_failed"
    LOAD_INVALID = "load_invalid"
    NOTHING_MEASURED = "nothing_measured"
    EARLIER_ATTEMPT_SLOWER = "earlier_attempt_slower"
    SLOWER_AS_A_SUITE = "slower_as_a_suite"
    FAILS_BY_OPTION = "fails_by_option"
    HOW_TO_ACCEPT = "how_to_accept"
    NO_RUN_FILE_READABLE = "no_run_file_readable"
    BASELINE_IS_OLD = "baseline_is_old"
    NOT_STORED_AFTER_RERUN = "not_stored_after_rerun"
    SHORT_ANSWERS = "short_answers"
    CLIENT_LAG = "client_lag"
    DISTURBED = "disturbed"
    CACHE_NOT_COLD = "cache_not_cold"
    CACHE_WARM_UNDECLARED = "cache_warm_undeclared"

    # what a second measurement beside another side came to
    CONFIRMED_SLOWER = "confirmed_slower"
    NOT_CONFIRMED = "not_confirmed"
    CONFIRMATION_UNDECIDED = "confirmation_undecided"
    DEFERRED = "deferred"

    # why a comparison has its verdict
    COULD_BE_CHANCE = "could_be_chance"
    WITH_EARLIER_SUSPECTS = "with_earlier_suspects"
    SESSIONS_DIFFER = "sessions_differ"
    SLOWER_TWICE = "slower_twice"
    MORE_SPELLS = "more_spells"
    SECOND_LOOK_OPEN = "second_look_open"
    SECOND_LOOK_WANTED = "second_look_wanted"
    CANNOT_RULE_OUT = "cannot_rule_out"
    ONLY_THE_MEDIAN_MOVED = "only_the_median_moved"
    TAIL_GREW = "tail_grew"
    TOO_FEW_REQUESTS = "too_few_requests"
    NO_FULL_SESSION = "no_full_session"
    NO_SESSION = "no_session"
    TOO_FEW_PAIRS = "too_few_pairs"
    TOO_FEW_BLOCKS = "too_few_blocks"
    NO_TIME = "no_time"
    ALL_AT_ONCE = "all_at_once"
    NOTHING_TO_COMPARE = "nothing_to_compare"
    OTHER_PROGRAMS = "other_programs"
    BASELINE_DIFFERS = "baseline_differs"
    LENGTHS_DIFFER = "lengths_differ"
    CREPT = "crept"
    ANSWERS_ARE_WORSE = "answers_are_worse"

    # why a budget is not kept, or not checked
    NO_REQUEST = "no_request"
    NO_REQUEST_TO_CHECK = "no_request_to_check"
    NO_SUCH_LABEL = "no_such_label"
    ALL_FAILED = "all_failed"
    NOT_STREAMED = "not_streamed"
    NO_VALUE = "no_value"
    TOKEN_COUNTS_DOUBTED = "token_counts_doubted"
    NO_TOKEN_COUNTS = "no_token_counts"
    ALL_IN_ONE_READ = "all_in_one_read"
    SEVERAL_TOKENS_PER_EVENT = "several_tokens_per_event"
    TOO_FEW_TOKENS = "too_few_tokens"
    TOO_FEW_SAMPLES = "too_few_samples"
    MEMORY_UNKNOWN = "memory_unknown"
    ONLY_FOR_LOADS = "only_for_loads"
    NO_SLO = "no_slo"
    SLO_MISSED = "slo_missed"
    LOAD_HAS_NO_VALUE = "load_has_no_value"
    OTHER_ENVIRONMENT = "other_environment"
    SMOKE_RUN_TOO_SHORT = "smoke_run_too_short"

    # why a load is not the one that was asked for
    CONCURRENCY_NOT_REACHED = "concurrency_not_reached"
    SLOTS_STAYED_EMPTY = "slots_stayed_empty"
    CLIENT_BUSY = "client_busy"
    PILED_UP = "piled_up"
    SENT_LATE = "sent_late"
    WORKER_LOST = "worker_lost"
    LOAD_TOO_SHORT = "load_too_short"
    TOO_FEW_ANSWERS = "too_few_answers"

    # what a quality check found
    CONTRACTS_KEPT = "contracts_kept"
    CONTRACTS_BROKEN = "contracts_broken"
    NOTHING_EXPECTED = "nothing_expected"
    PROMPTS_FAILED = "prompts_failed"
    SCORE_TOO_LOW = "score_too_low"
    NOTHING_GREEDY = "nothing_greedy"
    REPEATS = "repeats"
    DIFFERS_ALONE = "differs_alone"
    DIFFERS_BESIDE_OTHERS = "differs_beside_others"
    UNLIKELY_TOKENS = "unlikely_tokens"
    LOGPROBS_MOVED = "logprobs_moved"
    ENGINE_SCORES_NOTHING = "engine_scores_nothing"
    NO_STORED_TOKENS = "no_stored_tokens"
    NO_STORED_ANSWERS = "no_stored_answers"
    DIVERGENCE = "divergence"
    NOTHING_SCORED = "nothing_scored"
    TASK_SCORE = "task_score"
    WORSE_ANSWERS = "worse_answers"
    ANSWERS_SUSPECT = "answers_suspect"
    ANSWERS_WITHOUT_BASELINE = "answers_without_baseline"
    ANSWERS_ACCEPTED = "answers_accepted"
    CHECK_SKIPPED = "check_skipped"

    def __call__(self, **figures: Any) -> Explanation:
        """Return the explanation with this code and these figures."""
        return Explanation(self, figures)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A reason with its figures; as text, the sentence that `messages` has for it.

    Figures are builtins, or values that `records` knows how to write: comparisons, budget checks, and
    further explanations.
    """

    reason: Reason
    figures: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.reason)  # figures may hold lists

    def __str__(self) -> str:
        if (wording := _WORDINGS.get(self.reason)) is not None:
            return wording(**self.figures)
        figures = ", ".join(f"{name}={value}" for name, value in self.figures.items())
        return f"{self.reason.value} ({figures})"


Wording = TypeVar("Wording", bound=Callable[..., str])
_WORDINGS: dict[Reason, Callable[..., str]] = {}


def words(*reasons: Reason) -> Callable[[Wording], Wording]:
    """Register the function that words some reasons; its parameters are their figures."""

    def register(wording: Wording) -> Wording:
        _WORDINGS.update(dict.fromkeys(reasons, wording))
        return wording

    return register


def as_sentences(explanations: Iterable[Explanation]) -> list[str]:
    """Return the sentence of each explanation."""
    return list(map(str, explanations))
