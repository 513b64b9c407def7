"""What the client of a test records: samples, strata, warm-up, and the declared workload."""

import pytest

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.recording.recorder import Recorder


def exchange(prompt="hello", *, at=100.0, error=None, **request):
    """A finished exchange that began at `at`."""
    return Exchange(
        request=Request(prompt, **request),
        started_s=at,
        events=(Event(at + 0.02, text="a", tokens=1), Event(at + 0.03, text="b", tokens=1)),
        usage=Usage(5, 2),
        token_source="usage",
        finish_reason="stop",
        error=error,
    )


@pytest.fixture
def recorder():
    return Recorder()


def strata(recorder):
    return [sample.stratum for sample in recorder.measurement.samples]


def test_samples_are_kept_in_the_order_sent(recorder):
    """The measurement is what was recorded, and the sample is handed back."""
    made = [recorder.record(exchange(at=at), "generate", None) for at in (100.0, 101.0)]
    assert recorder.measurement.samples == tuple(made)
    assert recorder.count == 2


def test_starts_count_from_the_first_measured_request(recorder):
    """Warm-up does not set the origin."""
    with recorder.warming():
        recorder.record(exchange(at=90.0), "generate", None)
    for at in (100.0, 100.5):
        recorder.record(exchange(at=at), "generate", None)
    assert [s.started_ms for s in recorder.measurement.samples] == pytest.approx([0.0, 500.0])


def test_failures_are_recorded_too(recorder):
    """A failed request is a sample with an error."""
    recorder.record(exchange(error="HTTP 500"), "generate", None)
    assert [s.error for s in recorder.measurement.failures] == ["HTTP 500"]


def test_warm_up_is_counted_and_left_out(recorder):
    """Its requests enter no figure and no workload."""
    with recorder.warming():
        recorder.record(exchange(max_tokens=3), "generate", None)
    assert (recorder.count, recorder.measurement.warmup_requests) == (0, 1)
    assert recorder.workload == ()


def test_warming_ends_with_an_error_inside(recorder):
    """What comes after is measured again."""
    with pytest.raises(RuntimeError), recorder.warming():
        raise RuntimeError
    recorder.record(exchange(), "generate", None)
    assert recorder.count == 1


def test_prompts_are_numbered_by_first_appearance(recorder):
    """So that a prompt with a date in it still meets its baseline."""
    for prompt in ("a", "b", "a", "c"):
        recorder.record(exchange(prompt), "generate", None)
    assert strata(recorder) == ["prompt 1", "prompt 2", "prompt 1", "prompt 3"]


def test_labels_number_their_prompts_on_their_own(recorder):
    """A new label elsewhere does not rename the strata of this one."""
    for prompt, label in (("a", "chat"), ("b", "bulk"), ("b", "chat"), ("z", None)):
        recorder.record(exchange(prompt), "generate", label)
    assert strata(recorder) == ["chat/prompt 1", "bulk/prompt 1", "chat/prompt 2", "prompt 1"]
    assert [sample.label for sample in recorder.measurement.samples] == ["chat", "bulk", "chat", None]


def test_a_warm_up_of_a_prompt_gives_it_its_number(recorder):
    """Warm-up of the test's own prompt does not shift the numbers."""
    with recorder.warming():
        recorder.record(exchange("a"), "generate", None)
    recorder.record(exchange("a"), "generate", None)
    assert strata(recorder) == ["prompt 1"]


def test_calls_of_a_repeated_body_are_told_apart_by_their_place(recorder):
    """Whatever their prompts are, the first calls of all rounds belong together."""
    for number in range(2):
        with recorder.body(first=number == 0):
            recorder.record(exchange(f"plan {number}"), "generate", None)
            recorder.record(exchange(f"act {number}"), "generate", "act")
    assert strata(recorder) == ["call 1", "act/call 1"] * 2
    assert {sample.call for sample in recorder.measurement.samples} == {"rounds"}


def test_a_second_body_is_told_apart_from_the_first(recorder):
    """Two loops in one test do not mix."""
    for _ in range(2):
        with recorder.body(first=True):
            recorder.record(exchange(), "generate", None)
    assert strata(recorder) == ["call 1", "body 2 call 1"]


def test_outside_of_a_body_calls_are_told_apart_by_prompt_again(recorder):
    """The body ends with its block, by an error too."""
    with recorder.body(first=True):
        assert recorder.in_body
    with pytest.raises(RuntimeError), recorder.body(first=False):
        raise RuntimeError
    assert not recorder.in_body
    recorder.record(exchange(), "generate", None)
    assert strata(recorder) == ["prompt 1"]


def test_measure_within_a_body_is_told_apart_by_prompt(recorder):
    """Its prompt is declared, so that it needs no place."""
    with recorder.body(first=True):
        recorder.record(exchange("a"), "measure", None)
        recorder.record(exchange("b"), "measure", None)
    assert len(set(strata(recorder))) == 2
    assert all(stratum.startswith("prompt ") for stratum in strata(recorder))
    assert recorder.measurement.samples[0].call == "measure"


def test_what_came_since_can_be_looked_at_alone(recorder):
    """One `measure` call is a part of all that the test measured."""
    recorder.record(exchange(at=1.0), "generate", None)
    start = recorder.count
    recorder.record(exchange(at=2.0), "measure", None)
    assert [s.call for s in recorder.since(start).samples] == ["measure"]
    assert len(recorder.measurement.samples) == 2


