"""The commands of `langmem-recall` and what they have in common."""

from __future__ import annotations

import inspect
import sys
import tomllib
from collections.abc import Callable
from importlib.resources import files
from io import TextIOWrapper
from types import NoneType
from typing import Annotated, Any, get_type_hints

import typer

from langmem_recall import __version__
from langmem_recall.cli import ask, measure, memories, quarantine, transfer
from langmem_recall.cli.inspect import inspect_command
from langmem_recall.cli.output import BAD_INPUT, Result, deliver, note
from langmem_recall.errors import RecallError

COMMANDS: dict[str, Callable[..., Result | None]] = {
    "demo": ask.demo_command,
    "recall": ask.recall_command,
    "explain": ask.explain_command,
    "remember": ask.remember_command,
    "eval": measure.evaluate_command,
    "tune": measure.tune_command,
    "inspect": inspect_command,
    "doctor": measure.doctor_command,
    "stats": measure.stats_command,
    "export": transfer.export_command,
    "import": transfer.import_command,
    "quarantine": quarantine.quarantine_command,
    "enrich": memories.enrich_command,
    "sweep": memories.sweep_command,
    "reindex": memories.reindex_command,
    "mcp": ask.mcp_command,
}
"""In the order of `--help`."""
EXAMPLES = files(__package__).joinpath("examples.txt").read_text("utf-8")
"""Shown below the help of the command that each begins with."""
HELP = tomllib.loads(files(__package__).joinpath("help.toml").read_text("utf-8"))


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"langmem-recall {__version__}")
        raise typer.Exit


def _start(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Look into the memories of an agent, measure how they are recalled, and tune it.

    A STORE is the file of a LocalStore or a postgresql:// address. Results go to stdout, progress
    and notes to stderr. Exit code 0: done; 1: the answer is bad news; 2: wrong usage or input.
    """
    # Memories come in any script: what the locale cannot write is not a reason to fail.
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _unwrap(command: Callable[..., Any]) -> str:
    """A docstring with one line a paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


def _add(name: str, command: Callable[..., Result | None]) -> None:
    """Make a command of a function, its docstring and parameters, help.toml and examples.txt.

    One that returns a result has `--json`, and `--output` unless it has its own.
    """
    own, hints = inspect.signature(command).parameters, get_type_hints(command)
    parameters = dict(own)
    if hints["return"] is not NoneType:
        _, *given = inspect.signature(deliver).parameters.values()
        parameters |= {each.name: each for each in given if each.name not in own}
        hints = get_type_hints(deliver) | hints
    for parameter, each in parameters.items():
        said, every = HELP.get(name, {}).get(parameter, {}), HELP["every"].get(parameter, {})
        about = {**every, **said}
        is_argument, names = about.pop("argument", False), about.pop("names", [])
        if not any(each.startswith("--") for each in names):
            names = [f"--{parameter.replace('_', '-')}", *names]
        made: Any = typer.Argument(**about) if is_argument else typer.Option(*names, **about)
        parameters[parameter] = each.replace(annotation=Annotated[hints[parameter], made])

    def run(**arguments: Any) -> None:
        try:
            result = command(**{each: arguments.pop(each) for each in own})
            if result is not None:
                deliver(result, **arguments)
        except BrokenPipeError:
            raise
        except (RecallError, OSError) as error:
            note(f"Error: {error}")
            raise typer.Exit(BAD_INPUT) from error

    run.__signature__ = inspect.Signature([*parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters.values()}
    examples = [line for line in EXAMPLES.splitlines() if line.split(" ")[0] == name]
    epilog = "\n\n".join(["Examples:", *(f"langmem-recall {line}" for line in examples)])
    app.command(name, help=_unwrap(command), epilog=epilog)(run)


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
app.callback(help=_unwrap(_start))(_start)
for _name, _command in COMMANDS.items():
    _add(_name, _command)
