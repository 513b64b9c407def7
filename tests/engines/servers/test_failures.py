"""What goes wrong with servers: one clear error each, and the next test runs."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.project import shows
from helpers.stage import OWN

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.engines.servers import process
from pytest_llmspeed.engines.servers._server import OwnServer
from pytest_llmspeed.engines.servers.log_diagnosis import symptom
from pytest_llmspeed.errors import EngineError

if TYPE_CHECKING:
    from helpers.stage import Stage

GENERATE = "def test_it(self, llm_client): llm_client.generate('hi', max_tokens=8, warmup=False)"
NEXT = """

            def test_next(llm_client): llm_client.generate('hi')
"""
AT_START = {
    "out of memory": "exited while starting, with exit code 1: out of memory: reduce its memory: a smaller "
    "context_length=, fewer sequences (max_concurrency=) or a quantised model",
    "no cache": "out of memory: reduce its memory",
    "killed": "exited while starting, by SIGKILL: it was killed (SIGKILL), most likely because the machine "
    "ran out of memory: reduce its memory",
    "memory held": "too little GPU memory is free: another process uses it, perhaps one "
    "left over from an earlier run (nvidia-smi shows which)",
    "gated": "the model is gated, or your token has no access to it: accept its licence and set HF_TOKEN",
    "not found": "the model was not found, or this engine cannot load it: check model=",
    "offline": "the hub cannot be reached and the model is not in the cache: download it beforehand",
    "not installed": "is not installed where it was started: pip install vllm, or executable=",
    "no gpu": "it found no usable GPU: check the driver and CUDA_VISIBLE_DEVICES",
    "unknown": "vllm-server exited while starting, with exit code 1\nthe end of its log:\n  Traceback",
}


@pytest.mark.parametrize("fault", AT_START)
def test_a_server_that_does_not_start_says_why_and_the_next_test_runs(stage: Stage, fault: str) -> None:
    """One error of the set-up: what, the fix where the log shows one, and the end of the log."""
    stage.fault(fault)
    result = stage.run("vllm-server", GENERATE + NEXT, executable=stage.program("vllm"))
    result.assert_outcomes(errors=1, passed=1)
    shows(result, "vllm-server exited while starting, ", AT_START[fault])
    assert "pytest_llmspeed/" not in result.stdout.str()
    assert "\x1b[31m" not in result.stdout.str()


def test_a_server_that_failed_is_not_tried_again(stage: Stage) -> None:
    """Its second test gets the first line of the reason at once, without the log."""
    stage.fault("out of memory")
    body = "@pytest.mark.parametrize('n', [1, 2])\n                def test_it(self, llm_client, n): pass"
    result = stage.run("vllm-server", body, executable=stage.program("vllm"))
    result.assert_outcomes(errors=2)
    shows(result, "(it already failed to start in this run)")
    errors, _ = result.stdout.str().split("short test summary info")
    assert errors.count("the end of its log:") == 1


def test_a_command_that_leaves_its_server_behind(stage: Stage) -> None:
    """It could be neither watched nor ended."""
    result = stage.run("server", GENERATE, command=["sh", "-c", f"{OWN} &"])
    result.assert_outcomes(errors=1)
    shows(result, "server exited while starting, with exit code 0: it must stay in the foreground")


def test_a_program_that_is_not_there(stage: Stage) -> None:
    """A usage error that says what to install."""
    result = stage.run("tensorrt-llm-server", GENERATE + NEXT)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "tensorrt-llm-server: there is no program 'trtllm-serve': pip install tensorrt-llm")


def test_a_program_that_is_none(stage: Stage) -> None:
    """A file that cannot be executed is named with the system's reason."""
    broken = stage.project.path / "broken"
    broken.write_bytes(b"\x7fELF broken")
    broken.chmod(0o755)
    result = stage.run("server", GENERATE, command=[str(broken)])
    shows(result, f"server: '{broken}' cannot be run: Exec format error")


def test_a_server_that_is_not_up_in_time(stage: Stage) -> None:
    """The deadline is named with the option that moves it; nothing is left of the server."""
    stage.fault("never up")
    result = stage.run("server", GENERATE + NEXT, command=OWN, start_timeout_s=1.5)
    result.assert_outcomes(errors=1, passed=1)
    shows(
        result,
        "server did not answer within 1.5 s: allow more time with start_timeout_s=",
        "loading weights: 3 %",
    )
    (pid,) = stage.noted("pid")
    assert not Path(f"/proc/{pid}").exists()


