"""The page in a real browser: Chromium, as Debian packages it, driven by Playwright."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recalls import HOME, NOW, candidate, recall_of

from langmem_recall.agents.block import pack
from langmem_recall.cli.inspect import Inspection, PageServer
from langmem_recall.observe.inspector.page import LINE_TOKENS, PageData, text_tokens
from langmem_recall.observe.inspector.page import page as make_page
from langmem_recall.observe.show import from_dict, recall_id, to_dict
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.ranking.blend import blend
from langmem_recall.ranking.pipeline import demote_unverified_leader, select
from langmem_recall.ranking.signals import (
    IMPORTANCE,
    RECENCY,
    RELEVANCE,
    SIMILARITY,
    STRENGTH,
    TRUST,
    signal_table,
)
from langmem_recall.types import (
    HARD_GATES,
    KINDS,
    Candidate,
    Cue,
    Evidence,
    Memory,
    MemoryId,
    Recall,
    Scored,
    Signals,
    Temporal,
    Usage,
    View,
)
from langmem_recall.types import TRUST as SOURCES

ESCAPES = Path(__file__).resolve().parents[3] / "shared" / "data" / "escapes_dev.jsonl"
LEAST_TEXT_TOKENS = 10
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page from its file; whatever went wrong in it fails the test."""
    contexts, faults = [], []

    def open_page(html: str, place: str = "", width: int = 1440, height: int = 900) -> Any:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("dialog", lambda dialog: (faults.append("dialog"), dialog.dismiss()))
        page.on(
            "request",
            lambda asked: asked.url.startswith("file:") or faults.append(f"asked {asked.url}"),
        )
        page.goto(path.as_uri() + place)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []


# --- what-if equals the pipeline ------------------------------------------------------------------


def likeness_of(pairs: set[frozenset[MemoryId]]) -> Callable[[Sequence[MemoryId]], np.ndarray]:
    def judge(ids: Sequence[MemoryId]) -> np.ndarray:
        alike = [[1.0 if a == b or frozenset((a, b)) in pairs else 0.0 for b in ids] for a in ids]
        return np.array(alike)

    return judge


def memory(draw: random.Random, key: str, at: Any) -> Memory:
    return Memory(
        namespace=HOME,
        key=key,
        text="about tea " * draw.randint(1, 40),
        kind=draw.choice(KINDS),
        source=draw.choice(list(SOURCES)),
        salience=draw.choice([0.5, round(draw.random(), 2), draw.random()]),
        written_at=None if draw.random() < 0.1 else at - timedelta(hours=draw.uniform(-5, 3000)),
        pinned=draw.random() < 0.05,
        status="quarantined" if draw.random() < 0.05 else "active",
        valid_until=NOW if draw.random() < 0.05 else None,
    )


def usage(draw: random.Random) -> Usage:
    if draw.random() < 0.6:
        return Usage()
    last = NOW.timestamp() - draw.uniform(0, 1e6)
    before = draw.choice([None, last - draw.uniform(0, 2e5)])
    return Usage(draw.randint(1, 9), draw.uniform(0, 9), last, before, draw.randint(-5, 5))


def some_candidate(draw: random.Random, key: str, at: Any) -> Candidate:
    relevance = draw.choice([draw.random(), draw.random(), 0.5, 0.3, 0.0])
    evidence = Evidence(
        dense=draw.choice([None, draw.uniform(-0.2, 1)]),
        coverage=draw.random(),
        bm25=draw.choice([None, draw.uniform(0, 30)]),
        entity=draw.choice([0.0, 1.0, draw.random()]),
        relevance=relevance,
    )
    ranks = (draw.choice([None, draw.randint(1, 40)]), draw.choice([None, draw.randint(1, 40)]))
    return Candidate(memory(draw, key, at), evidence, usage(draw), *ranks)


TEMPORALS = (
    *(None, None, Temporal("current"), Temporal("first"), Temporal("past")),
    Temporal("window", NOW - timedelta(days=60), NOW - timedelta(days=9)),
)


