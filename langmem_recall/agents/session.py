"""What node and middleware share: the recall of a turn, and the messages it makes."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage

from langmem_recall.agents.block import (
    Draft,
    draft,
    failed_record,
    packed,
    record_of,
    shortened,
    summary_room,
    view_of,
    with_homes,
    with_summary,
)
from langmem_recall.agents.compaction import (
    asummarise,
    budget_tokens,
    context_window,
    count_tokens,
    summarise,
)
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import Options
from langmem_recall.agents.placement import Block, last_tool_result, message_keys, place
from langmem_recall.agents.records import (
    RecallRecord,
    add_records,
    fingerprint,
    is_unchanged,
    is_within,
    needs_verification,
    next_handle,
    shown_id,
)
from langmem_recall.agents.thread import artifact_of
from langmem_recall.agents.turn import ModelCall, PreparedCall, Turn
from langmem_recall.agents.wrapping import recall_store
from langmem_recall.cue import build_cue, human_words, latest_human
from langmem_recall.deadline import Breaker, Deadline, TooLate
from langmem_recall.errors import (
    ConfigurationError,
    InputError,
    MissingExtraError,
    PolicyError,
    described,
)
from langmem_recall.flows.effects import Call
from langmem_recall.policy import RecallPolicy
from langmem_recall.rendering import Entry, make_nonce, render_block
from langmem_recall.stores.recall_store import RecallStore
from langmem_recall.types import Cue, Memory, MemoryId, Recall, Trace, View

logger = logging.getLogger(__name__)
T = TypeVar("T")

MOST_BLOCKS = 2_000
"""Blocks kept in memory so that a turn shows the same bytes in each of its model calls."""
NO_TURN = "no human message"


class ShownBlock(NamedTuple):
    """A rendered block, and which of its memories nobody vouches for."""

    text: str = ""
    unverified: tuple[str, ...] = ()


Place = tuple[int, str | None, str]
"""A turn of a thread over a store."""
Answer = tuple[list[Memory | None], Recall | None, bytes]
AgentPlan = Generator[Call, Any, PreparedCall]


class Session:
    """Recall for the turns of an agent: once for each cue, the same bytes while it does not change.

    Args:
        namespace: Labels with variables, as ("memories", "{user_id}"), or several such tuples.
        options: The rest.
    """

    def __init__(self, namespace: Template | NamespaceTemplate, options: Options) -> None:
        self.template = NamespaceTemplate.of(namespace)
        self.options = options
        self.deadline = Deadline(options.deadline, options.first_load)
        self._summarizer_deadline = Deadline(options.summarizer_limit, options.summarizer_limit)
        self._breaker = Breaker()
        self._writing = Breaker()
        self._blocks: OrderedDict[tuple[str, str], ShownBlock] = OrderedDict()
        self._unsaved_records: OrderedDict[Place, list[RecallRecord]] = OrderedDict()
        self._timed_out_turns: OrderedDict[Place, Breaker] = OrderedDict()
        self._secrets: dict[int, bytes] = {}
        self._reported: OrderedDict[str, None] = OrderedDict()

    def store_of(self, scene: ModelCall) -> RecallStore:
        """The store of a run."""
        return recall_store(self.options.store, scene.store)

    def plan(self, scene: ModelCall) -> AgentPlan:
        """Recall if the cue is new to the turn, and put the blocks among the messages."""
        turn = self._turn(scene)
        store = self.store_of(scene)
        records = self._records(scene, turn, store)
        readable = [record for record in records if is_within(record, turn.namespaces)]
        shown = [record for record in readable if self._is_in_view(record, turn)]
        new: list[RecallRecord] = []
        recall: Recall | None = None
        try:
            cue = yield from self._cue(scene.state)
            known = self._known(cue, turn, shown)
            if known is None or not self._has_blocks(shown, turn):
                recall = yield from self._read(scene, turn, store, cue, shown, known)
            if recall is not None:
                first = next_handle(records)
                record, recall = yield from self._shown(scene, turn, store, cue, recall, first)
                new = [record]
        except (ConfigurationError, MissingExtraError, PolicyError):
            raise
        except Exception as fault:
            recall = self._failed(fault, turn)
            new = [failed_record(turn, recall)]
        if scene.damaged:
            self._warn(f"Entries of `recalls` that cannot be read: {scene.damaged}")
        if recall is not None:
            self._record_use(store, recall)
        placed = [
            (record, block)
            for record in (*shown, *new)
            if (block := self._blocks.get((record["id"], turn.key))) is not None and block.text
        ]
        blocks = [Block(block.text, one["turn"], one["after"]) for one, block in placed]
        in_state = {record["id"] for record in scene.records}
        return PreparedCall(
            place(scene.messages, blocks, self.options.placement),
            new,
            recall,
            [*readable, *new],
            update=[record for record in (*shown, *new) if record["id"] not in in_state],
            unverified=[
                *(one for _, block in placed for one in block.unverified),
                *_unverified_results(scene.messages),
            ],
        )

    # --- reading the situation ---------------------------------------------------------------

    def _turn(self, scene: ModelCall) -> Turn:
        messages = scene.messages
        configurable = scene.config.get("configurable") or {}
        thread_id = configurable.get("thread_id")
        index = latest_human(messages)
        keys = tuple(message_keys(messages))
        # Summarised away in mid-turn, the human's message still began this turn.
        lost = scene.records[-1]["turn"] if scene.records else NO_TURN
        return Turn(
            lost if index is None else keys[index],
            -1 if index is None else index,
            None if thread_id is None else str(thread_id),
            self.template.resolve(scene.context, scene.config),
            keys,
        )

    def _cue(self, state: Any) -> Generator[Call, Any, Cue]:
        told = yield from self._timed(
            self.options.cue is build_cue, lambda: self.options.cue(state)
        )
        if isinstance(told, str):
            return Cue(told)
        if isinstance(told, Cue):
            return told
        raise InputError(f"A cue builder must return a Cue or a text, got {told!r:.80}.")

    def _timed(self, is_ours: bool, call: Callable[[], T]) -> Generator[Call, Any, T]:
        """A call within the deadline, off the event loop, where it is to a caller's function."""
        if is_ours:
            return call()
        answer: T = yield Call(call, limit=self.deadline)
        return answer

    def _records(self, scene: ModelCall, turn: Turn, store: RecallStore) -> list[RecallRecord]:
        """The thread's records, with those made moments ago that its state does not have."""
        fresh = [
            record
            for key in (*turn.keys, turn.key)
            for record in self._unsaved_records.get((id(store.inner), turn.thread_id, key), ())
            if record["after"] is None or record["after"] in turn.keys
        ]
        return add_records(scene.records, fresh)

    def _is_in_view(self, record: RecallRecord, turn: Turn) -> bool:
        """Whether its block is shown: in its turn, or replayed."""
        is_replayed = self.options.replay and record["turn"] in turn.keys
        return is_replayed or record["turn"] == turn.key

    def _fingerprint(self, cue: Cue, turn: Turn) -> str:
        policy = self.options.policy.fingerprint if self.options.policy else ""
        return fingerprint(cue, turn.namespaces, policy)

    def _known(self, cue: Cue, turn: Turn, records: Sequence[RecallRecord]) -> RecallRecord | None:
        """The turn's recall for this very cue."""
        print_ = self._fingerprint(cue, turn)
        for record in records:
            if record["turn"] == turn.key and record["cue"] == print_:
                return record
        return None

    def _has_blocks(self, records: Sequence[RecallRecord], turn: Turn) -> bool:
        return all((record["id"], turn.key) in self._blocks for record in records)

    # --- reading the store -------------------------------------------------------------------

    def _read(
        self,
        scene: ModelCall,
        turn: Turn,
        store: RecallStore,
        cue: Cue,
        shown: Sequence[RecallRecord],
        known: RecallRecord | None,
    ) -> Generator[Call, Any, Recall | None]:
        """Blocks to show again, checked against the store, and a new recall unless one is known."""
        here = (id(store.inner), turn.thread_id, turn.key)
        self._check_patience(here)
        old = [record for record in shown if (record["id"], turn.key) not in self._blocks]
        ids = [shown_id(one) for record in old for one in record["memories"]]
        policy = self.options.policy

        def view(found: Sequence[Memory | None]) -> View:
            return view_of(scene, turn, shown, old, found)

        def call() -> Answer:
            found = store.memories(ids) if ids else []
            recall = None
            if known is None:
                recall = store.recall(
                    turn.namespaces, cue, policy=policy, view=view(found), record=False
                )
            return found, recall, self._given_secret() or store.secret()

        async def acall() -> Answer:
            found = await store.amemories(ids) if ids else []
            recall = None
            if known is None:
                recall = await store.arecall(
                    turn.namespaces, cue, policy=policy, view=view(found), record=False
                )
            return found, recall, self._given_secret() or await store.asecret()

        try:
            answer: Answer = yield Call(call, acall, self.deadline)
        except Exception as fault:
            self._note_fault(fault, here)
            raise
        self._breaker.succeeded()
        memories, recall, secret = answer
        self._secrets[id(store.inner)] = secret
        self._restore(old, dict(zip(ids, memories, strict=True)), turn, secret)
        return recall

    def _check_patience(self, here: Place) -> None:
        late = self._timed_out_turns.get(here)
        if late is not None and not late.allows():
            raise TooLate("recall was late in this turn already")
        if not self._breaker.allows():
            raise TooLate("recall rests after repeated faults")

    def _note_fault(self, fault: Exception, here: Place) -> None:
        self._breaker.failed()
        if isinstance(fault, TooLate):
            # One wait a turn, however many calls its tool loop makes.
            late = Breaker(failures=1)
            late.failed()
            _keep(self._timed_out_turns, here, late)

    def _given_secret(self) -> bytes | None:
        secret = self.options.secret
        return secret.encode() if isinstance(secret, str) else secret

    def _restore(
        self,
        records: Sequence[RecallRecord],
        found: Mapping[MemoryId, Memory | None],
        turn: Turn,
        secret: bytes,
    ) -> None:
        for record in records:
            self._keep_block(record, turn, self._rerender(record, found, turn, secret))

    def _rerender(
        self,
        record: RecallRecord,
        found: Mapping[MemoryId, Memory | None],
        turn: Turn,
        secret: bytes,
    ) -> ShownBlock:
        """A block of an earlier call, without what has changed since or is gone."""
        standing = {
            one["handle"]: memory
            for one in record["memories"]
            if (memory := found.get(shown_id(one))) is not None and is_unchanged(one, memory)
        }
        first = self._blocks.get((record["id"], record["turn"]))
        if first is not None and len(standing) == len(record["memories"]):
            return first
        at, count = datetime.fromisoformat(record["at"]), self.options.count
        entries = []
        for one in record["memories"]:
            if one["handle"] in standing:
                entry = Entry(standing[one["handle"]], one["handle"], notes=tuple(one["notes"]))
                if one["room"] is not None:
                    entry = shortened(entry, one["room"], at, len(turn.namespaces) > 1, count)
                entries.append(entry)
        return self._rendered(entries, standing.values(), record, turn, at, secret)

    # --- showing -----------------------------------------------------------------------------

    def _shown(
        self, scene: ModelCall, turn: Turn, store: RecallStore, cue: Cue, recall: Recall, first: int
    ) -> Generator[Call, Any, tuple[RecallRecord, Recall]]:
        """The recall within its budget, its block kept for the turn."""
        budget = budget_tokens(self.options.budget, context_window(scene.model))
        count, said = self.options.count, human_words(scene.messages)
        is_ours = count is count_tokens and self.options.renderer is render_block
        drafted = yield from self._timed(is_ours, lambda: draft(recall, first, budget, count, said))
        after = last_tool_result(scene.messages, turn.place)
        record = record_of(turn, self._fingerprint(cue, turn), after, recall, drafted)
        entries, notes = drafted.entries, recall.trace.degraded
        if drafted.rooms and self.options.summarizer is not None:
            try:
                entries = yield from self._summarised(drafted, recall)
            except Exception as fault:
                notes = (*notes, f"summarizer failed ({described(fault)}); sentences were picked")
        if scene.damaged:
            notes = (*notes, f"dropped entries of recalls that cannot be read: {scene.damaged}")
        at, secret = recall.trace.at, self._secrets[id(store.inner)]

        def render() -> tuple[ShownBlock, int]:
            memories = [entry.memory for entry in drafted.entries]
            block = self._rendered(entries, memories, record, turn, at, secret)
            return block, count(block.text)

        block, tokens = yield from self._timed(is_ours, render)
        self._keep_block(record, turn, block)
        recall = packed(recall, drafted, budget, tokens)
        trace = replace(recall.trace, degraded=notes, block=block.text)
        recall = replace(recall, trace=trace)
        record = {**record, "tokens": tokens, "budget": budget, "degraded": list(notes)}
        record["dropped"] = recall.drop_counts()
        if turn.thread_id is not None or (turn.place >= 0 and scene.messages[turn.place].id):
            here = (id(store.inner), turn.thread_id, turn.key)
            _keep(self._unsaved_records, here, [*self._unsaved_records.get(here, ()), record])
        return record, recall

    def _summarised(self, drafted: Draft, recall: Recall) -> Generator[Call, Any, list[Entry]]:
        model, words = self.options.summarizer, recall.trace.cue.words
        short = [entry for entry in drafted.entries if entry.handle in drafted.rooms]
        texts = [(entry.handle, entry.memory.text) for entry in short]
        told = (texts, words, model, *summary_room(drafted, recall, self.options.count))
        summary: str = yield Call(
            lambda: summarise(*told),  # type: ignore[arg-type]
            lambda: asummarise(*told),  # type: ignore[arg-type]
            self._summarizer_deadline,
        )
        return with_summary(drafted, summary, recall)

    def _rendered(
        self,
        entries: Sequence[Entry],
        memories: Iterable[Memory],
        record: RecallRecord,
        turn: Turn,
        at: datetime,
        secret: bytes,
    ) -> ShownBlock:
        """The block of some lines; a summary is one line for several of the memories."""
        if not entries:
            return ShownBlock()
        nonce = make_nonce(secret, turn.thread_id or "", record["turn"], record["id"])
        text = self.options.renderer(with_homes(entries, len(turn.namespaces) > 1), nonce, at)
        return ShownBlock(text, tuple(_named(one) for one in memories if one.needs_verification))

    def _keep_block(self, record: RecallRecord, turn: Turn, block: ShownBlock) -> None:
        _keep(self._blocks, (record["id"], turn.key), block)

    # --- faults ------------------------------------------------------------------------------

    def _failed(self, fault: Exception, turn: Turn) -> Recall:
        """What is recalled when nothing could be: nothing, and why."""
        if self.options.on_error == "raise":
            raise fault
        told = described(fault)
        self._warn(f"No memories in this turn: {told}")
        policy = self.options.policy or RecallPolicy.default()
        trace = Trace(
            cue=Cue(),
            namespaces=turn.namespaces,
            policy=f"{policy.name} {policy.fingerprint}",
            at=datetime.now(UTC),
            degraded=(f"no memories: {told}",),
        )
        return Recall((), (), trace)

    def _warn(self, told: str) -> None:
        """Log a warning once, however many turns give rise to it."""
        if told not in self._reported:
            _keep(self._reported, told, None)
            logger.warning(told)

    def _record_use(self, store: RecallStore, recall: Recall) -> None:
        try:
            store.record_recall(recall, self.options.policy)
        except Exception as fault:
            logger.error("What a turn recalled could not be recorded: %s", described(fault))

    def written(self, store: RecallStore, prepared: PreparedCall) -> Generator[Call, Any, None]:
        """Write what was used, unless the store has just failed; the store tries again later."""
        has_failed = prepared.recall is not None and prepared.records[-1]["cue"] == ""
        if has_failed or not self._writing.allows():
            return
        try:
            yield Call(store.flush, store.aflush, self.deadline)
        except Exception:
            self._writing.failed()
            raise
        self._writing.succeeded()


def _unverified_results(messages: Sequence[BaseMessage]) -> list[str]:
    """Memories in results of the recall tool that nobody vouches for."""
    shown = (one for message in messages for one in artifact_of(message))
    return [f"{one['key']} ({one['source']})" for one in shown if needs_verification(one)]


def _named(memory: Memory) -> str:
    return f"{memory.key} ({memory.source})"


def _keep(kept: OrderedDict[Any, Any], key: Any, held: Any) -> None:
    kept[key] = held
    kept.move_to_end(key)
    while len(kept) > MOST_BLOCKS:
        kept.popitem(last=False)
