"""Takes the pictures of the inspector in `docs/pictures`: `make docs`, with Chromium installed.

A scripted agent talks with two users for weeks of a clock of its own; its log of traces becomes
the inspector's page, and the page is photographed by a real browser.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from playwright.sync_api import Browser, sync_playwright

from langmem_recall import LocalStore, RecallMiddleware, RecallStore
from langmem_recall.observe.inspector.page import page
from langmem_recall.observe.log import TraceLog, read_log

View = tuple[str, tuple[int, int], str, str]

PICTURES = Path(__file__).parent / "pictures"
ADA = ("memories", "ada")
FACTS = {
    "seat": "I always book an aisle seat on flights",
    "hotel": "In hotels I ask for a quiet room on a high floor",
    "peanuts": "I am allergic to peanuts",
    "coffee": "I drink my coffee black, no sugar",
    "gym": "I go to the gym on Tuesdays and Fridays",
    "mia": "My sister Mia lives in Bergen",
    "mia-birthday": "Mia's birthday is on 14 April",
    "deploy": "The deploy failed with ERR_CERT_DATE_INVALID until the certificate was renewed",
    "database": "The shop runs on PostgreSQL 16 with pgvector",
    "branch": "Release branches are cut on the first Monday of the month",
    "review": "Pull requests to the shop need two reviews",
    "standup": "Our stand-up is at 09:15, Lisbon time",
    "laptop": "My laptop is a ThinkPad with 32 GB of memory",
    "guitar": "I am learning the guitar, twenty minutes every evening",
    "garden": "The tomatoes in my garden need water every other day",
    "dentist": "My dentist is Dr. Moura in Rua Augusta",
    "car": "My car's inspection is due in June",
    "budget": "The travel budget for this year is 4,000 euros",
}
BEN = ("memories", "ben")
BENS = {
    "diet": "Ben has been vegetarian since 2019",
    "train": "Ben takes the 07:40 train to Porto on Mondays",
    "badge": "Ben's badge opens doors B1 to B4 and not the server room",
}
HOMES = {ADA: FACTS, BEN: BENS}
THREADS = (
    (
        ADA,
        ("Which seat should you book on my flight?", "An aisle seat, as always."),
        ("And which seat on the flight back?", "An aisle seat again."),
        ("How much may the trip to Oslo cost, what is my travel budget?", "4,000 euros a year."),
    ),
    (
        ADA,
        ("What did we do about ERR_CERT_DATE_INVALID?", "The certificate was renewed."),
        ("How many reviews does a pull request need?", "Two, for the shop."),
        ("Which database does the shop run on?", "PostgreSQL 16 with pgvector."),
        ("Who composed the opera Tosca?", "Giacomo Puccini."),
    ),
    (
        BEN,
        ("Does my badge open the server room?", "No: it opens doors B1 to B4."),
        ("Book a table for Ben, who is vegetarian", "I asked for a vegetarian menu."),
        ("What is the capital of Mongolia?", "Ulaanbaatar."),
    ),
    (
        ADA,
        ("When is my sister's birthday?", "Mia's birthday is on 14 April."),
        ("Am I allergic to peanuts or anything else?", "Peanuts: you are allergic to them."),
        ("Solve x^2 = 9 for me", "x is 3 or -3."),
    ),
)
VIEWS = (
    ("inspector.png", (1440, 900), "light", "turns"),
    ("inspector-health.png", (1440, 900), "light", "health"),
    ("inspector-phone.png", (390, 844), "dark", "turns"),
    ("inspector-tablet.png", (768, 1024), "light", "turns"),
    ("inspector-wide.png", (2560, 1300), "dark", "turns"),
)
"""File, window, colours and tab."""


class ScriptedModel(BaseChatModel):
    """Says what the script says, and cites the first memory that it was shown for it."""

    _llm_type = "scripted"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        asked, shown = messages[-1].text, messages[-2].text if len(messages) > 1 else ""
        answers = {words: answer for _, *turns in THREADS for words, answer in turns}
        handle = re.search(r'"id": "(m\d+)"', shown)
        cited = f" [{handle[1]}]" if handle else ""
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answers[asked] + cited))])


def talk(log: Path) -> None:
    """Weeks of conversations, recorded."""
    now = [datetime(2026, 3, 2, 8, 0, tzinfo=UTC)]
    with TraceLog(log) as traces:
        store = RecallStore(LocalStore(), clock=lambda: now[0], traces=traces)
        for home, facts in HOMES.items():
            for key, fact in facts.items():
                now[0] += timedelta(hours=5)
                store.remember(home, fact, key=key, source="user_stated")
        store.correct(BEN, "train", "Ben takes the 08:10 train to Porto on Mondays now")
        recall = RecallMiddleware(("memories", "{user_id}"), deadline=10.0)
        agent = create_agent(
            ScriptedModel(), store=store, middleware=[recall], checkpointer=InMemorySaver()
        )
        for number in range(24):
            home, *turns = THREADS[number * 3 % len(THREADS)]
            for words, _ in turns:
                now[0] += timedelta(hours=1 if words != turns[0][0] else 17)
                config = {"user_id": home[1], "thread_id": f"chat-{number + 1}"}
                agent.invoke({"messages": [("user", words)]}, {"configurable": config})  # type: ignore[call-overload]


def photograph(browser: Browser, source: Path, folder: Path, views: Sequence[View]) -> None:
    """Every view of the page."""
    for name, (width, height), colours, tab in views:
        sheet = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if colours == "dark" else "light",
        )
        # A turn that brought memories; `turn-N` opens it on a phone too.
        sheet.goto(f"{source.as_uri()}#{'turn-68' if tab == 'turns' else tab}")
        sheet.wait_for_selector("html[data-ready]")
        if tab == "turns":
            sheet.click(".gate > summary")
            sheet.wait_for_selector(".gate .row")
        sheet.screenshot(path=folder / name)
        sheet.close()


def main() -> None:
    """Make the traces, the page and the pictures: those of the docs, or of every view and width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every view, width and colour")
    folder = parser.parse_args().all
    views = VIEWS
    if folder:
        views = tuple(
            (f"{tab}-{width}-{colours}.png", (width, height), colours, tab)
            for width, height in ((390, 844), (768, 1024), (1440, 900), (2560, 1300))
            for colours in ("light", "dark")
            for tab in ("turns", "memories", "health")
        )
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("No Chromium was found. Install it, for example with: apt-get install chromium")
    (folder or PICTURES).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        log, made = Path(scratch) / "traces.jsonl", Path(scratch) / "page.html"
        talk(log)
        made.write_text(page(read_log(log)), encoding="utf-8")
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        photograph(browser, made, folder or PICTURES, views)
        browser.close()


if __name__ == "__main__":
    main()
