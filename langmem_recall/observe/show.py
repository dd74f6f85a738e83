"""A recall to read: as a record, as a table in a terminal, as a fragment of a notebook."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from langmem_recall.observe.records import from_dict, recall_id, to_dict, to_json
from langmem_recall.types import GATE_WORDS, Drop, Recall, Scored

__all__ = ["from_dict", "html", "printable", "recall_id", "table", "to_dict", "to_json"]

_NARROWEST = 40
_NARROW = 80
"""Below this width a table says less of each memory, so that its text can be read."""
_KEY_WIDTH = 12
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class _Column(NamedTuple):
    title: str
    show: Callable[[int, Scored], str]
    is_number: bool = True
    is_spare: bool = False
    """Whether a narrow table does without it."""


_COLUMNS = (
    _Column("#", lambda place, _: str(place)),
    _Column("score", lambda _, one: f"{one.score:.3f}"),
    _Column("relev", lambda _, one: f"{one.signals.relevance:.2f}"),
    _Column("recent", lambda _, one: f"{one.signals.recency:.2f}", is_spare=True),
    _Column("import", lambda _, one: f"{one.signals.importance:.2f}", is_spare=True),
    _Column("source", lambda _, one: one.memory.source, is_number=False, is_spare=True),
    _Column("key", lambda _, one: shortened(one.memory.key, _KEY_WIDTH), is_number=False),
)


def table(recall: Recall, width: int = 100) -> str:
    """The recall for a terminal: the funnel, what was chosen, what each gate dropped and why."""
    width = max(width, _NARROWEST)
    lines = [*_setting(recall), *_chosen_lines(recall.chosen, width)]
    for drops in _by_gate(recall):
        lines += _drop_lines(drops)
    lines += [f"degraded: {printable(note)}" for note in recall.trace.degraded]
    return "\n".join([str(recall), *(shortened(line, width) for line in lines)])


def html(recall: Recall) -> str:
    """The recall as a self-contained fragment of HTML; every text in it is escaped."""
    heads = "".join(_cell("th", column.title) for column in (*_COLUMNS, _TEXT))
    rows = "".join(
        f"<tr>{''.join(_cell('td', column.show(i, one)) for column in (*_COLUMNS, _TEXT))}</tr>"
        for i, one in enumerate(recall.chosen, start=1)
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    notes = [*_setting(recall), *(f"degraded: {note}" for note in recall.trace.degraded)]
    return (
        '<div style="font-size:90%;overflow-x:auto">'
        f"<p><b>{_escaped(str(recall))}</b></p>"
        f"<p>{'<br>'.join(map(_escaped, notes))}</p>{table}"
        f"{''.join(map(_drops_fragment, _by_gate(recall)))}</div>"
    )


def printable(text: str) -> str:
    """The text on one line, with whatever could move a cursor or turn the writing replaced."""
    if text.isprintable():
        return text
    return "".join(map(_printable, " ".join(text.split())))


def _printable(char: str) -> str:
    # Joiners and directional marks are "format" characters: unprintable, like controls.
    return char if char.isprintable() else _REPLACEMENT


def shortened(text: str, columns: int) -> str:
    """The text made printable and cut to so many columns of a terminal."""
    text = printable(text)
    if _columns(text) <= columns:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns(char)
        if used > columns:
            break
        kept.append(char)
    return f"{''.join(kept).rstrip()}…"


def _columns(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_char_columns(char) for char in text)


def _char_columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _padded(text: str, columns: int, is_number: bool) -> str:
    blanks = " " * (columns - _columns(text))
    return f"{blanks}{text}" if is_number else f"{text}{blanks}"


def _setting(recall: Recall) -> list[str]:
    """What was asked, and where it was looked for."""
    trace = recall.trace
    where = ", ".join("/".join(namespace) or "everywhere" for namespace in trace.namespaces)
    channels = ", ".join(f"{count:,} by {name}" for name, count in trace.channels.items())
    milliseconds = 1e3 * sum(trace.timings.values())
    took = f" · {milliseconds:.1f} ms" if trace.timings else ""
    found = f" ({channels})" if channels else ""
    return [
        f"cue: {printable(' | '.join(trace.cue.searched))}",
        f"in {printable(where)}: {trace.searched:,} stored{found} · {trace.policy}{took}",
    ]


_TEXT = _Column("text", lambda _, one: one.memory.text, is_number=False)


def _chosen_lines(chosen: Sequence[Scored], width: int) -> Iterator[str]:
    if not chosen:
        return
    shown = [column for column in _COLUMNS if width >= _NARROW or not column.is_spare]
    rows = [[column.title for column in shown]]
    rows += [[column.show(i, one) for column in shown] for i, one in enumerate(chosen, start=1)]
    widths = [max(_columns(row[i]) for row in rows) for i in range(len(shown))]
    left = width - sum(widths) - 2 * len(widths)
    texts = [_TEXT.title, *(shortened(one.memory.text, left) for one in chosen)]
    for row, text in zip(rows, texts, strict=True):
        cells = (
            _padded(cell, columns, column.is_number)
            for cell, columns, column in zip(row, widths, shown, strict=True)
        )
        yield f"{'  '.join(cells)}  {text}"


def _by_gate(recall: Recall) -> list[list[Drop]]:
    """Drops by gate, in the order of the gates, the most relevant of each first."""
    gates: dict[str, list[Drop]] = {}
    for drop in recall.dropped:
        gates.setdefault(drop.gate, []).append(drop)
    return [
        sorted(drops, key=lambda one: -one.scored.signals.relevance) for drops in gates.values()
    ]


def _gate_title(drops: Sequence[Drop]) -> str:
    gate = drops[0].gate
    return f"{len(drops)} {GATE_WORDS.get(gate, gate)}"


def _drop_lines(drops: Sequence[Drop]) -> Iterator[str]:
    best = drops[0]
    yield f"dropped {_gate_title(drops)}: {printable(best.reason)}"
    key = shortened(best.memory.key, _KEY_WIDTH)
    yield f"  nearest {key}: {printable(best.memory.text)}"


def _drops_fragment(drops: Sequence[Drop]) -> str:
    rows = "".join(
        f"<li><code>{_escaped(drop.memory.key)}</code> {_escaped(drop.reason)}: "
        f"{_escaped(drop.memory.text)}</li>"
        for drop in drops
    )
    return f"<details><summary>{_escaped(_gate_title(drops))}</summary><ul>{rows}</ul></details>"


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align:left">{_escaped(text)}</{tag}>'


def _escaped(text: str) -> str:
    return escape(printable(text))