def test_a_port_that_is_taken_is_named(stage: Stage) -> None:
    """Where the user fixed it, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        result = stage.run("server", GENERATE + NEXT, command=OWN, port=port)
    result.assert_outcomes(errors=1, passed=1)
    shows(result, f"port {port} is not available (Address already in use): omit port= to pick a free one")
    assert stage.noted("argv") == []


def test_a_free_port_that_someone_else_was_quicker_to_take(stage: Stage) -> None:
    """Another one is tried, once."""
    stage.fault("port taken once")
    stage.run("server", GENERATE, command=OWN).assert_outcomes(passed=1)


def test_a_model_that_is_not_on_disk(stage: Stage) -> None:
    """A path that holds nothing is told without starting anything."""
    result = stage.run("vllm-server", GENERATE, model="./nowhere", executable=stage.program("vllm"))
    shows(result, "model './nowhere': there is no such file or folder")


def test_no_model_at_all(stage: Stage) -> None:
    """The message says where to name one."""
    result = stage.run("vllm-server", GENERATE, model=None)
    shows(result, "backend 'vllm-server' needs a model: set llmspeed_model, --llmspeed-model or model=")


def test_a_server_that_crashes_in_a_stream_is_started_anew_for_the_next_test(stage: Stage) -> None:
    """The request fails with how the server ended and the end of its log; the next test has a new one."""
    stage.fault("crash in a stream")
    body = (
        "def test_1(self, llm_client): llm_client.generate('hi', max_tokens=8, warmup=False)\n"
        "                def test_2(self, llm_client): llm_client.generate('hi', max_tokens=2, warmup=False)"
    )
    result = stage.run("server", body, command=OWN)
    result.assert_outcomes(failed=1, passed=1)
    shows(
        result,
        "GenerationError: ",
        "server exited during the request, by SIGSEGV",
        "Segmentation fault in attention kernel",
    )
    assert len(stage.noted("argv")) == 2


def test_a_call_of_the_sdk_says_it_too(stage: Stage) -> None:
    """The SDK raises its own error; what fails the test names the server's end."""
    stage.fault("crash in a stream")
    asked = "model='m', messages=[{'role': 'user', 'content': 'hi'}], max_tokens=8, stream=True"
    body = f"def test_it(self, llm_client): list(llm_client.openai.chat.completions.create({asked}))"
    result = stage.run("server", body, command=OWN, model="m")
    result.assert_outcomes(failed=1)
    shows(
        result,
        "1 of 1 requests failed, the last with: the connection",
        "exited during the request, by SIGSEGV",
    )


def test_out_of_memory_in_a_request(stage: Stage) -> None:
    """What the server answered, and what its log shows of why it went."""
    stage.fault("out of memory in a request")
    result = stage.run("vllm-server", GENERATE + NEXT, executable=stage.program("vllm"))
    result.assert_outcomes(failed=1, passed=1)
    shows(
        result,
        "HTTP 500: EngineCore encountered an issue; ",
        "out of memory: reduce its memory: a smaller context_length=",
    )


def test_failed_requests_of_measure_say_it_too(stage: Stage) -> None:
    """The sentence that fails a test holds the reason."""
    stage.fault("crash in a stream")
    body = "def test_it(self, llm_client): llm_client.measure('hi', max_tokens=8, rounds=5)"
    result = stage.run("server", body, command=OWN)
    result.assert_outcomes(failed=1)
    shows(
        result, "5 of 5 requests failed, the last with: cannot connect to", "server exited during the request"
    )


def own(**options: Any) -> EngineSpec:
    return EngineSpec.of("server", "m", None, {"command": OWN, **options})


def test_stopping_is_idempotent_and_ends_stubborn_servers_with_their_workers(stage: Stage) -> None:
    """A server that ignores SIGTERM is killed after the grace; a worker that left its group, too."""
    stage.fault("stubborn")
    engine = OwnServer.start(own())
    pids = [*stage.noted("pid"), *stage.noted("workers")[0]]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    started = time.monotonic()
    engine._process.stop()
    engine._process.stop()
    assert process.GRACE_S <= time.monotonic() - started < process.GRACE_S + process.WATCHDOG_S
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not engine.alive


def test_a_server_whose_watchdog_was_killed_is_ended_all_the_same(stage: Stage) -> None:
    """Its group and its files are known to the test run as well; its shared memory goes, too."""
    engine = OwnServer.start(own())
    (pid,), (segment,) = stage.noted("pid"), stage.noted("segment")
    engine._process._watchdog.kill()
    engine._process._watchdog.wait()
    assert not engine.alive
    engine._process.stop()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path("/dev/shm", segment).exists()
    assert list((stage.project.path / "tmp").glob("llmspeed-*")) == []


def test_a_dead_server_makes_room_for_a_new_one(stage: Stage) -> None:
    """The pool hands out no engine that has died."""
    pool = Pool(Registry(BUILT_IN))
    try:
        first = pool.lease(own())
        assert pool.lease(own()) is first
        first._process._watchdog.kill()  # type: ignore[attr-defined]
        first._process._watchdog.wait()  # type: ignore[attr-defined]
        assert pool.lease(own()) is not first
    finally:
        pool.close()


REAL_LOGS = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.": "out of memory",
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV "
    "cache is needed, which is larger than the available KV cache memory (3.5 GiB)": "out of memory",
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": "out of memory",
    "ggml_backend_cpu_buffer_type_alloc: failed to allocate buffer of size 5368709120": "out of memory",
    "RuntimeError: Failed to bind socket to 127.0.0.1:8000: [Errno 98] Address already in use": "port taken",
    "Error response from daemon: Bind for 127.0.0.1:8000 failed: port is already allocated": "port taken",
    "OSError: some/model is not a local folder and is not a valid model identifier": "model not found",
    "error loading model: failed to open model.gguf: No such file\nfailed to load model": "model not found",
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files": "offline",
    "api_server.py: error: unrecognized arguments: --max-model-length 7": "unknown argument",
    "No such option: --max_seq_length": "unknown argument",
    "Value error, User-specified max_model_len (99999) is greater than the derived max_model_len": "context "
    "too long",
    "Value error, Unrecognized model in /m. Should have a `model_type` key in its config.json.": "model not "
    "found",
    "INFO: Application startup complete.": None,
}


@pytest.mark.parametrize("log", REAL_LOGS)
def test_symptoms_are_read_from_what_engines_write(log: str) -> None:
    """Lines of real logs, each with its symptom; a healthy log has none."""
    found = symptom(log, 1)
    assert (found and found.name) == REAL_LOGS[log]


def test_an_unusable_option_starts_nothing() -> None:
    """It is an engine error that names it."""
    with pytest.raises(EngineError, match="start_timeout_s='soon'"):
        OwnServer.start(own(start_timeout_s="soon"))
