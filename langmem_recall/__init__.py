"""The recall layer for LangGraph agents: ranked, gated, explained long-term memory.

Names are imported when first used, so that `import langmem_recall` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langmem_recall import types

if TYPE_CHECKING:
    from langmem_recall.agents.learning import MemoryWriter as MemoryWriter
    from langmem_recall.agents.learning import learn as learn
    from langmem_recall.agents.middleware import RecallMiddleware as RecallMiddleware
    from langmem_recall.agents.node import recall_node as recall_node
    from langmem_recall.agents.options import Profile as Profile
    from langmem_recall.agents.tools import memory_tools as memory_tools
    from langmem_recall.agents.turn import RecallState as RecallState
    from langmem_recall.cue import build_cue as build_cue
    from langmem_recall.embeddings import LocalEmbeddings as LocalEmbeddings
    from langmem_recall.errors import RecallError as RecallError
    from langmem_recall.evaluation.cases import load_cases as load_cases
    from langmem_recall.evaluation.evaluate import evaluate as evaluate
    from langmem_recall.evaluation.tune import tune as tune
    from langmem_recall.flows.rerank import Reranker as Reranker
    from langmem_recall.flows.write import Writing as Writing
    from langmem_recall.guard.judge import Guard as Guard
    from langmem_recall.guard.judge import Verdict as Verdict
    from langmem_recall.observe.log import TraceLog as TraceLog
    from langmem_recall.observe.monitor import Monitor as Monitor
    from langmem_recall.policy import RecallPolicy as RecallPolicy
    from langmem_recall.policy import WritePolicy as WritePolicy
    from langmem_recall.rendering import render as render
    from langmem_recall.stores.local.store import LocalStore as LocalStore
    from langmem_recall.stores.recall_store import Caching as Caching
    from langmem_recall.stores.recall_store import RecallStore as RecallStore
    from langmem_recall.stores.transfer import export_jsonl as export_jsonl
    from langmem_recall.stores.transfer import import_jsonl as import_jsonl
    from langmem_recall.types import Cue as Cue
    from langmem_recall.types import Memory as Memory
    from langmem_recall.types import Recall as Recall

__version__ = "0.1.0"

_NAMES = {
    "agents.learning": "MemoryWriter learn",
    "agents.middleware": "RecallMiddleware",
    "agents.node": "recall_node",
    "agents.options": "Profile",
    "agents.tools": "memory_tools",
    "agents.turn": "RecallState",
    "cue": "build_cue",
    "embeddings": "LocalEmbeddings",
    "errors": "RecallError",
    "evaluation.cases": "load_cases",
    "evaluation.evaluate": "evaluate",
    "evaluation.tune": "tune",
    "flows.rerank": "Reranker",
    "flows.write": "Writing",
    "guard.judge": "Guard Verdict",
    "observe.log": "TraceLog",
    "observe.monitor": "Monitor",
    "policy": "RecallPolicy WritePolicy",
    "rendering": "render",
    "stores.local.store": "LocalStore",
    "stores.recall_store": "Caching RecallStore",
    "stores.transfer": "export_jsonl import_jsonl",
    "types": "Cue Memory Recall",
}
_HOMES = {n: f"langmem_recall.{home}" for home, names in _NAMES.items() for n in names.split()}

__all__ = sorted(_HOMES)


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
