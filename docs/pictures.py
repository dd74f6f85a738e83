"""Takes the pictures of the inspector in `docs/pictures`: `make docs`, with Chromium installed.

A scripted agent talks with a user for three weeks of a clock of its own; its log of traces becomes
the inspector's page, and the page is photographed by a real browser.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from playwright.sync_api import Browser, sync_playwright

from langmem_recall import LocalStore, RecallMiddleware, RecallStore
from langmem_recall.observe.inspector.page import page
from langmem_recall.observe.log import TraceLog, read_log

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
ASKED = (
    "Which seat should you book on my flight?",
    "What did we do about ERR_CERT_DATE_INVALID?",
    "Who composed the opera Tosca?",
    "Is there anything I must not eat?",
    "When is my sister's birthday?",
    "Which days do I go to the gym?",
    "How many reviews does a pull request need?",
    "What is the capital of Mongolia?",
    "How much may the trip to Oslo cost, what is my travel budget?",
    "Which database does the shop run on?",
    "How often do the tomatoes need water?",
    "Solve x^2 = 9 for me",
)
VIEWS = (
    ("inspector.png", (1440, 1180), "light", "turns"),
    ("inspector-health.png", (1440, 900), "light", "health"),
    ("inspector-phone.png", (360, 780), "dark", "turns"),
)
"""File, window, colours and tab."""


def talk(log: Path) -> None:
    """Three weeks of turns, recorded."""
    now = [datetime(2026, 3, 2, 8, 0, tzinfo=UTC)]
    with TraceLog(log) as traces:
        store = RecallStore(LocalStore(), clock=lambda: now[0], traces=traces)
        for key, fact in FACTS.items():
            now[0] += timedelta(hours=5)
            store.remember(ADA, fact, key=key, source="user_stated")
        answers = repeat(AIMessage("Noted [m1]."))
        recall = RecallMiddleware(("memories", "{user_id}"), deadline=10.0)
        model = GenericFakeChatModel(messages=answers)
        agent = create_agent(model, store=store, middleware=[recall])
        for turn in range(60):
            now[0] += timedelta(hours=7)
            words = ASKED[turn * 5 % len(ASKED)]
            asked = {"messages": [("user", words)]}
            agent.invoke(asked, {"configurable": {"user_id": ADA[1]}})  # type: ignore[call-overload]


def photograph(browser: Browser, source: Path) -> None:
    """Every view of the page."""
    for name, (width, height), colours, tab in VIEWS:
        sheet = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if colours == "dark" else "light",
        )
        sheet.goto(source.as_uri())
        sheet.wait_for_selector("html[data-ready]")
        sheet.click(f"#tab-{tab}")
        sheet.screenshot(path=PICTURES / name)
        sheet.close()


def main() -> None:
    """Make the traces, the page and the pictures."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("No Chromium was found. Install it, for example with: apt-get install chromium")
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        log, made = Path(folder) / "traces.jsonl", Path(folder) / "page.html"
        talk(log)
        made.write_text(page(read_log(log)), encoding="utf-8")
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        photograph(browser, made)
        browser.close()


if __name__ == "__main__":
    main()
