"""Namespaces of a turn: templates filled from the runtime, one tenant never in another's place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple
from uuid import UUID

from langmem_recall.errors import ConfigurationError
from langmem_recall.types import SIDECAR_ROOT, Namespace

RESERVED_ROOTS = ("langgraph", SIDECAR_ROOT)
LONGEST_LABEL = 512
"""Characters in a label, encoded; databases index namespaces and limit what they index."""

# Braces that are no variable's are doubled, as in a format string.
_PIECE = re.compile(r"\{(?P<variable>[A-Za-z]\w*)\}|[^{}]+|\{\{|\}\}|(?P<stray>.)", re.ASCII)
# Dots and NUL are forbidden in labels, `*` matches any label in listings, and what else is here
# some database refuses. `%` is among them so that nothing else can spell an encoded character.
_ENCODED = re.compile("[%.*\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Template = Sequence[str] | Sequence[Sequence[str]]
"""`("memories", "{user_id}")`, or several such tuples."""


class Label(NamedTuple):
    """One label of a template: text, variable, text, variable ... text."""

    texts: tuple[str, ...]
    variables: tuple[str, ...]

    def filled(self, values: Mapping[str, str]) -> str:
        """The label with its variables replaced, different for different values."""
        # What separates two variables may not occur in their values, or "a-b" + "c" is "a" + "b-c".
        separators = "".join(text[0] for text in self.texts[1:-1])
        pieces = [self.texts[0]]
        for name, text in zip(self.variables, self.texts[1:], strict=True):
            pieces += (encoded(values[name], separators), text)
        return "".join(pieces)


@dataclass(frozen=True, slots=True)
class NamespaceTemplate:
    """Where an agent's memories live, with variables such as `{user_id}`.

    Args:
        template: A tuple of labels, or several tuples (user and team): the first is written to,
            all are read.
    """

    template: Template
    spaces: tuple[tuple[Label, ...], ...] = field(init=False, repr=False, compare=False)
    """The labels of each namespace, taken apart."""

    def __post_init__(self) -> None:
        spellings = _spellings(self.template)
        object.__setattr__(self, "template", spellings)
        object.__setattr__(self, "spaces", tuple(map(_parse, spellings)))
        for one, other in combinations(range(len(spellings)), 2):
            if _may_coincide(self.spaces[one], self.spaces[other]):
                raise ConfigurationError(
                    f"The namespaces {spellings[one]!r} and {spellings[other]!r} are one where "
                    "their variables have the same value, so that one tenant would read another. "
                    'Tell them apart by a label: ("users", "{user_id}") and ("teams", "{team_id}").'
                )

    @classmethod
    def of(cls, namespace: Template | NamespaceTemplate) -> NamespaceTemplate:
        """A template as it is, or made from tuples of labels."""
        return namespace if isinstance(namespace, cls) else cls(namespace)  # type: ignore[arg-type]

    def resolve(self, context: Any, config: Mapping[str, Any] | None) -> tuple[Namespace, ...]:
        """The namespaces of this run.

        Args:
            context: The run's context (mapping, dataclass or any object): comes first.
            config: The run's configuration; its "configurable" counts where the context has
                no such variable, or None.
        """
        values: dict[str, str] = {}
        for spelling, space in zip(self.template, self.spaces, strict=True):
            for name in (name for label in space for name in label.variables):
                values[name] = values.get(name) or _value(name, spelling, context, config)
        namespaces = tuple(tuple(label.filled(values) for label in space) for space in self.spaces)
        for namespace in namespaces:
            if namespace[0] in RESERVED_ROOTS:
                raise ConfigurationError(
                    f"The first label of a namespace may not be {namespace[0]!r}. "
                    'Begin the namespace with a label of its own, as ("memories", "{user_id}").'
                )
            longest = max(map(len, namespace))
            if longest > LONGEST_LABEL:
                raise ConfigurationError(
                    f"A namespace label has {longest} characters, at most {LONGEST_LABEL} are "
                    "possible. Use a shorter identifier."
                )
        # A value that spells another namespace's label would open that namespace.
        for one, other in combinations(range(len(namespaces)), 2):
            depth = min(len(namespaces[one]), len(namespaces[other]))
            is_one_place = namespaces[one][:depth] == namespaces[other][:depth]
            if is_one_place and self.spaces[one][:depth] != self.spaces[other][:depth]:
                raise ConfigurationError(
                    f"The values of this run make {self.template[one]!r} and "
                    f"{self.template[other]!r} overlap at {namespaces[one][:depth]!r}. Tell the "
                    "namespaces apart by a label of their own."
                )
        return namespaces


def encoded(value: str, separators: str = "") -> str:
    """A value as part of a label, percent-encoded where a label cannot hold a character."""
    return "".join(
        "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        if char in separators or _ENCODED.match(char)
        else char
        for char in value
    )


def _value(name: str, spelling: Any, context: Any, config: Mapping[str, Any] | None) -> str:
    """A variable's value as text; an enumeration's value, never its name."""
    value = context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
    if value is None:
        value = ((config or {}).get("configurable") or {}).get(name)
    text = ""
    if isinstance(value, str):
        text = str.__str__(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        text = int.__repr__(value)
    elif isinstance(value, UUID):
        text = str(value)
    if text.strip():
        return text
    state = "missing" if value is None else f"not usable, got {value!r:.80}"
    raise ConfigurationError(
        f"Namespace variable {name!r} of {spelling!r} is {state}. Give a non-empty "
        f'text, number or UUID as context={{"{name}": ...}} when you invoke the agent, or as '
        f'config={{"configurable": {{"{name}": ...}}}}.'
    )


def _spellings(template: Any) -> tuple[tuple[str, ...], ...]:
    """The tuples of labels, whether one or several were given."""

    def is_list(found: Any, kind: Any) -> bool:
        return isinstance(found, list | tuple) and all(isinstance(item, kind) for item in found)

    spaces = [template] if is_list(template, str) else template
    if is_list(spaces, list | tuple) and all(space and is_list(space, str) for space in spaces):
        return tuple(map(tuple, spaces))
    raise ConfigurationError(
        f"A namespace must be a tuple of labels, or several such tuples, got {template!r:.200}. "
        'Write ("memories", "{user_id}").'
    )


def _parse(spelling: tuple[str, ...]) -> tuple[Label, ...]:
    try:
        labels = tuple(map(_label, spelling))
        if not labels[0].variables and labels[0].texts[0] in RESERVED_ROOTS:
            raise ValueError(f"the first label {spelling[0]!r} is reserved")
    except ValueError as fault:
        raise ConfigurationError(
            f"The namespace {spelling!r:.200} cannot be used: {fault}. Write labels of plain text "
            'and variables, as ("memories", "{user_id}").'
        ) from None
    return labels


def _label(text: str) -> Label:
    """A label taken apart; a ValueError says what is wrong with it."""
    texts, variables = [""], list[str]()
    for piece in _PIECE.finditer(text):
        if piece["stray"]:
            raise ValueError(f"{text!r} does not name a variable plainly, as {{user_id}}")
        if piece["variable"]:
            variables.append(piece["variable"])
            texts.append("")
        else:
            texts[-1] += piece.group().replace("{{", "{").replace("}}", "}")
    joined = "".join(texts)
    if not text.strip() or (not variables and not joined.strip()):
        raise ValueError("a label is empty")
    if not all(texts[1:-1]):
        raise ValueError(f"{text!r} needs a text between its variables")
    # Only beside a variable can a plain `%` be mistaken for an encoded character.
    found = _ENCODED.search(joined if variables else joined.replace("%", ""))
    if found:
        raise ValueError(f"{text!r} contains {found.group()!r}")
    if len(joined) > LONGEST_LABEL:
        raise ValueError(f"a label is longer than {LONGEST_LABEL} characters")
    return Label(tuple(texts), tuple(variables))


def _may_coincide(one: Sequence[Label], other: Sequence[Label]) -> bool:
    """Whether different variables can make one namespace equal to, or lie below, another."""
    by_values = False
    for left, right in zip(one, other, strict=False):
        if left == right:
            continue
        heads = sorted((left.texts[0], right.texts[0]), key=len)
        tails = sorted((left.texts[-1], right.texts[-1]), key=len)
        is_fixed = not left.variables and not right.variables
        if is_fixed or not heads[1].startswith(heads[0]) or not tails[1].endswith(tails[0]):
            return False
        by_values = by_values or bool(left.variables and right.variables)
    return by_values
