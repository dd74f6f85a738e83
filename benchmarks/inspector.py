"""How a long log opens in the inspector: size of the page, time to open, time of what a user does.

Run with `make bench` or `python benchmarks/inspector.py`, with Chromium installed. The recalls are
real ones over generated memories; every seventh minute of the log's clock has a turn.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from langgraph.store.base import PutOp
from overhead import NAMESPACE, sentences
from playwright.sync_api import sync_playwright

from langmem_recall import LocalStore, RecallStore
from langmem_recall.observe.inspector.page import page
from langmem_recall.observe.log import TraceLog, read_log

MEMORIES = 2_000
ACTIONS = """async () => {
  const timed = (act) => {
    const start = performance.now();
    act();
    return performance.now() - start;
  };
  const { app } = inspector;
  const { turns } = app.views;
  const search = (words) => { turns.search.value = words; turns.filter() };
  const slide = () => {
    const floor = document.getElementById("knob-floor");
    floor.value = 0.4;
    floor.dispatchEvent(new Event("input"));
  };
  return {
    "next turn": timed(() => turns.list.move(1)),
    "search cues": timed(() => search("ba")),
    "clear search": timed(() => search("")),
    "move a slider": timed(slide),
    "open memories": timed(() => app.open("memories")),
    "open health": timed(() => app.open("health")),
  };
}"""


def record(path: Path, turns: int) -> None:
    """A log of so many turns."""
    now = [datetime(2026, 3, 1, tzinfo=UTC)]
    inner = LocalStore()
    texts = sentences(MEMORIES)
    inner.batch([PutOp(NAMESPACE, f"m{i}", {"content": text}) for i, text in enumerate(texts)])
    with TraceLog(path, max_bytes=10**10) as log:
        store = RecallStore(inner, traces=log, clock=lambda: now[0])
        for i, cue in enumerate(sentences(turns, seed=11)):
            now[0] += timedelta(minutes=7)
            words = cue.split()[:5] if i % 2 else texts[i % MEMORIES].split()[:5]
            store.recall(NAMESPACE, " ".join(words))
            if i % 200 == 0:
                log.flush()


def look(chromium: str, made: Path) -> None:
    """Open the page three times, then use it."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        sheet = browser.new_page(viewport={"width": 1440, "height": 900})
        took = []
        for _ in range(3):
            start = time.perf_counter()
            sheet.goto(made.as_uri())
            sheet.wait_for_selector("html[data-ready]", timeout=60_000)
            took.append(time.perf_counter() - start)
        print("opens in", ", ".join(f"{seconds:.2f} s" for seconds in took))
        for action, ms in sheet.evaluate(ACTIONS).items():
            print(f"{action}: {ms:.0f} ms")
        browser.close()


def main() -> None:
    """Record, make the page, open it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=10_000)
    told = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("No Chromium was found. Install it, for example with: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        log, made = Path(folder) / "traces.jsonl", Path(folder) / "page.html"
        record(log, told.turns)
        made.write_text(page(read_log(log)), encoding="utf-8")
        print(
            f"{told.turns:,} turns: log {log.stat().st_size / 1e6:.0f} MB, "
            f"page {made.stat().st_size / 1e6:.1f} MB"
        )
        look(chromium, made)


if __name__ == "__main__":
    main()
