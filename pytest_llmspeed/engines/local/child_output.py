"""What child processes of a library print: kept in a file without a name, to tell why one died."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterable
from typing import Any, Self

READ_BYTES = 2**20
ERROR_LINE = re.compile(
    r"^.*\bERROR\b.*\] (?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Exit)\b:? ?.*)$", re.MULTILINE
)


class ChildOutput:
    """The output of processes that are started inside the `with` block, for as long as they live.

    Standard output and error of this process are given to the file meanwhile, so that its children
    inherit it; at the end of the block all that has come is passed on.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the processes)
        self._saved: list[int] = []

    def __enter__(self) -> Self:
        for stream in (1, 2):
            self._saved.append(os.dup(stream))
            os.dup2(self._file.fileno(), stream)
        return self

    def __exit__(self, *_: object) -> None:
        for stream, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, stream)
            os.close(saved)
        sys.stderr.write(self._text())

    def close(self) -> None:
        """Forget what was written."""
        self._file.close()

    def cause(self, processes: Iterable[Any] = ()) -> str | None:
        """The first error that was logged, else how a process of `processes` ended, None if none did."""
        if logged := ERROR_LINE.search(self._text()):
            return logged["error"].strip()
        codes = [process.exitcode for process in processes if process.exitcode is not None]
        return _ending(codes[0]) if codes else None

    def _text(self) -> str:
        size = os.fstat(self._file.fileno()).st_size
        start = max(0, size - READ_BYTES)
        return os.pread(self._file.fileno(), READ_BYTES, start).decode(errors="replace")


def _ending(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code}"
    name = signal.Signals(-code).name
    return f"its process was killed ({name})" + (
        ", perhaps because memory ran out" if name == "SIGKILL" else ""
    )
