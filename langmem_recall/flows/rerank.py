"""A second opinion on the best of a ranking, from any LangChain document compressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.documents import BaseDocumentCompressor, Document

from langmem_recall.deadline import Deadline
from langmem_recall.errors import ConfigurationError, described
from langmem_recall.flows.effects import Call, Plan
from langmem_recall.types import Cue, Scored

PLACE = "langmem_recall_place"


@dataclass(frozen=True, slots=True)
class Reranker:
    """A cross-encoder or the like, asked about the blended top within a time limit."""

    compressor: BaseDocumentCompressor
    top: int = 20
    """Memories it is asked about; the rest keep their places behind them."""
    limit_s: float = 0.2

    def __post_init__(self) -> None:
        if not isinstance(self.compressor, BaseDocumentCompressor):
            raise ConfigurationError(
                f"reranker must be a LangChain BaseDocumentCompressor, got {self.compressor!r:.80}."
            )
        if not self.top >= 1 or not self.limit_s > 0:
            raise ConfigurationError(
                f"reranker_top must be at least 1 and reranker_limit above 0 seconds, "
                f"got {self.top!r} and {self.limit_s!r}."
            )

    def reordered(self, ranked: list[Scored], cue: Cue) -> Plan[tuple[list[Scored], list[str]]]:
        """The ranking with its top in the compressor's order, and what went wrong, if anything.

        Scores stay those of the blend: gates and traces mean the same with and without it.
        """
        top = ranked[: self.top]
        if len(top) < 2 or not cue.words.strip():
            return ranked, []
        rest = dict(enumerate(top))
        documents = [
            Document(scored.memory.text, metadata={PLACE: place}) for place, scored in rest.items()
        ]
        try:
            ordered: Sequence[Document] = yield Call(
                lambda: self.compressor.compress_documents(documents, cue.words),
                lambda: self.compressor.acompress_documents(documents, cue.words),
                Deadline(self.limit_s, self.limit_s),
            )
            places = [int(document.metadata[PLACE]) for document in ordered]
            first = [rest.pop(place) for place in dict.fromkeys(places)]
        except Exception as fault:
            return ranked, [f"reranker failed ({described(fault)}); blend as it is"]
        return [*first, *rest.values(), *ranked[self.top :]], []
