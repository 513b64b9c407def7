"""Settings: for each key, command line > closest mark > ini > default, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.registry import Registry
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.system.neighbours import BUSY_SHARE

NO_BACKEND = (
    'no backend is configured: write llmspeed_backend = "tiny" into the pytest section of '
    "pyproject.toml to try it, or name the real one there, with --llmspeed-backend or with "
    "@pytest.mark.llm_backend(…)"
)

FILE_OPTIONS = ("ca_file", "client_cert", "client_key")
"""Engine options that name files."""

DEFAULT_STORE = ".llmspeed/baselines"


@dataclass(frozen=True, slots=True)
class BackendMark:
    """An `llm_backend` mark. `folder` is where its test file is: the base of a relative path in it.

    `id` names the configuration in test ids and tables.
    """

    name: str
    model: str | None = None
    precision: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    folder: Path = Path()
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """A value with the place that set it, and the folder that a path in it starts from."""

    value: Any
    place: str
    base: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line and the ini file say. Absent is None, of `backends` the empty tuple.

    `options` are words `NAME=VALUE`. `step_summary` is the file that GitHub Actions shows on the page of a
    job, where it runs one. `confirm` is the side that tests in doubt are measured beside, `rounds` how
    many rounds a smoke run makes.
    """

    backends: tuple[str, ...] = ()
    model: str | None = None
    precision: str | None = None
    url: str | None = field(default=None, repr=False)
    options: tuple[str, ...] = field(default=(), repr=False)
    store: str | None = None
    update: bool = False
    accept: str | None = None
    require_baseline: bool = False
    strict: bool = False
    json: str | None = None
    markdown: str | None = None
    report: str | None = None
    confirm: str | None = None
    defer: str | None = None
    second_look: str | None = None
    rounds: int | None = None
    step_summary: str | None = None
    github_output: str | None = None
    ini: Mapping[str, Any] = field(default_factory=dict)
    cwd: Path = Path()
    ini_folder: Path = Path()

    def origin(self, key: str, mark: BackendMark | None = None) -> Origin | None:
        """The value of `model`, `precision`, `url` or `store` and where it was set, None if nowhere."""
        if (value := getattr(self, key)) is not None:
            return Origin(value, f"--llmspeed-{key}", self.cwd)
        marked = None if mark is None else getattr(mark, key, None)
        if mark is not None and marked is not None:
            return Origin(marked, "the llm_backend mark", mark.folder)
        if configured := self.ini.get(key):
            return Origin(configured, f"llmspeed_{key}", self.ini_folder)
        return None

    @property
    def store_folder(self) -> Path:
        """The folder of the baselines."""
        found = self.origin("store")
        return self.ini_folder / DEFAULT_STORE if found is None else found.base / found.value

    @property
    def json_file(self) -> Path | None:
        """The path of the JSON report."""
        return None if self.json is None else self.cwd / self.json

    @property
    def markdown_file(self) -> Path | None:
        """The path of the Markdown report."""
        return None if self.markdown is None else self.cwd / self.markdown

    @property
    def html_file(self) -> Path | None:
        """The path of the HTML report."""
        return None if self.report is None else self.cwd / self.report

    @property
    def defer_file(self) -> Path | None:
        """The path of the file on tests that want a second look."""
        return None if self.defer is None else self.cwd / self.defer

    @property
    def second_look_file(self) -> Path | None:
        """The path of that file, in the second job."""
        return None if self.second_look is None else self.cwd / self.second_look

    @property
    def json_text(self) -> bool:
        """True if a report is asked for that shows the answers; else they go nowhere."""
        return self.json is not None and bool(self.ini.get("json_text", True))

    @property
    def show_answers(self) -> bool:
        """True if the sentence on a broken answer may quote it: no report or store is kept free of them."""
        return bool(self.ini.get("json_text", True)) and self.store_text

    @property
    def store_text(self) -> bool:
        """True if the store may keep the answers to sets of prompts."""
        return bool(self.ini.get("store_text", True))

    @property
    def lock_timeout_s(self) -> float:
        """The longest wait for one holder of the device; raises `SettingsError`."""
        seconds = float(self.ini.get("lock_timeout_s", 1800.0))
        if not seconds >= 0:
            raise SettingsError(f"llmspeed_lock_timeout_s = {seconds:g}: give a number of seconds, 0 or more")
        return seconds

    @property
    def busy_share(self) -> float:
        """From which share of lost processor time on a request is disturbed; raises `SettingsError`."""
        share = float(self.ini.get("busy_share", BUSY_SHARE))
        if not 0 < share <= 1:
            raise SettingsError(
                f"llmspeed_busy_share = {share:g}: give a share above 0, up to 1 (0.1 is 10%)"
            )
        return share

    @property
    def environment(self) -> str | None:
        """The runner class that stands for the hardware, if one is configured."""
        return self.ini.get("environment") or None

    @property
    def engine_options(self) -> dict[str, Any]:
        """The engine options of the command line: a value is JSON, or else the text that it is."""
        split = (word.partition("=") for word in self.options)
        return {name: _json_or_text(value) for name, _, value in split}

    @property
    def shown(self) -> dict[str, Any]:
        """The options that the command line set, for the report."""
        given = {
            "backend": list(self.backends),
            "model": self.model,
            "precision": self.precision,
            "update_baseline": self.update,
            "accept": self.accept,
            "require_baseline": self.require_baseline,
            "strict": self.strict,
            "confirm": self.confirm,
            "defer": self.defer,
            "second_look": self.second_look,
            "rounds": self.rounds,
        }
        return {name: value for name, value in given.items() if value}

    def problems(self) -> list[str]:
        """Return a sentence for each setting that contradicts another or cannot be used."""
        return [*self._problems_of_values(), *self._contradictions()]

    def _contradictions(self) -> Iterator[str]:
        if self.confirm is not None and self.update:
            yield "--llmspeed-confirm judges a run, --llmspeed-update-baseline stores one: leave one out"
        if self.update and (self.defer or self.second_look):
            which = "--llmspeed-defer" if self.defer else "--llmspeed-second-look"
            yield f"--llmspeed-update-baseline stores what one run decides: leave out {which}"
        if self.report is not None and not self.report.endswith((".html", ".htm")):
            yield f"--llmspeed-report={self.report}: the report is a page: name it FILE.html"
        if self.defer and self.second_look:
            yield "--llmspeed-defer is for a first job, --llmspeed-second-look for a second: leave one out"
        if self.accept is not None and not self.update:
            yield "--llmspeed-accept works only together with --llmspeed-update-baseline"

    def _problems_of_values(self) -> list[str]:
        if nameless := [word for word in self.options if not word.partition("=")[0] or "=" not in word]:
            return [f"--llmspeed-option={nameless[0]}: give a name and a value, as in max_num_seqs=64"]
        if self.environment and not any(char.isalnum() for char in self.environment):
            return [
                f"llmspeed_environment = {self.environment!r} needs a letter or a digit: it names a folder"
            ]
        if self.accept is not None and self.update and not self.accept.strip():
            return ["--llmspeed-accept needs a reason, as in --llmspeed-accept 'larger context'"]
        return []


