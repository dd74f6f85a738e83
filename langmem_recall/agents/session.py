"""What node and middleware share: the recall of a turn, and the messages it makes."""

from __future__ import annotations

import json
import logging
import math
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.runtime import Runtime
from langsmith.run_helpers import get_current_run_tree

from langmem_recall.agents import block as lines
from langmem_recall.agents import turn as turns
from langmem_recall.agents.namespace import NamespaceTemplate, Template
from langmem_recall.agents.options import Options, Profile, count_tokens, off_loop, store_call
from langmem_recall.agents.placement import Block, handles_shown, last_tool_result, place
from langmem_recall.agents.turn import ModelCall, Place, RecallRecord, Turn, memories_in, shown_id
from langmem_recall.cue import as_cue, asks_for_all, build_cue, human_words, latest_human, words_of
from langmem_recall.deadline import Breaker, Crowded, Deadline, TooLate, limited
from langmem_recall.errors import ConfigurationError, MissingExtraError, PolicyError, described
from langmem_recall.flows.candidates import memory_of
from langmem_recall.flows.effects import CALLS, Call, arun, run
from langmem_recall.observe.show import recall_id
from langmem_recall.policy import RecallPolicy
from langmem_recall.rendering import Entry, make_nonce, render_block
from langmem_recall.types import Answer, Cue, Memory, MemoryId, Recall, Trace, View

logger = logging.getLogger(__name__)
V = TypeVar("V")

EVENT = "recall"  # the type of the stream event and the name of the callback event
MOST_BLOCKS = 2_000  # kept so that a turn shows the same bytes in each of its model calls
PROBE_S = 0.25  # that a turn waits at most for a store that has failed repeatedly
MOST_COMPARED, MOST_OF_A_TEXT = 100_000, 20_000
"""Characters of a conversation, and of one text in it, that memories are compared with."""
ASKED_PROFILE = Profile()  # what a cue about everything gets where no option says otherwise
MOST_LISTED = 500  # memories of a namespace that a profile is chosen from, the latest first


