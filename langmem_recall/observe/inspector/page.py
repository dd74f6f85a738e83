"""`page`: recorded recalls as one HTML file that needs no network and runs no text of theirs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from langmem_recall.observe.inspector.pack import PageData
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Memory, Usage

_SCRIPTS = ("unpack", "whatif", "dom", "controls", "turn", "turns", "memories", "health", "app")
"""In the order in which they need each other."""


def page(
    records: Iterable[Mapping[str, Any]],
    memories: Iterable[Memory | tuple[Memory, Usage]] = (),
    title: str = "Recall inspector",
    *,
    policies: Iterable[RecallPolicy] = (),
) -> str:
    """One self-contained page: turns, what-if, memories and health.

    Args:
        records: What `to_dict` or `read_log` gives; what cannot be read is left out and counted.
        memories: What a store holds, with its usage where it is known. Memories that were ever
            candidates are on the page anyway.
        title: What the page is called.
        policies: Policies of one's own that the records only name, for the sliders to start from.
    """
    data = PageData(policies)
    for record in records:
        data.add(record)
    for item in memories:
        memory, usage = (item, Usage()) if isinstance(item, Memory) else item
        data.add_memory(memory, usage)
    return render_page(data, title)


def render_page(data: PageData, title: str) -> str:
    """The page that holds the data."""
    template, style, script = _assets()
    # Nothing is loaded, nothing runs but our own script, and no text becomes markup.
    rules = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    )
    # The data are Base64: nothing in them can end the element or the page.
    return template.format(
        policy="; ".join(rules),
        title=escape(title),
        style=style,
        data=data.packed(title),
        script=script,
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _assets() -> tuple[str, str, str]:
    """The page's frame, its style and its script."""
    folder = files("langmem_recall.observe.inspector")
    names = ("page.html", "style.css", *(f"script/{name}.js" for name in _SCRIPTS))
    template, style, *scripts = (folder.joinpath(name).read_text("utf-8") for name in names)
    return template, style, '"use strict";\n(() => {\n' + "\n".join(scripts) + "\n})();\n"
