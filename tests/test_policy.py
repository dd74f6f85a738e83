from __future__ import annotations

import ast
import json
import math
from dataclasses import FrozenInstanceError, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import langmem_recall.policy
from langmem_recall.errors import PolicyError, RecallError
from langmem_recall.policy import RecallPolicy, Weights
from langmem_recall.types import KINDS

DAY = 24.0
INF = math.inf

# Every number a user may set: the least and the most it may be, and whether it must be whole.
WEIGHT_KNOBS = dict.fromkeys(
    ("similarity", "recency", "importance", "strength", "trust"), (0, INF, False)
)
POLICY_KNOBS = {
    "interpolation": (0, 1, False),
    "half_life_hours": (1e-6, INF, False),
    "use_boost": (0, 1, False),
    "count_fade_per_day": (1e-9, 1, False),
    "refresh_floor": (0, INF, False),
    "feedback_step": (0, 0.2, False),
    "current_recency": (0, INF, False),
    "window_boost": (0, INF, False),
    "pool": (1, 10_000, True),
    "rescues": (0, 10_000, True),
    "top_k": (1, 1_000, True),
    "unverified_share": (0, 1, False),
    "trigger": (0, 1, False),
    "floor": (0, 1, False),
    "breadth": (0, 100, False),
    "min_confidence": (0, 1, False),
    "composite_floor": (0, INF, False),
    "duplicate_similarity": (0, 2, False),
    "mmr_lambda": (0, 1, False),
}
SWITCHES = ("adapts", "ebbinghaus", "lru2", "strip_names", "task_filter")
TABLES = {Weights: WEIGHT_KNOBS, RecallPolicy: POLICY_KNOBS}
EVERY_KNOB = [
    pytest.param(record, name, *limits, id=f"{record.__name__}.{name}")
    for record, table in TABLES.items()
    for name, limits in table.items()
]

EQUAL = {"similarity": 1.0, "recency": 1.0, "importance": 1.0, "strength": 0.0, "trust": 0.0}
DEFAULT_GATES = {
    "trigger": 0.5,
    "floor": 0.3,
    "composite_floor": 0.0,
    "duplicate_similarity": 0.9,
    "mmr_lambda": 1.0,
}
# DESIGN section 6, preset by preset.
PRESETS: dict[str, dict[str, Any]] = {
    "default": {"blend": "bounded", "ordering": "relevance", "top_k": 10, **DEFAULT_GATES},
    "weighted": {
        "blend": "linear",
        "weights": {**EQUAL, "similarity": 0.6, "recency": 0.25, "importance": 0.15},
        "half_life_hours": 7 * DAY,
        "use_boost": 0.0,
        "pool": 30,
        "top_k": 5,
        "trigger": 0.0,
        "floor": 0.0,
        "composite_floor": 0.35,
    },
    "generative_agents": {
        "blend": "minmax",
        "weights": EQUAL,
        # 0.5^(1 / half-life) = 0.995 an hour, so half-life = ln 0.5 / ln 0.995 = 138.28 h.
        "half_life_hours": pytest.approx(138.2826, abs=1e-4),
        "use_boost": 0.0,
        "task_filter": False,
        **DEFAULT_GATES,
    },
    "normalized": {
        "blend": "minmax",
        "weights": EQUAL,
        "half_life_hours": 14 * DAY,
        "use_boost": 0.05,
        "pool": 20,
        "top_k": 5,
        **DEFAULT_GATES,
    },
    "assistant": {
        "blend": "minmax",
        "weights": {**EQUAL, "recency": 1.5, "importance": 1.0, "similarity": 1.0},
        "half_life_hours": 7 * DAY,
        "use_boost": 0.05,
        **DEFAULT_GATES,
    },
    "support": {
        "blend": "minmax",
        "weights": {**EQUAL, "recency": 1.0, "importance": 1.5, "similarity": 1.0},
        "half_life_hours": 30 * DAY,
        "use_boost": 0.05,
        **DEFAULT_GATES,
    },
    "coding": {
        "blend": "minmax",
        "weights": {**EQUAL, "recency": 0.5, "importance": 1.0, "similarity": 1.5},
        "half_life_hours": 90 * DAY,
        "use_boost": 0.05,
        **DEFAULT_GATES,
    },
    "planning": {
        "blend": "minmax",
        "weights": EQUAL,
        "use_boost": 0.05,
        "task_filter": True,
        **DEFAULT_GATES,
    },
    "product": {"blend": "product", "use_boost": 0.0, **DEFAULT_GATES},
    "interpolated": {
        "blend": "interpolated",
        "interpolation": 0.3,
        "use_boost": 0.0,
        "pool": 50,
        "top_k": 20,
        **DEFAULT_GATES,
    },
    "adaptive": {
        "blend": "bounded",
        "adapts": True,
        "weights": {
            **EQUAL,
            "similarity": 0.0,
            "recency": 0.25,
            "importance": 0.3,
            "strength": 0.25,
            "trust": 0.06,
        },
        "half_life_hours": 7 * DAY,
        "use_boost": 0.0,
        **DEFAULT_GATES,
    },
    "similarity": {
        "blend": "similarity",
        "trigger": 0.0,
        "floor": 0.0,
        "composite_floor": 0.0,
        "rescues": 0,
        "strip_names": False,
    },
}