class Session:
    """Recall for the turns of an agent: once for each cue, the same bytes while it stays."""

    def __init__(self, namespace: Template | NamespaceTemplate, options: Options) -> None:
        self.template = NamespaceTemplate.of(namespace)
        self.options = options
        self._deadline = Deadline(options.deadline, options.first_load, options.queue)
        # A turn waits a moment for what is tried after a rest: it may hang as before.
        seconds = self._deadline.seconds
        probe_s = seconds if seconds == math.inf else min(seconds, PROBE_S)
        self._probe_deadline = Deadline(probe_s, options.first_load, 0.0, lets_finish=True)
        self._summarizer_deadline = Deadline(options.summarizer_limit, options.summarizer_limit)
        # Functions of the caller's have no more time than the store.
        is_plain = options.count is count_tokens and options.renderer is render_block
        self._render_limit = None if is_plain else self._deadline
        self._cue_limit = None if options.cue is build_cue else self._deadline
        # By what is done with which store and namespaces.
        self._breakers: OrderedDict[tuple[Any, ...], Breaker] = OrderedDict()
        # By namespaces and record: the turn of its last check, the handles it had then, the block.
        self._blocks: OrderedDict[tuple[Any, str], tuple[str, list[str], Block]] = OrderedDict()
        self._turns: OrderedDict[Place, Turn] = OrderedDict()
        self._warnings: OrderedDict[str, None] = OrderedDict()

    def plan(
        self, state: Any, messages: Sequence[BaseMessage], runtime: Runtime[Any], model: Any = None
    ) -> Generator[Call, Any, ModelCall]:
        """Recall if the cue is new to the turn, and put the blocks among the messages."""
        options = self.options
        given = (state, messages, runtime, model, self.template, options, self._turns)
        call: ModelCall = yield off_loop(ModelCall, *given)
        _put(self._turns, call.place, call.remembered)
        recall: Recall | None = None
        try:
            cue = as_cue((yield off_loop(options.cue, state, limit=self._cue_limit)))
            policy = options.policy.fingerprint if options.policy else ""
            times = [repr(time) for time in (cue.temporal, cue.at, cue.as_of)]
            # All that a recall depends on, but for the memories.
            basis = [cue.searched, cue.text, cue.task, times, call.namespaces, policy]
            cue_digest = turns.digest(json.dumps(basis))
            late = call.remembered.late
            has_come = all(answer.done() for answer in late.get(cue_digest, ()))
            # What was late for this cue may add to what words alone have found.
            is_more = has_come and late.pop(cue_digest, [])
            had = [record["cue"] for record in call.shown if record["turn"] == call.turn]
            is_known = cue_digest in had and not is_more
            checked = [self._blocks.get(call.key(record), ("",))[0] for record in call.shown]
            pairs = zip(call.shown, checked, strict=True)
            unread = [record for record, turn in pairs if turn != call.turn]
            if unread or not is_known:
                recall = yield from self._read(call, None if is_known else cue, unread)
            if recall is not None:
                late[cue_digest] = call.late
                recall = yield from self._fit(call, cue, cue_digest, recall)
        except (ConfigurationError, MissingExtraError, PolicyError):
            raise
        except Exception as fault:
            recall = self._failed(fault, call)
            call.new = [lines.record_of(call, "", None, lines.Draft([], {}, {}, recall))]
        if call.damaged:
            self._warn(f"Entries of `recalls` that cannot be read: {call.damaged}")
        known = [self._blocks.get(call.key(record)) for record in (*call.shown, *call.new)]
        blocks = [entry[2] for entry in known if entry is not None and entry[2].text]
        if recall is not None:
            yield from self._report(call, recall, sum(block.tokens for block in blocks))
        call.prompt = yield off_loop(place, messages, blocks, options.placement)
        results = (each for message in messages for each in turns.artifact_of(message))
        doubtful = (each for each in results if not each["verified"])
        call.unverified = [name for block in blocks for name in block.unverified]
        call.unverified += [f"{each['key']} ({each['source']})" for each in doubtful]
        return call

    def _report(self, call: ModelCall, recall: Recall, tokens: int) -> Generator[Call, Any, None]:
        """Tell the store, the stream, LangSmith and the callbacks what is in the call: no text."""
        trace = replace(
            recall.trace,
            thread_id=call.thread_id,
            turn=call.turn,
            tokens=tokens,
            budget_tokens=call.budget,
            gave_way=call.gave_way,
        )
        recall, record = replace(recall, trace=trace), call.new[0]
        record["tokens"], record["reason"] = tokens, recall.reason
        try:
            call.store.record_recall(recall, self.options.policy)
        except Exception as fault:
            logger.error("What a turn recalled could not be recorded: %s", described(fault))
        # The id under which a `TraceLog` has all of it.
        event = {"type": EVENT, "trace": recall_id(recall), **record}
        keys = [shown["key"] for shown in record["memories"]]
        try:
            call.write(event)
            if run_tree := get_current_run_tree():
                told = {name: event[name] for name in ("trace", "reason", "tokens")}
                told |= {"memories": len(keys), "keys": ", ".join(keys)}
                told["degraded"] = "; ".join(record["degraded"])
                run_tree.add_metadata({f"recall_{name}": each for name, each in told.items()})
            yield Call(
                partial(dispatch_custom_event, EVENT, event, config=call.config),
                partial(adispatch_custom_event, EVENT, event, config=call.config),
            )
        # A listener must not break the turn that it listens to.
        except Exception as fault:
            logger.warning("A recall could not be announced: %s", described(fault))

    def learn(
        self, call: ModelCall, response: Sequence[BaseMessage], feedback: bool
    ) -> Generator[Call, Any, None]:
        """Feedback from citations, and usage written at the end of the run."""
        answers = [message for message in response if isinstance(message, AIMessage)]
        citable = memories_in((*call.readable, *call.new))
        try:
            if feedback:
                # A handle that was never shown names no memory.
                shown = {memory["handle"]: shown_id(memory) for memory in citable}
                handles = [handle for answer in answers for handle in turns.handles_of(answer)]
                cited = [shown[handle] for handle in handles if handle in shown]
                for namespace, key in dict.fromkeys(cited):
                    call.store.feedback(namespace, key)
            if any(answer.tool_calls for answer in answers):
                return
            if text := "\n".join(answer.text for answer in answers if answer.text):
                ids = tuple(map(shown_id, citable))
                answer = Answer(text, call.thread_id, call.turn, tuple(call.namespaces), ids)
                call.store.record_answer(answer)
            writing = self._breaker("writing", call.place[0])
            # Not to a store that has just failed: it tries again later by itself.
            has_failed = any(record["cue"] == "" for record in call.new)
            if has_failed or not writing.allows():
                return
            flushing = store_call(call.store, "flush", within=self._deadline)
            yield from self._ask(flushing, writing)
        except Exception as fault:
            logger.warning("What a turn used could not be written: %s", described(fault))

    def _breaker(self, *what: Any) -> Breaker:
        """The breaker of one use of a store, so that no other has to do without."""
        return _put(self._breakers, what, self._breakers.get(what) or Breaker())

    def _ask(self, call: Call, breaker: Breaker) -> Generator[Call, Any, Any]:
        """Make a call that a breaker allows, and tell it how that went."""

        def attempt() -> Generator[Call, Any, Any]:
            try:
                answer = yield call
            except Exception as fault:
                # Our own load says nothing about the store.
                if not isinstance(fault, Crowded):
                    breaker.failed(fault.pending if isinstance(fault, TooLate) else None)
                raise
            breaker.succeeded()
            return answer

        # A turn waits a moment for a probe, which goes on by itself and tells what comes of it.
        limit = None if breaker.state == "closed" else self._probe_deadline
        both = (lambda: run(attempt(), CALLS)), (lambda: arun(attempt(), CALLS))
        return (yield Call(*both, limit))

    # --- reading the store -------------------------------------------------------------------

    def _read(
        self, call: ModelCall, cue: Cue | None, unread: Sequence[RecallRecord]
    ) -> Generator[Call, Any, Recall | None]:
        """Blocks to show again, checked against the store, and a recall where there is a cue."""
        if not call.remembered.waiting.allows():
            raise TooLate("recall was late in this turn already")
        reading = self._breaker("reading", call.place[0], *call.namespaces)
        if not reading.allows():
            raise TooLate("recall rests after repeated faults")
        memories = memories_in(unread)
        ids = [*map(shown_id, memories)]
        found: dict[MemoryId, Memory | None] | None = None

        def fetch() -> Generator[Call, Any, Recall | None]:
            nonlocal found
            current = (yield store_call(call.store, "memories", ids)) if ids else []
            call.secret = call.secret or (yield store_call(call.store, "secret"))
            # From here on past blocks can be shown, even if the recall is late.
            found = dict(zip(ids, current, strict=True))
            if cue is None:
                return None
            # What the model sees before this turn's block: messages, and blocks that stand.
            before = max(call.index, 0)
            pairs = zip(memories, current, strict=True)
            changed = {shown_id(pair[0]) for pair in pairs if not turns.is_unchanged(*pair)}
            view = View(
                texts=latest([*map(words_of, call.messages[:before])]),
                ids=frozenset(map(shown_id, memories_in(call.shown))) - changed,
                thread_id=call.thread_id,
                turns=frozenset(call.keys[:before]),
            )
            knobs: Any = {"policy": self.options.policy, "view": view, "record": False}
            recall: Recall = yield store_call(call.store, "recall", call.namespaces, cue, **knobs)
            progress = limited()
            call.late = progress.late if progress else []
            call.profile = yield from self._profile(call, cue, recall)
            return recall

        fetching = Call(lambda: run(fetch(), CALLS), lambda: arun(fetch(), CALLS), self._deadline)
        fault, recall = None, None
        try:
            recall = yield from self._ask(fetching, reading)
        except Exception as failure:
            fault = failure
            if isinstance(fault, TooLate):
                call.remembered.waiting.failed()
        if unread and found is not None:
            again = partial(self._rerender, call, found)
            blocks = yield off_loop(lambda: [*map(again, unread)], limit=self._render_limit)
            for record, checked in zip(unread, blocks, strict=True):
                _put(self._blocks, call.key(record), (call.turn, *checked))
        if fault is not None:
            raise fault
        return recall

    def _profile(
        self, call: ModelCall, cue: Cue, recall: Recall
    ) -> Generator[Call, Any, list[Memory]]:
        """What the turn begins with: where the thread does, or where the cue asks for all of it."""
        is_first = latest_human(call.messages[: max(call.index, 0)]) is None
        begins = self.options.profile is not None and is_first and not call.shown
        if not begins and not asks_for_all(cue.words):
            return []
        listed = list[Memory]()
        for namespace in call.namespaces:
            found = yield store_call(call.store, "search", namespace, limit=MOST_LISTED)
            listed += map(memory_of, found)
        most = (self.options.profile or ASKED_PROFILE).most
        in_view = {*map(shown_id, memories_in(call.shown)), *(one.id for one in recall.memories)}
        rest = [memory for memory in listed if memory.id not in in_view]
        return lines.profile_of(rest, recall.trace.at, most)

    def _rerender(
        self, call: ModelCall, found: Mapping[MemoryId, Memory | None], record: RecallRecord
    ) -> tuple[list[str], Block]:
        """A block of an earlier call, without what has changed since or is gone."""
        pairs = ((shown, found[shown_id(shown)]) for shown in memories_in([record]))
        standing = [(old, now) for old, now in pairs if now and turns.is_unchanged(old, now)]
        handles = [shown["handle"] for shown, _ in standing]
        _, before, block = self._blocks.get(call.key(record), ("", [], None))
        if block is None or before != handles:
            entries = [lines.line_again(memory, shown) for shown, memory in standing]
            block = self._render(call, record, entries, [memory for _, memory in standing])
        return handles, block

    # --- showing -----------------------------------------------------------------------------

    def _fit(
        self, call: ModelCall, cue: Cue, cue_digest: str, recall: Recall
    ) -> Generator[Call, Any, Recall]:
        """The recall within its budget, its block kept for the turn."""
        options, limit = self.options, self._render_limit
        numbers = [int(shown["handle"][1:]) for shown in memories_in(call.records)]
        first = max((*numbers, *handles_shown(call.messages)), default=0) + 1
        said = latest(human_words(call.messages))
        share = (options.profile or ASKED_PROFILE).share
        profile = (call.profile, int(call.budget * share))

        def drafting(recall: Recall, shown: Sequence[RecallRecord]) -> Call:
            room = call.budget - sum(record["block_tokens"] for record in shown)
            given = (recall, first, room, options.count, said, *profile)
            return off_loop(lines.draft, *given, limit=limit)

        own = [record for record in call.shown if record["turn"] == call.turn]
        drafted: lines.Draft = yield drafting(recall, own)
        stay = turns.shown_within(call.shown, drafted.tokens, call.budget, call.turn)
        gone = [record for record in call.shown if record not in stay]
        call.shown = stay
        call.gave_way += len(gone)
        hidden, degraded = {*map(shown_id, memories_in(gone))}, list[str]()
        if any(drop.gate == "visible" and drop.memory.id in hidden for drop in recall.dropped):
            # What was left out because it is in view would now be in view no more.
            try:
                again = yield from self._read(call, cue, ())
                drafted = yield drafting(again or recall, stay)
            except Exception as fault:
                if options.on_error == "raise":
                    raise
                degraded = [f"memories of past blocks were not recalled again ({described(fault)})"]
        after = last_tool_result(call.messages, call.index)
        record, entries = lines.record_of(call, cue_digest, after, drafted), drafted.entries
        if drafted.rooms and options.summarizer is not None:
            try:
                given = (drafted, options.summarizer, options.count, self._summarizer_deadline)
                entries = yield (yield off_loop(lines.summarize, *given, limit=limit))
            except Exception as fault:
                degraded.append(f"summarizer failed ({described(fault)}); sentences were picked")
        if call.damaged:
            degraded.append(f"dropped entries of recalls that cannot be read: {call.damaged}")
        memories = [entry.memory for entry in (*drafted.profile, *drafted.entries)]
        shown = [*drafted.profile, *entries]
        block: Block = yield off_loop(self._render, call, record, shown, memories, limit=limit)
        handles = [shown["handle"] for shown in memories_in([record])]
        _put(self._blocks, call.key(record), (call.turn, handles, block))
        record["degraded"] += degraded
        record["gone"] = [old["id"] for old in gone]
        record["block_tokens"] = block.tokens + lines.MESSAGE_TOKENS if block.text else 0
        call.new = [record]
        # Without a thread or an id, a turn is not told from another with the same words.
        if call.thread_id is not None or (call.index >= 0 and call.messages[call.index].id):
            call.remembered.records.append(record)
        began = tuple(entry.memory.id for entry in drafted.profile)
        trace = replace(
            drafted.recall.trace,
            degraded=tuple(record["degraded"]),
            block=block.text,
            profile=began,
        )
        return replace(drafted.recall, trace=trace)

    def _render(
        self,
        call: ModelCall,
        record: RecallRecord,
        entries: Sequence[Entry],
        memories: Sequence[Memory],
    ) -> Block:
        """The block of some lines; a summary is one line for several of the memories."""
        turn, text = record["turn"], ""
        if entries:
            nonce = make_nonce(call.secret or b"", call.thread_id or "", turn, record["id"])
            shown = lines.with_homes(entries, len(call.namespaces) > 1)
            text = self.options.renderer(shown, nonce, datetime.fromisoformat(record["at"]))
        doubtful = (memory for memory in memories if memory.needs_verification)
        unverified = tuple(f"{memory.key} ({memory.source})" for memory in doubtful)
        return Block(text, turn, record["after"], unverified, self.options.count(text))

    # --- faults ------------------------------------------------------------------------------

    def _failed(self, fault: Exception, call: ModelCall) -> Recall:
        """What is recalled when nothing could be: nothing, and why."""
        if self.options.on_error == "raise":
            raise fault
        reason = described(fault)
        self._warn(f"No memories in this turn: {reason}")
        policy = self.options.policy or RecallPolicy.default()
        name, why = f"{policy.name} {policy.fingerprint}", (f"no memories: {reason}",)
        trace = Trace(Cue(), call.namespaces, name, at=datetime.now(UTC), degraded=why)
        return Recall((), (), trace)

    def _warn(self, warning: str) -> None:
        """Log a warning once, however many turns give rise to it."""
        if warning not in self._warnings:
            _put(self._warnings, warning, None)
            logger.warning(warning)


def latest(texts: Sequence[str]) -> tuple[str, ...]:
    """As much of a conversation as is compared with memories: the latest texts, in their order."""
    taken, left = list[str](), MOST_COMPARED
    for text in reversed(texts):
        if left <= 0:
            break
        taken.append(text[:MOST_OF_A_TEXT])
        left -= len(taken[-1])
    return tuple(filter(None, reversed(taken)))


def _put(cache: OrderedDict[Any, V], key: Any, value: V) -> V:
    """Keep a value as the latest of not too many."""
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > MOST_BLOCKS:
        cache.popitem(last=False)
    return value
