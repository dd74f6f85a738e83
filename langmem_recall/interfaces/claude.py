"""Claude's memory tool (`memory_20250818`) over a store: its files are memories."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from posixpath import normpath
from typing import Any, Literal

from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.prebuilt import ToolRuntime
from langgraph.store.base import BaseStore
from pydantic import BaseModel

from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import recall_store, store_call
from langmem_recall.errors import InputError, RecallError
from langmem_recall.flows.effects import CALLS, Call, arun, run
from langmem_recall.memory.value import text_of
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Namespace, Source

DEFINITION = {"type": "memory_20250818", "name": "memory"}
ROOT = "/memories"
MOST_LISTED, MOST_READ = 200, 10_000  # files that a listing names, and that it counts
WRITER: Source = "agent_inferred"  # what the model writes is its own reading, whoever said it

Steps = Generator[Call, Any, str]


class MemoryCommand(BaseModel):
    """What the model may ask for; each command has arguments of its own."""

    command: Literal["view", "create", "str_replace", "insert", "delete", "rename"]
    path: str | None = None
    view_range: list[int] | None = None
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None


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
        return run(self._steps(MemoryCommand.model_validate(command)), CALLS)

    async def aexecute(self, command: Mapping[str, Any]) -> str:
        """The same on an event loop."""
        return await arun(self._steps(MemoryCommand.model_validate(command)), CALLS)

    def _steps(self, command: MemoryCommand) -> Steps:
        steps: Steps = getattr(self, f"_{command.command}")(command)
        try:
            return (yield from steps)
        except RecallError as error:
            raise ToolException(f"error: {error}") from error

    def _view(self, command: MemoryCommand) -> Steps:
        key = _key(command.path)
        text = (yield from self._text(key)) if key else None
        if text is not None:
            lines = text.split("\n")
            first, last = command.view_range or (1, -1)
            stop = len(lines) if last == -1 else last
            numbered = enumerate(lines[max(first, 1) - 1 : stop], max(first, 1))
            shown = "\n".join(f"{number:6}\t{line}" for number, line in numbered)
            return f"{_path(key)}, by line:\n{shown}"
        found = yield from self._below(key)
        if key and not found:
            raise ToolException(f"error: there is no {_path(key)}. View /memories for what is.")
        shown = "\n".join(f"{len(text)}\t{_path(name)}" for name, text in found[:MOST_LISTED])
        more = f"\nand {len(found) - MOST_LISTED} more" if found[MOST_LISTED:] else ""
        return f"{len(found)} files below {_path(key)}, with their characters:\n{shown}{more}"

    def _create(self, command: MemoryCommand) -> Steps:
        key = _key(command.path)
        if (yield from self._text(key)) is not None:
            raise ToolException(f"error: {_path(key)} exists. Edit it: str_replace, insert.")
        return (yield from self._write(key, _given(command.file_text, "file_text"), "created"))

    def _str_replace(self, command: MemoryCommand) -> Steps:
        key, old = _key(command.path), _given(command.old_str, "old_str")
        text = yield from self._required(key)
        if text.count(old) != 1:
            raise ToolException(
                f"error: old_str must stand in {_path(key)} exactly once, and stands there "
                f"{text.count(old)} times. Give it with more of what is around it."
            )
        return (yield from self._write(key, text.replace(old, command.new_str or ""), "edited"))

    def _insert(self, command: MemoryCommand) -> Steps:
        key, words = _key(command.path), _given(command.insert_text, "insert_text")
        lines = (yield from self._required(key)).split("\n")
        at = len(lines) if command.insert_line is None else command.insert_line
        if not 0 <= at <= len(lines):
            raise ToolException(f"error: insert_line must be 0 to {len(lines)}, got {at}.")
        lines[at:at] = words.removesuffix("\n").split("\n")
        return (yield from self._write(key, "\n".join(lines), "edited"))

    def _delete(self, command: MemoryCommand) -> Steps:
        key = _key(command.path)
        is_file = bool(key) and (yield from self._text(key)) is not None
        names = [key] if is_file else [name for name, _ in (yield from self._below(key))]
        if not key or not names:
            raise ToolException(f"error: there is no {_path(key)} that can be deleted.")
        done = 0
        for name in names:
            done += yield self._ask("forget", name, source=WRITER)
        waiting = f"; {len(names) - done} wait for a person to confirm it" * (done < len(names))
        return f"{done} of {len(names)} files deleted{waiting}"

    def _rename(self, command: MemoryCommand) -> Steps:
        key, new = _key(command.old_path), _key(command.new_path)
        text = yield from self._required(key)
        if not new or (yield from self._text(new)) is not None:
            raise ToolException(f"error: {_path(new)} is taken. Choose another path.")
        said = yield from self._write(new, text, "renamed")
        yield self._ask("forget", key, source=WRITER)
        return said

    def _write(self, key: str, text: str, done: str) -> Steps:
        memory = yield self._ask("remember", text, key=key, source=WRITER)
        if not memory.in_force:
            return f"{_path(key)}: kept aside, not shown until a person approves it"
        return f"{done} {_path(key)}"

    def _required(self, key: str) -> Steps:
        text = yield from self._text(key)
        if text is None:
            raise ToolException(f"error: there is no file {_path(key)}. View /memories first.")
        return text

    def _text(self, key: str) -> Generator[Call, Any, str | None]:
        memory_id = (self._namespace, key)
        (memory,) = yield store_call(self._store, "memories", [memory_id])
        return memory.text if memory is not None and memory.in_force else None

    def _below(self, key: str) -> Generator[Call, Any, list[tuple[str, str]]]:
        """Names and texts of what may be read below a path."""
        ask: Any = {"limit": MOST_READ, "refresh_ttl": False}
        items = yield Call(
            lambda: self._store.search(self._namespace, **ask),
            lambda: self._store.asearch(self._namespace, **ask),
        )
        own = [item for item in items if item.namespace == self._namespace]
        found = sorted((item.key, text_of(item.value)) for item in own)
        return [one for one in found if not key or one[0].startswith(f"{key}/")]

    def _ask(self, method: str, *args: Any, **fields: Any) -> Call:
        return store_call(self._store, method, self._namespace, *args, **fields)


def _key(path: str | None) -> str:
    """The key of a path below /memories; empty for the folder itself."""
    clean = normpath(path or "")
    if clean != ROOT and not clean.startswith(f"{ROOT}/"):
        raise InputError(f"A path begins with {ROOT}/, got {path!r:.80}.")
    return clean.removeprefix(ROOT).strip("/")


def _path(key: str) -> str:
    return f"{ROOT}/{key}".rstrip("/")


def _given(text: str | None, name: str) -> str:
    if not text:
        raise InputError(f"This command needs {name}.")
    return text


def claude_memory_tool(
    namespace: Template | NamespaceTemplate, *, store: BaseStore | None = None
) -> BaseTool:
    """The memory tool for an agent whose model is `ChatAnthropic`.

    Args:
        namespace: Where memories live, such as `("memories", "{user_id}")`; the first of several.
        store: Where to keep them; the store of the run when absent.
    """
    template = NamespaceTemplate.of(namespace)

    def files(runtime: Any) -> MemoryFiles:
        config = runtime.config if runtime else ensure_config()
        spaces = template.resolve(getattr(runtime, "context", None), config)
        return MemoryFiles(recall_store(store, getattr(runtime, "store", None)), spaces[0])

    def call(runtime: ToolRuntime[Any, Any] = None, **command: Any) -> str:  # type: ignore[assignment]
        return files(runtime).execute(command)

    async def acall(runtime: ToolRuntime[Any, Any] = None, **command: Any) -> str:  # type: ignore[assignment]
        return await files(runtime).aexecute(command)

    return StructuredTool.from_function(
        call,
        acall,
        name=DEFINITION["name"],
        description="Files that outlast the conversation, below /memories.",
        args_schema=MemoryCommand,
        handle_tool_error=str,
        extras={"provider_tool_definition": DEFINITION},
    )
