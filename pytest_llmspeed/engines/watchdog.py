"""The watchdog of engine processes: a script that ends them if pytest is gone, however that ended.

Run by path, with nothing but the standard library (`python -I -S watchdog.py …`), so that it starts quickly
and depends on nothing that a test run could have bent. Its standard input is its lifeline: whatever ends the
other side closes it. It works in two ways, named by its first argument:

`server` starts a server and is its parent, so it hears of its end and adopts what leaves it. Once the
lifeline is cut, the server's process group, container and files go. Its standard output says "started PID",
"failed REASON" or "exited CODE" (of a signal: minus its number). Its arguments are four sections, each led by
the number of its words: the folder for the log and files, and the seconds of grace; names and contents of
files; the command that ends a container, if there is one; the server's command.

`children` is for processes that a library starts in pytest's own: the library is their parent and ends them,
the watchdog is a sibling that can only look. Its argument is the process whose descendants it notes until a
word comes; then it rests. When that process is gone, or asks for it, it kills what it noted, with all that
descends from it. It reads /proc: only Linux has it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import Popen

LOG = "server.log"
POLL_S = 0.3
LOOK_S = 0.02
KILL_S = 10.0
TIDY_S = 3.0
"""The longest that cleaning up after killed processes may take."""
TRACKER = b"multiprocessing.resource_tracker"
"""It removes the shared memory that killed processes leave, and ends by itself."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
RESET = (*ENDING, signal.SIGCHLD, signal.SIGPIPE)
PR_SET_CHILD_SUBREAPER = 36
SETTLED, DONE, KILL = b"settled\n", b"done\n", b"kill\n"
"""What the other side says of its children: a word each, since the end of the pipe may never come."""


def started_watchdog(way: str, *words: str, env: Mapping[str, str] | None = None) -> Popen[bytes]:
    """Start this script: the other side's half of both ways."""
    from subprocess import DEVNULL, PIPE, Popen

    return Popen(
        [sys.executable, "-I", "-S", __file__, way, *words],
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=env,
        # a group of its own, so that Ctrl-C in a terminal does not reach it; but our session: one of its
        # own would be a scheduling group of its own, starved on a core that an engine keeps busy
        process_group=0,
    )


def main(way: str, *words: str) -> bool:
    """Watch until the other side is gone; return whether everything that was watched is gone then."""
    if way == "children":
        watch_children(int(words[0]))
        return True
    return keep_server(list(words))


def keep_server(words: list[str]) -> bool:
    """Start the server and stay until the lifeline is cut; return whether all of it is gone then."""
    (folder, grace_s), files, end, command = sections(words)
    parent, signals = os.getppid(), listen_to_signals()
    adopt_orphans()
    log = write_files(folder, files)
    server = watch_server(start(command, log), parent, signals)
    gone = server is None or end_group(server, float(grace_s))
    gone = end_strays() and gone
    if end:
        run_to_its_end(end)
    remove(folder)
    return gone


def sections(words: list[str]) -> list[list[str]]:
    """The arguments, cut into their sections."""
    found = []
    while words:
        count = int(words[0])
        found.append(words[1 : 1 + count])
        words = words[1 + count :]
    return found


def listen_to_signals() -> int:
    """Return a descriptor on which the numbers of signals arrive."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*ENDING, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reading


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents die (Linux), so that none is lost sight of."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def write_files(folder: str, files: list[str]) -> int:
    """Make the folder with its files; return the descriptor of the log."""
    os.mkdir(folder, 0o700)
    for name, content in zip(files[::2], files[1::2], strict=True):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(content)
    return os.open(os.path.join(folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def start(command: list[str], log: int) -> int | None:
    """Start the server in a process group of its own; return its process id, None if that failed."""
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
    ]
    try:
        server = os.posix_spawnp(
            command[0], command, os.environ, file_actions=streams, setpgroup=0, setsigdef=RESET
        )
    except OSError as error:
        say(f"failed {error.strerror}")
        return None
    say(f"started {server}")
    return server


def say(line: str) -> None:
    """Tell the other side something, if it is still there."""
    with contextlib.suppress(OSError):
        os.write(1, f"{line}\n".encode())


def watch_server(server: int | None, parent: int, signals: int) -> int | None:
    """Return once the lifeline is cut: the server if it still runs; tell when it ends by itself.

    The lifeline can be held open by a process that the other side forked, so its end is also seen
    by the change of our parent.
    """
    while os.getppid() == parent:
        readable, _, _ = select.select([0, signals], [], [], POLL_S)
        if 0 in readable or (signals in readable and set(os.read(signals, 64)) & set(ENDING)):
            break
        status = reap(server)
        if server is not None and status is not None:
            say(f"exited {os.waitstatus_to_exitcode(status)}")
            end_group(server, grace_s=0)
            server = None  # its number may go to another process
    return server


def reap(server: int | None) -> int | None:
    """Take note of all children that have ended; return the status of the server if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == server:
            found = status


