"""Running commands in this process, and a store file for them to look at."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from langmem_recall.cli.app import app
from langmem_recall.observe.show import to_dict
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

ADA, BOB = ("memories", "ada"), ("memories", "bob")
TOLD = (
    ("seat", "I always book an aisle seat on flights", "user_stated", 0.5),
    ("peanuts", "I am allergic to peanuts", "user_stated", 0.9),
    ("sister", "My sister Mia lives in Bergen", "agent_inferred", 0.3),
)
ON_TOPIC = ("Which seat for my flight?", "Am I allergic to peanuts?", "Where does my sister live?")
OFF_TOPIC = ("Who composed the opera Tosca?", "How tall is Mount Everest?", "What is a monad?")


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def run(*args: object, stdin: str | None = None) -> Ran:
    """Run a command; an error that is not ours is raised."""
    result = CliRunner().invoke(app, [str(arg) for arg in args], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def fill(path: Path, **settings: Any) -> Path:
    """A store of Ada's three memories and one of Bob's, written 10 days ago."""
    written = datetime.now(UTC) - timedelta(days=10)
    with RecallStore(LocalStore(path, **settings)) as store:
        for key, text, source, salience in TOLD:
            store.remember(ADA, text, key=key, source=source, salience=salience, written_at=written)
        store.remember(BOB, "I play the cello", key="cello", kind="episodic")
    return path


def write(path: Path, *lines: object) -> Path:
    """A file of lines, JSON unless they are text."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def log_cues(store: Path, path: Path, *cues: str) -> Path:
    """A log of recalls for these cues among Ada's memories."""
    with RecallStore(LocalStore(store), record=False) as reader:
        return write(path, *(to_dict(reader.recall(ADA, cue)) for cue in cues))


def write_cases(path: Path) -> Path:
    """Cases that every policy can tell apart from the off-topic cue."""
    return write(
        path,
        {"key": "seat", "content": "I always book an aisle seat on flights"},
        {"key": "peanuts", "content": "I am allergic to peanuts"},
        {"cue": "Which seat for my flight?", "relevant": ["seat"], "category": "travel"},
        {"cue": "Am I allergic to peanuts?", "relevant": ["peanuts"], "category": "food"},
        {"cue": "Who composed Tosca?", "relevant": []},
    )