def preset(name: str) -> RecallPolicy:
    return getattr(RecallPolicy, name)()


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_the_numbers_of_the_design(name):
    knobs = preset(name).to_dict()

    assert {knob: knobs[knob] for knob in PRESETS[name]} == PRESETS[name]
    assert knobs["name"] == name


def test_counts_fade_and_uses_refresh_as_the_design_says():
    policy = RecallPolicy.default()

    assert (policy.count_fade_per_day, policy.refresh_floor) == (0.99, 60.0)
    assert (policy.ebbinghaus, policy.lru2) == (False, False)


def test_default_boosts_are_small_enough_that_relevance_rules():
    weights = RecallPolicy.default().weights

    assert 0 < weights.recency + weights.importance + weights.strength + weights.trust < 0.5


@pytest.mark.parametrize("name", PRESETS)
def test_preset_takes_changes(name):
    assert getattr(RecallPolicy, name)(top_k=3, floor=0.4).top_k == 3


def test_interpolated_takes_its_w():
    assert RecallPolicy.interpolated(0.7).interpolation == 0.7


def test_interpolated_refuses_a_w_beyond_one():
    with pytest.raises(PolicyError, match=r"interpolation.*got 1\.2"):
        RecallPolicy.interpolated(1.2)


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_table_above_misses_no_number(record):
    tables = {"weights", "tiers", "durable_kinds"}
    named = {"name", "blend", "ordering", *tables, *SWITCHES}

    assert {knob.name for knob in fields(record)} - named == set(TABLES[record])


def made(record: type[Any], name: str, value: Any) -> Any:
    return record(**{name: value})


@pytest.mark.parametrize(("record", "name", "low", "high", "whole"), EVERY_KNOB)
def test_knob_takes_the_ends_of_its_range(record, name, low, high, whole):
    top = 1e9 if high == INF else high

    assert getattr(made(record, name, low), name) == low
    assert getattr(made(record, name, top), name) == top


@pytest.mark.parametrize(("record", "name", "low", "high", "whole"), EVERY_KNOB)
def test_knob_names_itself_and_the_value_it_refuses(record, name, low, high, whole):
    beyond = [] if high == INF else [high + 1]
    fraction = [2.5] if whole else []
    wrong = [low - 1, *beyond, *fraction, math.nan, INF, -INF, True, False, "0.5", None, [0.5]]
    for value in wrong:
        with pytest.raises(PolicyError) as caught:
            made(record, name, value)
        assert f"{record.__name__}.{name}" in str(caught.value)
        assert repr(value) in str(caught.value)


def test_number_too_large_for_a_float_is_refused_like_any_other():
    with pytest.raises(PolicyError, match="trigger"):
        RecallPolicy(trigger=10**400)


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("value", ["no", 1, 0, None, []], ids=repr)
def test_switch_takes_only_true_and_false(switch, value):
    with pytest.raises(PolicyError, match=switch):
        RecallPolicy(**{switch: value})


@pytest.mark.parametrize(
    ("knob", "value"),
    [("blend", "magic"), ("blend", None), ("ordering", "random"), ("ordering", ["rrf"])],
)
def test_choice_refuses_what_is_not_on_offer(knob, value):
    with pytest.raises(PolicyError) as caught:
        RecallPolicy(**{knob: value})
    assert knob in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("name", 5),
        ("name", None),
        ("weights", {"recency": 1.0}),
        ("weights", None),
        ("tiers", None),
        ("tiers", ["semantic"]),
    ],
    ids=repr,
)
def test_record_knob_refuses_another_type(knob, value):
    with pytest.raises(PolicyError, match=knob):
        RecallPolicy(**{knob: value})


