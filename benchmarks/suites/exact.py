"""A suite about exact words: identifiers among look-alikes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, Notebook, shuffled

PROJECTS = 2
LOOKALIKES = 12
ASKED_PER_KIND = 6
SCENES = 60

_SYMPTOMS = (
    *("login loops", "timeouts on upload", "a blank dashboard", "duplicate mails", "a slow query"),
    *("memory growth", "broken pagination", "lost sessions", "garbled exports", "a stuck queue"),
    *("wrong totals", "missing icons", "a crash on resume", "stale caches", "flaky retries"),
)
_PARTS = (
    *("billing", "search", "checkout", "the importer", "the scheduler", "notifications"),
    *("the gateway", "reporting", "the mobile app", "the admin panel", "sync", "auth"),
)
_FIXES = (
    *("a config change", "a rollback", "a retry limit", "an index", "a restart", "a patch"),
    *("more memory", "a feature flag", "a schema change", "a longer lease"),
)


def _error_codes(rng: random.Random) -> list[str]:
    """Codes of one family that differ in a digit or two."""
    base = rng.randrange(4_000, 8_000)
    return [f"E-{base + step}" for step in rng.sample(range(60), LOOKALIKES)]


def _versions(rng: random.Random) -> list[str]:
    """1.2.3, 1.2.30, 1.12.3 and their like."""
    a, b, c = (rng.randrange(1, 9) for _ in range(3))
    near = [f"{a}.{b}.{c}", f"{a}.{b}.{c}0", f"{a}.1{b}.{c}", f"{a}.{b}.1{c}", f"1{a}.{b}.{c}"]
    near += [f"{a}.{b}.{c}{digit}" for digit in range(1, 9)]
    return near[:LOOKALIKES]


def _tickets(rng: random.Random) -> list[str]:
    number = rng.randrange(1_100, 9_000)
    projects = ("OPS", "WEB", "DATA")
    return [f"{projects[step % 3]}-{number + step // 3 * 10}" for step in range(LOOKALIKES)]


def _paths(rng: random.Random) -> list[str]:
    folders = rng.sample(("core", "api", "jobs", "web", "auth", "sync"), 4)
    files = rng.sample(("client.py", "models.py", "config.yaml", "routes.ts", "schema.sql"), 3)
    return [f"src/{folder}/{file}" for folder in folders for file in files]


def _hashes(rng: random.Random) -> list[str]:
    return [f"{rng.getrandbits(28):07x}" for _ in range(LOOKALIKES)]


def _hosts(rng: random.Random) -> list[str]:
    first = rng.randrange(10, 60)
    return [f"node-{first + step}.eu-west-{step % 3 + 1}" for step in range(LOOKALIKES)]


_Kind = tuple[Callable[[random.Random], list[str]], Sequence[str], Sequence[str]]
_KINDS: tuple[_Kind, ...] = (
    (
        _error_codes,
        ("{symptom} in {part} with {id}, solved by {fix}.", "{id}: {symptom} in {part}, {fix}."),
        ("How did we solve {id}?", "What was {id} about?", "I am getting {id} again"),
    ),
    (
        _versions,
        ("Version {id} brought {symptom} to {part}.", "In {id} {part} got {fix}."),
        ("What changed in {id}?", "Any trouble with version {id}?"),
    ),
    (
        _tickets,
        ("{id} is about {symptom} in {part}.", "Closed {id} on {part} with {fix}."),
        ("What is {id}?", "Status of {id}?", "Remind me what {id} was about"),
    ),
    (
        _paths,
        ("{id} holds the code behind {symptom}.", "Edited {id}: {fix} against {symptom}."),
        ("What did we do in {id}?", "Why did {id} matter?"),
    ),
    (
        _hashes,
        ("Commit {id} caused {symptom} in {part}.", "Commit {id} is {fix} for {part}."),
        ("What did {id} do?", "Should I revert {id}?"),
    ),
    (
        _hosts,
        ("{id} runs {part} and had {symptom}.", "{id} needed {fix} for {part}."),
        ("What runs on {id}?", "What happened on {id}?"),
    ),
)


def identifiers(seed: int = 0) -> CaseSet:
    """Codes, versions, tickets, paths, commits and hosts, each among eleven look-alikes."""
    rng = random.Random(f"identifiers {seed}")
    notebooks, cases = [], []
    for number in range(PROJECTS):
        notebook = Notebook(f"identifiers-{number}", rng)
        for make, texts, cues in _KINDS:
            keys = {
                name: notebook.add(_filled(rng.choice(texts), name, rng))
                for name in shuffled(rng, make(rng))
            }
            for name in rng.sample(list(keys), ASKED_PER_KIND):
                cue = Cue(rng.choice(cues).format(id=name))
                cases.append(Case(notebook.name, cue, frozenset({keys[name]}), NOW))
        notebook.add_scenes(SCENES)
        notebooks.append(notebook.collection())
    return CaseSet("identifiers", tuple(notebooks), tuple(cases))


def _filled(text: str, name: str, rng: random.Random) -> str:
    said = text.format(
        id=name, symptom=rng.choice(_SYMPTOMS), part=rng.choice(_PARTS), fix=rng.choice(_FIXES)
    )
    return said[0].upper() + said[1:] if not said.startswith(name) else said
