"""The recall layer for LangGraph agents: ranked, gated, explained long-term memory.

Names are imported when first used, so that `import langmem_recall` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langmem_recall import types

if TYPE_CHECKING:
    from langmem_recall.agents.middleware import RecallMiddleware
    from langmem_recall.agents.node import recall_node
    from langmem_recall.agents.records import RecallState
    from langmem_recall.agents.tools import memory_tools
    from langmem_recall.cue import build_cue
    from langmem_recall.embeddings import LocalEmbeddings
    from langmem_recall.errors import RecallError
    from langmem_recall.evaluation.cases import load_cases
    from langmem_recall.evaluation.evaluate import evaluate
    from langmem_recall.evaluation.tune import tune
    from langmem_recall.flows.rerank import Reranker
    from langmem_recall.flows.write import Writing
    from langmem_recall.guard.judge import Guard, Verdict
    from langmem_recall.observe.log import TraceLog
    from langmem_recall.observe.monitor import Monitor
    from langmem_recall.policy import RecallPolicy
    from langmem_recall.rendering import render
    from langmem_recall.stores.local.store import LocalStore
    from langmem_recall.stores.recall_store import Caching, RecallStore
    from langmem_recall.stores.transfer import export_jsonl, import_jsonl
    from langmem_recall.types import Cue, Memory, Recall
    from langmem_recall.write_policy import WritePolicy

__version__ = "0.1.0"

_HOMES = {
    "Caching": "langmem_recall.stores.recall_store",
    "Cue": "langmem_recall.types",
    "Guard": "langmem_recall.guard.judge",
    "LocalEmbeddings": "langmem_recall.embeddings",
    "LocalStore": "langmem_recall.stores.local.store",
    "Memory": "langmem_recall.types",
    "Monitor": "langmem_recall.observe.monitor",
    "Recall": "langmem_recall.types",
    "RecallError": "langmem_recall.errors",
    "RecallMiddleware": "langmem_recall.agents.middleware",
    "RecallPolicy": "langmem_recall.policy",
    "RecallState": "langmem_recall.agents.records",
    "RecallStore": "langmem_recall.stores.recall_store",
    "Reranker": "langmem_recall.flows.rerank",
    "TraceLog": "langmem_recall.observe.log",
    "Verdict": "langmem_recall.guard.judge",
    "WritePolicy": "langmem_recall.write_policy",
    "Writing": "langmem_recall.flows.write",
    "build_cue": "langmem_recall.cue",
    "evaluate": "langmem_recall.evaluation.evaluate",
    "export_jsonl": "langmem_recall.stores.transfer",
    "import_jsonl": "langmem_recall.stores.transfer",
    "load_cases": "langmem_recall.evaluation.cases",
    "memory_tools": "langmem_recall.agents.tools",
    "recall_node": "langmem_recall.agents.node",
    "render": "langmem_recall.rendering",
    "tune": "langmem_recall.evaluation.tune",
}

__all__ = [
    "Caching",
    "Cue",
    "Guard",
    "LocalEmbeddings",
    "LocalStore",
    "Memory",
    "Monitor",
    "Recall",
    "RecallError",
    "RecallMiddleware",
    "RecallPolicy",
    "RecallState",
    "RecallStore",
    "Reranker",
    "TraceLog",
    "Verdict",
    "WritePolicy",
    "Writing",
    "build_cue",
    "evaluate",
    "export_jsonl",
    "import_jsonl",
    "load_cases",
    "memory_tools",
    "recall_node",
    "render",
    "tune",
]


# A type checker that saw this would take any name at all for one of ours.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'langmem_recall' has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


def _draw_recall(recall: types.Recall) -> str:
    fragment: str = import_module("langmem_recall.observe.show").html(recall)
    return fragment


types.html_renderer = _draw_recall
