"""What commands read: cases, policies, embedders and recorded cues, by the names users give."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from langmem_recall.errors import InputError
from langmem_recall.policy import PRESETS, RecallPolicy
from langmem_recall.types import Cue, Namespace

if TYPE_CHECKING:
    from langmem_recall.cli.stores import EmbedderChoice
    from langmem_recall.evaluation.cases import CaseSet

EMBEDDINGS_HELP = "wordllama, none, or module:name of a LangChain embedder or of what makes one."
_POLICY_HELP = "A policy file or a preset: default, weighted, coding, similarity and others."

CasesSource = Annotated[
    str,
    typer.Argument(
        metavar="CASES", help="JSONL of memories and cues, or a log of traces with feedback."
    ),
]
PolicyChoice = Annotated[
    str | None, typer.Option("--policy", "-p", metavar="NAME|FILE", help=_POLICY_HELP)
]
PolicyChoices = Annotated[
    list[str] | None,
    typer.Option("--policy", "-p", metavar="NAME|FILE", help=f"{_POLICY_HELP} May be repeated."),
]
EmbeddingsChoice = Annotated[
    str | None, typer.Option("--embeddings", "-e", metavar="NAME", help=EMBEDDINGS_HELP)
]


def load_embedder(name: str | None) -> EmbedderChoice:
    """The embedder of that name; False for none at all, None when nothing was named."""
    if name is None or name == "none":
        return None if name is None else False
    if name == "wordllama":
        from langmem_recall.embeddings import LocalEmbeddings

        return LocalEmbeddings()
    from langchain_core.embeddings import Embeddings

    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InputError(
            f"--embeddings must be wordllama, none or module:name, got {name!r}. Write "
            "langchain_openai:OpenAIEmbeddings."
        )
    # A script in the current folder can be named too, after everything that is installed.
    sys.path.append(str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
        made = found if isinstance(found, Embeddings) else found()
    except Exception as error:
        raise InputError(
            f"The embedder {name} cannot be had ({type(error).__name__}: {error}). Name an "
            "embedder, or something that makes one without arguments."
        ) from error
    finally:
        sys.path.pop()
    if not isinstance(made, Embeddings):
        raise InputError(f"{name} gives {made!r:.80}, which is no LangChain Embeddings.")
    return made


def load_policy(name: str) -> RecallPolicy:
    """A preset by its name, or a policy file."""
    if name in PRESETS:
        preset: RecallPolicy = getattr(RecallPolicy, name)()
        return preset
    if not Path(name).is_file():
        raise InputError(
            f"{name!r} is neither a policy file nor a preset. Presets: {', '.join(PRESETS)}."
        )
    return RecallPolicy.load(name)


def load_case_set(source: str) -> CaseSet:
    """The cases of a file, or of a log of traces."""
    try:
        record = json.loads(_first_line(Path(source)))
    except ValueError:
        record = None
    if isinstance(record, dict) and record.keys() >= {"version", "kind"}:
        from langmem_recall.evaluation.cases import cases_from_traces
        from langmem_recall.observe.log import read_log

        return cases_from_traces(read_log(source), name=Path(source).stem)
    from langmem_recall.evaluation.cases import load_cases

    return load_cases(source)


class RecordedCue(NamedTuple):
    """A cue that was asked once, with what a trace tells of it."""

    cue: Cue
    namespaces: tuple[Namespace, ...] = ()
    is_trace: bool = False
    budget_tokens: int | None = None


def read_cues(path: Path) -> list[RecordedCue]:
    """Cues from a file: one a line as plain text, or a log of traces as JSON lines."""
    if _first_line(path).startswith("{"):
        from langmem_recall.observe.log import read_log

        # A log holds feedback as well.
        recalls = (each for each in read_log(path) if each.get("kind", "recall") == "recall")
        cues = [_read_trace(record, path.name) for record in recalls]
    else:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
        cues = [RecordedCue(Cue(line.strip())) for line in lines if line.strip()]
    if not cues:
        raise InputError(f"{path} holds no cues. Write one a line, or pass recorded traces.")
    return cues


def _first_line(path: Path) -> str:
    """The first line that is not blank."""
    try:
        with path.open(encoding="utf-8-sig") as lines:
            return next((line.strip() for line in lines if line.strip()), "")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}. Pass a UTF-8 file.") from error


def _read_trace(record: dict[str, Any], file: str) -> RecordedCue:
    """Only what is needed: reading every candidate of a long log would take its time."""
    cue, budget = record.get("cue"), record.get("budget")
    fields: Any = {"text": cue} if isinstance(cue, str) else cue
    try:
        text, parts, task = fields.get("text") or "", fields.get("parts") or (), fields.get("task")
        places = tuple(tuple(map(str, labels)) for labels in record.get("namespaces") or ())
        if not (text or parts) or not all(isinstance(each, str) for each in (text, *parts)):
            raise TypeError("no words")
        if not isinstance(task, str | None):
            raise TypeError("a task is a text")
    except (AttributeError, TypeError) as error:
        raise InputError(
            f'{file}: There is no cue in {record!s:.80}. A trace has {{"cue": {{"text": ...}}}}.'
        ) from error
    tokens = budget if isinstance(budget, int) else None
    return RecordedCue(Cue(text, tuple(parts), task), places, True, tokens)
