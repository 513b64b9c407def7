"""One server as a child process: started under its watchdog, watched, and gone after `stop`."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

from pytest_llmspeed.engines import watchdog
from pytest_llmspeed.engines.servers.launch import HOST, Launch, LaunchPlace
from pytest_llmspeed.engines.servers.log_diagnosis import Symptom, symptom
from pytest_llmspeed.errors import EngineError, hides_our_frames
from pytest_llmspeed.system import clock
from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.text.secret import Secret, masked, names_a_secret, secret_values

__tracebackhide__ = hides_our_frames

GRACE_S = 5.0
"""How long a server may take to exit when asked before it is killed."""
WATCHDOG_S = 60.0
"""How long the watchdog may take to start, and to end the server beyond that grace."""
LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
SHOWN_LINES, SHOWN_CHARACTERS = 15, 300
READ_BYTES = 2**18
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class StartError(EngineError):
    """A server that did not come up; `symptom` is what its log shows, if it shows anything known."""

    def __init__(self, message: str, shown: Symptom | None) -> None:
        super().__init__(message)
        self.symptom = shown


def new_place(port: int | None) -> LaunchPlace:
    """Return where a server can be started: a free port unless one is given, a random key, a new folder.

    Raises `EngineError` if the given port is taken.
    """
    unique = f"llmspeed-{uuid.uuid4().hex[:8]}"  # short: engines put sockets into the folder
    folder = Path(tempfile.gettempdir()) / unique
    key = Secret(token_hex(24))  # with other characters it may begin with a dash, and pass for an option
    return LaunchPlace(_free_port(port), key, str(folder), unique)


def _free_port(port: int | None) -> int:
    try:
        with socket.create_server((HOST, port or 0)) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise EngineError(
            f"port {port} is not available ({os.strerror(error.errno or 0)}): omit port= to pick a free one, "
            "or end the process that listens there"
        ) from error


class ServerProcess:
    """A running server under its watchdog. Its temporary files are in the folder that goes with it."""

    def __init__(self, launch: Launch) -> None:
        """Start it; raises `EngineError` if its program cannot be run."""
        env = {"PYTHONUNBUFFERED": "1", **os.environ, "TMPDIR": launch.place.folder, **launch.env}
        check_program(launch)
        self._launch = launch
        self._log = Path(launch.place.folder, watchdog.LOG)
        self._heard = b""
        self._pid: int | None = None
        self._watchdog = watchdog.started_watchdog("server", *_sections(launch), env=env)
        assert self._watchdog.stdout is not None
        os.set_blocking(self._watchdog.stdout.fileno(), False)
        try:
            self._pid = self._started()
        except BaseException:
            self.stop()
            raise

    def _started(self) -> int:
        """The process id of the server, once its watchdog tells it."""
        deadline = time.monotonic() + WATCHDOG_S
        while b"\n" not in self._heard and time.monotonic() < deadline and self._watchdog.poll() is None:
            self._listen(LOOK_S)
        word, _, rest = self._heard.partition(b"\n")[0].decode().partition(" ")
        if word != "started":
            program, reason = self._launch.command[0], rest or "its watchdog did not start"
            raise EngineError(f"{self._launch.name}: {program!r} cannot be run: {reason}")
        return int(rest)

    def _listen(self, wait_s: float) -> None:
        """Take in what the watchdog says."""
        stdout = self._watchdog.stdout
        if stdout is not None and not stdout.closed and _readable(stdout, wait_s):
            with suppress(BlockingIOError):  # another thread was quicker
                self._heard += os.read(stdout.fileno(), 4096)

    @property
    def root_process(self) -> int | None:
        """The process that the server's processes descend from; None where they run in a container."""
        return None if self._launch.end else self._watchdog.pid

    @property
    def alive(self) -> bool:
        """True while the server runs."""
        return self.exit_code is None and self._watchdog.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The server's exit code, negative for a signal; None while it runs, or if we stopped it."""
        self._listen(0)
        found = re.search(rb"^exited (-?\d+)$", self._heard, re.MULTILINE)
        return int(found[1]) if found else None

    @property
    def log_bytes(self) -> int:
        """The number of bytes the server has logged."""
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def log(self, since: int = 0) -> str:
        """Return the end of what the server logged after `since` bytes, without secrets and colours."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(since, self.log_bytes - READ_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        inherited = {name: value for name, value in os.environ.items() if names_a_secret(name)}
        return masked(COLOUR.sub("", text), (*self._launch.secrets, *secret_values(inherited)))

    def wait_until_up(self, is_up: Callable[[], bool], deadline_s: float, limit_s: float) -> None:
        """Return once the server answers; raises `StartError` if it ends first, or not by the deadline.

        `limit_s` is how long its whole start may take. A command that leaves its server behind and
        ends could not be watched.
        """
        wait_s = LOOK_S
        while not is_up():
            if not self.alive:
                raise StartError(*self.explained(self._early_end))
            if clock.now_s() > deadline_s:
                late = f"did not answer within {limit_s:g} s: allow more time with start_timeout_s="
                raise StartError(*self.explained(late))
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.2, LONGEST_LOOK_S)
        if not self.alive:
            raise StartError(*self.explained(self._early_end))

    @property
    def _early_end(self) -> str:
        stay = ": it must stay in the foreground so that it can be watched and ended"
        return f"exited while starting, {self.ending}{stay if self.exit_code == 0 else ''}"

    @property
    def ending(self) -> str:
        """The server's end in words."""
        code = self.exit_code
        if code is None:
            return "as did its watchdog"
        return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"

    def explained(self, what: str) -> tuple[str, Symptom | None]:
        """Return what happened to the server, with the fix where its log shows one, and the end of that."""
        log = self.log()
        shown = symptom(log, self.exit_code)
        fix = f": {shown.sentence}".replace("{install}", self._launch.install) if shown else ""
        told = [line for line in log.splitlines() if self._tells(line)][-SHOWN_LINES:]
        lines = [f"  {harmless(line, SHOWN_CHARACTERS)}" for line in told]
        end = ["the end of its log:", *lines] if lines else ["its log is empty"]
        return "\n".join([f"{self._launch.name} {what}{fix}", *end]), shown

    def _tells(self, line: str) -> bool:
        """False for a line of the log without a word, and for the trace of our asking whether it is up."""
        return bool(line.strip(" ^~")) and f"GET {self._launch.health}" not in line

    def stop(self) -> None:
        """End the server with all its processes, and remove its files; stopping twice is fine.

        Raises `EngineError` if something of it could not be killed.
        """
        assert self._watchdog.stdin is not None
        assert self._watchdog.stdout is not None
        with suppress(OSError, ValueError):  # a word besides: a process forked from this one may hold it open
            os.write(self._watchdog.stdin.fileno(), b".")
        self._watchdog.stdin.close()
        self._watchdog.stdout.close()
        try:
            code = self._watchdog.wait(GRACE_S + WATCHDOG_S)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
            code = self._watchdog.wait()
        if code != 0:
            self._stop_without_watchdog()

    def _stop_without_watchdog(self) -> None:
        """Do what the watchdog could not: it was killed itself, or hangs."""
        if self._launch.end:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(self._launch.end, check=False, capture_output=True, timeout=WATCHDOG_S)
        shutil.rmtree(self._launch.place.folder, ignore_errors=True)
        if self._pid is None:
            return
        if self._is_gone_after(watchdog.kill_sparing) or self._is_gone_after(watchdog.kill):
            return
        raise EngineError(f"{self._launch.name}: the processes of group {self._pid} could not be killed")

    def _is_gone_after(self, end: Callable[[int], None]) -> bool:
        """End the server's group in this way; return whether nothing of it is left after a while."""
        assert self._pid is not None
        end(self._pid)
        deadline = time.monotonic() + GRACE_S
        while (left := watchdog.reached(self._pid, 0)) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return not left


def _readable(pipe: IO[bytes], wait_s: float) -> bool:
    """True once there is something to read; `select` would refuse descriptors above 1023."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def check_program(launch: Launch) -> None:
    """Raise `EngineError` if there is no such program, on the PATH that the server gets."""
    path = launch.env.get("PATH", os.environ.get("PATH"))
    if shutil.which(launch.command[0], path=path) is None:
        raise EngineError(f"{launch.name}: there is no program {launch.command[0]!r}: {launch.install}")


def _sections(launch: Launch) -> list[str]:
    """The arguments of the watchdog."""
    files = [word for name_and_content in launch.files.items() for word in name_and_content]
    sections = ([launch.place.folder, str(GRACE_S)], files, launch.end, launch.command)
    return [word for section in sections for word in (str(len(section)), *section)]
