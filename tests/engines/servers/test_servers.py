"""Servers that are started for a test: what is sent and recorded, with stand-ins and with a real engine."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.project import shows
from helpers.stage import OWN

from pytest_llmspeed.engines.servers.process import new_place

if TYPE_CHECKING:
    from helpers.stage import Stage


MEASURE = "def test_it(self, llm_client): llm_client.measure('hi', max_tokens=8, rounds=5)"
FORCED = "def test_it(self, llm_client): llm_client.measure('hi', output_tokens=8, rounds=5)"
ENGINES = {
    "vllm-server": ("vllm", {"precision": "bf16", "context_length": 512, "max_concurrency": 2}),
    "sglang-server": (
        "sglang",
        {"precision": "fp8", "context_length": 512, "max_concurrency": 2, "tensor_parallel": 2},
    ),
    "tensorrt-llm-server": (
        "tensorrt-llm",
        {"precision": "bf16", "context_length": 512, "max_concurrency": 2, "memory_fraction": 0.5},
    ),
    "llama-cpp-server": ("llama-server", {"context_length": 512, "max_concurrency": 2, "threads": 2}),
}


@pytest.mark.parametrize("backend", ENGINES)
def test_an_engine_s_server_is_started_measured_and_recorded(stage: Stage, backend: str) -> None:
    """It takes the recipe's arguments, asks for its key, and forces the length of an answer."""
    engine, options = ENGINES[backend]
    model = stage.gguf() if backend == "llama-cpp-server" else "org/model"
    program = stage.program(engine)
    stage.run(backend, FORCED, executable=program, model=model, **options).assert_outcomes(passed=1)
    test = stage.project.test()
    requests = test["measurement"]["requests"]
    assert {(request["output_tokens"], request["finish_reason"]) for request in requests} == {(8, "length")}
    assert {request["cached_tokens"] for request in requests} <= {0, 12}
    assert test["backend"]["name"] == backend
    assert test["backend"]["model"] == Path(model).name if model.endswith(".gguf") else model
    assert test["backend"]["prefix_cache"] == "cold"
    known = "q8_0" if backend == "llama-cpp-server" else None
    assert test["backend"]["precision"] == (known or options["precision"])
    assert test["backend"]["precision_source"] == (None if known else "asked")
    assert list(test["backend"]["versions"].values()) in (["9.9"], ["b9999"])


def test_a_length_is_forced_only_where_it_is_asked_for(stage: Stage) -> None:
    """max_tokens is a limit: the model may end before; the request says nothing of the end token."""
    stage.run("vllm-server", MEASURE, executable=stage.program("vllm")).assert_outcomes(passed=1)
    assert {r["output_tokens"] for r in stage.project.test()["measurement"]["requests"]} == {5}
    assert "ignore_eos" not in stage.noted("body")[0]


@pytest.mark.parametrize(("backend", "seed"), [("vllm-server", 0), ("server", None)])
def test_what_is_drawn_has_a_seed(stage: Stage, backend: str, seed: int | None) -> None:
    """Of every engine that is known to take one, as in process; a server of one's own might refuse it."""
    started = {"executable": stage.program("vllm")} if backend == "vllm-server" else {"command": OWN}
    drawn = "def test_it(self, llm_client): llm_client.generate('hi', max_tokens=2, temperature=0.7)"
    stage.run(backend, drawn, **started).assert_outcomes(passed=1)
    assert {body.get("seed") for body in stage.noted("body")} == {seed}


def test_a_length_that_a_server_has_no_means_to_force_is_flagged(stage: Stage) -> None:
    """A user's own server gets a limit; what stopped early says so."""
    stage.run("server", FORCED, command=OWN).assert_outcomes(passed=1)
    requests = stage.project.test()["measurement"]["requests"]
    assert all("short" in request["flags"] for request in requests)
    assert stage.noted("body")[0]["max_tokens"] == 8


@pytest.mark.parametrize(("prefix_cache", "cached"), [("cold", 0), ("warm", 12)])
def test_the_prefix_cache_is_cold_unless_asked(stage: Stage, prefix_cache: str, cached: int) -> None:
    """By the engine's own switch; what it had cached is recorded, and the state keys the baseline."""
    options = {"executable": stage.program("sglang"), "prefix_cache": prefix_cache}
    stage.run("sglang-server", MEASURE, **options).assert_outcomes(passed=1)
    requests = stage.project.test()["measurement"]["requests"]
    assert {request["cached_tokens"] for request in requests} == {cached}
    assert stage.project.test()["key"]["prefix_cache"] == prefix_cache


