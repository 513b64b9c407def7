"""Backend name → engine class, loaded on first use; and what can be checked before any start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module

from pytest_llmspeed.engines.base import ANY_OPTION, AUTO, Engine, EngineSpec
from pytest_llmspeed.errors import EngineError, did_you_mean
from pytest_llmspeed.system.environment import is_this_machine

BUILT_IN = {
    "tiny": "pytest_llmspeed.engines.local._tiny:TinyEngine",
    "transformers": "pytest_llmspeed.engines.local._transformers:TransformersEngine",
    "vllm": "pytest_llmspeed.engines.local._vllm:VLLMEngine",
    "llama-cpp": "pytest_llmspeed.engines.local._llama_cpp:LlamaCppEngine",
    "openai": "pytest_llmspeed.engines.servers._openai:OpenAIEngine",
    "vllm-server": "pytest_llmspeed.engines.servers._server:VLLMServer",
    "sglang-server": "pytest_llmspeed.engines.servers._server:SGLangServer",
    "tensorrt-llm-server": "pytest_llmspeed.engines.servers._server:TensorRTLLMServer",
    "llama-cpp-server": "pytest_llmspeed.engines.servers._server:LlamaCppServer",
    "server": "pytest_llmspeed.engines.servers._server:OwnServer",
}


class Registry:
    """The known backends; `targets` maps each name to "module:Class"."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        self._targets = dict(targets)
        self._loaded: dict[str, type[Engine]] = {}
        self._unstartable: dict[EngineSpec, str | None] = {}

    def engine(self, name: str) -> type[Engine]:
        """Return the class of a backend; raises `EngineError` for an unknown or broken one."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def learn(self, targets: Mapping[str, str]) -> None:
        """Take in further backends; a name that is known keeps its class."""
        for name, target in targets.items():
            self._targets.setdefault(name, target)

    def visible_problems(self, name: str, visible: Mapping[str, str]) -> Iterator[str]:
        """Yield what keeps a test from naming a backend, where `visible` are those that it may name.

        Conftests of two folders may give one name to two classes: one run can hold one of them.
        """
        if name not in visible:
            yield f"no backend is called {name!r}; {did_you_mean(name, visible)}"
        elif visible[name] != self._targets.get(name):
            yield (
                f"backend {name!r} is {visible[name]!r} for this test and {self._targets[name]!r} for others "
                f"in this run; rename one of them, or run their tests separately"
            )

    def knows(self, name: str) -> bool:
        """True if a backend has that name, loadable or not."""
        return name in self._targets

    def unknown(self, name: str) -> str:
        """The sentence on a name that no backend has."""
        return f"no backend is called {name!r}; {did_you_mean(name, self._targets)}"

    def _load(self, name: str) -> type[Engine]:
        if name not in self._targets:
            raise EngineError(self.unknown(name))
        module, _, attribute = self._targets[name].partition(":")
        try:
            found: object = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise EngineError(
                f"backend {name!r} cannot be loaded from {self._targets[name]!r}: {error}"
            ) from error
        if not (isinstance(found, type) and issubclass(found, Engine)):
            raise EngineError(
                f"backend {name!r}: {self._targets[name]!r} is not a subclass of pytest_llmspeed.Engine; "
                "derive it from that class"
            )
        return found

    def problems(self, spec: EngineSpec) -> Iterator[str]:
        """Yield what is wrong with a spec, as far as that shows without starting anything."""
        try:
            engine = self.engine(spec.backend)
        except EngineError as error:
            yield str(error)
            return
        known = (AUTO, *engine.precisions)
        if spec.precision not in known:
            yield (
                f"backend {spec.backend!r} has no precision {spec.precision!r}; "
                f"{did_you_mean(spec.precision, known)}"
            )
        yield from _cache_problems(engine, spec)
        if engine.options != ANY_OPTION:
            for option in sorted(spec.options.keys() - engine.options):
                yield (
                    f"backend {spec.backend!r} has no option {option!r}; "
                    f"{did_you_mean(option, engine.options)}"
                )

    def unstartable(self, spec: EngineSpec) -> list[str]:
        """Return why an engine of a complete spec could not start, as far as that shows without starting it.

        A model that is not there, or no address. Looked at once for each spec.
        """
        if spec not in self._unstartable:
            self._unstartable[spec] = _start_problem(self.engine(spec.backend), spec)
        problem = self._unstartable[spec]
        return [] if problem is None else [problem]

    def takes(self, backend: str, option: str) -> bool:
        """True if a backend has an option of that name; an unknown backend has none."""
        if backend not in self._targets:
            return False
        options = self.engine(backend).options
        return option in options or (options == ANY_OPTION and option != "url")

    def taken_by_any(self, option: str) -> bool:
        """True if any known backend names the option."""
        for name in self._targets:
            with suppress(EngineError):  # one that cannot be loaded takes nothing
                if option in self.engine(name).options:
                    return True
        return False

    def device(self, spec: EngineSpec) -> str | None:
        """Return what an engine of this spec would occupy."""
        return self.engine(spec.backend).device

    def measured_on(self, spec: EngineSpec) -> str | None:
        """Return what simultaneous measurements would contend for: the device, or the server's address."""
        return self.device(spec) or server_of(spec.options.get("url"))


def _start_problem(engine: type[Engine], spec: EngineSpec) -> str | None:
    try:
        if engine.needs_model:
            spec.required_model()
        engine.check(spec)
    except EngineError as error:
        return str(error)
    return None


def _cache_problems(engine: type[Engine], spec: EngineSpec) -> Iterator[str]:
    """Yield what is wrong with `prefix_cache=` for an engine that says in `prefix_caches` what it can do."""
    known, asked = engine.prefix_caches, spec.options.get("prefix_cache")
    if known is not None and asked is not None and asked not in known:
        yield f"backend {spec.backend!r} has no prefix_cache={asked!r}; known: {', '.join(known)}"


def server_of(url: object) -> str | None:
    """Return the server behind an address: host and port; None if there is no address, or a wrong one.

    However this machine is named in it, it is one server.
    """
    from pytest_llmspeed.transport.address import BaseURL

    try:
        base = BaseURL.parse(str(url or ""))
    except ValueError:
        return None
    host = base.host.lower()
    return f"server {'localhost' if is_this_machine(host) else host}:{base.port}"