def test_tier_must_be_a_kind_of_memory():
    with pytest.raises(PolicyError, match=r"dreams"):
        RecallPolicy(tiers={"dreams": Weights()})


def test_tier_must_hold_weights():
    with pytest.raises(PolicyError, match=r"tiers\['semantic'\] must be Weights"):
        RecallPolicy(tiers={"semantic": {"recency": 1.0}})


@pytest.mark.parametrize("kinds", ["semantic", 7, None, ["dream"], ("semantic", "dream")], ids=repr)
def test_durable_kinds_must_be_kinds_of_memory(kinds):
    with pytest.raises(PolicyError, match="durable"):
        RecallPolicy(durable_kinds=kinds)


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_durable_kinds_survive_saving(tmp_path, ending):
    policy = RecallPolicy(durable_kinds=["semantic", "procedural"])
    policy.save(tmp_path / f"p.{ending}")

    assert RecallPolicy.load(tmp_path / f"p.{ending}") == policy
    assert policy.durable_kinds == ("semantic", "procedural")
    assert policy.fingerprint != RecallPolicy().fingerprint


def test_replace_changes_only_what_is_named():
    policy = RecallPolicy.weighted()
    changed = policy.replace(top_k=7)

    assert changed.top_k == 7
    assert changed.replace(top_k=policy.top_k) == policy


@pytest.mark.parametrize(
    "make",
    [
        lambda: RecallPolicy().replace(halflife=3),
        lambda: RecallPolicy.weighted(halflife=3),
        lambda: RecallPolicy.from_dict({"halflife": 3}),
        lambda: RecallPolicy.from_dict({"weights": {"halflife": 3}}),
        lambda: RecallPolicy.from_dict({"tiers": {"semantic": {"halflife": 3}}}),
    ],
    ids=["replace", "preset", "from_dict", "weights", "tier"],
)
def test_unknown_knob_is_named_with_the_knobs_there_are(make):
    with pytest.raises(PolicyError, match=r"has no knob halflife\. Its knobs: .+"):
        make()


@pytest.mark.parametrize(
    "knobs",
    [{"weights": 3}, {"tiers": 3}, {"tiers": {"semantic": 3}}],
    ids=repr,
)
def test_from_dict_refuses_a_number_where_a_table_belongs(knobs):
    with pytest.raises(PolicyError, match="table"):
        RecallPolicy.from_dict(knobs)


def test_from_dict_fills_in_defaults():
    assert RecallPolicy.from_dict({}) == RecallPolicy.default()
    # What 0.1 wrote: its numbers of relevance are no knobs any more.
    assert RecallPolicy.from_dict({"relevance": {"bias": 0.4}}) == RecallPolicy.default()
    assert RecallPolicy.from_dict({"weights": {"trust": 1.0}}).weights == Weights(trust=1.0)


def test_policy_is_frozen():
    policy = RecallPolicy()

    with pytest.raises(FrozenInstanceError):
        policy.floor = 0.3
    with pytest.raises(FrozenInstanceError):
        policy.weights.recency = 0.3


def test_policy_does_not_follow_the_caller_who_changes_his_tiers():
    tiers = {"semantic": Weights(recency=1.0)}
    policy = RecallPolicy(tiers=tiers)
    tiers["episodic"] = Weights()

    assert policy.tiers == {"semantic": Weights(recency=1.0)}


def test_tiers_cannot_be_changed_in_place():
    policy = RecallPolicy()

    with pytest.raises((TypeError, AttributeError)):
        policy.tiers["semantic"] = Weights()


def numbers(table: dict[str, tuple[float, float, bool]]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        name: st.integers(low, high)
        if whole
        else st.floats(low, 1e9 if high == INF else high, allow_nan=False)
        for name, (low, high, whole) in table.items()
    }


