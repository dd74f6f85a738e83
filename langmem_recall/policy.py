"""`RecallPolicy`: every ranking number a user may change. `WritePolicy`: what may be stored."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from langmem_recall.errors import InputError, PolicyError, RecallError
from langmem_recall.types import KINDS

Blend = Literal["bounded", "linear", "minmax", "product", "interpolated", "similarity"]
Ordering = Literal["relevance", "rrf"]

HOURS_PER_DAY = 24.0
_LARGEST = 1e300


def _within(low: float, high: float = math.inf) -> dict[str, tuple[float, float]]:
    return {"range": (low, high)}


def _check_knobs(record: Any) -> None:
    """Refuse numbers out of range and switches that are neither true nor false."""
    for knob in fields(record):
        name, value = f"{type(record).__name__}.{knob.name}", getattr(record, knob.name)
        if isinstance(knob.default, bool) and not isinstance(value, bool):
            raise PolicyError(f"{name} must be true or false, got {value!r}.")
        if "range" not in knob.metadata:
            continue
        low, high = knob.metadata["range"]
        whole = isinstance(knob.default, int)
        is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not is_number or not -_LARGEST < value < _LARGEST or not low <= value <= high:
            limit = f">= {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            what = "a whole number" if whole else "a number"
            raise PolicyError(f"{name} must be {what} {limit}, got {value!r:.80}.")
        if not whole:
            # One spelling of each number, so that equal policies have equal fingerprints.
            object.__setattr__(record, knob.name, float(value) + 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much each signal counts; 0 switches a signal off."""

    similarity: float = field(default=0.0, metadata=_within(0))
    """Cosine with the cue. The `bounded` blend reads relevance instead and ignores it."""
    recency: float = field(default=0.0, metadata=_within(0))
    """Age since the last use, else since writing."""
    importance: float = field(default=0.0, metadata=_within(0))
    """Salience, lifted a little by use."""
    strength: float = field(default=0.0, metadata=_within(0))
    """How established a memory is through use."""
    trust: float = field(default=0.0, metadata=_within(0))
    """How far its source is believed."""

    def __post_init__(self) -> None:
        _check_knobs(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallPolicy:
    """How memories are ranked, gated and reinforced. Frozen; make variants with `replace`."""

    name: str = "default"
    blend: Blend = "bounded"
    """The formula that makes the score (see `langmem_recall.ranking.blend`)."""
    ordering: Ordering = "relevance"
    """What `bounded` multiplies: relevance, or reciprocal ranks. Gates read relevance anyway."""
    weights: Weights = Weights(recency=0.05, importance=0.3, strength=0.08, trust=0.06)
    tiers: Mapping[str, Weights] = field(default_factory=dict, hash=False)
    """Weights for one kind of memory, in place of `weights`."""
    interpolation: float = field(default=0.3, metadata=_within(0, 1))
    """The `w` of the `interpolated` blend."""

    half_life_hours: float = field(default=30 * HOURS_PER_DAY, metadata=_within(1e-6))
    """Age at which recency is 0.5."""
    adapts: bool = False
    """Move the balance of `recency` and `strength` in each namespace by what was cut and then
    asked for. What a recall only shows is then no use; what is searched for or cited is."""
    ebbinghaus: bool = False
    """Let use lengthen the half-life: half_life x (1 + decayed uses)."""
    lru2: bool = False
    """A use refreshes recency only if the one before it was at most 24 hours earlier."""
    use_boost: float = field(default=0.05, metadata=_within(0, 1))
    """Importance = salience + use_boost x ln(1 + decayed uses), at most 1."""
    count_fade_per_day: float = field(default=0.99, metadata=_within(1e-9, 1))
    """What a day leaves of a use count."""
    refresh_floor: float = field(default=60.0, metadata=_within(0))
    """Seconds within which a second use of a memory does not count; 0 counts every use."""
    durable_kinds: tuple[str, ...] = ()
    """Kinds that time takes nothing from, like pinned memories: their recency is always 1, and a
    sweep neither fades their confidence nor lists them as cold."""
    feedback_step: float = field(default=0.05, metadata=_within(0, 0.2))
    """What each net outcome reported to `feedback`, from -5 to 5 of them, adds to or takes off the
    score, as a share of it: a quarter either way at most by default. `similarity` has none."""

    current_recency: float = field(default=8.0, metadata=_within(0))
    """Recency's weight is multiplied by this when the cue asks for the present state."""
    window_boost: float = field(default=0.3, metadata=_within(0))
    """Boost of a memory written within the time the cue means."""

    pool: int = field(default=40, metadata=_within(1, 10_000))
    """Candidates taken by similarity; the head that is re-ranked."""
    rescues: int = field(default=20, metadata=_within(0, 10_000))
    """Candidates taken by their words, so that an exact identifier is found whatever its cosine."""
    strip_names: bool = True
    """Leave names that most memories share out of the text that is embedded."""
    task_filter: bool = False
    """Look only at memories tagged with the cue's task."""
    top_k: int = field(default=10, metadata=_within(1, 1_000))
    """Memories a recall returns at most; `search` obeys its own limit."""

    unverified_share: float = field(default=0.5, metadata=_within(0, 1))
    """Share of `top_k` that unconfirmed inferences and external text may take."""

    trigger: float = field(default=0.5, metadata=_within(0, 1))
    """Relevance the best memory must reach, or nothing is recalled; 0 switches it off."""
    floor: float = field(default=0.3, metadata=_within(0, 1))
    """Relevance each memory must reach; 0 switches it off."""
    breadth: float = field(default=0.0, metadata=_within(0, 100))
    """Of memories that belong to no conversation and are not sure (0.9) about so many are recalled,
    and one more for each further part of the cue; none whose odds are `0.8 x breadth - 0.6` times
    worse than the best one's. 0: 3 to 4.5, by how well the embedder tells texts apart."""
    min_confidence: float = field(default=0.0, metadata=_within(0, 1))
    """Confidence each memory must have by now, unless it is pinned; 0 switches it off."""
    composite_floor: float = field(default=0.0, metadata=_within(0))
    """Score each memory must reach; 0 switches it off."""
    duplicate_similarity: float = field(default=0.9, metadata=_within(0, 2))
    """Memories at least this alike are near-duplicates: only the best is recalled; 2: keep all."""
    mmr_lambda: float = field(default=1.0, metadata=_within(0, 1))
    """Score against novelty in greedy selection; 1 leaves the order alone."""

    def __post_init__(self) -> None:
        _check_knobs(self)
        _check_choice("blend", self.blend, get_args(Blend))
        _check_choice("ordering", self.ordering, get_args(Ordering))
        _check_type("name", self.name, str)
        _check_type("weights", self.weights, Weights)
        _check_type("tiers", self.tiers, Mapping)
        for kind, weights in self.tiers.items():
            _check_choice("a tier", kind, KINDS)
            _check_type(f"tiers[{kind!r}]", weights, Weights)
        object.__setattr__(self, "tiers", MappingProxyType(dict(self.tiers)))
        if not isinstance(self.durable_kinds, list | tuple):
            raise PolicyError(f"durable_kinds must be a list of kinds, got {self.durable_kinds!r}.")
        for kind in self.durable_kinds:
            _check_choice("a durable kind", kind, KINDS)
        object.__setattr__(self, "durable_kinds", tuple(self.durable_kinds))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its knobs, because a read-only mapping cannot be."""
        return RecallPolicy.from_dict, (self.to_dict(),)

    def replace(self, **changes: Any) -> RecallPolicy:
        """This policy with some knobs changed."""
        _check_names("RecallPolicy", changes, RecallPolicy)
        return replace(self, **changes)

    @property
    def balance(self) -> float:
        """Share of recency in what recency and strength weigh together; 0.5 where neither does."""
        total = self.weights.recency + self.weights.strength
        return self.weights.recency / total if total else 0.5

    def balanced(self, share: float) -> RecallPolicy:
        """This policy at another balance, which its name tells."""
        total = self.weights.recency + self.weights.strength
        weights = replace(self.weights, recency=share * total, strength=(1 - share) * total)
        return replace(self, name=f"{self.name} {share:.2f}", weights=weights)

    @property
    def fuses_ranks(self) -> bool:
        """Whether the score reads ranks in the channels rather than evidence."""
        return self.blend == "interpolated" or self.ordering == "rrf"

    @property
    def fingerprint(self) -> str:
        """Short digest of all knobs: the same for equal policies, in every process."""
        canonical = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """All knobs as plain JSON types."""
        plain = {knob.name: getattr(self, knob.name) for knob in fields(self)}
        return plain | {
            "durable_kinds": list(self.durable_kinds),
            "weights": asdict(self.weights),
            "tiers": {kind: asdict(weights) for kind, weights in self.tiers.items()},
        }

    @classmethod
    def from_dict(cls, knobs: Mapping[str, Any]) -> RecallPolicy:
        """The policy that `to_dict` described; knobs left out have their defaults.

        What version 0.1 wrote is read too; its table `relevance` has no meaning any more.
        """
        tiers = knobs.get("tiers", {})
        if not isinstance(tiers, Mapping):
            raise PolicyError(f"tiers must be a table of kinds, got {tiers!r}.")
        given = {**knobs, "tiers": {kind: _read(Weights, kind, tiers[kind]) for kind in tiers}}
        given.pop("relevance", None)
        if "weights" in given:
            given["weights"] = _read(Weights, "weights", given["weights"])
        return cls().replace(**given)

    def save(self, path: str | Path) -> None:
        """Write the policy as TOML or JSON, by the file's ending."""
        target, knobs = Path(path), self.to_dict()
        is_json = target.suffix.lower() == ".json"
        text = json.dumps(knobs, indent=2) if is_json else "\n".join(_toml_lines(knobs))
        target.write_text(text.rstrip() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> RecallPolicy:
        """Read a policy from a TOML or JSON file."""
        source = Path(path)
        parse = json.loads if source.suffix.lower() == ".json" else tomllib.loads
        try:
            knobs = parse(source.read_text(encoding="utf-8"))
        except ValueError as error:
            raise PolicyError(f"{source.name} is not a policy file: {error}.") from error
        if not isinstance(knobs, Mapping):
            raise PolicyError(f"{source.name} must hold a table of knobs, got {knobs!r}.")
        return cls.from_dict(knobs)

    @classmethod
    def default(cls, **changes: Any) -> RecallPolicy:
        """Relevance with small bounded boosts: for most agents."""
        return _preset("default", changes)

    @classmethod
    def weighted(cls, **changes: Any) -> RecallPolicy:
        """0.6 similarity + 0.25 recency (7 days) + 0.15 salience; a floor on that sum."""
        return _preset("weighted", changes)

    @classmethod
    def generative_agents(cls, **changes: Any) -> RecallPolicy:
        """Min-maxed recency, importance and similarity in equal parts (Park et al., 2023)."""
        return _preset("generative_agents", changes)

    @classmethod
    def normalized(cls, **changes: Any) -> RecallPolicy:
        """The same with a half-life of 14 days, importance lifted by use, pool 20, top 5."""
        return _preset("normalized", changes)

    @classmethod
    def assistant(cls, **changes: Any) -> RecallPolicy:
        """A personal assistant: the present counts most."""
        return _preset("assistant", changes)

    @classmethod
    def support(cls, **changes: Any) -> RecallPolicy:
        """Customer support: what matters counts most."""
        return _preset("support", changes)

    @classmethod
    def coding(cls, **changes: Any) -> RecallPolicy:
        """A coding agent: what resembles the task counts most."""
        return _preset("coding", changes)

    @classmethod
    def planning(cls, **changes: Any) -> RecallPolicy:
        """Long-running plans: only memories of the cue's task, equal weights."""
        return _preset("planning", changes)

    @classmethod
    def product(cls, **changes: Any) -> RecallPolicy:
        """Similarity + importance x recency."""
        return _preset("product", changes)

    @classmethod
    def interpolated(cls, w: float = 0.3, **changes: Any) -> RecallPolicy:
        """Reciprocal ranks against recency and use, `w` of the way from the first to the second."""
        return _preset("interpolated", {"interpolation": w, **changes})

    @classmethod
    def adaptive(cls, **changes: Any) -> RecallPolicy:
        """The default with a balance of recency and use that each namespace finds for itself."""
        return _preset("adaptive", changes)

    @classmethod
    def similarity(cls, **changes: Any) -> RecallPolicy:
        """The inner store's order and scores, no gates."""
        return _preset("similarity", changes)


_PRESETS = tomllib.loads(files(__package__).joinpath("policy.toml").read_text("utf-8"))
PRESETS = tuple(_PRESETS)
"""Names of the class methods that make a published policy."""


def _preset(name: str, changes: Mapping[str, Any]) -> RecallPolicy:
    return RecallPolicy.from_dict({"name": name, **_PRESETS[name]}).replace(**changes)


def _check_choice(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise PolicyError(f"{what} must be one of {', '.join(allowed)}, got {value!r}.")


def _check_type(what: str, value: Any, wanted: type[Any]) -> None:
    if not isinstance(value, wanted):
        raise PolicyError(f"RecallPolicy.{what} must be {wanted.__name__}, got {value!r:.80}.")


def _check_names(owner: str, knobs: Mapping[str, Any], record: type[Any]) -> None:
    known = [knob.name for knob in fields(record)]
    unknown = ", ".join(sorted(knobs.keys() - set(known)))
    if unknown:
        raise PolicyError(f"{owner} has no knob {unknown}. Its knobs: {', '.join(known)}.")


def _read(record: type[Any], name: str, value: Any) -> Any:
    """The record that a table of a policy file describes."""
    if isinstance(value, record):
        return value
    if not isinstance(value, Mapping):
        raise PolicyError(f"{name} must be a table of knobs, got {value!r}.")
    _check_names(name, value, record)
    return record(**value)


def _toml_lines(knobs: Mapping[str, Any], table: str = "") -> Iterator[str]:
    """JSON's numbers, booleans and strings are TOML's too; only tables differ."""
    for name, value in knobs.items():
        if not isinstance(value, Mapping):
            # The one character that JSON leaves bare and TOML forbids.
            text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            yield f"{name} = {text}"
    for name, value in knobs.items():
        if isinstance(value, Mapping) and value:
            if not all(isinstance(part, Mapping) for part in value.values()):
                yield f"\n[{table}{name}]"
            yield from _toml_lines(value, f"{table}{name}.")


# --- writing --------------------------------------------------------------------------------------

ALLOWED: Mapping[str, timedelta | None] = MappingProxyType(
    {
        "user_stated_preference": None,
        "tool_result_verified": timedelta(days=7),
        "task_completion_strategy": timedelta(days=90),
        "session_summary": timedelta(days=30),
    }
)
"""What is worth remembering unless said otherwise, and how long it is valid; None: for good.

Everything else is refused: intermediate reasoning, failed tool calls, speculative inference and
whatever has no name here.
"""


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """Consulted when `remember` is told what kind of observation a text is; default deny."""

    allow: Mapping[str, timedelta | None] = field(default_factory=lambda: ALLOWED, hash=False)
    """Observations that may be stored, with the time they stay valid; None: for good."""

    def __post_init__(self) -> None:
        if not isinstance(self.allow, Mapping):
            raise PolicyError(
                f"WritePolicy.allow must map observations to times, got {self.allow!r:.80}. "
                'Write {"session_summary": timedelta(days=30)}.'
            )
        for observation, ttl in self.allow.items():
            if not isinstance(observation, str) or not observation.strip():
                raise PolicyError(f"An observation must be a name, got {observation!r:.80}.")
            if ttl is not None and not (isinstance(ttl, timedelta) and ttl > timedelta()):
                raise PolicyError(
                    f"WritePolicy.allow[{observation!r}] must be a timedelta above 0 or None, got "
                    f"{ttl!r:.80}."
                )
        object.__setattr__(self, "allow", MappingProxyType(dict(self.allow)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by its table, because a read-only mapping cannot be."""
        return WritePolicy, (dict(self.allow),)

    def ttl_of(self, observation: str) -> timedelta | None:
        """How long such an observation stays valid; RecallError where it may not be stored."""
        if not isinstance(observation, str):
            raise InputError(f"observation must be a name, got {observation!r:.80}.")
        if observation not in self.allow:
            raise RecallError(
                f"The write policy does not store {observation!r}; it stores "
                f"{', '.join(self.allow) or 'nothing'}. Nothing was stored; to allow it, pass "
                "Writing(write_policy=WritePolicy(allow={**WritePolicy().allow, "
                f"{observation!r}: None}})), or leave observation out."
            )
        return self.allow[observation]