def some_recall(seed: int, policy: RecallPolicy) -> Recall:
    """What the pipeline makes of random candidates, some of them alike or visible already."""
    draw = random.Random(seed)
    at = NOW + timedelta(seconds=draw.uniform(0, 1e6))
    found = [some_candidate(draw, f"m{i}", at) for i in range(draw.randint(0, 30))]
    ids = [one.memory.id for one in found]
    couples = {frozenset(draw.sample(ids, 2)) for _ in range(4)} if len(ids) > 1 else set()
    seen = View(ids=frozenset(draw.sample(ids, len(ids) // 8)))
    cue = Cue("tea?", temporal=draw.choice(TEMPORALS))
    alike = likeness_of(couples)
    recall = recall_of(found, cue, policy, alike, at=at, budget_tokens=2000)
    admitted = [drop for drop in recall.dropped if drop.gate in HARD_GATES]
    ranked = sorted(
        [*recall.chosen, *(drop.scored for drop in recall.dropped if drop not in admitted)],
        key=lambda one: (-one.score, -one.signals.relevance),
    )
    ranked = ranked if policy.blend == "similarity" else led_by_trusted(ranked)
    chosen, dropped = select(ranked, policy, alike, seen)
    return Recall(tuple(chosen), (*admitted, *dropped), recall.trace)


def led_by_trusted(ranked: list[Scored]) -> list[Scored]:
    memories = [one.memory for one in ranked]
    relevance = [one.signals.relevance for one in ranked]
    order = demote_unverified_leader(list(range(len(ranked))), memories, relevance)
    return [ranked[place] for place in order]


def six_digits(signals: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda number: round(number, 6))(signals)


def pipeline_on(record: dict[str, Any], policy: RecallPolicy, budget: int | None) -> Any:
    """Python's own ranking and gates on the recorded signals: outcomes by candidate."""
    recall = from_dict(record)
    every = [*recall.chosen, *(drop.scored for drop in recall.dropped)]
    gates = [held.get("gate") for held in record["candidates"]]
    ranked_rows = [i for i, gate in enumerate(gates) if gate not in HARD_GATES]
    outcomes = {i: gates[i] for i in range(len(every)) if i not in ranked_rows}
    ranked = rescored([every[i] for i in ranked_rows], record, policy, recall)
    ranked = ranked if policy.blend == "similarity" else led_by_trusted(ranked)
    rows = {scored.memory.id: i for i, scored in enumerate(every)}
    couples = {
        frozenset((drop.memory.id, (HOME, drop.reason.partition(" like ")[2])))
        for drop in recall.dropped
        if drop.gate == "duplicate"
    }
    seen = View(ids=frozenset(drop.memory.id for drop in recall.dropped if drop.gate == "visible"))
    chosen, dropped = select(ranked, policy, likeness_of(couples), seen)
    outcomes |= {rows[drop.memory.id]: drop.gate for drop in dropped}
    kept = chosen
    if budget is not None:
        whole = [LINE_TOKENS + text_tokens(scored.memory.text) for scored in chosen]
        least = [min(tokens, LINE_TOKENS + LEAST_TEXT_TOKENS) for tokens in whole]
        gone = sorted({*range(len(whole))} - {*pack(whole, least, budget)})
        outcomes |= {rows[chosen[i].memory.id]: "budget" for i in gone}
        kept = [scored for i, scored in enumerate(chosen) if i not in gone]
    outcomes |= {rows[scored.memory.id]: place for place, scored in enumerate(kept, start=1)}
    scores = {rows[scored.memory.id]: scored.score for scored in ranked}
    order = [rows[scored.memory.id] for scored in ranked]
    return outcomes, scores, order


def rescored(
    some: list[Scored], record: dict[str, Any], policy: RecallPolicy, recall: Recall
) -> list[Scored]:
    if not some:
        return []
    candidates = [scored.candidate for scored in some]
    table, ages, uses = signal_table(candidates, policy, recall.trace.at.timestamp())
    half_life = record["policy"]["knobs"]["half_life_hours"]
    columns = {
        SIMILARITY: "similarity",
        IMPORTANCE: "importance",
        STRENGTH: "strength",
        TRUST: "trust",
        RELEVANCE: "relevance",
    }
    if policy.half_life_hours == half_life:
        columns[RECENCY] = "recency"
    else:
        table[RECENCY] = six_digits(table[RECENCY])
    for row, name in columns.items():
        table[row] = [getattr(scored.signals, name) for scored in some]
    scores = blend(candidates, table, ages, uses, policy, recall.trace.cue.temporal)
    order = np.lexsort((-table[RELEVANCE], -scores))
    named = (RELEVANCE, SIMILARITY, RECENCY, IMPORTANCE, STRENGTH, TRUST)
    return [
        Scored(candidates[i], Signals(*(table[row][i] for row in named)), float(scores[i]))
        for i in order
    ]


TIERED = RecallPolicy.default(
    name="tiered", tiers={"episodic": Weights(recency=0.9), "procedural": Weights(trust=0.4)}
)
POLICIES = (
    RecallPolicy.default(),
    TIERED,
    RecallPolicy.default(
        name="forgetful", ebbinghaus=True, lru2=True, durable_kinds=("procedural",)
    ),
    RecallPolicy.default(name="fused", ordering="rrf"),
    RecallPolicy.weighted(),
    RecallPolicy.generative_agents(),
    RecallPolicy.product(),
    RecallPolicy.interpolated(),
    RecallPolicy.similarity(),
)


def variants(policy: RecallPolicy, seed: int) -> list[tuple[RecallPolicy, int | None]]:
    """The policy itself, and others as the sliders would make them."""
    draw = random.Random(seed)
    found: list[tuple[RecallPolicy, int | None]] = [(policy, None)]
    for _ in range(4):
        weights = {name: round(draw.random(), 2) for name in ("similarity", "recency", "trust")}
        weights |= {name: round(draw.random(), 2) for name in ("importance", "strength")}
        changed = policy.replace(
            weights=Weights(**weights),
            half_life_hours=draw.choice([policy.half_life_hours, round(draw.uniform(1, 2000), 3)]),
            trigger=draw.choice([0.0, 0.5, round(draw.random(), 2)]),
            floor=draw.choice([0.0, 0.3, round(draw.random(), 2)]),
            composite_floor=draw.choice([0.0, 0.4]),
            top_k=draw.randint(1, 12),
        )
        found.append((changed, draw.choice([None, draw.randint(20, 900)])))
    return found


ASK = """(asked) => asked.map(([turn, knobs, budget]) => {
  const { traces, whatIf } = inspector;
  const candidates = traces.candidates(traces.turns[turn]);
  const outcomes = [...whatIf(traces, traces.turns[turn], candidates, knobs, budget)];
  return outcomes.map(([index, { place, gate, score }]) => [index, place ?? gate, score]);
})"""


def test_what_if_equals_the_pipeline_on_the_recorded_signals(opened: Callable[..., Any]) -> None:
    turns = [(policy, seed) for policy in POLICIES for seed in range(8)]
    records = [to_dict(some_recall(seed, policy)) for policy, seed in turns]
    for record, (policy, _) in zip(records, turns, strict=True):
        record["policy"]["knobs"] = policy.to_dict()
    page = opened(make_page(records))
    asked = [
        (turn, *variant)
        for turn, (policy, seed) in enumerate(turns)
        for variant in variants(policy, seed)
    ]
    answers = page.evaluate(
        ASK, [[turn, variant.to_dict(), budget] for turn, variant, budget in asked]
    )

    for (turn, variant, budget), answer in zip(asked, answers, strict=True):
        outcomes, scores, order = pipeline_on(records[turn], variant, budget)
        assert {index: outcome for index, outcome, _ in answer} == outcomes
        found = {index: score for index, _, score in answer}
        assert {index: found[index] for index in order} == pytest.approx(scores, abs=1e-12)
        # The first may lead because it is trusted; the others stand by their scores.
        assert sorted(order[1:], key=lambda index: -found[index]) == order[1:]
        if variant is turns[turn][0]:
            # Near ties may change places when signals have six digits: then another one is beyond.
            assert settled(outcomes) == settled(happened(records[turn]))


def settled(outcomes: dict[int, Any]) -> dict[int, Any]:
    return {i: "top_k" if held == "authority" else held for i, held in outcomes.items()}


def happened(record: dict[str, Any]) -> dict[int, Any]:
    held = enumerate(record["candidates"])
    return {i: one["place"] if "place" in one else one["gate"] for i, one in held}


# --- what is on the page --------------------------------------------------------------------------


def story() -> list[dict[str, Any]]:
    """Three turns: one with two memories, one below the trigger, one with nothing stored."""
    first = recall_of(
        [
            candidate("tea", 0.9, text="Ann drinks tea", salience=0.2),
            candidate("dog", 0.7, text="Ann has a dog", salience=0.9, days=40),
            candidate("car", 0.2, text="Ann sold her car"),
            candidate("old", 0.9, text="Ann drank coffee", status="superseded"),
        ],
        Cue("What does Ann drink?", ("What does Ann drink?", "plan the breakfast")),
        budget_tokens=2000,
        tokens=120,
        searched=40,
        conflicts=(((HOME, "tea"), (HOME, "dog")),),
    )
    second = recall_of([candidate("tea", 0.4, text="Ann drinks tea")], "Boil an egg?", searched=40)
    third = recall_of([], "Hello", searched=0, channels={}, degraded=("store timed out",))
    good = {"recall": recall_id(first), "namespace": list(HOME), "key": "tea", "good": True}
    return [
        (to_dict(first) | {"block": '<recalled-memories id="x">'}),
        to_dict(second),
        to_dict(third),
        {"version": 1, "kind": "feedback", **good},
    ]


def test_a_turn_shows_cue_funnel_candidates_reasons_and_block(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()), "#turn-1")
    detail = page.inner_text(".detail")

    assert page.title() == "Recall inspector"
    assert "plan the breakfast" in detail
    assert "candidates 4 -> 1 out of force, 1 below floor (best 0.20) -> 2 recalled" in detail
    assert "Recalled (2)" in detail
    assert "Not recalled: below floor (1)" in detail
    assert "relevance 0.20 is below the floor 0.3" in detail
    assert '<recalled-memories id="x">' in detail
    assert "120 of 2,000 tokens" in detail
    assert "tea contradicts dog, which is older" in detail
    tea = page.locator(".row", has_text="Ann drinks tea").first
    assert "good" in tea.inner_text()
    # 0.9 of relevance, 0.3 x 0.2 of importance and so on: the bar's parts add up to the score.
    assert "relevance 0.900" in tea.locator(".bar").get_attribute("aria-label")
    assert "importance 0.054" in tea.locator(".bar").get_attribute("aria-label")


def test_relevance_stands_on_an_absolute_bar_between_floor_and_trigger(
    opened: Callable[..., Any],
) -> None:
    page = opened(make_page(story()), "#turn-1")

    def drawn() -> list[list[str]]:
        found: list[list[str]] = page.evaluate(
            """() => [...document.querySelectorAll(".row .bar")].map((bar) => [
              bar.querySelector(".bar-fill").style.width,
              bar.querySelector(".tick-floor").style.left,
              bar.querySelector(".tick-trigger").style.left,
            ])"""
        )
        return found

    assert drawn() == [["90%", "30%", "50%"], ["70%", "30%", "50%"]]
    page.click(".gate-floor > summary")
    page.wait_for_selector(".gate-floor .row")
    assert drawn()[-1] == ["20%", "30%", "50%"]


SAID = '{"id": "m1", "label": "user stated", "text": "Ann drinks \\u003ctea\\u003e"}'


def conversation() -> list[dict[str, Any]]:
    """Two threads; in the first a second turn whose memory is in the prompt already."""
    tea = recall_of([candidate("tea", 0.9, text="Ann drinks tea")], "drink?")
    first, again = (
        (to_dict(tea) | {"block": f"<recalled>\n{SAID}\n</recalled>"}) for _ in range(2)
    )
    first |= {"thread_id": "t1", "turn": "a"}
    del again["block"]
    again |= {"id": "again", "thread_id": "t1", "turn": "b"}
    again["cue"] = {**again["cue"], "text": "and then?"}
    del again["candidates"][0]["place"]
    again["candidates"][0] |= {"gate": "visible", "reason": "in a block that is still in view"}
    other = to_dict(recall_of([candidate("car", 0.1, text="A car")], "egg?")) | {"thread_id": "t2"}
    answer = {"version": 1, "kind": "answer", "thread_id": "t1", "turn": "a"}
    answer |= {"text": "Matcha [m1], <b>hot</b>.", "namespaces": [list(HOME)], "memories": []}
    return [first, answer, again, other]


def test_block_and_answer_stand_above_the_candidates(opened: Callable[..., Any]) -> None:
    page = opened(make_page(conversation()), "#turn-1")
    shown, answer = page.locator(".panel").all_inner_texts()
    assert "Ann drinks <tea>" in shown
    assert page.locator(".lines .handle").inner_text() == "m1"
    assert SAID in page.text_content(".raw pre")
    assert "Matcha m1, <b>hot</b>." in answer
    tops = page.evaluate(
        "['.talk', '.row'].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)


def test_what_is_in_the_prompt_has_its_own_colour_and_is_not_blind(
    opened: Callable[..., Any],
) -> None:
    page = opened(make_page(conversation()), "#turn-2")
    assert page.inner_text("[aria-selected=true] .tag-prompt") == "in the prompt"
    assert page.inner_text(".gate-visible > summary").startswith("Already in the prompt (1)")
    page.select_option("#turns select[aria-label=Outcome]", "blind")
    assert page.inner_text(".detail h2") == "egg?"
    page.keyboard.press("Escape")
    page.click("#tab-health")
    # Of three turns one was recalled, one in the prompt, one blind.
    assert "50 % blind" in page.inner_text("#health")
    assert "1 already in the prompt" in page.inner_text("#health")


def test_turns_stand_in_threads_that_fold_and_are_found_by_memory_and_answer(
    opened: Callable[..., Any],
) -> None:
    page = opened(make_page(conversation()))

    def rows() -> list[str]:
        return [text.split("\n")[-1] for text in page.locator(".turn-row").all_inner_texts()]

    here = "memories/ann"
    everything = [f"{here} · 1 turn · 0 with memories", "egg?"]
    everything += [f"{here} · 2 turns · 1 with memories", "and then?", "drink?"]
    assert rows() == everything
    page.click(".group-row >> nth=1")
    assert rows() == everything[:3]
    page.click(".group-row >> nth=1")
    page.select_option("#turns select[aria-label=Groups]", "")
    for words, found in {
        "matcha": ["drink?"],
        "DRINKS tea": ["and then?", "drink?"],
        "a car": [],  # a candidate, and not in the prompt
    }.items():
        page.fill("#turns input", words)
        assert rows() == found


def test_a_served_page_follows_its_log(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    first, _, again, other = (json.dumps(record) + "\n" for record in conversation())
    path.write_text(first, encoding="utf-8")
    shown = Inspection([str(path)], ())
    with PageServer(shown.page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        page = browser.new_page()
        page.goto(server.address)
        page.wait_for_selector("html[data-ready]")
        page.click(".turn-row >> text=drink?")
        with path.open("a", encoding="utf-8") as log:
            log.write(again)
        # Whoever looks at the latest turn is shown the next.
        page.wait_for_selector(".detail h2 >> text=and then?")
        page.click(".turn-row >> text=drink?")
        with path.open("a", encoding="utf-8") as log:
            log.write(other)
        page.wait_for_selector(".turn-row >> text=egg?")
        assert page.inner_text(".detail h2") == "drink?"
        page.close()
        server.shutdown()
        thread.join()


def test_a_row_says_by_which_phrasing_it_was_found(opened: Callable[..., Any]) -> None:
    tea = candidate("tea", 0.9, text="Ann drinks tea")._replace(found_as="what to <b>serve</b>")
    recall = recall_of([tea, candidate("dog", 0.8, text="Ann has a dog")], "Whom to serve what?")
    page = opened(make_page([to_dict(recall)]))
    rows = page.locator(".row")
    assert "found as asked: what to <b>serve</b>" in rows.nth(0).inner_text()
    assert "as asked" not in rows.nth(1).inner_text()
    page.evaluate(
        """() => {
          const input = document.getElementById("knob-floor");
          input.value = 0.85;
          input.dispatchEvent(new Event("input"));
        }"""
    )
    # What-if changes what is recalled, and not how the rest was found.
    assert page.locator(".row-reason").all_inner_texts()[0] == (
        "found as asked: what to <b>serve</b>"
    )
    assert "below the floor" in page.locator(".gate summary").inner_text()


def test_a_row_opens_to_the_numbers_behind_it(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()), "#turn-1")
    page.locator(".row summary").first.click()
    facts = page.locator(".row .facts").first.inner_text()
    assert "relevance" in facts
    assert "0.900000" in facts
    assert "BM25" in facts


def test_sliders_rank_anew_and_are_reset(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()), "#turn-1")

    def slide(name: str, value: float) -> None:
        page.evaluate(
            """([name, value]) => {
              const input = document.getElementById(`knob-${name}`);
              input.value = value;
              input.dispatchEvent(new Event("input"));
            }""",
            [name, value],
        )

    def recalled() -> list[str]:
        return page.locator(".row:not(.row-dropped) .row-text").all_inner_texts()

    assert recalled() == ["Ann drinks tea", "Ann has a dog"]
    # 0.9 x (1 + 1 x 0.2 + ...) is less than 0.7 x (1 + 1 x 0.9 + ...).
    slide("importance", 1)
    assert recalled() == ["Ann has a dog", "Ann drinks tea"]
    slide("floor", 0.1)
    assert recalled() == ["Ann has a dog", "Ann drinks tea", "Ann sold her car"]
    assert "comes in: car" in page.inner_text("#difference")
    slide("trigger", 0.95)
    assert recalled() == []
    page.keyboard.press("r")
    assert recalled() == ["Ann drinks tea", "Ann has a dog"]
    assert page.inner_text("#funnel").startswith("candidates 4 -> 1 out of force")


def test_keys_move_search_and_change_views(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()))

    page.keyboard.press("j")
    assert page.inner_text(".detail h2") == "Boil an egg?"
    assert page.evaluate("location.hash") == "#turn-2"
    page.keyboard.press("k")
    assert page.inner_text(".detail h2") == "Hello"
    page.keyboard.press("/")
    page.keyboard.type("egg")
    assert page.inner_text(".detail h2") == "Boil an egg?"
    assert page.locator(".turn-row").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    assert page.locator("#memories").is_visible()
    page.keyboard.press("3")
    assert page.locator("#health").is_visible()
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    page.click("dialog button")
    page.keyboard.press("1")
    page.focus("[role=listbox]")
    page.keyboard.press("End")
    assert page.locator("[aria-selected=true].long-row").count() == 1


def test_a_place_in_the_address_is_opened(opened: Callable[..., Any], tmp_path: Path) -> None:
    page = opened(make_page(story()))
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#turn-3")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text(".detail h2") == "Hello"
    assert "store timed out" in page.inner_text(".detail")
    assert "failed" in page.inner_text("[aria-selected=true].long-row")


def test_memories_are_searched_by_words_kind_and_status(opened: Callable[..., Any]) -> None:
    stored = Memory(
        namespace=HOME,
        key="new",
        text="Ann drinks matcha",
        kind="episodic",
        source="user_correction",
        written_at=NOW,
        supersedes=("tea",),
    )
    data = PageData()
    assert all(map(data.add, story()))
    data.add_memory(stored, Usage(7, 6.5, NOW.timestamp()))
    page = opened(data.html())
    page.click("#tab-memories")

    assert page.inner_text("#memories .side > p") == "5 memories"
    page.fill("#memories input", "matcha")
    assert page.locator("#memories .long-row").count() == 1
    detail = page.inner_text("#memories .detail")
    assert "user_correction, trust 1.00" in detail
    assert "7, last 2026-03-04 12:00:00" in detail
    assert "supersedes Ann drinks tea" in detail
    page.fill("#memories input", "")
    page.select_option("#memories select[aria-label=statuses]", "superseded")
    assert page.inner_text("#memories .detail h2") == "Ann drank coffee"
    page.select_option("#memories select[aria-label=statuses]", "")
    page.select_option("#memories select[aria-label=kinds]", "episodic")
    assert page.locator("#memories .long-row").count() == 1


def test_a_memory_leads_to_the_turns_it_was_recalled_in(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()))
    page.click("#tab-memories")
    page.fill("#memories input", "drinks tea")
    assert "Recalled in 1 turn" in page.inner_text("#memories .detail")
    page.click("#memories .link >> text=Boil an egg?")
    assert page.locator("#turns").is_visible()
    assert page.inner_text(".detail h2") == "Boil an egg?"


def test_health_shows_the_monitors_numbers_and_charts(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story() * 20))
    page.click("#tab-health")
    health = page.inner_text("#health")
    # Of three turns each one brought memories, one was blind, one had nothing stored.
    assert "33 % injected" in health
    assert "50 % blind" in health
    assert "store timed out" in health
    # Injected, blind, latency, degraded and what came of the turns; not what was always 0.
    assert page.locator("#health svg").count() == 5
    page.locator("#health .target").first.click()
    assert page.evaluate("location.hash") == "#turn-1"


