"""Cases from LoCoMo, the long conversations of Maharana et al. (ACL 2024)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langmem_recall.errors import InputError
from langmem_recall.evaluation.cases import ANSWERABLE, HARD, Case, CaseSet, Collection
from langmem_recall.types import Cue

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
Unit = Literal["turns", "facts"]

_DIALOGUE_ID = re.compile(r"D:?(\d+):0*(\d+)")
_SESSION = re.compile(r"session_(\d+)")
_Grounded = tuple[str, Mapping[str, Any], frozenset[str]]
"""A memory's key and value, and the turns it rests on."""


class _Talk(NamedTuple):
    speakers: tuple[str, str]
    collection: Collection
    cases: list[Case]
    asked_at: datetime


def load_locomo(path: str | Path, unit: Unit = "turns", off_topic: bool = True) -> CaseSet:
    """Cases from a file of LoCoMo (Maharana et al., 2024), asked an hour after the last session.

    Args:
        path: The file.
        unit: Whether a memory is a turn of the dialogue or a fact observed in it.
        off_topic: Add the next conversation's questions, names swapped, as the group "hard".

    Returns:
        Questions of categories 1 to 4 that have evidence; `notes` counts what was left out.
    """
    if unit not in ("turns", "facts"):
        raise InputError(f'unit must be "turns" or "facts", got {unit!r}. Choose one of them.')
    tally: Counter[str] = Counter()
    try:
        talks = json.loads(Path(path).read_text(encoding="utf-8"))
        read = [_read_talk(talk, unit, tally) for talk in talks]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} cannot be read as LoCoMo ({type(error).__name__}: {error}). Pass a JSON list "
            "of conversations as snap-research/locomo publishes them."
        ) from error
    cases = [case for talk in read for case in talk.cases]
    if off_topic and len(read) > 1:
        pairs = zip(read, [*read[1:], read[0]], strict=True)
        cases += [case for talk, other in pairs for case in _hard_cases(talk, other)]
    notes = tuple(f"{count} {what}" for what, count in sorted(tally.items()))
    return CaseSet(f"LoCoMo {unit}", tuple(talk.collection for talk in read), tuple(cases), notes)


def _read_talk(talk: Mapping[str, Any], unit: Unit, tally: Counter[str]) -> _Talk:
    name, conversation = talk["sample_id"], talk["conversation"]
    held = list(_turns(conversation) if unit == "turns" else _facts(talk, tally))
    last = max(_session_time(conversation, number) for number in _sessions(conversation))
    asked_at = last + timedelta(hours=1)
    cases = []
    for question in talk["qa"]:
        if question["category"] in CATEGORIES:
            evidence = _dialogue_ids(question.get("evidence", []), tally)
            relevant = frozenset(key for key, _, turns in held if turns & evidence)
            category = CATEGORIES[question["category"]]
            if relevant:
                cue = Cue(question["question"])
                cases.append(Case(name, cue, relevant, asked_at, ANSWERABLE, category))
            else:
                tally["questions without evidence left out"] += 1
    speakers = conversation["speaker_a"], conversation["speaker_b"]
    collection = Collection(name, tuple((key, value) for key, value, _ in held))
    return _Talk(speakers, collection, cases, asked_at)


def _turns(conversation: Mapping[str, Any]) -> Iterator[_Grounded]:
    for number in _sessions(conversation):
        for place, turn in enumerate(conversation[f"session_{number}"]):
            texts = (turn["text"], turn.get("blip_caption"))
            words = " ".join(text for text in texts if text)
            value = _value(words, turn["speaker"], conversation, number, place)
            yield turn["dia_id"], value, frozenset((turn["dia_id"],))


def _facts(talk: Mapping[str, Any], tally: Counter[str]) -> Iterator[_Grounded]:
    conversation = talk["conversation"]
    for number in _sessions(conversation):
        said = talk["observation"].get(f"session_{number}_observation", {})
        facts = [(speaker, *fact) for speaker, noted in said.items() for fact in noted]
        for place, (speaker, words, ids) in enumerate(facts):
            turns = _dialogue_ids([ids] if isinstance(ids, str) else ids, tally)
            value = _value(words, speaker, conversation, number, place)
            yield f"F{number}:{place}", value, turns


def _value(
    words: str, speaker: str, conversation: Mapping[str, Any], session: int, place: int
) -> dict[str, Any]:
    return {
        "content": words,
        "speaker": speaker,
        "thread_id": f"session_{session}",
        "turn": place,
        "written_at": _session_time(conversation, session).isoformat(),
    }


def _sessions(conversation: Mapping[str, Any]) -> list[int]:
    """Numbers of the sessions that took place; some files date more than they hold."""
    found = map(_SESSION.fullmatch, conversation)
    return sorted(int(match[1]) for match in found if match and conversation[match[0]])


def _session_time(conversation: Mapping[str, Any], number: int) -> datetime:
    told = conversation[f"session_{number}_date_time"]
    return datetime.strptime(told, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def _dialogue_ids(written: Iterable[str], tally: Counter[str]) -> frozenset[str]:
    """Ids of turns, those that were written carelessly repaired where they can be."""
    ids: set[str] = set()
    for text in written:
        found = [f"D{match[1]}:{match[2]}" for match in _DIALOGUE_ID.finditer(text)]
        if not found:
            tally["evidence ids skipped"] += 1
        elif found != [text]:
            tally["evidence ids repaired"] += 1
        ids.update(found)
    return frozenset(ids)


def _hard_cases(talk: _Talk, other: _Talk) -> Iterator[Case]:
    """The other talk's questions; names are swapped in one pass, as both may share one."""
    names = dict(zip(other.speakers, talk.speakers, strict=True))
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    for case in other.cases:
        cue = Cue(pattern.sub(lambda match: names[match[0]], case.cue.text))
        yield Case(talk.collection.name, cue, at=talk.asked_at, group=HARD)
