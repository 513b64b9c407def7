"""Stands in for an engine's server: takes the arguments that the engine documents, streams answers.

`stand_in_server.py ENGINE ARGUMENTS…`; an argument that the engine does not have ends it, as there.
Its environment says what goes wrong: STAND_IN_FAULT (one of FAULTS), and where it notes what it was
given: STAND_IN_NOTES.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

SOON = 5
"""The tokens of an answer whose length is not forced."""
PROMPT = tuple(range(1, 13))
"""The tokens of every prompt; those of an answer are 100, 101, 102, …"""
FIRST = 100
LOGGED = {
    "out of memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "no cache": "ValueError: No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization`",
    "memory held": "ValueError: Free memory on device cuda:0 (1.2/79.1 GiB) on startup is less than desired "
    "GPU memory utilization (0.9, 71.2 GiB)",
    "gated": "OSError: You are trying to access a gated repo. 401 Client Error.",
    "not found": "huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. Repository Not Found",
    "offline": "huggingface_hub.errors.LocalEntryNotFoundError: outgoing traffic has been disabled",
    "not installed": "/usr/bin/python3: No module named vllm",
    "no gpu": "ValueError: No GPU devices found on the node",
    "unknown": "Traceback (most recent call last):\n\x1b[31mAssertionError: flux\x1b[0m",
}
"""Fault → what engines log before they end over it."""


def options(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name)


def flags(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        parser.add_argument(name, action="store_true")


def sglang() -> argparse.ArgumentParser:
    """As docs.sglang.io lists its server arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", choices=["sglang.launch_server"], required=True)
    parser.add_argument("--model-path", required=True)
    options(parser, "--served-model-name", "--host", "--port", "--api-key", "--revision", "--context-length")
    options(parser, "--max-running-requests", "--tensor-parallel-size", "--mem-fraction-static")
    options(parser, "--attention-backend")
    parser.add_argument("--dtype", choices=["auto", "half", "float16", "bfloat16", "float", "float32"])
    parser.add_argument("--quantization", choices=["awq", "fp8", "gptq", "bitsandbytes", "w8a8_int8"])
    parser.add_argument("--sampling-defaults", choices=["openai", "model"])
    flags(parser, "--disable-radix-cache", "--enable-cache-report", "--enable-metrics", "--trust-remote-code")
    return parser


def tensorrt_llm() -> argparse.ArgumentParser:
    """As nvidia.github.io/TensorRT-LLM lists the options of trtllm-serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model_path")
    options(parser, "--host", "--port", "--tp_size", "--max_batch_size", "--max_seq_len", "--max_num_tokens")
    parser.add_argument("--backend", choices=["pytorch", "tensorrt", "_autodeploy"])
    parser.add_argument("--extra_llm_api_options", type=Path, required=True)
    flags(parser, "--trust_remote_code")
    return parser


def vllm() -> argparse.ArgumentParser:
    """As `vllm serve --help` lists them, those that the tests give."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", choices=["vllm.entrypoints.openai.api_server"], required=True)
    options(parser, "--model", "--served-model-name", "--host", "--port", "--generation-config", "--dtype")
    options(parser, "--quantization", "--max-model-len", "--max-num-seqs", "--tensor-parallel-size")
    flags(parser, "--no-enable-prefix-caching", "--enable-prefix-caching", "--enable-prompt-tokens-details")
    return parser


def llama_server() -> argparse.ArgumentParser:
    """As llama-server's README lists them, those that the tests give."""
    parser = argparse.ArgumentParser()
    options(parser, "--model", "--alias", "--host", "--port", "--ctx-size", "--parallel", "--threads")
    flags(parser, "--metrics", "--no-context-shift")
    return parser


def plain() -> argparse.ArgumentParser:
    """A user's own server."""
    parser = argparse.ArgumentParser()
    options(parser, "--host", "--port", "--model")
    return parser


ENGINES = {
    "sglang": sglang,
    "tensorrt-llm": tensorrt_llm,
    "vllm": vllm,
    "llama-server": llama_server,
    "plain": plain,
}


class Engine:
    """What the requests are answered from."""

    def __init__(self, name: str, given: argparse.Namespace) -> None:
        self.name = name
        path = getattr(given, "model_path", None) or given.model
        self.model = getattr(given, "served_model_name", None) or getattr(given, "alias", None) or path
        self.key = getattr(given, "api_key", None) or {
            "vllm": os.environ.get("VLLM_API_KEY"),
            "llama-server": os.environ.get("LLAMA_API_KEY"),
        }.get(name)
        self.config = json.loads(given.extra_llm_api_options.read_text()) if name == "tensorrt-llm" else {}
        self.fault = os.environ.get("STAND_IN_FAULT", "")
        self._keeps_prompts = not getattr(given, "disable_radix_cache", False)
        self._seen: set[str] = set()

    def cached_tokens(self, prompt: str, tokens: int) -> int:
        """The tokens of a prompt that a prefix cache has."""
        known = prompt in self._seen
        self._seen.add(prompt)
        return tokens if known and self._keeps_prompts else 0