def test_unknown_policy_starts_from_the_default_and_says_so(opened: Callable[..., Any]) -> None:
    mine = RecallPolicy.default(name="mine", floor=0.2)
    page = opened(make_page([to_dict(recall_of([candidate("a", 0.9)], policy=mine))]))
    assert "policy is not in the record" in page.text_content(".whatif")
    assert page.text_content(".slider:has(#knob-floor) output") == "0.30"


def test_a_page_of_nothing_opens(opened: Callable[..., Any]) -> None:
    page = opened(make_page([]))
    assert page.inner_text("#memories .side > p") == "0 memories"
    for tab in ("turns", "health"):
        page.click(f"#tab-{tab}")
    page.keyboard.press("r")
    assert page.locator("#health").is_visible()


@pytest.mark.parametrize("width", [360, 390, 768, 1440, 2560])
def test_every_view_fits_small_and_large_screens(opened: Callable[..., Any], width: int) -> None:
    long = "unbroken" * 60
    recall = recall_of([candidate(long, 0.9, text=long)], long, degraded=(long,), thread_id=long)
    page = opened(make_page([*story(), (to_dict(recall) | {"block": long})]), "", width, 740)
    for place in ("turns", "memories", "health", "turn-4", "turn-1"):
        page.goto(f"{page.url.partition('#')[0]}#{place}")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink, paper = page.evaluate(
            "['color', 'backgroundColor'].map((one) => getComputedStyle(document.body)[one])"
        )
        assert _contrast(ink, paper) > 7
        assert (_luminance(paper) > 0.5) == (scheme == "light")


