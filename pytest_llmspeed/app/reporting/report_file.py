"""The JSON report as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_llmspeed.core.errors import StoreError


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write the report, its folder created where missing; raises `StoreError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"the report cannot be written to {path}: {error.strerror or error}") from error