class Handler(BaseHTTPRequestHandler):
    """The OpenAI protocol, streamed."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        answers = {
            "/health": {},
            "/v1/models": {"data": [{"id": self.engine.model, "owned_by": self.engine.name}]},
            "/version": {"version": "9.9"},
            "/server_info": {"version": "9.9"},
            "/props": {"build_info": "b9999"},
            "/metrics": {},
        }
        known = self.path in answers and not (self.engine.name == "plain" and self.path == "/health")
        only_posted = self.path == "/tokenize" and self._scores
        self._send(200 if known else 405 if only_posted else 404, answers.get(self.path, {}))

    @property
    def _scores(self) -> bool:
        return self.engine.name == "vllm" and self.engine.fault != "no tokenizer"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        note({"body": body})
        if self.engine.key and self.headers["authorization"] != f"Bearer {self.engine.key}":
            self._send(401, {"error": {"message": "no key"}})
        elif body["model"] != self.engine.model:
            self._send(404, {"error": {"message": f"no model {body['model']}"}})
        elif self.engine.fault == "out of memory in a request":
            print(LOGGED["out of memory"], flush=True)
            self._send(500, {"error": {"message": "EngineCore encountered an issue"}})
            os._exit(1)
        elif self.path == "/tokenize":
            self._send(200, {"tokens": PROMPT, "count": len(PROMPT)})
        elif "prompt_logprobs" in body:
            self._score(body)
        else:
            self._stream(body)

    def _score(self, body: dict[str, Any]) -> None:
        """A token that follows is a thousand times as likely as any other."""
        if self.engine.fault == "few scores":
            self._send(400, {"error": {"message": f"at most 5 prompt_logprobs, not for {self.engine.key}"}})
            return
        places = [None, *map(listed, range(1, len(body["prompt"])), body["prompt"][1:])]
        self._send(200, {"choices": [{"index": 0, "text": "w", "prompt_logprobs": places}]})

    def _send(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        limit = body.get("max_tokens") or 16
        forced = body.get("ignore_eos") or body.get("min_tokens", 0) >= limit
        count = limit if forced else min(limit, SOON)
        for place in range(count):
            if self.engine.fault == "crash in a stream" and place == 2:
                print("Segmentation fault in attention kernel", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)
                time.sleep(600)
            if self.engine.fault == "hang in a stream" and place == 2:
                note({"hangs": True})
                time.sleep(600)
            choice = {"index": 0, "delta": {"content": f"w{place} "}, "finish_reason": None}
            if self.engine.name == "vllm" and body.get("return_token_ids"):
                choice["token_ids"] = [FIRST + place]
            self._chunk({"choices": [choice]})
        finish = "length" if count == limit else "stop"
        self._chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        self._chunk({"choices": [], "usage": self._usage(body, count)})
        self._write(b"data: [DONE]\n\n")
        self._write(b"")

    def _usage(self, body: dict[str, Any], count: int) -> dict[str, Any]:
        prompt = json.dumps(body.get("messages") or body.get("prompt"))
        cached = {"cached_tokens": self.engine.cached_tokens(prompt, 12)}
        return {"prompt_tokens": 12, "completion_tokens": count, "prompt_tokens_details": cached}

    def _chunk(self, chunk: dict[str, Any]) -> None:
        self._write(b"data: " + json.dumps({"object": "chat.completion.chunk", **chunk}).encode() + b"\n\n")

    def _write(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))


def listed(place: int, token: int) -> dict[str, dict[str, Any]]:
    """What vLLM lists at a place of a prompt: the token that stands there, and the two likeliest."""
    expected = FIRST + place - len(PROMPT)
    ranked = {token: 9, expected + 1: 2, expected: 1}
    logprob = {1: math.log(0.998), 2: math.log(0.001), 9: math.log(0.0001)}
    return {str(each): {"logprob": logprob[rank], "rank": rank} for each, rank in ranked.items()}


def note(what: dict[str, Any]) -> None:
    """Add a line to the notes that a test reads."""
    if path := os.environ.get("STAND_IN_NOTES"):
        with Path(path).open("a") as file:
            file.write(json.dumps(what) + "\n")


def fail_if_told(fault: str, port: int) -> None:
    """Let a start fail as engines fail."""
    if fault in LOGGED:
        print(LOGGED[fault], flush=True)
        sys.exit(1)
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "never up":
        print("loading weights: 3 %", flush=True)
        note({"pid": os.getpid(), "port": port})
        time.sleep(600)
    if fault == "port taken once" and not (marker := Path(os.environ["STAND_IN_NOTES"] + ".taken")).exists():
        marker.touch()
        print("OSError: [Errno 98] error while attempting to bind: address already in use", flush=True)
        sys.exit(1)
    if fault == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if fault in ("stubborn", "workers"):
        worker = [sys.executable, "-c", "import time; time.sleep(600)"]
        pids = [subprocess.Popen(worker, start_new_session=away).pid for away in (False, True)]
        note({"workers": pids})
    leave_files()
    leave_shared_memory()


def leave_shared_memory() -> None:
    """Leave behind what engines with processes leave: a segment that only their resource tracker removes."""
    segment = SharedMemory(create=True, size=4096)
    note({"segment": segment.name})


def leave_files() -> None:
    """Leave behind what engines leave among the temporary files: sockets, nested folders, links."""
    nested = Path(tempfile.mkdtemp())
    (nested / "cache").mkdir()
    (nested / "cache" / "kernel.so").touch()
    (nested / "link").symlink_to(nested / "cache")
    here = Path.cwd()
    os.chdir(nested)  # the whole path of a socket is limited to some hundred characters
    socket.socket(socket.AF_UNIX).bind("socket")
    os.chdir(here)


def main() -> None:
    """Serve until told to end."""
    name, *arguments = sys.argv[1:]
    given = ENGINES[name]().parse_args(arguments)
    engine = Engine(name, given)
    fail_if_told(engine.fault, int(given.port))
    Handler.engine = engine
    server = ThreadingHTTPServer((given.host, int(given.port)), Handler)
    server.daemon_threads = True
    note({"argv": arguments, "config": engine.config, "pid": os.getpid(), "port": int(given.port)})
    signal_end = threading.Thread(target=server.serve_forever, daemon=True)
    signal_end.start()
    print("serving", flush=True)
    signal_end.join()


if __name__ == "__main__":
    main()