def test_requests_that_end_out_of_turn_are_told_as_they_began(recorder):
    """Order, prompt numbers and start times follow the sending, not the end."""
    first = recorder.send(Request("a"), "sdk", None)
    second = recorder.send(Request("b"), "sdk", None)
    second.finish(exchange("b", at=100.5))
    first.finish(exchange("a", at=100.0))
    samples = recorder.measurement.samples
    assert [sample.stratum for sample in samples] == ["prompt 1", "prompt 2"]
    assert [sample.started_ms for sample in samples] == pytest.approx([0.0, 500.0])


def test_requests_on_their_way_together_are_flagged(recorder):
    """Both of two that overlap, and not the one that came after."""
    first, second = recorder.send(Request("a"), "sdk", None), recorder.send(Request("b"), "sdk", None)
    first.finish(exchange("a", at=1.0))
    second.finish(exchange("b", at=2.0))
    recorder.send(Request("c"), "sdk", None).finish(exchange("c", at=3.0))
    assert [s.flags >= {"overlapped"} for s in recorder.measurement.samples] == [True, True, False]


def test_a_request_sent_in_warm_up_stays_warm_up_whenever_it_ends(recorder):
    """An answer that comes late is none of the first measured round."""
    with recorder.warming():
        sent = recorder.send(Request("a"), "sdk", None)
    sent.finish(exchange("a"))
    assert (recorder.count, recorder.measurement.warmup_requests) == (0, 1)


def test_a_request_is_kept_once(recorder):
    """What the end of the test cut off does not come a second time."""
    sent = recorder.send(Request("a"), "sdk", None, so_far=lambda: exchange("a", at=1.0))
    recorder.cut_off()
    sent.finish(exchange("a", at=2.0))
    assert recorder.count == 1


def test_an_interrupted_request_leaves_nothing(recorder):
    """Neither a sample nor a shadow on the next request."""
    recorder.send(Request("a"), "generate", None).forget()
    recorder.send(Request("b"), "generate", None).finish(exchange("b"))
    assert [sample.flags for sample in recorder.measurement.samples] == [frozenset()]


def test_sdk_calls_of_a_repeated_body_are_told_apart_by_their_place(recorder):
    """As those of `generate`; their kind stays, for their failures count."""
    for number in range(2):
        with recorder.body(first=number == 0):
            recorder.record(exchange(f"plan {number}"), "sdk", None)
            recorder.record(exchange(f"act {number}"), "sdk", None)
    assert strata(recorder) == ["call 1", "call 2"] * 2
    assert {sample.call for sample in recorder.measurement.samples} == {"sdk"}


def workload(*recorded):
    recorder = Recorder()
    for made, call, label in recorded:
        recorder.record(made, call, label)
    return recorder.workload


def test_a_workload_names_each_kind_of_call_once_in_any_order():
    """Two tests that ask alike declare alike."""
    a, b = (exchange(max_tokens=8), "generate", None), (exchange(max_tokens=9), "generate", None)
    assert workload(a, b, a) == workload(b, a)
    assert len(workload(a, b, a)) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": 9},
        {"temperature": 0.7},
        {"endpoint": "completions"},
        {"extra_body": {"top_p": 0.5}},
    ],
)
def test_limits_and_sampling_are_part_of_the_workload(change):
    """A test that asks for something else is not compared with its old self."""
    usual = {"max_tokens": 8}
    assert workload((exchange(**usual), "generate", None)) != workload(
        (exchange(**{**usual, **change}), "generate", None)
    )


def test_the_order_of_further_fields_does_not_matter():
    """The same fields are the same workload."""
    one, other = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert workload((exchange(extra_body=one), "generate", None)) == workload(
        (exchange(extra_body=other), "generate", None)
    )


def test_the_prompt_of_measure_is_part_of_the_workload():
    """A repeated prompt is literal, so that another one is another workload; a free one may vary."""
    one, other = exchange("a"), exchange("b")
    assert workload((one, "measure", None)) != workload((other, "measure", None))
    assert workload((one, "generate", None)) == workload((other, "generate", None))


def test_a_workload_shows_nothing_of_prompts_or_fields():
    """Only hashes are stored."""
    (line,) = workload((exchange("secret", extra_body={"user": "secret"}), "measure", None))
    assert "secret" not in line


def test_kind_of_call_and_label_are_part_of_the_workload():
    """generate, measure and rounds are different measurements; so are labels."""
    made = exchange()
    declared = {workload((made, call, label)) for call in ("generate", "measure") for label in (None, "chat")}
    assert len(declared) == 4


def test_the_time_limit_is_no_workload():
    """What does not change the work does not change the key."""
    usual = workload((exchange(), "generate", None))
    assert workload((exchange(timeout_s=5.0), "generate", None)) == usual


def test_a_call_under_another_label_moves_no_other(recorder):
    """Each label counts its own calls, and its own bodies."""
    with recorder.body(first=True):
        recorder.record(exchange("look"), "sdk", "look")
    for extra in (False, True):
        with recorder.body(first=not extra):
            if extra:
                recorder.record(exchange("check"), "sdk", "check")
            recorder.record(exchange("plan"), "sdk", "plan")
            recorder.record(exchange("act"), "sdk", None)
    plans = [name for name in strata(recorder) if "plan" in name]
    assert plans == ["plan/call 1"] * 2
    assert strata(recorder)[-1] == "call 1"