def test_a_phone_shows_the_list_or_the_turn(opened: Callable[..., Any]) -> None:
    page = opened(make_page(story()), "", 390, 844)
    assert page.locator("#turns .side").is_visible()
    assert not page.locator(".detail h2").is_visible()
    page.click(".turn-row >> text=Boil an egg?")
    assert page.inner_text(".detail h2") == "Boil an egg?"
    assert not page.locator("#turns .side").is_visible()
    page.click("#turns .back")
    assert page.locator("#turns .side").is_visible()


def _luminance(colour: str) -> float:
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


# --- hostile texts --------------------------------------------------------------------------------

ATTACKS = (
    "</script><script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<svg onload=window.pwned=1><style>*{display:none}</style>",
    "javascript:window.pwned=1",
    "--><!--<script>window.pwned=1</script>",
    "{{constructor.constructor('window.pwned=1')()}}",
    "\u202eecnetnes a \u2066inside\u2069 \u200b\ufeff\x00\x1b[2J",
    "\ud800 lone \udc00",
    "__proto__",
    "constructor",
    "a" * 5_000,
)


def escapes() -> list[str]:
    if not ESCAPES.exists():
        return []
    return [json.loads(line)["text"] for line in ESCAPES.read_text(encoding="utf-8").splitlines()]


