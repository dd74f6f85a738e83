"""Recall in everyday use: notes asked for in other words, off-topic cues, messages as people write.

    python benchmarks/everyday.py [--embeddings minilm] [--store memory] [--asked-as] [--test]
    python benchmarks/everyday.py --sizes FILE [--embeddings minilm] [--asked-as] [--test]

Notes and cues of made-up personas (tests/data/everyday), 70 notes each, by `RecallStore.recall`
with the default policy. paraphrase: share of cues in other words whose note is recalled, and how
many other memories come along; words: the same for cues that share words; far and "I" far: share of
off-topic cues (the latter in the first person) that bring anything; near: of cues on a subject of
the store that it cannot answer. AUC: how well the best relevance tells paraphrased from far cues.
Then messages in polite, chatty, long and pasted form and follow-ups, through `build_cue`: the share
with all that was wanted, by the half that was looked at while writing and the other one; and of two
cues joined by "and" in one message the share whose note comes. Then what a model asks the `recall`
tool (25 questions; the unseen half is on the personas of `--test`): the share with the wanted
memory in the answer; where nothing of the kind is stored the share of answers
that call nothing likely, and how many memories they call more than a weak match. Last cues with a
time in them (dated.jsonl, each with memories of its own): for what was written then, on a subject
(window) or at all (open), and for what a date belongs to (content). `--test` shows the personas
that were kept apart, `--asked-as` stores how notes will be asked for.

Then whole turns (living_*.jsonl: six people, 45 notes each, by two writers who saw nothing else):
messages as people write them, some with the exchange before, that need one to three notes ("all":
all of them came, "some": any) or none ("none": anything came). `--test` shows those by the writer
whose turns were not looked at while the numbers were chosen.

Before them the same cues by other formulas (formulas.py), where the reference is at hand, and by
plain cosine: its first five above the one threshold, chosen afterwards, that lets a tenth of the
far cues through.

`--embeddings unknown` is MiniLM as any other embedder: what a cue is for is told by the panel that
such a one is measured by, not by what was learned for ours.

`--sizes` shows paraphrased, far and first-person far cues over stores of 1 to 10,000 memories.
Below 70 a store has some of the notes, and is asked for those that it has; above, LoCoMo's dev half
(FILE, which is not part of this project) fills it up with observations, then turns, then sentences
of turns. Beside it plain cosine as above.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from formulas import formulas
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from locomo import embeddings_named

from langmem_recall import Cue, LocalStore, Recall, RecallStore, build_cue, memory_tools

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "everyday"
PERSONAS = {False: ("dev_assistant", "dev_developer"), True: ("test_manager", "test_support")}
ME = ("everyday",)
SIZES = (1, 5, 20, 80, 300, 1_000, 4_000, 10_000)
MOST_STORES = 13
"""Small stores of each persona that are asked: at most one more than these."""


def lines(name: str) -> list[dict[str, Any]]:
    """The records of a file."""
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def store_of(
    persona: str,
    chosen: argparse.Namespace,
    embeddings: Embeddings,
    notes: list[dict[str, Any]] | None = None,
) -> RecallStore:
    """The notes of a persona, or some of them, in a store."""
    dims = len(embeddings.embed_query("dimensions"))
    index: Any = {"dims": dims, "embed": embeddings, "fields": ["content"]}
    inner = (
        LocalStore(embeddings=embeddings) if chosen.store == "local" else InMemoryStore(index=index)
    )
    store = RecallStore(inner, record=False)
    name = "asked_as.json" if chosen.test else "asked_as_dev.json"
    phrasings = json.loads((DATA / name).read_text("utf-8")) if chosen.asked_as else {}
    for note in lines(f"{persona}_memories.jsonl") if notes is None else notes:
        asked_as = phrasings.get(note["key"], ())
        store.remember(ME, note["text"], key=note["key"], source="user_stated", asked_as=asked_as)
    return store


def cues_of(persona: str) -> list[dict[str, Any]]:
    """The cues of a persona, and off-topic ones in the first person."""
    far = [cue | {"kind": '"I" far', "relevant": []} for cue in lines("far_first_person.jsonl")]
    return [*lines(f"{persona}_cues.jsonl"), *far]


def best(recall: Recall) -> float:
    """The best relevance of a recall, whether it was enough or not."""
    seen = (*recall.chosen, *(drop.scored for drop in recall.dropped))
    return max((scored.signals.relevance for scored in seen), default=0.0)


def outcomes(store: RecallStore, persona: str) -> Iterator[tuple[str, bool, int, float]]:
    """Of each cue its kind, whether it brought what it should, how much else, and how surely."""
    for cue in cues_of(persona):
        recall = store.recall(ME, cue["cue"])
        found, wanted = {memory.key for memory in recall.memories}, set(cue["relevant"])
        is_hit = bool(found & wanted) if wanted else bool(found)
        yield cue["kind"], is_hit, len(found - wanted), best(recall)


def compare(stores: dict[str, RecallStore], embeddings: Embeddings) -> None:
    """Print what each formula makes of the cues: one row a formula."""

    def ours(store: RecallStore, cue: str) -> tuple[set[str], float]:
        recall = store.recall(ME, cue)
        return {memory.key for memory in recall.memories}, best(recall)

    def cosine(store: RecallStore, cue: str) -> tuple[set[str], float]:
        nearest = store.inner.search(ME, query=cue, limit=5)
        return {item.key for item in nearest}, nearest[0].score or 0.0

    others = {each.name: partial(each.recalled, namespace=ME) for each in formulas(embeddings)}
    rows = {"ours": ours, "cosine, best threshold": cosine, **others}
    print(f"{'formula':28}{'hit':>8}{'extra':>8}{'far':>8}{'I far':>8}{'near':>8}{'AUC':>8}")
    for name, ask in rows.items():
        seen: defaultdict[str, list[tuple[bool, int, float]]] = defaultdict(list)
        for persona, store in stores.items():
            for cue in cues_of(persona):
                found, relevance = ask(store, cue=cue["cue"])
                wanted = set(cue["relevant"])
                is_hit = bool(found & wanted) if wanted else bool(found)
                seen[cue["kind"]].append((is_hit, len(found - wanted), relevance))
        level = np.quantile([row[2] for row in seen["far"]], 0.9) if ask is cosine else -1.0
        shares = {
            kind: np.mean([is_hit and relevance > level for is_hit, _, relevance in kept])
            for kind, kept in seen.items()
        }
        extra = np.mean([row[1] * (row[2] > level) for row in seen["paraphrase"]])
        kinds = (shares[kind] for kind in ("far", '"I" far', "near"))
        numbers = (shares["paraphrase"], extra, *kinds, auc(seen["paraphrase"], seen["far"]))
        print(f"{name:28}" + "".join(f"{number:8.3f}" for number in numbers))
    print()


def auc(high: list[tuple[bool, int, float]], low: list[tuple[bool, int, float]]) -> float:
    """How well the best relevance tells one kind of cue from another."""
    first, second = (np.array([row[2] for row in rows]) for rows in (high, low))
    above = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    return float(above.mean())


def turns(store: RecallStore, persona: str) -> Iterator[tuple[str, bool, int]]:
    """Of each message its form and half, whether all that was wanted came, and how much else."""
    for turn in lines("turns.jsonl"):
        if not persona.endswith(turn["persona"]):
            continue
        speakers = {"user": HumanMessage, "assistant": AIMessage}
        messages = [speakers[role](words) for role, words in turn["messages"]]
        found = {
            memory.key for memory in store.recall(ME, build_cue({"messages": messages})).memories
        }
        wanted = set(turn["relevant"])
        yield f"{turn['form']} ({turn['half']})", wanted <= found, len(found - wanted)


def pairs(store: RecallStore, persona: str) -> Iterator[tuple[str, bool, int]]:
    """Of each cue whether its note comes for it and the next one joined by "and" in one message."""
    for kind in ("words", "paraphrase"):
        cues = [cue for cue in lines(f"{persona}_cues.jsonl") if cue["kind"] == kind]
        for first, second in itertools.pairwise(cues):
            joined = f"{first['cue'].rstrip('?.! ')} and {second['cue'][:1].lower()}"
            message = HumanMessage(joined + second["cue"][1:])
            recall = store.recall(ME, build_cue({"messages": [message]}))
            found = {memory.key for memory in recall.memories}
            extra = len(found.difference(first["relevant"], second["relevant"]))
            for cue in (first, second):
                yield f"two in one, {kind}", bool(found.intersection(cue["relevant"])), extra


def questions(store: RecallStore, persona: str) -> Iterator[tuple[str, bool, int]]:
    """Of each question to the tool its half, whether the answer is right, and how much else is."""
    (tool,) = memory_tools(ME, store=store, names=["recall"])
    for asked in lines("tool_questions.jsonl"):
        if not persona.endswith(asked["persona"]):
            continue
        answer, wanted = tool.invoke({"query": asked["question"]}), set(asked["relevant"])
        found = {json.loads(line)["id"] for line in answer.splitlines() if line.startswith("{")}
        if wanted:
            yield f"tool ({asked['half']})", wanted <= found, len(found - wanted)
        else:
            sure = re.findall(r"(likely|possible) \(relevance", answer)
            yield f"tool, none stored ({asked['half']})", "likely" not in sure, len(sure)


def dated(embeddings: Embeddings) -> Iterator[tuple[str, bool, int]]:
    """Of each dated cue its kind and half, whether all that was wanted came, and how much else."""
    for case in lines("dated.jsonl"):
        with closing(RecallStore(LocalStore(embeddings=embeddings), record=False)) as store:
            for note in case["memories"]:
                when = datetime.fromisoformat(note["written_at"])
                store.remember(
                    ME, note["text"], key=note["key"], source="user_stated", written_at=when
                )
            recall = store.recall(ME, Cue(case["cue"], at=datetime.fromisoformat(case["now"])))
            found, wanted = {memory.key for memory in recall.memories}, set(case["wanted"])
            for row in (case["kind"], "dated"):
                yield f"{row} ({case['half']})", wanted <= found, len(found - wanted)


def living(chosen: argparse.Namespace, embeddings: Embeddings) -> None:
    """Print what turns bring: all and any of what they need, other memories, and for none."""
    rows = lines(f"living_{'unseen' if chosen.test else 'seen'}.jsonl")
    seen: defaultdict[str, list[tuple[bool, bool, int]]] = defaultdict(list)
    for person in dict.fromkeys(row["person"] for row in rows):
        own = [row for row in rows if row["person"] == person]
        notes = [row | {"text": row["note"]} for row in own if "note" in row]
        with closing(store_of(person, chosen, embeddings, notes)) as store:
            for turn in (row for row in own if "turn" in row):
                said = [*turn["history"], ("user", turn["turn"])]
                speakers = {"user": HumanMessage, "assistant": AIMessage}
                messages = [speakers[role](words) for role, words in said]
                recall = store.recall(ME, build_cue({"messages": messages}))
                found, wanted = {memory.key for memory in recall.memories}, set(turn["wanted"])
                row = (wanted <= found, bool(found & wanted), len(found - wanted))
                for kind in ("any that is needed", turn["kind"]) if wanted else ():
                    seen[kind].append(row)
                if not wanted:
                    seen["none is needed"].append((bool(found), bool(found), len(found)))
    print(f"\n{'turns':28}{'':5}{'all':>8}{'some':>8}{'extra':>8}")
    for kind, results in seen.items():
        numbers = "".join(f"{number:8.2f}" for number in np.mean(results, axis=0))
        print(f"{kind:28}{len(results):5}{numbers}")


def fillers(path: Path) -> list[str]:
    """Texts of LoCoMo: observations, then turns, then sentences of turns, each in one order."""
    conversations = json.loads(path.read_text("utf-8"))
    facts = [
        fact[0]
        for each in conversations
        for session in each["observation"].values()
        for said in session.values()
        for fact in said
    ]
    turns = [
        turn["text"]
        for each in conversations
        for name, session in each["conversation"].items()
        if re.fullmatch(r"session_\d+", name)
        for turn in session
    ]
    sentences = [one for turn in turns for one in re.split(r"(?<=[.!?])\s+", turn)]
    shuffle = np.random.default_rng(7).permutation
    ordered = (texts[place] for texts in (facts, turns, sentences) for place in shuffle(len(texts)))
    return list(dict.fromkeys(ordered))


def by_size(chosen: argparse.Namespace, embeddings: Embeddings) -> None:
    """Print shares of paraphrased, far and first-person far cues for growing stores."""
    filling = fillers(chosen.sizes)
    print(
        f"{'memories':>9}{'hit':>8}{'extra':>8}{'far':>8}{'I far':>8}{'cosine: hit, far .10':>24}"
    )
    for size in SIZES:
        rows: defaultdict[str, list[tuple[bool, int, bool, float]]] = defaultdict(list)
        for persona in PERSONAS[chosen.test]:
            notes = lines(f"{persona}_memories.jsonl")
            for start in range(0, len(notes), size):
                some = notes[start : start + size] if size < len(notes) else notes
                for kind, row in _sized(
                    some, persona, filling[: size - len(some)], chosen, embeddings
                ):
                    rows[kind].append(row)
                if size >= len(notes) or start >= MOST_STORES * size:
                    break
        hit, extra, _, _ = np.mean(rows["paraphrase"], axis=0)
        far, own = (np.mean([row[0] for row in rows[kind]]) for kind in ("far", '"I" far'))
        level = np.quantile([row[3] for row in rows["far"]], 0.9)
        plain = np.mean(
            [is_first and cosine > level for _, _, is_first, cosine in rows["paraphrase"]]
        )
        print(f"{size:9}{hit:8.3f}{extra:8.2f}{far:8.3f}{own:8.3f}{plain:24.3f}")


def _sized(
    notes: list[dict[str, Any]],
    persona: str,
    filling: list[str],
    chosen: argparse.Namespace,
    embeddings: Embeddings,
) -> Iterator[tuple[str, tuple[bool, int, bool, float]]]:
    """Of each cue its kind; hit, extra, whether cosine has it in its first five, best cosine."""
    with closing(store_of(persona, chosen, embeddings, notes)) as store:
        for start in range(0, len(filling), 500):
            texts = enumerate(filling[start : start + 500], start)
            store.batch([PutOp(ME, f"filling {place}", {"content": text}) for place, text in texts])
        held = {note["key"] for note in notes}
        for cue in cues_of(persona):
            wanted = set(cue["relevant"])
            if cue["kind"] not in ("paraphrase", "far", '"I" far') or not wanted <= held:
                continue
            found = {memory.key for memory in store.recall(ME, cue["cue"]).memories}
            nearest = store.inner.search(ME, query=cue["cue"], limit=5)
            is_near = not wanted.isdisjoint(item.key for item in nearest)
            is_hit = bool(found & wanted) if wanted else bool(found)
            yield cue["kind"], (is_hit, len(found - wanted), is_near, nearest[0].score or 0.0)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    models = ("wordllama", "minilm", "unknown")
    parser.add_argument("--embeddings", choices=models, default="wordllama")
    parser.add_argument("--store", choices=("local", "memory"), default="local")
    parser.add_argument("--asked-as", action="store_true")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--sizes", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    embeddings = embeddings_named(chosen.embeddings)
    if chosen.sizes:
        by_size(chosen, embeddings)
        return
    by_kind: defaultdict[str, list[tuple[bool, int, float]]] = defaultdict(list)
    by_form: defaultdict[str, list[tuple[bool, int, float]]] = defaultdict(list)
    stores = {name: store_of(name, chosen, embeddings) for name in PERSONAS[chosen.test]}
    compare(stores, embeddings)
    for persona, store in stores.items():
        for kind, is_hit, extra, relevance in outcomes(store, persona):
            by_kind[kind].append((is_hit, extra, relevance))
        forms = (*turns(store, persona), *pairs(store, persona), *questions(store, persona))
        for form, is_hit, extra in forms:
            by_form[form].append((is_hit, extra, 0.0))
        store.close()
    by_date: defaultdict[str, list[tuple[bool, int, float]]] = defaultdict(list)
    for kind, is_hit, extra in dated(embeddings):
        by_date[kind].append((is_hit, extra, 0.0))
    for rows in (by_kind, by_form, by_date):
        for name, row in sorted(rows.items()):
            share, extra, _ = np.mean(row, axis=0)
            print(f"{name:28}{len(row):5}{share:8.3f}{extra:8.2f} extra")
    score = auc(by_kind["paraphrase"], by_kind["far"])
    print(f"AUC of paraphrased against far cues: {score:.3f}")
    if not chosen.asked_as:
        living(chosen, embeddings)


if __name__ == "__main__":
    main()