def end_group(group: int, grace_s: float) -> bool:
    """End a process group, asked first, forced after the grace; return whether it is gone."""
    reached(group, signal.SIGTERM)
    return is_gone(group, grace_s) or is_gone(group, TIDY_S, kill_sparing) or is_gone(group, KILL_S, kill)


def is_gone(group: int, patience_s: float, end: Callable[[int], None] | None = None) -> bool:
    """Return whether a group ends in time, by `end` again and again: it may start processes meanwhile."""
    deadline = time.monotonic() + patience_s
    while (left := reached(group, 0)) and time.monotonic() < deadline:
        if end:
            end(group)
        time.sleep(LOOK_S)
        reap(None)
    return not left


def kill_sparing(group: int) -> None:
    """Kill a group but for those that tidy up after the others, and then end by themselves."""
    members = [pid for pid, (_, own_group, _) in processes().items() if own_group == group]
    if not members:
        kill(group)
    kill_each([pid for pid in members if not tidies_up(pid)])


def kill(group: int) -> None:
    """Kill a group."""
    reached(group, signal.SIGKILL)


def kill_each(pids: list[int]) -> None:
    """Kill processes, those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def reached(group: int, number: int) -> bool:
    """Send a signal to a group (0: none, only look); return whether anything of it is left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # on macOS this is a group of nothing but zombies that are not ours to reap
    return True


def end_strays() -> bool:
    """End descendants that left the group: they have become our children; return whether they are gone."""
    begun = time.monotonic()
    while time.monotonic() < begun + KILL_S and (strays := children()):
        sparing = time.monotonic() < begun + TIDY_S
        kill_each([pid for pid in strays if not (sparing and tidies_up(pid))])
        time.sleep(LOOK_S)
        reap(None)
    return not children()


def children() -> list[int]:
    """The processes whose parent this one is."""
    return [pid for pid, (parent, _, _) in processes().items() if parent == os.getpid()]


def run_to_its_end(command: list[str]) -> None:
    """Run a command, its output left aside."""
    streams = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
    with contextlib.suppress(OSError):
        pid = os.posix_spawnp(command[0], command, os.environ, file_actions=streams, setsigdef=RESET)
        os.waitpid(pid, 0)


def remove(folder: str) -> None:
    """Remove the folder with all that the server left in it."""
    for path, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(path, name))
        for name in folders:
            inner = os.path.join(path, name)
            os.unlink(inner) if os.path.islink(inner) else os.rmdir(inner)
    os.rmdir(folder)


def watch_children(parent: int) -> None:
    """Note the descendants of `parent` until it says that all are there, and end them if it dies."""
    before = descendants(parent)
    noted: set[tuple[int, str]] = set()
    say("looked")
    while (word := heard(parent)) is None:
        noted |= descendants(parent) - before
    if word == SETTLED:
        noted |= descendants(parent) - before
        say("looked")
        while (word := heard(parent)) is None:
            pass
    if word != DONE:
        kill_noted(noted)


def heard(parent: int) -> bytes | None:
    """A word of the parent, None if it said nothing for a while, an empty one when it is gone.

    What was forked from it may hold its end of the pipe open: that it is gone is also seen by the
    change of our parent. Nothing is buffered: a second word has to be seen by `select`.
    """
    if select.select([0], [], [], POLL_S)[0]:
        with open(0, "rb", buffering=0, closefd=False) as words:
            return words.readline()
    return None if os.getppid() == parent else b""


def kill_noted(noted: set[tuple[int, str]]) -> None:
    """Kill the processes noted that are still the same, and all that descends from them."""
    now = processes()
    alive = [pid for pid, started in noted if pid in now and now[pid][2] == started]
    below = [pid for root in alive for pid, _ in descendants(root)]
    kill_each([pid for pid in {*alive, *below} if not tidies_up(pid)])


def descendants(root: int) -> set[tuple[int, str]]:
    """Return all descendants of a process but this one, each with its start, since numbers are reused."""
    now, found, waiting = processes(), set[tuple[int, str]](), [root]
    while waiting:
        parents = waiting
        waiting = [pid for pid, (parent, _, _) in now.items() if parent in parents and pid != os.getpid()]
        found |= {(pid, now[pid][2]) for pid in waiting}
    return found


def processes() -> dict[int, tuple[int, int, str]]:
    """The parent, the group and the start of each process; nothing if there is no /proc."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        with contextlib.suppress(OSError):
            if name.isdigit():
                stat = read(name, "stat").rpartition(b")")[2].split()
                found[int(name)] = (int(stat[1]), int(stat[2]), stat[19].decode())
    return found


def tidies_up(pid: int) -> bool:
    """True for what removes the shared memory that a killed process leaves."""
    with contextlib.suppress(OSError):
        return TRACKER in read(str(pid), "cmdline")
    return False


def read(pid: str, name: str) -> bytes:
    """A file of /proc."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
