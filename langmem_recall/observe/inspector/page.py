"""`page`: recorded recalls as one HTML file that needs no network and runs no text of theirs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from langmem_recall.observe.inspector.pack import Gathered
from langmem_recall.policy import RecallPolicy
from langmem_recall.types import Memory, Usage

_HERE = "langmem_recall.observe.inspector"
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
    gathered = Gathered(policies)
    for record in records:
        gathered.add(record)
    for held in memories:
        memory, usage = (held, Usage()) if isinstance(held, Memory) else held
        gathered.add_memory(memory, usage)
    script, style = _script(), _style()
    # The data are Base64: nothing in them can end the element or the page.
    return _PAGE.format(
        policy=_content_policy(script, style),
        title=escape(title),
        style=style,
        data=gathered.packed(title),
        script=script,
    )


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<p>Opening the traces …</p>
<noscript>This page needs JavaScript.</noscript>
<script type="application/octet-stream" id="traces">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _content_policy(script: str, style: str) -> str:
    """Nothing is loaded, nothing runs but our own script, and no text becomes markup."""
    rules = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _script() -> str:
    sources = (_read(f"script/{name}.js") for name in _SCRIPTS)
    return '"use strict";\n(() => {\n' + "\n".join(sources) + "\n})();\n"


@cache
def _style() -> str:
    return _read("style.css")


def _read(name: str) -> str:
    return files(_HERE).joinpath(name).read_text(encoding="utf-8")