def attacked(text: str) -> dict[str, Any]:
    held = candidate(
        text,
        0.9,
        text=text,
        namespace=(text,),
        speaker=text,
        thread_id=text,
        turn=text,
        tags=(text,),
        supersedes=(text,),
    )
    dropped = candidate(f"{text}2", 0.1, text=text, namespace=(text,))
    recall = recall_of(
        [held, dropped],
        Cue(text, (text, "part")),
        namespaces=((text,),),
        degraded=(text,),
        channels={text: 1},
        timings={text: 0.1},
    )
    return to_dict(recall) | {"block": text}


WALK = """async () => {
  const { turns, memories } = inspector.app.views;
  const found = [];
  const settled = () => new Promise((done) => setTimeout(done));
  for (let number = 0; number < inspector.traces.turns.length; number += 1) {
    turns.showTurn(number);
    while (turns.node.querySelectorAll(".row .facts").length < 2) {
      for (const row of turns.node.querySelectorAll("details")) row.open = true;
      await settled();
    }
    const tags = [...turns.detail.node.querySelectorAll("*")].map((one) => one.tagName);
    found.push([tags.join(" "), turns.detail.node.querySelector("h2").textContent]);
  }
  inspector.app.open("memories");
  for (let place = 0; place < memories.list.items.length; place += 5) memories.list.select(place);
  inspector.app.open("health");
  await settled();
  return found;
}"""


