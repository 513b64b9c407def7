"""The layout as data: which room lies on which floor, what it may import, and what a start loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pytest_llmspeed"
NAME = PACKAGE.name

# floor → room → the rooms of its own floor that it may import
FLOORS: list[dict[str, set[str]]] = [
    {
        "core.errors": set(),
        "core.foreign_text": set(),
        "core.secret": set(),
        "core.exchange": {"core.foreign_text"},
        "core.token_counts": {"core.exchange"},
        "core.metrics": {"core.exchange", "core.token_counts"},
        "core.summaries": {"core.errors"},
        "core.load_result": {"core.metrics", "core.summaries"},
        "core.load_advice": set(),
        "core.load_figures": {"core.load_advice", "core.load_result", "core.metrics"},
        "core.load_record": {"core.load_figures", "core.load_result", "core.metrics", "core.sample_record"},
        "core.load_plan": {"core.exchange", "core.workloads"},
        "core.measurement": {"core.curves", "core.load_result", "core.metrics", "core.summaries"},
        "core.stats": set(),
        "core.arrivals": {"core.errors"},
        "core.synthetic": {"core.errors"},
        "core.file_rows": {"core.errors"},
        "core.workloads": {"core.errors", "core.exchange", "core.synthetic"},
        "core.traces": {"core.errors", "core.synthetic", "core.workloads"},
        "core.workload_shapes": {"core.exchange", "core.file_rows", "core.workloads"},
        "core.trace_shapes": {"core.errors", "core.file_rows", "core.traces", "core.workload_shapes"},
        "core.verdicts": {"core.metrics"},
        "core.budgets": {
            "core.environment",
            "core.errors",
            "core.exchange",
            "core.load_advice",
            "core.load_figures",
            "core.measurement",
            "core.metrics",
            "core.stats",
            "core.summaries",
            "core.token_counts",
            "core.verdicts",
        },
        "core.curves": {"core.errors", "core.load_result"},
        "core.curve_points": {"core.budgets", "core.curves", "core.load_result", "core.measurement"},
        "core.decision": {"core.advice", "core.stats", "core.verdicts"},
        "core.pairs": {"core.decision", "core.stats", "core.verdicts"},
        "core.suite": {"core.decision", "core.stats", "core.verdicts"},
        "core.environment": set(),
        "core.columns": set(),
        "core.sample_record": {"core.columns", "core.metrics"},
        "core.run_shape": {"core.metrics", "core.verdicts"},
        "core.store_advice": {"core.advice"},
        "core.measurement_record": {
            "core.curves",
            "core.load_record",
            "core.load_result",
            "core.measurement",
            "core.sample_record",
        },
        "core.record": {
            "core.exchange",
            "core.foreign_text",
            "core.load_record",
            "core.measurement",
            "core.measurement_record",
            "core.quality.findings",
            "core.sample_record",
            "core.verdicts",
        },
        "core.declared": set(),
        "core.baselines": {
            "core.columns",
            "core.decision",
            "core.declared",
            "core.environment",
            "core.metrics",
            "core.verdicts",
        },
        "core.advice": {"core.verdicts"},
        "core.busy_advice": {"core.foreign_text", "core.verdicts"},
        "core.folded_advice": {"core.advice", "core.busy_advice", "core.verdicts"},
        "core.side_by_side": {"core.advice", "core.measurement", "core.record"},
        "core.stored_tests": {"core.baselines", "core.decision", "core.declared", "core.environment"},
        "core.calibration": {"core.decision", "core.stats", "core.verdicts"},
        "core.quality.rows": {"core.errors"},
        "core.quality.patterns": set(),
        "core.quality.schemas": {"core.quality.patterns"},
        "core.quality.fenced_json": set(),
        "core.quality.numbers": set(),
        "core.quality.choices": set(),
        "core.quality.contracts": {
            "core.quality.choices",
            "core.quality.fenced_json",
            "core.quality.numbers",
            "core.quality.patterns",
            "core.quality.schemas",
        },
        "core.quality.prompts": {
            "core.errors",
            "core.exchange",
            "core.quality.contracts",
            "core.quality.patterns",
            "core.quality.rows",
            "core.quality.schemas",
        },
        "core.quality.scores": set(),
        "core.quality.paired": {"core.stats"},
        "core.quality.answers": {"core.quality.prompts", "core.quality.scores"},
        "core.quality.thresholds": {"core.quality.answers"},
        "core.quality.snapshot": {"core.quality.answers", "core.quality.scores"},
        "core.quality.findings": set(),
        "core.quality.sentences": {
            "core.advice",
            "core.quality.answers",
            "core.quality.findings",
            "core.quality.paired",
            "core.quality.scores",
        },
        "core.quality.ladder": {
            "core.quality.answers",
            "core.quality.findings",
            "core.quality.paired",
            "core.quality.scores",
            "core.quality.sentences",
            "core.quality.snapshot",
            "core.quality.thresholds",
        },
    },
    {
        "edges.clock": set(),
        "edges.project_ini": set(),
        "edges.machine": set(),
        "edges.loop": set(),
        "edges.lock": {"edges.processes"},
        "edges.workload_files": set(),
        "edges.prompt_files": set(),
        "edges.processes": set(),
        "edges.telemetry.cpu": {"edges.clock", "edges.processes"},
        "edges.store.folder": {"edges.store.renames", "edges.store.run_file"},
        "edges.store.renames": {"edges.store.run_file"},
        "edges.telemetry.memory": {"edges.processes"},
        "edges.store.run_file": set(),
        "edges.wire.sse": set(),
        "edges.wire.stamps": {"edges.clock"},
        "edges.wire.limits": set(),
        "edges.wire.framing": {"edges.wire.limits"},
        "edges.wire.tls": set(),
        "edges.wire.address": {"edges.wire.tls"},
        "edges.wire.http": {
            "edges.clock",
            "edges.wire.address",
            "edges.wire.framing",
            "edges.wire.stamps",
            "edges.wire.tls",
        },
        "edges.wire.get": {
            "edges.clock",
            "edges.wire.address",
            "edges.wire.framing",
            "edges.wire.http",
        },
        "edges.wire.usage": set(),
        "edges.wire.output": set(),
        "edges.wire.protocol": {"edges.wire.output", "edges.wire.sse", "edges.wire.usage"},
        "edges.wire.dialects": set(),
        "edges.wire.answer": {
            "edges.wire.framing",
            "edges.wire.limits",
            "edges.wire.protocol",
            "edges.wire.sse",
        },
        "edges.wire.stream": {
            "edges.clock",
            "edges.wire.answer",
            "edges.wire.framing",
            "edges.wire.http",
            "edges.wire.protocol",
        },
        "edges.wire.target": {"edges.wire.address", "edges.wire.dialects"},
        "edges.wire.pace": set(),
        "edges.wire.kept": {"edges.wire.answer", "edges.wire.framing"},
        "edges.wire.keeping": {
            "edges.clock",
            "edges.wire.framing",
            "edges.wire.http",
            "edges.wire.kept",
            "edges.wire.limits",
            "edges.wire.pace",
            "edges.wire.protocol",
            "edges.wire.stamps",
            "edges.wire.stream",
            "edges.wire.target",
        },
        "edges.wire.calls": set(),
        "edges.wire.labels": set(),
        "edges.wire.asked": {"edges.wire.calls"},
        "edges.wire.usage_chunk": set(),
        "edges.wire.responses": {"edges.wire.output", "edges.wire.protocol", "edges.wire.usage"},
        "edges.wire.written": set(),
        "edges.wire.tap": {
            "edges.clock",
            "edges.wire.answer",
            "edges.wire.asked",
            "edges.wire.calls",
            "edges.wire.framing",
            "edges.wire.http",
            "edges.wire.target",
            "edges.wire.protocol",
            "edges.wire.responses",
            "edges.wire.stamps",
            "edges.wire.usage_chunk",
        },
        "edges.wire.in_process": {
            "edges.clock",
            "edges.engines.base",
            "edges.wire.asked",
            "edges.wire.calls",
            "edges.wire.written",
        },
        "edges.wire.sdk": {
            "edges.loop",
            "edges.wire.calls",
            "edges.wire.framing",
            "edges.wire.labels",
            "edges.wire.tap",
            "edges.wire.written",
        },
        "edges.engines.base": {"edges.wire.target"},
        "edges.engines.registry": {"edges.engines.base", "edges.wire.address"},
        "edges.engines.pool": {
            "edges.clock",
            "edges.engines.base",
            "edges.engines.registry",
            "edges.loop",
            "edges.telemetry.memory",
        },
        "edges.engines.gguf": {"edges.engines.base"},
        "edges.engines.model_files": {"edges.engines.gguf"},
        "edges.engines.tokens": set(),
        "edges.engines.precision": {"edges.engines.base"},
        "edges.engines.answering": {"edges.clock"},
        "edges.engines.generation": {"edges.engines.answering"},
        "edges.engines.scoring": {"edges.engines.generation"},
        "edges.engines._transformers": {
            "edges.engines.answering",
            "edges.clock",
            "edges.engines.base",
            "edges.engines.generation",
            "edges.engines.model_files",
            "edges.engines.precision",
            "edges.engines.scoring",
        },
        "edges.engines._tiny": {"edges.engines.base", "edges.engines._transformers"},
        "edges.engines.child_output": set(),
        "edges.engines.orphan_guard": set(),
        "edges.engines.vllm_answer": set(),
        "edges.engines.vllm_arguments": {"edges.engines.base"},
        "edges.engines._vllm": {
            "edges.clock",
            "edges.engines.answering",
            "edges.engines.base",
            "edges.engines.child_output",
            "edges.engines.model_files",
            "edges.engines.orphan_guard",
            "edges.engines.vllm_answer",
            "edges.engines.vllm_arguments",
        },
        "edges.engines.llama_scoring": set(),
        "edges.engines.llama_model": {"edges.engines.answering", "edges.engines.llama_scoring"},
        "edges.engines._llama_cpp": {
            "edges.clock",
            "edges.machine",
            "edges.engines.answering",
            "edges.engines.base",
            "edges.engines.gguf",
            "edges.engines.llama_model",
            "edges.engines.model_files",
        },
        "edges.engines.server_scoring": {
            "edges.engines.vllm_answer",
            "edges.wire.framing",
            "edges.wire.get",
            "edges.wire.http",
            "edges.wire.target",
            "edges.wire.protocol",
        },
        "edges.engines.server_address": {
            "edges.clock",
            "edges.wire.address",
            "edges.wire.framing",
            "edges.wire.get",
            "edges.wire.tls",
        },
        "edges.engines._openai": {
            "edges.engines.base",
            "edges.engines.server_address",
            "edges.engines.server_scoring",
            "edges.engines.tokens",
            "edges.wire.address",
            "edges.wire.dialects",
            "edges.wire.http",
            "edges.wire.target",
            "edges.wire.stream",
        },
        "edges.engines.guard": set(),
        "edges.engines.recipes": {"edges.engines.gguf", "edges.wire.dialects"},
        "edges.engines.symptoms": set(),
        "edges.engines.launch": {
            "edges.engines.base",
            "edges.engines.gguf",
            "edges.engines.model_files",
            "edges.engines.recipes",
            "edges.engines.server_address",
            "edges.wire.dialects",
        },
        "edges.engines.own_server": {"edges.engines.launch", "edges.engines.recipes"},
        "edges.engines.supervisor": {
            "edges.clock",
            "edges.engines.guard",
            "edges.engines.launch",
            "edges.engines.symptoms",
        },
        "edges.engines.server_facts": {
            "edges.clock",
            "edges.engines.model_files",
            "edges.engines.recipes",
            "edges.engines.server_address",
            "edges.wire.address",
            "edges.wire.framing",
            "edges.wire.get",
        },
        "edges.engines.server_tokens": {
            "edges.engines.tokens",
            "edges.wire.address",
            "edges.wire.http",
        },
        "edges.engines._server": {
            "edges.clock",
            "edges.machine",
            "edges.engines._openai",
            "edges.engines.base",
            "edges.engines.gguf",
            "edges.engines.launch",
            "edges.engines.own_server",
            "edges.engines.recipes",
            "edges.engines.server_address",
            "edges.engines.server_facts",
            "edges.engines.server_tokens",
            "edges.engines.supervisor",
            "edges.engines.symptoms",
            "edges.engines.tokens",
            "edges.wire.address",
            "edges.wire.dialects",
            "edges.wire.target",
        },
    },
    {
        "measuring.recorder": set(),
        "measuring.rounds": {"measuring.recorder"},
        "measuring.load_runner": set(),
        "measuring.load_selector": set(),
        "measuring.load_worker": {"measuring.load_runner", "measuring.load_selector"},
        "measuring.load_workers": {"measuring.load_runner", "measuring.load_worker"},
        "measuring.client_health": {"measuring.load_workers"},
        "measuring.load": {
            "measuring.client_health",
            "measuring.load_runner",
            "measuring.load_workers",
            "measuring.recorder",
        },
        "measuring.sweep": {"measuring.load", "measuring.recorder"},
        "measuring.client": {
            "measuring.load",
            "measuring.recorder",
            "measuring.rounds",
            "measuring.sdk",
            "measuring.sweep",
        },
        "measuring.probe": set(),
        "measuring.sdk": {"measuring.recorder"},
    },
    {
        "app.settings": set(),
        "app.quality_judge": set(),
        "app.quality_sets": {"app.settings"},
        "app.judge": {"app.quality_judge"},
        "app.update": set(),
        "app.reporting.curves": set(),
        "app.reporting.folding": set(),
        "app.reporting.rows": {"app.reporting.folding"},
        "app.reporting.side_by_side": {"app.reporting.rows"},
        "app.reporting.lines": {
            "app.reporting.curves",
            "app.reporting.folding",
            "app.reporting.rows",
            "app.reporting.side_by_side",
        },
        "app.reporting.markdown": {
            "app.reporting.curves",
            "app.reporting.folding",
            "app.reporting.rows",
            "app.reporting.side_by_side",
        },
        "app.reporting.properties": {"app.reporting.rows"},
        "app.reporting.report_file": set(),
        "app.history": set(),
        "app.suite_judge": set(),
        "app.run": {
            "app.history",
            "app.judge",
            "app.quality_sets",
            "app.reporting.lines",
            "app.reporting.markdown",
            "app.reporting.report_file",
            "app.settings",
            "app.suite_judge",
            "app.update",
        },
        "app.commands.result": set(),
        "app.commands.sides": set(),
        "app.commands.compare": {
            "app.commands.result",
            "app.commands.sides",
            "app.judge",
            "app.reporting.lines",
        },
        "app.commands.baseline": {"app.commands.result"},
        "app.commands.prune": {"app.commands.baseline", "app.commands.result"},
        "app.commands.rename": {"app.commands.baseline", "app.commands.result"},
        "app.commands.calibrate": {"app.commands.result", "app.commands.sides", "app.judge"},
    },
    {
        "hookspecs": set(),
        "options": set(),
        "plans": set(),
        "state": {"plans"},
        "layers": {"state"},
        "grouping": {"state"},
        "marks": {"grouping", "layers", "plans", "state"},
        "fixtures": {"marks", "outcome", "state"},
        "outcome": {"marks", "state"},
        "plugin": {"fixtures", "grouping", "hookspecs", "marks", "options", "outcome", "state"},
        "cli": set(),
    },
]
LONGEST = 400
HEAVY = ("asyncio", "ssl", "multiprocessing", "scipy", "numpy", "openai", "torch", "transformers")


def floor_of(room: str) -> int:
    return next(level for level, floor in enumerate(FLOORS) if room in floor)


def files() -> dict[str, Path]:
    """Room → file, the packages' own docstring files left out."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        room = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if path.name != "__init__.py":
            found[room] = path
    return found


