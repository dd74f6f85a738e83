from __future__ import annotations

import enum
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from langmem_recall.agents.namespace import LONGEST_LABEL, NamespaceTemplate
from langmem_recall.errors import ConfigurationError
from langmem_recall.types import SIDECAR_ROOT


def resolved(*template: str, **values: Any) -> tuple[str, ...]:
    (namespace,) = NamespaceTemplate(template).resolve(values, None)
    return namespace


@dataclass
class DataContext:
    user_id: str | None = "alice"


class ModelContext(BaseModel):
    user_id: str = "alice"


class PlainContext:
    user_id = "alice"


class Role(enum.StrEnum):
    ADMIN = "alice"


class Mixed(str, enum.Enum):  # noqa: UP042 the older spelling prints its name, not its value
    ADMIN = "alice"


@pytest.mark.parametrize(
    "context", [{"user_id": "alice"}, DataContext(), ModelContext(), PlainContext()]
)
def test_a_variable_comes_from_any_kind_of_context(context: Any) -> None:
    template = NamespaceTemplate(("memories", "{user_id}"))
    assert template.resolve(context, {"configurable": {"user_id": "bob"}}) == (
        ("memories", "alice"),
    )


@pytest.mark.parametrize("context", [None, {}, {"user_id": None}, DataContext(None), object()])
def test_the_configuration_is_asked_where_the_context_says_nothing(context: Any) -> None:
    template = NamespaceTemplate(("memories", "{user_id}"))
    config = {"configurable": {"user_id": "bob"}}
    assert template.resolve(context, config) == (("memories", "bob"),)


@pytest.mark.parametrize("config", [None, {}, {"configurable": None}, {"configurable": {}}])
def test_a_missing_variable_names_itself_the_template_and_both_places(config: Any) -> None:
    template = NamespaceTemplate(("memories", "{user_id}"))
    with pytest.raises(ConfigurationError) as caught:
        template.resolve(None, config)
    said = str(caught.value)
    assert "'user_id' of ('memories', '{user_id}') is missing" in said
    assert 'context={"user_id": ...}' in said
    assert 'config={"configurable": {"user_id": ...}}' in said


@pytest.mark.parametrize("held", ["", "  ", "\n", True, 1.5, [], b"alice", str.title])
def test_an_empty_or_odd_value_is_an_error_even_where_the_configuration_has_one(held: Any) -> None:
    template = NamespaceTemplate(("memories", "{user_id}"))
    with pytest.raises(ConfigurationError, match="not usable"):
        template.resolve({"user_id": held}, {"configurable": {"user_id": "bob"}})


def test_looking_a_variable_up_leaves_the_context_as_it_is() -> None:
    context: dict[str, str] = defaultdict(lambda: "made up")
    with pytest.raises(ConfigurationError, match="missing"):
        NamespaceTemplate(("memories", "{user_id}")).resolve(context, None)
    assert context == {}


@pytest.mark.parametrize(
    ("held", "label"),
    [
        (7, "7"),
        (-7, "-7"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Role.ADMIN, "alice"),
        (Mixed.ADMIN, "alice"),
        ("ann@example.com", "ann@example%2Ecom"),
        ("50%", "50%25"),
        ("%2E", "%252E"),
        ("*", "%2A"),
        ("a\x00b\n", "a%00b%0A"),
        ("\ud800", "%ED%A0%80"),
        ("Jörg 張", "Jörg 張"),
        ("user_1", "user_1"),
    ],
)
def test_a_value_is_encoded_only_where_a_label_cannot_hold_it(held: Any, label: str) -> None:
    assert resolved("memories", "{user_id}", user_id=held) == ("memories", label)


def test_a_label_may_mix_text_and_variables_and_hold_braces() -> None:
    assert resolved("{org}", "user-{user_id}", "{{x}}", org="o", user_id=3) == (
        "o",
        "user-3",
        "{x}",
    )


def test_several_namespaces_are_resolved_in_their_order() -> None:
    template = NamespaceTemplate([("users", "{user_id}"), ("teams", "{team_id}")])
    assert template.resolve({"user_id": "a"}, {"configurable": {"team_id": "t"}}) == (
        ("users", "a"),
        ("teams", "t"),
    )


def test_a_template_is_taken_as_it_is() -> None:
    template = NamespaceTemplate(("memories", "{user_id}"))
    assert NamespaceTemplate.of(template) is template
    assert NamespaceTemplate.of(("memories", "{user_id}")) == template


