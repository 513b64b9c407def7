"""The recipe of a user's own server: a command, or a container image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.engines.servers.launch import port_number, words
from pytest_llmspeed.engines.servers.recipes import LaunchFragment, Recipe, filled
from pytest_llmspeed.errors import EngineError

OPTIONS = ("command", "image", "runtime", "container_args", "container_port", "health_path", "metrics_path")
CONTAINER_PORT = 8000


def own_server(options: Mapping[str, Any], precisions: tuple[str, ...]) -> Recipe:
    """Return the recipe that the options of a `server` describe; raises `EngineError`.

    Its precision and prefix cache are its own: they can be declared, to tell baselines apart.
    """
    command = words(options.get("command") or (), "command")
    image, runtime = options.get("image"), str(options.get("runtime", "docker"))
    if not command and not image:
        raise EngineError(
            "backend 'server' needs command=, as in \"my-server --port {port} --model {model}\", or image=, "
            "a container image that serves"
        )
    return Recipe(
        engine="server",
        program=_in_container(runtime, str(image), command, options) if image else command,
        install="correct runtime=" if image else "correct command=",
        base=LaunchFragment(),
        options=dict.fromkeys(OPTIONS, LaunchFragment()),
        precisions=dict.fromkeys(precisions, LaunchFragment()),
        prefix_cache=dict.fromkeys(("unknown", "cold", "warm"), LaunchFragment()),
        health=str(options.get("health_path", "/v1/models")),
        metrics=options.get("metrics_path"),
        container=(runtime, "rm", "-f", "{container}") if image else (),
    )


def _in_container(
    runtime: str, image: str, command: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[str, ...]:
    """The command that runs a container in the foreground, under a name by which it can be ended."""
    inside = port_number(options.get("container_port", CONTAINER_PORT), "container_port")
    return (
        *(runtime, "run", "--rm", "--name", "{container}", "--publish", f"{{host}}:{{port}}:{inside}"),
        *(word for name in options.get("env") or () for word in ("--env", str(name))),
        *words(options.get("container_args") or (), "container_args"),
        image,
        *(filled(word, {"{host}": "0.0.0.0", "{port}": inside}) for word in command),
    )
