"""What a server's log says of why it failed → one sentence with the fix."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

SMALLER = (
    "reduce its memory: a smaller context_length=, fewer sequences (max_concurrency=) or a quantised model"
)


@dataclass(frozen=True, slots=True)
class Symptom:
    """A kind of failure: the pattern that its log shows, and what to say (`{install}`: how to install it)."""

    name: str
    pattern: str
    sentence: str


SYMPTOMS = (
    Symptom(
        "memory held",
        r"Free memory on device.* less than desired GPU memory utilization"
        r"|memory is already (?:used|allocated) by another process",
        "too little GPU memory is free: another process uses it, perhaps one left over from an "
        "earlier run (nvidia-smi shows which); end that, or lower memory_fraction=",
    ),
    Symptom(
        "out of memory",
        r"(?i:out of memory|OutOfMemoryError|std::bad_alloc|MemoryError|cannot allocate memory|OOM.?kill)"
        r"|No available memory for the cache blocks"
        r"|KV cache is needed, which is larger than"
        r"|Not enough memory\. Please try to increase"
        r"|failed to allocate (?:buffer|compute|\S+ buffer)"
        r"|failed to create context with model",
        f"out of memory: {SMALLER}; or change memory_fraction= (lower it if the device ran out, "
        "raise it if the cache did not fit)",
    ),
    Symptom(
        "port taken",
        r"(?i:address already in use|failed to bind socket|couldn't bind|error binding"
        r"|port is already allocated)",
        "another process listens on its port: omit port= to pick a free one, or end that process",
    ),
    Symptom(
        "gated",
        r"(?i:gated repo|GatedRepoError|access to model .* is restricted|401 client error|403 client error"
        r"|Invalid user token|you need to (?:have access|be authenticated))",
        "the model is gated, or your token has no access to it: accept its licence and set HF_TOKEN",
    ),
    Symptom(
        "offline",
        r"(?i:LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"
        r"|couldn't connect to|cannot reach https|name resolution|name or service not known"
        r"|max retries exceeded)",
        "the hub cannot be reached and the model is not in the cache: download it beforehand, or give "
        "its folder",
    ),
    Symptom(
        "model not found",
        r"(?i:RepositoryNotFoundError|404 client error|not a valid (?:model identifier|repository id)"
        r"|is not a local folder|model path does not exist|failed to load model|failed to open \S+\.gguf"
        r"|unrecognized model in|no such file or directory: '\S+/config\.json'"
        r"|does not appear to have (?:a file|files) named)",
        "the model was not found, or this engine cannot load it: check model=",
    ),
    Symptom(
        "context too long",
        r"User-specified \w+ \(\d+\) is greater than the derived",
        "the context is longer than the model supports: lower context_length=",
    ),
    Symptom(
        "not installed",
        r"No module named|ModuleNotFoundError|error while loading shared libraries",
        "the engine, or a library of it, is not installed where it was started: {install}",
    ),
    Symptom(
        "unknown argument",
        r"(?i:unrecognized arguments?|no such option|unknown argument|invalid argument: -|invalid choice)",
        "this version of the engine does not recognise an argument: check extra_args= and the mark's options",
    ),
    Symptom(
        "no device",
        r"(?i:no GPU devices found|no CUDA GPUs are available|CUDA driver version is insufficient"
        r"|failed to infer device type|Found no NVIDIA driver)",
        "it found no usable GPU: check the driver and CUDA_VISIBLE_DEVICES",
    ),
)
KILLED = Symptom(
    "out of memory",
    "",
    f"it was killed (SIGKILL), most likely because the machine ran out of memory: {SMALLER}",
)


def symptom(log: str, exit_code: int | None) -> Symptom | None:
    """Return the first symptom that a log shows, None if it shows none; the code of a signal is negative."""
    found = next((each for each in SYMPTOMS if re.search(each.pattern, log)), None)
    if found is None and exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return KILLED
    return found
