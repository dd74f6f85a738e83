"""Suites about numbers: one fact told twelve times, and one needle in thousands."""

from __future__ import annotations

import random
from typing import NamedTuple

from langmem_recall.evaluation.cases import Case, CaseSet
from langmem_recall.types import Cue
from suites.backdrop import NOW, PEOPLE, Notebook, scenes, shuffled

PERSONAS = 5
SCENES = 60
FACTS = 6
"""Distinct facts a broad cue asks for: five, and the one that is told over and over."""


class Theme(NamedTuple):
    """A broad cue, a preference to repeat and other facts; {p} is whom they are about."""

    cue: str
    repeated: str
    """What {p} likes; takes part in every variant."""
    facts: tuple[str, ...]


_VARIANTS = (
    "{p} loves {x}.",
    "{p} really loves {x}.",
    "{p} is very fond of {x}.",
    "{p} likes {x} a lot.",
    "{p} said again that {x} is a favourite.",
    "{x} is what {p} likes best.",
    "{p}'s favourite is {x}.",
    "{p} told me how much {x} pleases.",
    "{p} mentioned loving {x}.",
    "{p} would always pick {x}.",
    "{p} can't get enough of {x}.",
    "Remember: {p} loves {x}.",
    "{p} prefers {x} to all else.",
    "{p} loves {x} more than anything.",
)
_THEMES = (
    Theme(
        "What does {p} like and dislike about food?",
        "sushi",
        (
            "{p} cannot stand coriander in food.",
            "{p} eats no meat on weekdays.",
            "{p} finds spicy food too hot.",
            "{p} likes dessert before the main course.",
            "{p} drinks only still water with food.",
        ),
    ),
    Theme(
        "What are {p}'s preferences for a holiday?",
        "the seaside",
        (
            "{p} never flies on holiday.",
            "{p} wants a kitchen in the holiday flat.",
            "{p} takes the dog on every holiday.",
            "{p} prefers September for a holiday.",
            "{p} sets a holiday budget of 900 euros.",
        ),
    ),
    Theme(
        "How does {p} like to work?",
        "working in the early morning",
        (
            "{p} wants tasks in writing before work.",
            "{p} works from home on Fridays.",
            "{p} dislikes working with music on.",
            "{p} needs two screens to work.",
            "{p} reviews the work of others after lunch.",
        ),
    ),
    Theme(
        "What should I know about {p}'s taste in music?",
        "baroque music",
        (
            "{p} plays the oboe, a music lover since school.",
            "{p} falls asleep to techno music.",
            "{p} buys music on vinyl only.",
            "{p} left a concert of loud brass music.",
            "{p} sings in a gospel choir for the music.",
        ),
    ),
    Theme(
        "Which clothes does {p} like to wear?",
        "wool jumpers",
        (
            "{p} wears clothes in size 42.",
            "{p} avoids clothes with logos.",
            "{p} buys second-hand clothes.",
            "{p} needs waterproof clothes for cycling.",
            "{p} wears a suit and formal clothes on Mondays.",
        ),
    ),
    Theme(
        "What matters to {p} in code reviews?",
        "small pull requests in code reviews",
        (
            "{p} wants tests first in code reviews.",
            "{p} does code reviews before ten.",
            "{p} blocks code without type hints.",
            "{p} prefers questions over orders in reviews.",
            "{p} asks for benchmarks of hot code.",
        ),
    ),
    Theme(
        "How does {p} exercise?",
        "swimming as exercise",
        (
            "{p} must not exercise the left knee.",
            "{p} cycles to the exercise class.",
            "{p} exercises with a coach on Tuesdays.",
            "{p} stretches before all exercise.",
            "{p} tracks exercise with a paper diary.",
        ),
    ),
    Theme(
        "What does {p} want in a new flat?",
        "a balcony in the flat",
        (
            "{p} needs a flat on the ground floor.",
            "{p} pays at most 1,100 for a flat.",
            "{p} wants a flat that allows cats.",
            "{p} looks for a flat near the tram.",
            "{p} rejects a flat with gas heating.",
        ),
    ),
)


