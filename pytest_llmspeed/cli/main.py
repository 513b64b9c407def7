"""The command `llmspeed`: arguments → one call of a command → its result on the terminal."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmspeed import __version__

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

    from pytest_llmspeed.cli.output import Result

BAD_INPUT, INTERRUPTED = 2, 130
STOPS_BISECT = 128
"""Bad input to a command that `git bisect run` may call: it takes 1 to 127 for an answer."""
WITH_PYTEST_ARGUMENTS = ("calibrate", "ab", "bisect")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 well, 1 slower, 2 bad input, 130 interrupted.

    Of `ab`, 125 stands for undecided and 128 for bad input.
    """
    from pytest_llmspeed.errors import LLMSpeedError

    given = parse(sys.argv[1:] if argv is None else argv)
    try:
        if "store" in given and given.store is None:
            given.store = _store_of_the_project()
        return show(given.run(given), as_json=given.json)
    except LLMSpeedError as error:
        print(f"llmspeed: {error}", file=sys.stderr)
        return STOPS_BISECT if given.command == "ab" else BAD_INPUT
    except KeyboardInterrupt:
        print("llmspeed: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, as in `| head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _store_of_the_project() -> Path:
    from pytest_llmspeed.cli.project_ini import project_ini

    return project_ini(Path.cwd()).store


def show(result: Result, *, as_json: bool) -> int:
    """Print a result; return its exit code."""
    from pytest_llmspeed.text.harmless import harmless_lines

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    for warning in result.warnings:
        print(f"llmspeed: {warning}", file=sys.stderr)
    if as_json:
        import json

        print(json.dumps(result.shown, indent=1))
    else:
        for line in result.lines:
            print(harmless_lines(line))
    sys.stdout.flush()
    return result.exit_code


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments; what stands after `--` is for pytest, in `pytest_arguments`."""
    ours, theirs = list(argv), list[str]()
    command = ours[0] if ours else None
    if command in WITH_PYTEST_ARGUMENTS and "--" in ours:
        place = ours.index("--")
        ours, theirs = ours[:place], ours[place + 1 :]
    try:
        given = _parser().parse_args(ours)
    except SystemExit as error:
        if error.code == BAD_INPUT and command == "ab":
            raise SystemExit(STOPS_BISECT) from None
        raise
    given.pytest_arguments, given.command = theirs, command
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llmspeed", description="Reports and baselines of pytest-llmspeed.")
    parser.add_argument("--version", action="version", version=f"pytest-llmspeed {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_compare(commands)
    _add_baseline(commands)
    _add_history(commands)
    _add_report(commands)
    _add_calibrate(commands)
    _add_ab(commands)
    _add_bisect(commands)
    return parser


def _command(commands: Commands, name: str, about: str) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    return made


def _add_compare(commands: Commands) -> None:
    made = _command(commands, "compare", "judge reports against older ones (exit code 1: slower)")
    for side in ("old", "new"):
        about = "a report of pytest --llmspeed-json, or a folder of them"
        made.add_argument(side, metavar=side.upper(), type=Path, help=about)
    made.set_defaults(run=_compare)


def _add_baseline(commands: Commands) -> None:
    baseline = commands.add_parser("baseline", help="inspect a baseline store")
    actions = baseline.add_subparsers(title="actions", metavar="ACTION", required=True)
    made = {
        "list": _command(actions, "list", "tests, the sessions that count, and their age"),
        "show": _command(actions, "show", "the sessions of a test"),
        "log": _command(actions, "log", "the runs, oldest first"),
        "diff": _command(actions, "diff", "what changed from one run to another"),
        "rename": _command(actions, "rename", "keep the baselines of a test that was renamed or moved"),
        "prune": _command(actions, "prune", "delete run files that no comparison needs"),
    }
    for name, parser in made.items():
        about = "default: llmspeed_store of the project around the working directory"
        parser.add_argument("--store", metavar="DIR", type=Path, help=about)
        parser.set_defaults(run=ACTIONS[name])
    made["show"].add_argument("identity", metavar="IDENTITY", help="as in list, or a part of it")
    for side in ("a", "b"):
        made["diff"].add_argument(side, metavar=side.upper(), help="a run's id, as in log, or its file")
    made["rename"].add_argument("old", metavar="OLD", help="a test as in list, or its file, class or folder/")
    made["rename"].add_argument("new", metavar="NEW", help="its new name; * stands for the same text in both")
    made["rename"].add_argument("--dry-run", action="store_true", help="only show what would be renamed")
    made["prune"].add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    made["prune"].add_argument(
        "--gone",
        metavar="PATTERN",
        action="append",
        default=[],
        help="drop the baselines of removed tests (repeatable; * and ? are wildcards, brackets are literal)",
    )
    made["prune"].add_argument(
        "--all", action="store_true", help="let --gone match every stored test and empty the store"
    )


def _add_history(commands: Commands) -> None:
    made = _command(commands, "history", "tests over time, and where their speed changed")
    made.add_argument("test", metavar="TEST", nargs="?", help="a test, or a part of its name (default: all)")
    made.add_argument(
        "--store",
        metavar="DIR",
        type=Path,
        help="a store or a folder of reports (default: the project's)",
    )
    made.set_defaults(run=_history)


def _add_report(commands: Commands) -> None:
    made = _command(commands, "report", "a page to look at in a browser, of JSON reports")
    about = "reports of pytest --llmspeed-json, or folders of them; the newest is shown, the others beside it"
    made.add_argument("paths", metavar="RUN.json", nargs="+", type=Path, help=about)
    made.add_argument("-o", "--output", metavar="FILE.html", type=Path, required=True, help="the page")
    made.set_defaults(run=_report)


def _add_calibrate(commands: Commands) -> None:
    made = _command(
        commands,
        "calibrate",
        "run pytest N times on unchanged code: count false alarms, find which slowdowns would show",
    )
    made.usage = "llmspeed calibrate [-h] [--json] N [-- PYTEST ARGUMENTS]"
    made.add_argument("runs", metavar="N", type=_runs, help="how many runs, at least 3")
    made.set_defaults(run=_calibrate)


def _add_ab(commands: Commands) -> None:
    made = _command(commands, "ab", "measure old and new in one go (exit code 1: slower, 125: undecided)")
    made.usage = "llmspeed ab [-h] [--json] --old KEY=VALUE … --new KEY=VALUE … [-- PYTEST ARGUMENTS]"
    made.epilog = (
        "A side is made of key=value: ref (a git revision), setup (a command for its checkout), python (an "
        "interpreter) or pip (requirements laid over this environment), backend, model, precision, url, "
        "option.NAME (of the engine), env.NAME. What it does not name is as it is here."
    )
    for side in ("old", "new"):
        made.add_argument(f"--{side}", metavar="KEY=VALUE", nargs="*", help=f"the {side} side")
    made.add_argument(
        "--form",
        choices=["pairs", "runs"],
        help="pairs: both sides at once, in turn; runs: one after the other (default: what fits here)",
    )
    made.add_argument("--blocks", metavar="N", type=_blocks, help="the most blocks (default: 5)")
    made.add_argument("--limit", metavar="MINUTES", type=_minutes, help="the longest it may take")
    made.add_argument("--resume", metavar="DIR", type=Path, help="take up an experiment that was interrupted")
    made.set_defaults(run=_ab)


def _add_bisect(commands: Commands) -> None:
    made = _command(commands, "bisect", "find the first slow commit (exit code 0: found)")
    made.usage = "llmspeed bisect [-h] [--json] GOOD BAD [options] [-- PYTEST ARGUMENTS]"
    made.add_argument("revisions", metavar="GOOD BAD", nargs="*", help="a fast revision and a later slow one")
    made.add_argument("--setup", metavar="COMMAND", help="builds each commit, as in 'pip install -e .'")
    made.add_argument(
        "--with",
        dest="words",
        metavar="KEY=VALUE",
        nargs="+",
        default=[],
        help="what all commits are measured with: backend, model, pip, env.NAME … as in ab",
    )
    made.add_argument("--form", choices=["pairs", "runs"], help="as in ab")
    made.add_argument("--limit", metavar="MINUTES", type=_minutes, help="the longest that a step may take")
    made.add_argument("--resume", metavar="DIR", type=Path, help="take up a search that was interrupted")
    made.set_defaults(run=_bisect)


def _blocks(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: at least 2 blocks are needed")
    return int(text)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not minutes > 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number of minutes above 0")
    return 60 * minutes


def _runs(text: str) -> int:
    if not text.isdecimal() or int(text) < 3:
        raise argparse.ArgumentTypeError(
            f"{text!r}: at least 3 runs are needed, because each is compared with the others"
        )
    return int(text)


def _compare(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.compare import compare

    return compare(given.old, given.new)


def _list(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.baseline import list_tests
    from pytest_llmspeed.system import clock

    return list_tests(given.store, clock.wall())


def _show(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.baseline import show_test

    return show_test(given.store, given.identity)


def _log(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.baseline import log

    return log(given.store)


def _diff(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.baseline import diff

    return diff(given.store, given.a, given.b)


def _prune(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.prune import prune

    return prune(given.store, given.gone, dry_run=given.dry_run, everything=given.all)


def _rename(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.rename import rename
    from pytest_llmspeed.system import clock

    return rename(given.store, given.old, given.new, clock.wall(), dry_run=given.dry_run)


def _history(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.history import history

    return history(given.store, given.test)


def _report(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.report import report

    return report(given.paths, given.output)


def _calibrate(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli.calibrate import run

    return run(given.runs, given.pytest_arguments, _tell)


def _ab(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli import ab
    from pytest_llmspeed.errors import SettingsError

    if given.resume is None:
        options = {"form": given.form, "blocks": given.blocks, "limit_s": given.limit}
        plan = ab.new_plan(given.old, given.new, given.pytest_arguments, **options)
        return ab.run(plan, _tell)
    if given.old is not None or given.new is not None or given.form or given.pytest_arguments:
        raise SettingsError("--resume goes on with the same sides, form and tests: leave them out")
    return ab.resume(given.resume, given.blocks, given.limit, _tell)


def _bisect(given: argparse.Namespace) -> Result:
    from pytest_llmspeed.cli import bisect
    from pytest_llmspeed.errors import SettingsError

    if given.resume is not None:
        if given.revisions or given.words or given.setup or given.pytest_arguments:
            raise SettingsError("--resume goes on with the same commits, set-up and tests: leave them out")
        return bisect.resume(given.resume, _tell)
    if len(given.revisions) != 2:
        raise SettingsError("name two revisions: llmspeed bisect GOOD BAD -- PYTEST ARGUMENTS")
    how = {"limit_s": given.limit, "form": given.form}
    good, bad = given.revisions
    search = bisect.new_search(good, bad, given.words, given.setup, given.pytest_arguments, **how)
    return bisect.run(search, _tell)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


ACTIONS = {
    "list": _list,
    "show": _show,
    "log": _log,
    "diff": _diff,
    "rename": _rename,
    "prune": _prune,
}


if __name__ == "__main__":
    sys.exit(main())