weights = st.builds(Weights, **numbers(WEIGHT_KNOBS))
policies = st.builds(
    RecallPolicy,
    name=st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    blend=st.sampled_from(["bounded", "linear", "minmax", "product", "interpolated", "similarity"]),
    ordering=st.sampled_from(["relevance", "rrf"]),
    weights=weights,
    tiers=st.dictionaries(st.sampled_from(KINDS), weights),
    **{switch: st.booleans() for switch in SWITCHES},
    **numbers(POLICY_KNOBS),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("policies")


@pytest.mark.parametrize("ending", ["toml", "json", "JSON"])
@settings(deadline=None)
@given(policy=policies)
def test_saved_policy_is_loaded_as_it_was(folder, ending, policy):
    path = folder / f"policy.{ending}"
    policy.save(path)

    assert RecallPolicy.load(path) == policy
    assert RecallPolicy.load(path).fingerprint == policy.fingerprint


@pytest.mark.parametrize("ending", ["toml", "json"])
@pytest.mark.parametrize(
    "name", ["", 'say "hi"', "a\\b", "two\nlines", "\t\x00\x1f", "naïve", "日本", "🎉", "\x7f"]
)
def test_awkward_name_survives_saving(tmp_path, ending, name):
    path = tmp_path / f"policy.{ending}"
    RecallPolicy(name=name).save(path)

    assert RecallPolicy.load(path).name == name


def test_saved_json_holds_plain_numbers_by_their_names(tmp_path):
    path = tmp_path / "policy.json"
    RecallPolicy.weighted().save(path)

    knobs = json.loads(path.read_text())
    assert knobs["weights"]["similarity"] == 0.6
    assert knobs["composite_floor"] == 0.35


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("broken.toml", "floor = = 3"),
        ("broken.json", '{"floor": 0.3'),
        ("list.json", "[1, 2]"),
        ("text.json", '"floor"'),
        ("empty.json", ""),
    ],
)
def test_broken_file_is_named(tmp_path, file, content):
    path = tmp_path / file
    path.write_text(content)

    with pytest.raises(PolicyError, match=file):
        RecallPolicy.load(path)


@pytest.mark.parametrize("file", ["binary.toml", "binary.json"])
def test_file_that_is_no_text_is_named(tmp_path, file):
    path = tmp_path / file
    path.write_bytes(b"\xff\xfe\x00floor")

    with pytest.raises(PolicyError, match=file):
        RecallPolicy.load(path)


@pytest.mark.parametrize(
    ("file", "content"),
    [("nan.json", '{"floor": NaN}'), ("nan.toml", "floor = nan"), ("high.toml", "floor = 1.5")],
)
def test_file_with_a_knob_out_of_range_is_refused(tmp_path, file, content):
    path = tmp_path / file
    path.write_text(content)

    with pytest.raises(PolicyError, match=r"RecallPolicy\.floor"):
        RecallPolicy.load(path)


def test_empty_toml_is_the_default_policy(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text("")

    assert RecallPolicy.load(path) == RecallPolicy.default()


def test_policy_error_is_a_recall_error_and_a_value_error():
    assert issubclass(PolicyError, RecallError)
    assert issubclass(PolicyError, ValueError)


@settings(deadline=None)
@given(policies)
def test_equal_policies_have_equal_fingerprints_and_hashes(policy):
    twin = RecallPolicy.from_dict(json.loads(json.dumps(policy.to_dict())))

    assert twin == policy
    assert twin.fingerprint == policy.fingerprint
    assert hash(twin) == hash(policy)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RecallPolicy(half_life_hours=168), RecallPolicy(half_life_hours=168.0)),
        (RecallPolicy(weights=Weights(recency=1)), RecallPolicy(weights=Weights(recency=1.0))),
        (RecallPolicy(floor=-0.0), RecallPolicy(floor=0.0)),
        (
            RecallPolicy(tiers={"semantic": Weights(), "episodic": Weights()}),
            RecallPolicy(tiers={"episodic": Weights(), "semantic": Weights()}),
        ),
    ],
    ids=["whole number", "whole weight", "minus zero", "order of tiers"],
)
def test_equal_policies_written_differently_have_one_fingerprint(one, other):
    assert one == other
    assert hash(one) == hash(other)
    assert one.fingerprint == other.fingerprint


def test_fingerprints_of_the_presets_differ():
    assert len({preset(name).fingerprint for name in PRESETS}) == len(PRESETS)


@pytest.mark.parametrize("changes", [{"floor": 0.16}, {"tiers": {"semantic": Weights()}}], ids=str)
def test_fingerprint_changes_with_a_knob(changes):
    assert RecallPolicy().replace(**changes).fingerprint != RecallPolicy().fingerprint


@pytest.mark.parametrize("record", ["Weights", "RecallPolicy"])
def test_every_knob_has_a_docstring(record):
    tree = ast.parse(Path(langmem_recall.policy.__file__).read_text())
    (body,) = [
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == record
    ]
    bare = [
        statement.target.id
        for statement, following in pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ]

    assert set(bare) <= {"name", "weights"}
