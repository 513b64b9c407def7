"""What the pool does around the start of an engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.scripted_engine import ScriptedEngine

from pytest_llmspeed import EngineSpec
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import Registry

LIBRARY = """
import logging
import warnings

log = logging.getLogger("chatty")
log.propagate = False
log.handlers = [logging.StreamHandler()]
log.warning("an enum of ours is deprecated")
log.error("no kernel fits this device")
warnings.warn("an argument of ours is deprecated", DeprecationWarning, stacklevel=1)
"""


class ChattyEngine(ScriptedEngine):
    """An engine whose library has something to say when it is imported."""

    library: ClassVar[str]

    @classmethod
    def libraries(cls, spec: EngineSpec) -> tuple[str, ...]:
        return (cls.library,)


def lease(folder: Path, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(ChattyEngine, "library", library, raising=False)
    pool = Pool(Registry({"chatty": f"{__name__}:ChattyEngine"}))
    pool.lease(EngineSpec.of("chatty", None, None, {}))
    pool.close()


@pytest.mark.filterwarnings("error")
def test_only_errors_of_a_librarys_import_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Warnings about the library itself would stand above the line that says why a test failed."""
    (tmp_path / "chatty_library.py").write_text(LIBRARY)
    lease(tmp_path, monkeypatch, "chatty_library")
    assert capsys.readouterr().err == "no kernel fits this device\n"


def test_what_is_logged_after_the_import_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if the import failed, and with the level that was disabled before."""
    (tmp_path / "broken_library.py").write_text("raise ImportError('no triton')")
    with caplog.at_level(logging.INFO):
        lease(tmp_path, monkeypatch, "broken_library")
        logging.getLogger("chatty.later").info("loaded")
    assert caplog.messages == ["loaded"]
    assert logging.root.manager.disable == logging.NOTSET
