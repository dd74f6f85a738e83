"""The commands of `langmem-recall` and what they have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from langmem_recall import __version__
from langmem_recall.cli.demo import demo_command
from langmem_recall.cli.doctor import doctor_command
from langmem_recall.cli.inspect import inspect_command
from langmem_recall.cli.measure import evaluate_command, tune_command
from langmem_recall.cli.output import BAD_INPUT, note, use_utf8
from langmem_recall.cli.reindex import reindex_command
from langmem_recall.cli.stats import stats_command
from langmem_recall.cli.sweep import sweep_command
from langmem_recall.cli.transfer import export_command, import_command
from langmem_recall.errors import RecallError


class Entry(NamedTuple):
    """A command, its name and how it is called."""

    name: str
    run: Callable[..., Any]
    examples: tuple[str, ...]


COMMANDS = (
    Entry("demo", demo_command, ("demo", "demo --json")),
    Entry(
        "eval",
        evaluate_command,
        (
            "eval cases.jsonl --policy default --policy tuned.toml",
            "eval suite:all --policy default --policy similarity -o report.json",
            "eval locomo10.json --by category -e langchain_openai:OpenAIEmbeddings",
        ),
    ),
    Entry(
        "tune",
        tune_command,
        (
            "tune cases.jsonl -o policy.toml",
            "tune cases.jsonl --injection-rate 0.45 -o policy.toml",
            "tune cases.jsonl --store memory.db --namespace memories/ada",
        ),
    ),
    Entry(
        "inspect",
        inspect_command,
        (
            "inspect traces.jsonl -o page.html",
            "inspect traces.jsonl memory.db --serve",
            "inspect memory.db -n memories/ada -o page.html",
        ),
    ),
    Entry(
        "doctor",
        doctor_command,
        (
            "doctor",
            "doctor memory.db --namespace memories/ada --cues cues.txt",
            "doctor memory.db --cues traces.jsonl --target-rate 0.45 -o policy.toml",
        ),
    ),
    Entry("stats", stats_command, ("stats memory.db", "stats memory.db -n memories/ada --json")),
    Entry(
        "export",
        export_command,
        (
            "export memory.db -o memories.jsonl",
            "export memory.db -n memories/ada | grep peanuts",
            "export postgresql://localhost/agent -o memories.jsonl",
        ),
    ),
    Entry(
        "import",
        import_command,
        (
            "import memories.jsonl memory.db",
            "import memories.jsonl new.db --create",
            "import memories.jsonl postgresql://localhost/agent --embeddings wordllama",
        ),
    ),
    Entry(
        "sweep",
        sweep_command,
        (
            "sweep memory.db -n memories/ada",
            "sweep memory.db -n memories/ada --all --apply",
            "sweep memory.db -n memories --steps expire --cold-after 90 --json",
        ),
    ),
    Entry(
        "reindex",
        reindex_command,
        (
            "reindex memory.db -e wordllama",
            "reindex postgresql://localhost/agent -e langchain_openai:OpenAIEmbeddings",
        ),
    ),
)
"""In the order of `--help`; a new command is one more entry."""


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


def _show_version(is_asked: bool) -> None:
    if is_asked:
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
    use_utf8()


def make_app() -> typer.Typer:
    """The command line with all its commands."""
    made = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)
    made.callback(help=_unwrapped(_start))(_start)
    for entry in COMMANDS:
        lines = ["Examples:", *(f"langmem-recall {example}" for example in entry.examples)]
        help = _unwrapped(entry.run)
        made.command(entry.name, help=help, epilog="\n\n".join(lines))(entry.run)
    return made


def _unwrapped(command: Callable[..., Any]) -> str:
    """A docstring with one line a paragraph: the terminal decides where lines end."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs)


app = make_app()
