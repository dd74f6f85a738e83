from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import PlatformStore
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langgraph.store.memory import InMemoryStore

from langmem_recall import RecallMiddleware, recall_node
from langmem_recall.agents.options import (
    budget_tokens,
    count_tokens,
    recall_store,
)
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import ConfigurationError, StoreError
from langmem_recall.stores.local.backend import LocalBackend
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore

NS = ("memories", "alice")


@dataclass
class EqualStore(InMemoryStore):
    """Unhashable, and equal to any other of its name."""

    name: str = "same"

    def __post_init__(self) -> None:
        super().__init__()


def test_a_recall_store_is_taken_as_it_is() -> None:
    given, other = RecallStore(InMemoryStore()), RecallStore(InMemoryStore())
    assert recall_store(given, other) is given
    assert recall_store(None, other) is other


def test_the_given_store_comes_before_the_one_of_the_run() -> None:
    given, runtime = InMemoryStore(), InMemoryStore()
    assert recall_store(given, runtime).inner is given
    assert recall_store(None, runtime).inner is runtime


def test_no_store_at_all_says_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError, match=r"no store.*Compile the graph with store="):
        recall_store(None, None)


@pytest.mark.parametrize("odd", ["memory.db", {}, object()])
def test_what_is_no_store_is_refused(odd: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a LangGraph BaseStore"):
        recall_store(odd, None)


def test_the_same_store_keeps_its_usage_between_runs(call: Any) -> None:
    inner = InMemoryStore(index={"dims": 256, "embed": LocalEmbeddings(), "fields": ["content"]})
    memory = call(recall_store(None, inner), "remember", NS, "The deploy key is AB-12")
    assert call(recall_store(None, inner), "recall", NS, "deploy key AB-12").memories
    # The use noted by one wrapper is pending in the next, because both are one inside.
    assert call(recall_store(None, inner), "flush") == 1
    assert memory.key == inner.search(NS)[0].key


def test_two_stores_that_are_equal_stay_two() -> None:
    one, other = EqualStore(), EqualStore()
    assert one == other
    recall_store(None, one).remember(NS, "Only in the first")
    assert recall_store(None, other).search(NS) == []
    assert len(recall_store(None, one).search(NS)) == 1


def test_a_store_nobody_uses_dies_and_takes_its_wrapper_along() -> None:
    inner = InMemoryStore()
    recall_store(None, inner).remember(NS, "Soon gone")
    inside = weakref.ref(recall_store(None, inner)._ledger)
    died = weakref.ref(inner)
    del inner
    gc.collect()
    assert died() is None
    assert inside() is None


def test_a_wrapper_in_use_keeps_its_store_alive() -> None:
    wrapper = recall_store(InMemoryStore(), None)
    gc.collect()
    wrapper.remember(NS, "Kept by its only user")
    assert [item.value["content"] for item in wrapper.search(NS)] == ["Kept by its only user"]


def test_what_outlives_its_store_says_that_the_store_is_gone() -> None:
    inner = InMemoryStore()
    host = recall_store(None, inner)._host
    del inner
    gc.collect()
    with pytest.raises(StoreError, match="gone"):
        host.store.batch([])


def test_a_new_store_in_the_place_of_a_dead_one_is_not_mistaken_for_it() -> None:
    for round_ in range(50):
        inner = InMemoryStore()
        wrapper = recall_store(None, inner)
        assert wrapper.search(NS) == []
        wrapper.remember(NS, f"Round {round_}")
        del inner, wrapper


def test_threads_get_one_and_the_same_inside() -> None:
    inner, found, barrier = InMemoryStore(), list[int](), threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        found.append(id(recall_store(None, inner)._host))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_what_a_store_can_do_shows_through_the_wrapper() -> None:
    inner = LocalStore()
    wrapper = recall_store(None, inner)
    assert isinstance(wrapper._backend, LocalBackend)
    assert wrapper._host.embeddings is inner.embeddings
    assert wrapper.supports_ttl == inner.supports_ttl
    wrapper.remember(NS, "The invoice number is INV-4411")
    assert len(wrapper.recall(NS, "invoice INV-4411").memories) == 1


def test_explicit_and_automatic_wrapping_add_usage_under_one_lock() -> None:
    inner = InMemoryStore()
    automatic, explicit = recall_store(None, inner), RecallStore(inner)
    assert automatic._ledger._adding is explicit._ledger._adding


async def test_a_store_of_the_platform_is_wrapped_and_its_queue_is_used() -> None:
    behind = InMemoryStore()
    platform = PlatformStore(behind)
    wrapper = recall_store(None, platform)
    assert wrapper.needs_loop
    await wrapper.aremember(NS, "The build id is 77-B")
    recall = await recall_store(None, platform).arecall(NS, "build id 77-B")
    assert [memory.text for memory in recall.memories] == ["The build id is 77-B"]
    await wrapper.aclose()


# --- options ---


@pytest.mark.parametrize("made", [RecallMiddleware, recall_node])
def test_an_argument_that_does_not_exist_is_named_with_its_nearest(made: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"no argument 'placment'.*nearest is 'placement'"):
        made(NS, placment="end")
    with pytest.raises(ConfigurationError, match=r"no argument 'nonsense'.*It takes namespace, "):
        made(NS, nonsense=1)


# --- tokens and budget ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        # langchain's counter: 36 characters and 4 of the role, 4 a token.
        ("a plain English sentence of some len", 10),
        # One token a character, and one for the role.
        ("我们中午见面", 7),
        ("สวัสดี", 7),
        # Half a token a letter: six letters, and 6 of punctuation and role over 4.
        ("Привет, ", 3 + 2),
        ("é", 1 + 1),
        # Two tokens an emoji.
        ("😀😀", 4 + 1),
    ],
)
def test_tokens_are_counted_by_script(text, expected):
    assert count_tokens(text) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_longer_text_never_has_fewer_tokens(one, other):
    assert count_tokens(one) <= count_tokens(one + other)


