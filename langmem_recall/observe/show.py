"""A recall to read: as a record, as a table in a terminal, as a fragment of a notebook."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import accumulate
from typing import NamedTuple

from langmem_recall.observe.records import from_dict, recall_id, to_dict, to_json
from langmem_recall.types import GATE_WORDS, Drop, Recall, Scored

__all__ = ["from_dict", "html", "printable", "recall_id", "table", "to_dict", "to_json"]

_NARROWEST = 40
_NARROW = 80
"""Below this width a table says less of each memory, so that its text can be read."""
_KEY_WIDTH = 12


class _Column(NamedTuple):
    title: str
    show: Callable[[int, Scored], str]
    is_number: bool = True
    is_spare: bool = False
    """Whether a narrow table does without it."""


_COLUMNS = (
    _Column("#", lambda place, _: str(place)),
    _Column("score", lambda _, scored: f"{scored.score:.3f}"),
    _Column("relev", lambda _, scored: f"{scored.signals.relevance:.2f}"),
    _Column("recent", lambda _, scored: f"{scored.signals.recency:.2f}", is_spare=True),
    _Column("import", lambda _, scored: f"{scored.signals.importance:.2f}", is_spare=True),
    _Column("source", lambda _, scored: scored.memory.source, is_number=False, is_spare=True),
    _Column("key", lambda _, scored: shortened(scored.memory.key, _KEY_WIDTH), is_number=False),
)


def table(recall: Recall, width: int = 100) -> str:
    """The recall for a terminal: the funnel, what was chosen, what each gate dropped and why."""
    width = max(width, _NARROWEST)
    lines = [*_setting(recall), *_chosen_lines(recall.chosen, width)]
    for title, drops in _drops_by_gate(recall):
        nearest = drops[0]
        lines.append(f"dropped {title}: {printable(nearest.reason)}")
        key = shortened(nearest.memory.key, _KEY_WIDTH)
        lines.append(f"  nearest {key}: {printable(nearest.memory.text)}")
    lines += [f"degraded: {printable(note)}" for note in recall.trace.degraded]
    return "\n".join([str(recall), *(shortened(line, width) for line in lines)])


def html(recall: Recall) -> str:
    """The recall as a self-contained fragment of HTML; every text in it is escaped."""
    titles = [*(column.title for column in _COLUMNS), "text"]
    rows = [
        [*(column.show(place, scored) for column in _COLUMNS), scored.memory.text]
        for place, scored in enumerate(recall.chosen, start=1)
    ]
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{_cells('th', titles)}</tr></thead>"
    chosen = f"<table>{head}<tbody>{body}</tbody></table>" if rows else ""
    dropped = ""
    for title, drops in _drops_by_gate(recall):
        items = "".join(
            f"<li><code>{_escaped(drop.memory.key)}</code> {_escaped(drop.reason)}: "
            f"{_escaped(drop.memory.text)}</li>"
            for drop in drops
        )
        dropped += f"<details><summary>{_escaped(title)}</summary><ul>{items}</ul></details>"
    notes = [*_setting(recall), *(f"degraded: {note}" for note in recall.trace.degraded)]
    return (
        '<div style="font-size:90%;overflow-x:auto">'
        f"<p><b>{_escaped(str(recall))}</b></p>"
        f"<p>{'<br>'.join(map(_escaped, notes))}</p>{chosen}{dropped}</div>"
    )


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f'<{tag} style="text-align:left">{_escaped(text)}</{tag}>' for text in texts)


def _escaped(text: str) -> str:
    return escape(printable(text))


def printable(text: str) -> str:
    """The text on one line, with whatever could move a cursor or turn the writing replaced."""
    if text.isprintable():
        return text
    # Joiners and directional marks are "format" characters: unprintable, like controls.
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)


def shortened(text: str, columns: int) -> str:
    """The text made printable and cut to so many columns of a terminal."""
    text = printable(text)
    if _columns(text) <= columns:
        return text
    used = accumulate(map(_columns, text), initial=1)
    end = max(sum(total <= columns for total in used) - 1, 0)
    return f"{text[:end].rstrip()}…"


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    spacing = (char for char in text if not unicodedata.combining(char))
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in spacing)


def _setting(recall: Recall) -> list[str]:
    """What was asked, and where it was looked for."""
    trace = recall.trace
    where = ", ".join("/".join(namespace) or "everywhere" for namespace in trace.namespaces)
    channels = ", ".join(f"{count:,} by {name}" for name, count in trace.channels.items())
    took = f" · {1e3 * sum(trace.timings.values()):.1f} ms" if trace.timings else ""
    found = f" ({channels})" if channels else ""
    return [
        f"cue: {printable(' | '.join(trace.cue.searched))}",
        f"in {printable(where)}: {trace.searched:,} stored{found} · {trace.policy}{took}",
    ]


def _chosen_lines(chosen: Sequence[Scored], width: int) -> Iterator[str]:
    if not chosen:
        return
    columns = [column for column in _COLUMNS if width >= _NARROW or not column.is_spare]
    rows = [[column.title for column in columns]]
    rows += [
        [column.show(place, scored) for column in columns]
        for place, scored in enumerate(chosen, start=1)
    ]
    widths = [max(map(_columns, cells)) for cells in zip(*rows, strict=True)]
    left = width - sum(widths) - 2 * len(widths)
    texts = ["text", *(shortened(scored.memory.text, left) for scored in chosen)]
    for row, text in zip(rows, texts, strict=True):
        line = ""
        for cell, cell_width, column in zip(row, widths, columns, strict=True):
            blanks = " " * (cell_width - _columns(cell))
            line += f"{blanks}{cell}  " if column.is_number else f"{cell}{blanks}  "
        yield line + text


def _drops_by_gate(recall: Recall) -> Iterator[tuple[str, list[Drop]]]:
    """Drops in the order of the gates, the most relevant of each first, under a title."""
    gates: dict[str, list[Drop]] = {}
    for drop in recall.dropped:
        gates.setdefault(drop.gate, []).append(drop)
    for gate, drops in gates.items():
        drops.sort(key=lambda drop: -drop.scored.signals.relevance)
        yield f"{len(drops)} {GATE_WORDS.get(gate, gate)}", drops