def test_llama_server_forgets_the_prompt_with_each_request(stage: Stage) -> None:
    """Its means is a field of the request; a test's own field wins over it."""
    body = (
        "def test_it(self, llm_client):\n"
        "                    llm_client.generate('hi', warmup=False)\n"
        "                    llm_client.generate('hi', warmup=False, extra_body={'cache_prompt': True})"
    )
    options = {"model": stage.gguf(), "executable": stage.program("llama-server")}
    stage.run("llama-cpp-server", body, **options).assert_outcomes(passed=1)
    assert [body["cache_prompt"] for body in stage.noted("body")] == [False, True]


@pytest.mark.parametrize("asked", ["auto", "q8_0"])
def test_the_precision_of_a_gguf_file_is_read_back(stage: Stage, asked: str) -> None:
    """The server runs the file as it is, and its head says what that is: it is no mere request."""
    options = {"model": stage.gguf(), "executable": stage.program("llama-server"), "precision": asked}
    stage.run("llama-cpp-server", MEASURE, **options).assert_outcomes(passed=1)
    backend = stage.project.test()["backend"]
    assert (backend["precision"], backend["precision_source"]) == ("q8_0", None)


def test_another_precision_than_that_of_the_gguf_file_is_an_error(stage: Stage) -> None:
    """The one of llama.cpp in process; no server is started for it."""
    options = {"model": stage.gguf(), "executable": stage.program("llama-server"), "precision": "fp16"}
    result = stage.run("llama-cpp-server", MEASURE, **options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "was requested in fp16, but the file's weights are q8_0: use a file in that precision")
    assert stage.noted("argv") == []


def test_what_is_recorded_of_a_server_holds_no_secret(stage: Stage) -> None:
    """Neither the key nor the values of environment variables, nor an address; names are."""
    options = {"executable": stage.program("sglang"), "env": {"HF_TOKEN": "hf_very_secret"}}
    stage.run("sglang-server", MEASURE, "--llmspeed-update-baseline", **options).assert_outcomes(passed=1)
    (argv,) = stage.noted("argv")
    key = argv[argv.index("--api-key") + 1]
    written = json.dumps(stage.project.report) + stage.project.run_files[0].read_text()
    assert "hf_very_secret" not in written
    assert key not in written
    assert stage.project.test()["backend"]["options"]["env"] == ["HF_TOKEN"]


def test_a_key_can_stand_on_a_command_line() -> None:
    """It begins with no dash, whatever is drawn."""
    assert all(new_place(None).key.isalnum() for _ in range(300))


def test_a_server_is_measured_as_of_this_machine(stage: Stage) -> None:
    """Its baselines know this machine, not a port."""
    stage.run("server", MEASURE, command=OWN).assert_outcomes(passed=1)
    environment = stage.project.test()["environment"]
    assert not environment.startswith("url")
    assert str(stage.noted("port")[0]) not in environment


def test_one_server_serves_all_tests_of_its_spec_and_is_gone_after_them(stage: Stage) -> None:
    """Two tests, one start; no process, no file is left."""
    body = (
        "@pytest.mark.parametrize('n', [1, 2])\n"
        "                def test_it(self, llm_client, n): llm_client.generate('hi')"
    )
    stage.run("server", body, command=OWN).assert_outcomes(passed=2)
    (pid,) = stage.noted("pid")
    assert not Path(f"/proc/{pid}").exists()
    assert list((stage.project.path / "tmp").glob("llmspeed-*")) == []


def test_a_test_can_reach_the_server_itself(stage: Stage) -> None:
    """The leased engine knows its address and where its metrics are."""
    body = (
        "def test_it(self, llm_backend):\n"
        "                    assert llm_backend.url.endswith('/v1')\n"
        "                    assert llm_backend.metrics_url.endswith('/metrics')"
    )
    stage.run("vllm-server", body, executable=stage.program("vllm")).assert_outcomes(passed=1)


def test_an_unknown_option_is_a_usage_error(stage: Stage) -> None:
    """Nothing is started for it."""
    result = stage.run("vllm-server", MEASURE, max_model_len=512)
    shows(result, "backend 'vllm-server' has no option 'max_model_len'; known: ")
    assert stage.noted("argv") == []


def test_a_real_engine_by_a_command_of_one_s_own(stage: Stage, tiny_model: Path) -> None:
    """`transformers serve`, started for the test: streamed, counted, and gone after it."""
    program = shlex.quote(str(Path(sys.executable).with_name("transformers")))
    command = f"{program} serve {{model}} --host {{host}} --port {{port}}"
    options = {"model": str(tiny_model), "health_path": "/health", "env": {"HF_HUB_OFFLINE": "1"}}
    body = "def test_it(self, llm_client): assert llm_client.measure('hi', max_tokens=16, rounds=5).text"
    stage.run("server", body, command=command, **options).assert_outcomes(passed=1)
    test = stage.project.test()
    assert {request["output_tokens"] for request in test["measurement"]["requests"]} == {16}
    assert test["backend"]["model"] == tiny_model.name
    assert test["backend"]["revision"] is not None