def imports(path: Path) -> set[str]:
    """All modules that a file imports anywhere, also late and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def rooms_imported(path: Path) -> set[str]:
    known = {room for floor in FLOORS for room in floor}
    return {name.removeprefix(f"{NAME}.") for name in imports(path)} & known


def test_every_file_is_a_listed_room() -> None:
    """A file that the table does not know, or a room without a file, fails."""
    assert sorted(files()) == sorted(room for floor in FLOORS for room in floor)


@pytest.mark.parametrize("room", sorted(files()))
def test_a_room_imports_lower_floors_and_its_listed_neighbours(room: str) -> None:
    """Imports go down, or to the neighbours that the room's line names, and the line names no more."""
    level = floor_of(room)
    own_floor = {name for name in rooms_imported(files()[room]) if floor_of(name) == level} - {room}
    above = {name for name in rooms_imported(files()[room]) if floor_of(name) > level}
    # an annotation may name a type of the floor's neighbour; the error tree names what it carries
    assert above == set()
    assert own_floor - ERROR_CARRIES.get(room, set()) == FLOORS[level][room]


ERROR_CARRIES = {"core.errors": {"core.metrics"}}
"""GenerationError is annotated with the sample that it carries; nothing is loaded for it."""


@pytest.mark.parametrize("room", sorted(room for floor in FLOORS[:4] for room in floor))
def test_only_the_top_floor_imports_pytest(room: str) -> None:
    """What lies below works without pytest."""
    assert not {name for name in imports(files()[room]) if name.split(".")[0] in ("pytest", "_pytest")}