def test_hostile_texts_are_shown_and_never_run(opened: Callable[..., Any]) -> None:
    texts = ["harmless", *ATTACKS, *escapes()]
    page = opened(make_page([attacked(text) for text in texts]))
    found = page.evaluate(WALK)

    assert {tags for tags, _ in found} == {found[0][0]}
    for text, (_, shown) in zip(texts, found, strict=True):
        if text.isascii() and text.isprintable():
            assert shown == text
    assert page.evaluate("window.pwned") is None
    markup = "document.querySelectorAll('script, img, iframe, object, link, meta, base').length"
    # Those of the head, which are ours: charset, policy, viewport and referrer.
    assert page.evaluate(markup) == 4


def test_what_cannot_be_seen_is_shown_by_its_number(opened: Callable[..., Any]) -> None:
    page = opened(make_page([attacked("a\u202eb\x1bc\ud800d 👩‍💻 e")]))
    shown = page.evaluate("document.querySelector('.detail h2').textContent")
    assert shown.startswith("a⟨U+202E⟩b⟨U+001B⟩c⟨U+D800⟩d 👩")


def test_the_page_itself_may_not_run_or_load_anything_else(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(make_page(story()), encoding="utf-8")
    page = browser.new_page()
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    outcome = page.evaluate(
        """async () => {
          const told = [];
          try { document.body.innerHTML = "<b>x</b>"; told.push("markup"); } catch { }
          const script = document.createElement("script");
          try { script.textContent = "window.pwned = 1"; document.body.append(script); } catch { }
          try { await fetch("https://127.0.0.1:9/"); told.push("network"); } catch { }
          return [told, window.pwned ?? null];
        }"""
    )
    page.close()
    assert outcome == [[], None]
    assert any("Content Security Policy" in text for text in blocked)
