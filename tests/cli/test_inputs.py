"""Embedders, policies and recorded traces by the names users give."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import write
from hypothesis import given
from hypothesis import strategies as st

from langmem_recall.cli.inputs import (
    PRESETS,
    load_embedder,
    load_policy,
    namespace_text,
    parse_namespace,
    read_traces,
)
from langmem_recall.embeddings import LocalEmbeddings
from langmem_recall.errors import InputError, PolicyError, RecallError
from langmem_recall.observe.log import TraceLog
from langmem_recall.policy import RecallPolicy
from langmem_recall.stores.local.store import LocalStore
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue


def test_embedders_by_name() -> None:
    assert load_embedder(None) is None
    assert load_embedder("none") is False
    for name, dims in (("wordllama", 256), ("minilm", 384)):
        named = load_embedder(name)
        assert isinstance(named, LocalEmbeddings)
        assert named.dims == dims


@pytest.mark.parametrize("name", ["nonsense", "no_such_module:x", "", ":"])
def test_what_is_no_embedder_is_refused(name: str) -> None:
    with pytest.raises(RecallError, match="cannot be had"):
        load_embedder(name)


def test_every_preset_is_known_by_the_name_it_has() -> None:
    assert [load_policy(name).name for name in PRESETS] == list(PRESETS)
    for name in PRESETS:
        assert getattr(RecallPolicy, name)() == load_policy(name)


def test_a_policy_file_with_a_bad_knob_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="floor"):
        load_policy(str(write(tmp_path / "p.toml", "floor = 2")))
    with pytest.raises(InputError, match="neither a policy file nor a preset"):
        load_policy(str(tmp_path))


def test_what_a_store_logs_is_read_back_and_feedback_is_passed_over(tmp_path: Path) -> None:
    log = TraceLog(tmp_path / "traces.jsonl")
    with RecallStore(LocalStore(index=False), traces=log) as store:
        store.recall(("u", "1"), Cue("seat", ("goal", "seat"), "trip"))
        log.feedback(("u", "1"), "seat", good=True)
    log.close()
    (read,) = read_traces(tmp_path / "traces.jsonl")
    assert (read.cue.text, read.cue.parts, read.cue.task) == ("seat", ("goal", "seat"), "trip")
    assert read.namespaces == (("u", "1"),)


def test_a_trace_without_words_holds_no_cue(tmp_path: Path) -> None:
    with (
        TraceLog(tmp_path / "traces.jsonl", with_text=False) as log,
        RecallStore(LocalStore(index=False), traces=log) as store,
    ):
        store.recall(("u", "1"), "seat")
    with pytest.raises(InputError, match="holds no cues"):
        read_traces(tmp_path / "traces.jsonl")


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="The trace has version None"):
        read_traces(write(tmp_path / "cues", {"cue": "x"}))


def test_a_file_of_cues_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no log of traces"):
        read_traces(tmp_path / "no")


@pytest.mark.parametrize(
    ("told", "labels"),
    [(None, ()), ("a", ("a",)), ("a/b", ("a", "b")), ('["a/b", "c"]', ("a/b", "c"))],
)
def test_a_namespace_is_labels_with_slashes_or_a_json_list(
    told: str | None, labels: tuple[str, ...]
) -> None:
    assert parse_namespace(told) == labels


@pytest.mark.parametrize(
    "told", ["", "/", "a//b", "a/", "a.b", "[]", "[1]", '["a", ""]', "[", '["a"']
)
def test_labels_that_are_empty_or_have_dots_are_refused(told: str) -> None:
    with pytest.raises(InputError):
        parse_namespace(told)


@given(st.lists(st.text(st.characters(exclude_characters="."), min_size=1), min_size=1).map(tuple))
def test_a_namespace_is_read_back_as_it_was_told(namespace: tuple[str, ...]) -> None:
    assert parse_namespace(namespace_text(namespace)) == namespace
