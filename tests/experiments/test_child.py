"""A command in a process of its own: its end, its output, and that nothing of it is left."""

import os
import sys
import time

import pytest

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments.child import Child, run

ENV = dict(os.environ)


def python(code):
    return [sys.executable, "-c", code]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid, patience_s=30):
    deadline = time.monotonic() + patience_s
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def waited_for(path, patience_s=30):
    deadline = time.monotonic() + patience_s
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.read_text()


def test_it_runs_in_its_folder_and_tells_its_end_and_its_output(tmp_path):
    """Exit code and both streams."""
    code = "import os, sys; print(os.getcwd()); print('wrong', file=sys.stderr); sys.exit(3)"
    ended = run(python(code), tmp_path, ENV)
    assert ended.code == 3
    assert ended.output.splitlines() == [str(tmp_path), "wrong"]
    assert ended.last_lines == f"  {tmp_path}\n  wrong"


def test_a_signal_is_a_negative_exit_code(tmp_path):
    """As of subprocess."""
    assert run(python("import os; os.kill(os.getpid(), 9)"), tmp_path, ENV).code == -9


def test_a_command_that_does_not_exist_is_an_error_of_the_shell(tmp_path):
    """127, with its name in the output."""
    ended = run(["no-such-program"], tmp_path, ENV)
    assert ended.code == 127
    assert "no-such-program" in ended.output


def test_a_command_that_takes_too_long_is_ended(tmp_path):
    """With all that it started."""
    with pytest.raises(LLMSpeedError, match="did not end within 0 s"):
        run(python("import time; time.sleep(600)"), tmp_path, ENV, limit_s=0.3)


def test_it_is_interrupted_before_it_is_killed(tmp_path):
    """So that pytest can end its fixtures."""
    note = tmp_path / "note"
    started = tmp_path / "started"
    code = (
        "import pathlib, time\n"
        "try:\n"
        f"    pathlib.Path({str(started)!r}).write_text('1')\n"
        "    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        f"    pathlib.Path({str(note)!r}).write_text('interrupted')\n"
    )
    child = Child(python(code), tmp_path, ENV)
    assert child.poll() is None
    waited_for(started)
    child.stop()
    assert note.read_text() == "interrupted"


def test_what_it_started_ends_with_it(tmp_path):
    """Also what would ignore an interruption."""
    number = tmp_path / "number"
    grandchild = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    code = (
        "import pathlib, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {grandchild!r}])\n"
        f"pathlib.Path({str(number)!r}).write_text(str(child.pid))\n"
        "child.wait()\n"
    )
    child = Child(python(code), tmp_path, ENV)
    child.poll()
    pid = int(waited_for(number))
    child.stop()
    assert gone(pid)
