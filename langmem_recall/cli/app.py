"""The commands of `langmem-recall` and what they have in common."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib.resources import files
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from langmem_recall import __version__
from langmem_recall.cli.ask import (
    demo_command,
    explain_command,
    mcp_command,
    recall_command,
    remember_command,
)
from langmem_recall.cli.doctor import doctor_command, stats_command
from langmem_recall.cli.enrich import enrich_command
from langmem_recall.cli.inspect import inspect_command
from langmem_recall.cli.measure import evaluate_command, tune_command
from langmem_recall.cli.memories import reindex_command, sweep_command
from langmem_recall.cli.output import BAD_INPUT, note
from langmem_recall.cli.quarantine import quarantine_command
from langmem_recall.cli.transfer import export_command, import_command
from langmem_recall.errors import RecallError

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo_command,
    "recall": recall_command,
    "explain": explain_command,
    "remember": remember_command,
    "eval": evaluate_command,
    "tune": tune_command,
    "inspect": inspect_command,
    "doctor": doctor_command,
    "stats": stats_command,
    "export": export_command,
    "import": import_command,
    "quarantine": quarantine_command,
    "enrich": enrich_command,
    "sweep": sweep_command,
    "reindex": reindex_command,
    "mcp": mcp_command,
}
"""In the order of `--help`."""
EXAMPLES = files(__package__).joinpath("examples.txt").read_text("utf-8")
"""Shown below the help of the command that each begins with."""


class Commands(TyperGroup):
    """The group; errors of ours end a command with their message alone."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except (RecallError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            note(f"Error: {error}")
            raise typer.Exit(BAD_INPUT) from error


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


def _unwrap(command: Callable[..., None]) -> str:
    """A docstring with one line a paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)
app.callback(help=_unwrap(_start))(_start)
for _name, _command in COMMANDS.items():
    _examples = [line for line in EXAMPLES.splitlines() if line.split(" ")[0] == _name]
    _epilog = "\n\n".join(["Examples:", *(f"langmem-recall {line}" for line in _examples)])
    app.command(_name, help=_unwrap(_command), epilog=_epilog)(_command)