def redundancy(seed: int = 0) -> CaseSet:
    """Twelve variants of one preference beside five other facts, all asked for by a broad cue.

    The `tags` of a memory name its fact; `distinct_facts` counts them.
    """
    rng = random.Random(f"redundancy {seed}")
    notebooks, cases = [], []
    for number in range(PERSONAS):
        notebook = Notebook(f"redundancy-{number}", rng)
        for theme, person in zip(_THEMES, shuffled(rng, PEOPLE), strict=False):
            said = rng.sample(_VARIANTS, 12)
            keys = [
                notebook.add(_variant(text, person, theme.repeated), tags=[f"{person} repeated"])
                for text in said
            ]
            keys += [
                notebook.add(fact.format(p=person), tags=[f"{person} {place}"])
                for place, fact in enumerate(theme.facts)
            ]
            cue = Cue(theme.cue.format(p=person))
            cases.append(Case(notebook.name, cue, frozenset(keys), NOW))
        notebook.add_scenes(SCENES)
        notebooks.append(notebook.collection())
    return CaseSet("redundancy", tuple(notebooks), tuple(cases))


def _variant(text: str, person: str, liked: str) -> str:
    said = text.format(p=person, x=liked)
    return said[0].upper() + said[1:]


def distinct_facts(cases: CaseSet, case: Case, chosen: list[str]) -> float:
    """Share of the facts a case of `redundancy` asks for that are among the chosen keys."""
    collection = next(each for each in cases.collections if each.name == case.collection)
    facts = {key: value["tags"][0] for key, value in collection.memories if key in case.relevant}
    return len({facts[key] for key in chosen if key in facts}) / len(set(facts.values()))


# --- large ----------------------------------------------------------------------------------------

NEEDLES: tuple[tuple[str, str], ...] = (
    ("The spare key hangs behind the boiler.", "Where is the extra door key kept?"),
    ("Dad's pension is handled by Mrs Abernathy.", "Who looks after my father's pension?"),
    ("The Wi-Fi password is taped under the router.", "How do I find the wireless password?"),
    ("Our accountant wants receipts by the fifth.", "When are receipts due to the accountant?"),
    ("The baby sleeps best with the fan running.", "What helps the baby fall asleep?"),
    ("I get migraines from red wine.", "What gives me migraine headaches?"),
    ("The landlord must give two months' notice.", "How much notice is the landlord to give?"),
    ("My blood type is B negative.", "Which blood group do I have?"),
    ("The tax office wants form 12B this year.", "Which form does the tax office want?"),
    ("Our wedding anniversary is the ninth of May.", "What date is our anniversary?"),
    ("Grandma's ring is in the deposit box.", "Where did we put grandmother's ring?"),
    ("The insurance covers hail but not floods.", "Does our insurance pay for flood damage?"),
    ("The nursery closes at half past four.", "What time does the nursery shut?"),
    ("I sold my shares in the airline.", "Do I still own airline shares?"),
    ("The electrician found a loose fuse.", "What was wrong according to the electrician?"),
    ("My passport runs out in November.", "When does my passport expire?"),
    ("The rent goes out on the third.", "Which day is the rent paid?"),
    ("The neighbours feed our tortoise.", "Who takes care of the tortoise while we are away?"),
    ("I signed up as an organ donor.", "Am I a registered organ donor?"),
    ("The printer needs cartridge 302XL.", "Which cartridge goes into the printer?"),
    ("Invoice INV-20931 was never paid.", "What happened to INV-20931?"),
    ("Build 7741 crashed on startup.", "Did build 7741 work?"),
    ("Case number CN-5567 is closed.", "Status of CN-5567?"),
    ("The locker combination is 48-17-33.", "What is the combination of my locker?"),
    ("Serial 9XK442 belongs to the freezer.", "Which appliance has serial 9XK442?"),
    ("Flight KL1023 was moved to gate D7.", "Which gate for KL1023?"),
    ("Meeting code is qrt-882.", "What was qrt-882?"),
    ("Contract C-2207 renews itself in July.", "Does C-2207 renew?"),
    ("Error 0x80070057 went away after a reinstall.", "How did I fix 0x80070057?"),
    ("The Volvo's plate is LK22 ZPA.", "Whose plate is LK22 ZPA?"),
)


def large(seed: int = 0, memories: int = 5_000) -> CaseSet:
    """Thirty needles in so many memories, asked for by paraphrase or by identifier."""
    rng = random.Random(f"large {seed}")
    notebook = Notebook("large", rng)
    cases = [
        Case(notebook.name, Cue(cue), frozenset({notebook.add(text)}), NOW)
        for text, cue in shuffled(rng, NEEDLES)
    ]
    for text in scenes(rng, max(memories, len(NEEDLES)) - len(NEEDLES)):
        notebook.add(text)
    return CaseSet("large", (notebook.collection(),), tuple(cases))