@pytest.mark.parametrize("room", sorted(files()))
def test_a_room_is_one_room(room: str) -> None:
    """A file of more than 400 lines is two rooms."""
    assert len(files()[room].read_text(encoding="utf-8").splitlines()) <= LONGEST


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running some code."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, pytest; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(shown.stdout.split())


def test_the_import_of_the_plugin_is_light() -> None:
    """It loads no asyncio, ssl, multiprocessing, SciPy, NumPy, openai, and few rooms of its own."""
    loaded = loaded_by("import pytest_llmspeed.plugin.hooks")
    assert not {name for name in loaded if name.split(".")[0] in HEAVY}
    rooms = {name.removeprefix(f"{NAME}.") for name in loaded if name.startswith(f"{NAME}.")}
    assert rooms == {"plugin", "hookspecs", "options", "outcome", "fixtures", "state"}


def test_the_guard_of_a_server_is_the_standard_library_alone() -> None:
    """It starts quickly and depends on nothing that a test run could have bent."""
    names = {name.partition(".")[0] for name in imports(PACKAGE / "engines/servers/watchdog.py")}
    assert names <= set(sys.stdlib_module_names)


def test_nothing_shadows_a_library() -> None:
    """No module of ours is called like a library that it uses."""
    taken = {"vllm", "transformers", "openai", "torch", "llama_cpp"}
    assert not {room.split(".")[-1] for room in files()} & taken
