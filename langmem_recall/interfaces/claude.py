"""Claude's memory tool (`memory_20250818`) over a store: its files are memories."""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Literal

from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime
from langgraph.store.base import BaseStore
from pydantic import BaseModel

from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import recall_store
from langmem_recall.errors import RecallError
from langmem_recall.memory.value import text_of
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Namespace, Source

DEFINITION = {"type": "memory_20250818", "name": "memory"}
ROOT = "/memories"
MOST_LISTED, MOST_READ = 200, 10_000  # files that a listing names, and that it counts
_NEEDED = {"create": ["file_text"], "str_replace": ["old_str"], "insert": ["insert_text"]}
WRITER: Source = "agent_inferred"  # what the model writes is its own reading, whoever said it


class MemoryCommand(BaseModel):
    """What the model may ask for; each command has arguments of its own."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: str = ""
    view_range: tuple[int, int] = (1, -1)
    file_text: str = ""
    old_str: str = ""
    new_str: str = ""
    insert_line: int | None = None
    insert_text: str = ""
    old_path: str = ""
    new_path: str = ""


class MemoryFiles:
    """The memories of a namespace as files below /memories, under their keys.

    Args:
        store: Where they are; the guard judges what is written.
        namespace: Whose they are.
    """

    def __init__(self, store: RecallStore, namespace: Namespace) -> None:
        self._store, self._namespace = store, namespace

    def execute(self, command: Mapping[str, Any]) -> str:
        """Carry out a command as Claude sends it: the `input` of its tool call."""
        # What the model leaves open comes as null.
        given = {name: argument for name, argument in command.items() if argument is not None}
        asked = MemoryCommand.model_validate(given)
        try:
            key = _key(asked.old_path if asked.command == "rename" else asked.path)
            if missing := [name for name in _NEEDED.get(asked.command, ()) if not given.get(name)]:
                raise RecallError(f"This command needs {missing[0]}.")
            done: str = getattr(self, f"_{asked.command}")(asked, key)
        except RecallError as error:
            raise ToolException(f"error: {error}") from error
        return done

    def _view(self, asked: MemoryCommand, key: str) -> str:
        if (text := self._text(key)) is not None:
            lines, (first, last) = text.split("\n"), asked.view_range
            start, stop = max(first, 1), len(lines) if last == -1 else last
            numbered = enumerate(lines[start - 1 : stop], start)
            shown = "\n".join(f"{number:6}\t{line}" for number, line in numbered)
            return f"{_path(key)}, by line:\n{shown}"
        found = self._below(key)
        if key and not found:
            raise RecallError(f"there is no {_path(key)}. View /memories for what is.")
        shown = "\n".join(f"{len(text)}\t{_path(name)}" for name, text in found[:MOST_LISTED])
        more = f"\nand {len(found) - MOST_LISTED} more" if found[MOST_LISTED:] else ""
        return f"{len(found)} files below {_path(key)}, with their characters:\n{shown}{more}"

    def _create(self, asked: MemoryCommand, key: str) -> str:
        if self._text(key) is not None:
            raise RecallError(f"{_path(key)} exists. Edit it: str_replace, insert.")
        return self._write(key, asked.file_text, "created")

    def _str_replace(self, asked: MemoryCommand, key: str) -> str:
        text, old = self._required(key), asked.old_str
        if text.count(old) != 1:
            raise RecallError(
                f"old_str must stand in {_path(key)} exactly once, and stands there "
                f"{text.count(old)} times. Give it with more of what is around it."
            )
        return self._write(key, text.replace(old, asked.new_str), "edited")

    def _insert(self, asked: MemoryCommand, key: str) -> str:
        lines = self._required(key).split("\n")
        at = len(lines) if asked.insert_line is None else asked.insert_line
        if not 0 <= at <= len(lines):
            raise RecallError(f"insert_line must be 0 to {len(lines)}, got {at}.")
        lines[at:at] = asked.insert_text.removesuffix("\n").split("\n")
        return self._write(key, "\n".join(lines), "edited")

    def _delete(self, asked: MemoryCommand, key: str) -> str:
        is_file = self._text(key) is not None
        names = [key] if is_file else [name for name, _ in self._below(key)]
        if not key or not names:
            raise RecallError(f"there is no {_path(key)} that can be deleted.")
        done = sum(self._store.forget(self._namespace, name, source=WRITER) for name in names)
        waiting = f"; {len(names) - done} wait for a person to confirm it" * (done < len(names))
        return f"{done} of {len(names)} files deleted{waiting}"

    def _rename(self, asked: MemoryCommand, key: str) -> str:
        text, new = self._required(key), _key(asked.new_path)
        if not new or self._text(new) is not None:
            raise RecallError(f"{_path(new)} is taken. Choose another path.")
        said = self._write(new, text, "renamed")
        self._store.forget(self._namespace, key, source=WRITER)
        return said

    def _write(self, key: str, text: str, done: str) -> str:
        memory = self._store.remember(self._namespace, text, key=key, source=WRITER)
        if not memory.in_force:
            return f"{_path(key)}: kept aside, not shown until a person approves it"
        return f"{done} {_path(key)}"

    def _required(self, key: str) -> str:
        if (text := self._text(key)) is None:
            raise RecallError(f"there is no file {_path(key)}. View /memories first.")
        return text

    def _text(self, key: str) -> str | None:
        (memory,) = self._store.memories([(self._namespace, key)]) if key else (None,)
        return memory.text if memory is not None and memory.in_force else None

    def _below(self, key: str) -> list[tuple[str, str]]:
        """Names and texts of what may be read below a path."""
        items = self._store.search(self._namespace, limit=MOST_READ, refresh_ttl=False)
        own = [item for item in items if item.namespace == self._namespace]
        found = sorted((item.key, text_of(item.value)) for item in own)
        return [one for one in found if not key or one[0].startswith(f"{key}/")]


def _key(path: str) -> str:
    """The key of a path below /memories; empty for the folder itself."""
    clean = normpath(path)
    if clean != ROOT and not clean.startswith(f"{ROOT}/"):
        raise RecallError(f"A path begins with {ROOT}/, got {path!r:.80}.")
    return clean.removeprefix(ROOT).strip("/")


def _path(key: str) -> str:
    return f"{ROOT}/{key}".rstrip("/")


def claude_memory_tool(
    namespace: Template | NamespaceTemplate, *, store: BaseStore | None = None
) -> BaseTool:
    """The memory tool for an agent whose model is `ChatAnthropic`.

    Args:
        namespace: Where memories live, such as `("memories", "{user_id}")`; the first of several.
        store: Where to keep them; the store of the run when absent.
    """
    template = NamespaceTemplate.of(namespace)

    # On an event loop LangChain runs it in a thread.
    def call(runtime: ToolRuntime[Any, Any] = None, **command: Any) -> str:  # type: ignore[assignment]
        config = runtime.config if runtime else ensure_config()
        space, *_ = template.resolve(getattr(runtime, "context", None), config)
        held = recall_store(store, getattr(runtime, "store", None))
        return MemoryFiles(held, space).execute(command)

    return StructuredTool.from_function(
        call,
        name=DEFINITION["name"],
        description="Files that outlast the conversation, below /memories.",
        args_schema=MemoryCommand,
        handle_tool_error=str,
        extras={"provider_tool_definition": DEFINITION},
    )
