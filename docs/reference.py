"""Writes `docs/api.md` from the docstrings of the public names: `python docs/reference.py`.

With `--check` it only says whether the page is up to date.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import langmem_recall
from langmem_recall import models, policy, types
from langmem_recall.agents import learning, options, placement
from langmem_recall.agents.options import Options
from langmem_recall.evaluation import cases
from langmem_recall.guard import judge
from langmem_recall.interfaces import claude, mcp, retriever
from langmem_recall.memory import upkeep
from langmem_recall.observe import log, show, telemetry
from langmem_recall.stores import recall_store

WIDTH = 96
LONGEST_DEFAULT = 40
PAGE = Path(__file__).parent / "api.md"
FIELD = re.compile(
    r'^    (\w+): ([^\n=]+?)(?: = [^\n]*)?\n(?:    """(.*?)""")?', re.MULTILINE | re.DOTALL
)
"""A field of a class, and what stands below it."""
HEAD = """# API reference

Made from the docstrings by `python docs/reference.py`; a test keeps it true. Every method that
reads or writes has an async twin named `a...` with the same arguments, left out here.
"""
MORE = {
    "langmem_recall.policy": (policy.Weights,),
    "langmem_recall.types": (types.Scored, types.Signals, types.Evidence, types.Trace),
    "langmem_recall.stores.recall_store": (recall_store.MemoryFields,),
    "langmem_recall.agents.options": (Options,),
    "langmem_recall.agents.learning": (
        *(learning.Learned, learning.Written, learning.Observation, learning.Notes),
    ),
    "langmem_recall.interfaces.retriever": (retriever.RecallRetriever,),
    "langmem_recall.interfaces.claude": (claude.claude_memory_tool, claude.MemoryFiles),
    "langmem_recall.interfaces.mcp": (mcp.mcp_server,),
    "langmem_recall.models": (models.named_embeddings, models.named_chat_model),
    "langmem_recall.observe.log": (log.both, log.read_log, log.erase),
    "langmem_recall.observe.show": (show.table, show.html, show.to_dict, show.from_dict),
    "langmem_recall.observe.telemetry": (telemetry.telemetry,),
    "langmem_recall.evaluation.cases": (cases.cases_from_traces,),
}
"""Names beyond the package's own, by the module that they are imported from."""
CHOICES = {
    name: get_args(kind)
    for module in (types, policy, options, placement, upkeep, judge)
    for name, kind in vars(module).items()
    if get_origin(kind) is Literal
}
"""The names of types that are a choice of words, and the words."""


def page() -> str:
    """The whole page."""
    names = [name for name in langmem_recall.__all__ if not name.startswith("_")]
    parts = [HEAD, "## Allowed values\n"]
    parts += [f"- `{name}`: {_listed(words)}" for name, words in sorted(CHOICES.items())]
    parts += [f"- presets of `RecallPolicy`: {_listed(policy.PRESETS)}", "\n## langmem_recall\n"]
    for name in names:
        parts += _entry(name, getattr(langmem_recall, name))
    for module, held in MORE.items():
        parts.append(f"## {module}\n")
        for one in held:
            parts += _entry(one.__name__, one)
    return "\n".join(parts)


def _listed(words: Any) -> str:
    return ", ".join(f'`"{word}"`' for word in words)


def _entry(name: str, held: Any) -> Iterator[str]:
    yield f"### {name}\n"
    yield f"```text\n{_signature(name, held)}\n```\n"
    yield _told(held)
    if inspect.isclass(held):
        yield from _fields(held)
        yield from _methods(held)


def _signature(name: str, held: Any) -> str:
    try:
        signature = inspect.signature(held)
    except ValueError:
        return name
    told = list(_arguments(signature))
    answer = "" if inspect.isclass(held) else f" -> {_plain(signature.return_annotation)}"
    short = f"{name}({', '.join(told)}){answer}"
    if len(short) <= WIDTH:
        return short
    lines = "".join(f"    {one},\n" for one in told)
    return f"{name}(\n{lines}){answer}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    """Each as it is written in the source; what is made by a function as dots."""
    has_star = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not has_star:
            yield "*"
            has_star = True
        star = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {_plain(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        yield f"{star}{one.name}{kind}{default}"


def _plain(annotation: Any) -> str:
    spelt = getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", "Any")
    told = annotation if isinstance(annotation, str) else spelt
    return told.replace("langmem_recall.", "")


def _default(held: Any) -> str:
    told = repr(held)
    return "..." if told.startswith("<") or len(told) > LONGEST_DEFAULT else told


def _told(held: Any) -> str:
    text = inspect.getdoc(held) or ""
    lines = []
    for line in text.splitlines():
        head = re.fullmatch(r"(Args|Returns|Raises):", line)
        item = re.fullmatch(r"    (\*{0,2}\w+): (.*)", line)
        if head:
            lines.append(f"**{head[1]}**\n")
        elif item:
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif line.startswith("        "):
            lines.append(f"  {line.strip()}")
        else:
            lines.append(line.removeprefix("    "))
    return "\n".join(lines) + "\n"


def _fields(held: type) -> Iterator[str]:
    """Fields with type, default and allowed values, and what the source says below each of them."""
    is_record = dataclasses.is_dataclass(held) or hasattr(held, "_fields")
    if not (is_record or hasattr(held, "__required_keys__") or hasattr(held, "model_fields")):
        return
    rows = FIELD.findall(inspect.getsource(held))
    knobs = (
        {knob.name: knob for knob in dataclasses.fields(held)}
        if is_record and hasattr(held, "__dataclass_fields__")
        else {}
    )
    signature = inspect.signature(held).parameters if is_record else {}
    for name, kind, told in rows:
        default = getattr(signature.get(name), "default", inspect.Parameter.empty)
        given = "" if default is inspect.Parameter.empty else f" = {_default(default)}"
        notes = [_range(knobs[name].metadata)] if name in knobs else []
        notes += [_listed(CHOICES[word]) for word in re.findall(r"\w+", kind) if word in CHOICES]
        allowed = "; ".join(filter(None, notes))
        about = " ".join(told.split())
        words = ". ".join(filter(None, (allowed and f"({allowed})", about))).replace("). ", ") ")
        yield f"- `{name}: {kind}{given}`{': ' if words else ''}{words}"
    if rows:
        yield ""


def _range(metadata: Any) -> str:
    if "range" not in metadata:
        return ""
    low, high = metadata["range"]
    return f"at least {low:g}" if high == float("inf") else f"{low:g} to {high:g}"


def _methods(held: type) -> Iterator[str]:
    for name, method in sorted(inspect.getmembers(held, _is_public)):
        home = getattr(method, "fget", None) or method
        if not str(home.__module__).startswith("langmem_recall"):
            continue
        told = (inspect.getdoc(home) or "").partition("\n")[0]
        if name.startswith("_") or (name[0] == "a" and hasattr(held, name[1:])):
            continue
        signature = inspect.signature(home)
        answer = _plain(signature.return_annotation)
        if isinstance(method, property):
            yield f"- `{name}: {answer}`: {told}"
        else:
            own = [each for each in _arguments(signature) if each not in ("self", "cls")]
            yield f"- `{name}({', '.join(own)}) -> {answer}`: {told}"
    yield ""


def _is_public(member: Any) -> bool:
    return inspect.isfunction(member) or inspect.ismethod(member) or isinstance(member, property)


def main() -> None:
    """Write the page, or say whether it is up to date."""
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if PAGE.read_text() == page() else "docs/api.md is old: run docs/reference.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