@pytest.mark.parametrize(
    "template",
    [
        (),
        [],
        [()],
        "memories",
        None,
        ("",),
        (" ",),
        ("memories", 3),
        (("memories",), "x"),
        ("a.b",),
        ("a\x00",),
        ("*",),
        ("memories", "{user_id"),
        ("memories", "user_id}"),
        ("memories", "{}"),
        ("memories", "{0}"),
        ("memories", "{user.id}"),
        ("memories", "{user[id]}"),
        ("memories", "{user_id!r}"),
        ("memories", "{user_id:>9}"),
        ("memories", "{__class__}"),
        ("memories", "{a}{b}"),
        ("memories", "{a}%{b}"),
        ("memories", "{a}.{b}"),
        ("x" * (LONGEST_LABEL + 1),),
        ("langgraph", "{user_id}"),
        (SIDECAR_ROOT, "{user_id}"),
    ],
)
def test_a_template_that_cannot_work_is_refused_at_once(template: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Write .*\(\"memories\", \"\{user_id\}\"\)"):
        NamespaceTemplate(template)


@pytest.mark.parametrize("root", ["langgraph", SIDECAR_ROOT])
def test_a_value_may_not_spell_a_reserved_root(root: str) -> None:
    with pytest.raises(ConfigurationError, match=root):
        resolved("{org}", "memories", org=root)
    assert resolved("memories", "{org}", org=root) == ("memories", root)


def test_a_value_too_long_to_be_indexed_is_refused() -> None:
    assert resolved("m", "{u}", u="x" * LONGEST_LABEL) == ("m", "x" * LONGEST_LABEL)
    with pytest.raises(ConfigurationError, match="513 characters"):
        resolved("m", "{u}", u="x" * (LONGEST_LABEL + 1))


@pytest.mark.parametrize(
    "template",
    [
        (("memories", "{user_id}"), ("memories", "{team_id}")),
        (("memories", "{user_id}"), ("memories", "{team_id}", "notes")),
        (("memories", "user-{user_id}"), ("memories", "{team_id}")),
        (("{user_id}",), ("{team_id}",)),
    ],
)
def test_a_team_named_like_a_user_may_not_be_the_same_namespace(template: Any) -> None:
    with pytest.raises(ConfigurationError, match="one tenant would read another"):
        NamespaceTemplate(template)


@pytest.mark.parametrize(
    "template",
    [
        (("users", "{user_id}"), ("teams", "{team_id}")),
        (("m", "user-{user_id}"), ("m", "team-{team_id}")),
        (("{user_id}", "own"), ("{team_id}", "shared")),
        (("m", "{org}"), ("m", "{org}", "{user_id}")),
    ],
)
def test_namespaces_that_stay_apart_or_always_nest_are_fine(template: Any) -> None:
    values = {"user_id": "red", "team_id": "red", "org": "red"}
    assert len(NamespaceTemplate(template).resolve(values, None)) == 2


def test_a_user_named_like_a_fixed_label_is_refused_when_it_happens() -> None:
    template = NamespaceTemplate([("memories", "{user_id}"), ("memories", "team", "{team_id}")])
    assert len(template.resolve({"user_id": "ann", "team_id": "red"}, None)) == 2
    with pytest.raises(ConfigurationError, match="overlap"):
        template.resolve({"user_id": "team", "team_id": "red"}, None)


VALUES = st.one_of(
    st.text(st.sampled_from("ab-_.%*2E5\x00é/ "), min_size=1, max_size=6),
    st.text(min_size=1, max_size=6),
    st.text(st.characters(categories=["Cs", "Cc", "L"]), min_size=1, max_size=4),
).filter(lambda value: bool(value.strip()))
TEMPLATES = st.sampled_from(
    [
        ("m", "{a}", "{b}"),
        ("m", "{a}-{b}"),
        ("m", "{a}2{b}"),
        ("m", "u-{a}ab{b}-x"),
        ("m-{a}", "{b}E"),
        ("m", "{b} / {a}"),
    ]
)
PAIRS = st.fixed_dictionaries({"a": VALUES, "b": VALUES})


@given(TEMPLATES, PAIRS, PAIRS)
def test_different_tenants_never_share_a_namespace(
    template: tuple[str, ...], one: dict[str, str], other: dict[str, str]
) -> None:
    same = resolved(*template, **one) == resolved(*template, **other)
    assert same == (one == other)


@given(st.lists(st.sampled_from(["a", "2", "%", "%2D", "E."]), min_size=3, max_size=6))
def test_a_separator_inside_a_value_does_not_move_the_border(words: list[str]) -> None:
    splits = [("-".join(words[:cut]), "-".join(words[cut:])) for cut in range(1, len(words))]
    namespaces = {resolved("m", "{a}-{b}", a=a, b=b) for a, b in splits}
    assert len(namespaces) == len(splits)


@given(TEMPLATES, PAIRS)
def test_every_namespace_is_one_that_a_store_accepts(
    template: tuple[str, ...], values: dict[str, str]
) -> None:
    namespace, store = resolved(*template, **values), InMemoryStore()
    store.put(namespace, "key", {"content": "here"})
    assert [item.key for item in store.search(namespace)] == ["key"]
    assert "".join(namespace).encode()
