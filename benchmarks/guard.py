"""What the guard catches, what it stops by mistake, and what it costs.

Run `python benchmarks/guard.py`. Reads `guard_dev.jsonl` and `locomo_dev.json` from
`../shared/data`, beside the repository, where they are present. The rules were developed on the
half of `guard_dev.jsonl` whose texts have an even SHA-256. The texts of the other half were not
read, but its totals were watched, and the halves share sources and templates: expect less on
texts from elsewhere.
Buried attacks are those of the other core categories between two turns of a LoCoMo conversation.
Each time is the best of five for all alike: other work on the machine only adds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from langmem_recall.guard.judge import default_guard

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
CORE = ("override", "unicode", "buried", "tool_syntax", "memory_poison")
SIZES = (200, 1_000, 2_000)
REPEATS = 5
MEGABYTE = 1_000_000
LONGEST_READ = 32_000


class Case(NamedTuple):
    """One text with what it is."""

    text: str
    is_attack: bool
    category: str

    @property
    def is_held_out(self) -> bool:
        """Whether the rules were made without reading it."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).digest()[-1] % 2 == 1


def guard_cases() -> list[Case]:
    """The labelled texts."""
    lines = (DATA / "guard_dev.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [Case(row["text"], row["label"] == "attack", row["category"]) for row in rows]


def turns() -> list[str]:
    """What people say to each other, with captions of the photos they share."""
    samples = json.loads((DATA / "locomo_dev.json").read_text(encoding="utf-8"))
    sessions = (
        session
        for sample in samples
        for name, session in sample["conversation"].items()
        if name.startswith("session_") and isinstance(session, list)
    )
    return [
        " ".join(filter(None, (turn["text"], turn.get("blip_caption"))))
        for session in sessions
        for turn in session
    ]


def buried(cases: Iterable[Case], spoken: list[str]) -> list[Case]:
    """Attacks in the midst of ordinary talk."""
    draw = random.Random(5)
    kinds = ("override", "tool_syntax", "memory_poison")
    return [
        Case(f"{draw.choice(spoken)} {case.text} {draw.choice(spoken)}", True, "buried")
        for case in cases
        if case.is_attack and case.category in kinds
    ]


def share(cases: list[Case]) -> str:
    """How many of them the guard stops."""
    stopped = sum(default_guard(case.text).action != "allow" for case in cases)
    return f"{stopped:>5}/{len(cases):<5} {100 * stopped / max(len(cases), 1):6.2f} %"


def print_table(cases: list[Case]) -> None:
    """Attacks caught and false alarms, by category."""
    groups: dict[tuple[bool, str], list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.is_attack, case.category].append(case)
    for is_attack, title in ((True, "caught"), (False, "false alarms")):
        print(f"  {title}")
        for (attack, category), held in sorted(groups.items()):
            if attack == is_attack:
                core = "*" if is_attack and category in CORE else " "
                print(f"   {core}{category:<18}{share(held)}")
    print(f"    {'core (*)':<18}{share([c for c in cases if c.is_attack and c.category in CORE])}")
    print(f"    {'all benign':<18}{share([case for case in cases if not case.is_attack])}")


def milliseconds(text: str) -> float:
    """The best time of a few."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        default_guard(text)
        times.append(time.perf_counter() - began)
    return 1_000 * min(times)


def print_times(cases: list[Case], spoken: list[str]) -> None:
    """The time of real texts as they are, and of ordinary talk by size."""
    short = [case.text for case in cases if len(case.text) <= SIZES[-1]]
    draw = random.Random(7)
    talk = " ".join(spoken)
    rows = {"texts as they are": draw.sample(short, min(1_000, len(short)))}
    for size in SIZES:
        starts = [draw.randrange(len(talk) - size) for _ in range(200)]
        rows[f"{size:,} characters"] = [talk[start : start + size] for start in starts]
    print(f"  {'milliseconds':<22}{'p50':>7}{'p99':>7}")
    for name, texts in rows.items():
        taken = sorted(map(milliseconds, texts))
        print(f"  {name:<22}{taken[len(taken) // 2]:>7.2f}{taken[int(len(taken) * 0.99)]:>7.2f}")


def hostile(size: int) -> dict[str, str]:
    """Texts made to take long."""
    draw = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    blob = base64.b64encode(draw.randbytes(size * 3 // 4)).decode()
    units = {
        "one letter": "a",
        "ignore ...": "ignore ",
        "almost an order": "ignore all the previous people. ",
        "nested brackets": "[[((",
        "open tags": "<system ",
        "closing tags": "</system>",
        "images": "![a](https://b.example/?c",
        "spaced letters": "i g n o r e ",
        "hidden characters": "a\u200b",
        "stacked accents": "a\u0301\u0302",
        "mixed alphabets": "a\u0430 ",
        "families": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "one-sign sentences": "\ufdfa",
        "percent": "%69",
        "entities": "&#105;",
        "quotes": "'\"`",
    }
    words = " ".join("".join(draw.choices(letters, k=6)) for _ in range(size // 7))
    texts = {name: (unit * (size // len(unit) + 1))[:size] for name, unit in units.items()}
    return texts | {"base64 blob": blob[:size], "random words": words}


def print_hostile() -> None:
    """The time of hostile texts: a megabyte, and the longest that is read at all."""
    whole, read = hostile(MEGABYTE), hostile(LONGEST_READ)
    print(f"  {'milliseconds':<22}{'1 MB':>7}{'32 kB':>8}  verdict on 1 MB, on 32 kB")
    for name, text in whole.items():
        verdicts = f"{default_guard(text).action}, {default_guard(read[name]).action}"
        taken = f"{milliseconds(text):>7.2f}{milliseconds(read[name]):>8.2f}"
        print(f"  {name:<22}{taken}  {verdicts}")


def main() -> None:
    """Print the tables."""
    if not (DATA / "guard_dev.jsonl").exists() or not (DATA / "locomo_dev.json").exists():
        sys.exit(f"No guard_dev.jsonl and locomo_dev.json in {DATA}: nothing to measure.")
    spoken = turns()
    labelled = guard_cases()
    cases = [
        *labelled,
        *buried(labelled, spoken),
        *(Case(text, False, "locomo turns") for text in spoken),
    ]
    print("All")
    print_table(cases)
    kept = [case for case in labelled if case.is_held_out]
    print("\nThe half whose texts were not read")
    print_table([*kept, *buried(kept, spoken)])
    print("\nTime")
    print_times(cases, spoken)
    print("\nTime of hostile texts")
    print_hostile()


if __name__ == "__main__":
    main()
