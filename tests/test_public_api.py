"""The public surface: what is exported, that it is documented, and that importing it is light."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import langmem_recall
from langmem_recall import RecallStore

IO_METHODS = (
    *("search", "recall", "explain", "remember", "correct", "forget", "history", "flush", "close"),
    *("confirm", "approve", "quarantined", "feedback", "sweep", "forget_namespace"),
    *("get", "put", "delete", "list_namespaces", "batch"),
)


NAMES = {
    *("RecallStore", "LocalStore", "LocalEmbeddings", "RecallMiddleware", "recall_node"),
    *("RecallState", "memory_tools", "RecallPolicy", "WritePolicy", "Cue", "Memory", "Recall"),
    *("build_cue", "render", "TraceLog", "Monitor", "Reranker", "Guard", "Verdict"),
    *(
        "Writing",
        "Caching",
        "export_jsonl",
        "import_jsonl",
        "load_cases",
        "evaluate",
        "tune",
        "RecallError",
        "MemoryWriter",
        "learn",
        "Profile",
    ),
}


def test_these_names_and_no_others_are_exported() -> None:
    assert set(langmem_recall.__all__) == NAMES


@pytest.mark.parametrize("name", langmem_recall.__all__)
def test_every_export_exists_and_has_a_docstring(name: str) -> None:
    exported = getattr(langmem_recall, name)
    assert inspect.getdoc(exported)
    assert name in dir(langmem_recall)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = langmem_recall.nonsense


@pytest.mark.parametrize("name", IO_METHODS)
def test_every_method_has_an_async_twin_with_the_same_parameters(name: str) -> None:
    sync, twin = getattr(RecallStore, name), getattr(RecallStore, f"a{name}")
    assert inspect.iscoroutinefunction(twin)
    assert list(inspect.signature(sync).parameters) == list(inspect.signature(twin).parameters)
    assert inspect.getdoc(sync)
    assert inspect.getdoc(twin)


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, langmem_recall; "
        "heavy = {'langchain', 'langchain_openai', 'wordllama', 'psycopg', 'numpy', 'langgraph', "
        "'typer', 'rich', 'opentelemetry', 'fastembed'}; "
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_store_is_built_without_loading_the_model() -> None:
    code = (
        "import sys; from langmem_recall import LocalStore, RecallStore; "
        "RecallStore(LocalStore()); "
        "print('wordllama' in sys.modules, 'langchain_openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