class Model:
    """As much of a chat model as a budget reads."""

    def __init__(self, profile: Any) -> None:
        self.profile = profile


def test_the_context_window_comes_from_the_models_profile():
    model = GenericFakeChatModel(messages=iter([]))
    assert budget_tokens(0.1, model) == 2_000
    model.profile = {"max_input_tokens": 128_000}
    assert budget_tokens(0.1, model) == 12_800
    assert budget_tokens(0.1, model.bind(stop=["x"])) == 12_800


@pytest.mark.parametrize(
    "profile", [None, {}, {"max_input_tokens": None}, {"max_input_tokens": 0}, "large"]
)
def test_a_profile_that_does_not_say_is_no_window(profile):
    assert budget_tokens(0.1, Model(profile)) == 2_000
    assert budget_tokens(0.1, None) == 2_000


@pytest.mark.parametrize(
    ("budget", "window", "expected"),
    [
        (None, None, 2_000),
        (None, 128_000, 2_000),
        (None, 8_000, 1_600),
        (500, None, 500),
        (500, 8_000, 500),
        (5_000, 8_000, 2_000),
        (50_000, None, 50_000),
        (0.1, 8_000, 800),
        (0.25, 8_000, 2_000),
        (0.1, None, 2_000),
    ],
)
def test_the_budget_is_a_number_or_a_share_but_never_over_a_quarter(budget, window, expected):
    assert budget_tokens(budget, Model({"max_input_tokens": window})) == expected


@pytest.mark.parametrize("budget", [0, -1, 0.0, -0.1, 0.26, 1.0, 500.0, float("nan"), True, "2000"])
def test_a_budget_that_makes_no_sense_is_refused(budget):
    with pytest.raises(ConfigurationError, match="budget must be a whole number of tokens > 0, or"):
        budget_tokens(budget)