def spec_for(
    settings: Settings,
    registry: Registry,
    mark: BackendMark | None = None,
    backend: str | None = None,
    run_time: Mapping[str, Any] | None = None,
) -> EngineSpec:
    """Return the engine that a test gets; raises `SettingsError` if no backend is configured.

    `backend` is the one of several `--llmspeed-backend` that this test run is for. A mark's engine
    options apply to its own backend only; those of the command line come before them. `run_time` are the
    options of `llm_backend_options`; of these two, options that only other backends take are left aside.
    """
    name = backend or next(iter(settings.backends), None) or (mark and mark.name)
    name = name or settings.ini.get("backend")
    if not name:
        raise SettingsError(NO_BACKEND)
    options = _taken(registry, name, run_time or {}, "llm_backend_options")
    if mark is not None and mark.name == name:
        options |= _with_paths(mark.options, mark.folder)
    options |= _with_paths(_taken(registry, name, settings.engine_options, "--llmspeed-option"), settings.cwd)
    if registry.takes(name, "url"):
        options |= _url(settings, options)
    model, precision = settings.origin("model", mark), settings.origin("precision", mark)
    at_run_time = options.pop("model", None)
    model_name = at_run_time if model is None else _located(model)
    asked = None if precision is None else plain_text(precision.value)
    return EngineSpec.of(plain_text(name), plain_text(model_name), asked, options)


def _with_paths(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A mark's options, the files among them found from the folder of its test file."""
    files = {name: options[name] for name in FILE_OPTIONS if options.get(name) is not None}
    return {**options, **{name: _located(Origin(path, name, folder)) for name, path in files.items()}}


def _taken(registry: Registry, backend: str, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The options that a backend takes, of those that were given at a place for any of them."""
    taken = {}
    for option, value in given.items():
        if option == "model" or registry.takes(backend, option):
            taken[option] = value
        elif not registry.taken_by_any(option):
            raise SettingsError(f"{place}: no backend has an option {option!r}")
    return taken


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _url(settings: Settings, options: Mapping[str, Any]) -> dict[str, Any]:
    """The command line's address before the mark's, the ini file's only where there is no other."""
    if settings.url is not None:
        return {"url": settings.url}
    configured = settings.ini.get("url")
    return {"url": configured} if configured and "url" not in options else {}


def _located(model: Origin) -> str:
    """A model as it was named, or its full path where that names something on disk."""
    path = model.base / Path(model.value).expanduser()
    return str(path.resolve()) if path.exists() else str(model.value)
