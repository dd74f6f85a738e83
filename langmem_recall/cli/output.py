"""What commands print: results on stdout as a table or JSON, everything else on stderr."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from langmem_recall.errors import InputError
from langmem_recall.observe.show import printable
from langmem_recall.policy import RecallPolicy

BAD_NEWS = 1  # exit code when everything worked and the answer is bad news
BAD_INPUT = 2  # exit code when the command could not do what was asked
UNBOUNDED = 10_000  # columns of a pipe or a file: no line is folded, so that each can be searched

Part = str | Text | Table
Tick = Callable[[int, int | None], None]  # how much is done, and of how much


class Result(NamedTuple):
    """What a command found."""

    record: Mapping[str, Any]
    shown: str | Sequence[Part]  # on a terminal
    notes: Sequence[str] = ()
    is_bad: bool = False  # bad news, as the exit code tells


def deliver(result: Result, as_json: bool = False, output: Path | None = None) -> None:
    """Give a result to the user: one JSON document, or texts and tables; then the notes."""
    record, shown, notes, is_bad = result
    with ExitStack() as opened:
        file: IO[str] = sys.stdout
        if output is not None:
            fresh = opened.enter_context(replaced(output))
            file = opened.enter_context(fresh.open("w", encoding="utf-8"))
        if as_json or (output is not None and output.suffix.lower() == ".json"):
            # ASCII, so that no locale and no lone surrogate can break the document.
            file.write(json.dumps(record, indent=2, allow_nan=False) + "\n")
        else:
            # What memories say is never markup.
            width = None if file.isatty() else UNBOUNDED
            screen = Console(file=file, markup=False, highlight=False, emoji=False, width=width)
            for part in [shown] if isinstance(shown, str) else shown:
                if isinstance(part, str):
                    screen.print("\n".join(map(printable, part.split("\n"))), soft_wrap=True)
                else:
                    screen.print(part)
    for text in (*([f"Written to {output}."] if output else ()), *notes):
        note(text)
    if is_bad:
        raise typer.Exit(BAD_NEWS)


def save_policy(policy: RecallPolicy, path: Path) -> None:
    """Write a policy file whole, or not at all."""
    with replaced(path) as fresh:
        policy.save(fresh)
    note(f"The policy {policy.name} is in {path}.")


def note(text: str) -> None:
    """A line for the terminal, out of the way of the result."""
    typer.echo(printable(text), err=True)


def table(
    title: str | None, rows: Iterable[Sequence[str]], header: Sequence[str] = (), labels: int = 1
) -> Table:
    """A plain table; below a header the first few columns are labels, the others numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    if not header:
        made.box, made.show_header, made.padding = None, False, (0, 2, 0, 1)
    for place, name in enumerate(header):
        made.add_column(Text(printable(name)), justify="left" if place < labels else "right")
    for row in rows:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made


@contextmanager
def progress(what: str) -> Iterator[Tick]:
    """A bar on the terminal while something takes its time; nothing in a pipe."""
    terminal = Console(stderr=True)
    words = TextColumn("{task.description}")
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_hidden = not terminal.is_terminal
    with Progress(*columns, console=terminal, transient=True, disable=is_hidden) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A fresh file that takes the place of another once it is complete, or never."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise InputError(f"{path} is a folder. Name a file to write to.")
        # A pipe or a device has no place to take.
        yield target
        return
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: {target.parent} is no folder. Create it.")
    # The ending is kept: it decides the format of a policy file.
    fresh = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    try:
        yield fresh
        if target.exists():
            shutil.copymode(target, fresh)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
