from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any

import pytest

from langmem_recall import WritePolicy
from langmem_recall.errors import InputError, PolicyError, RecallError


@pytest.mark.parametrize(
    ("observation", "days"),
    [
        ("user_stated_preference", None),
        ("tool_result_verified", 7),
        ("task_completion_strategy", 90),
        ("session_summary", 30),
    ],
)
def test_what_is_worth_keeping_is_kept_for_as_long_as_it_is_worth(observation, days):
    expected = None if days is None else timedelta(days=days)

    assert WritePolicy().ttl_of(observation) == expected


@pytest.mark.parametrize(
    "observation",
    ["intermediate_reasoning", "failed_tool_call", "speculative_inference", "gossip", ""],
)
def test_everything_else_is_refused_with_a_way_out(observation):
    with pytest.raises(RecallError, match="Nothing was stored") as caught:
        WritePolicy().ttl_of(observation)
    assert repr(observation) in str(caught.value)
    assert "write_policy=WritePolicy(allow=" in str(caught.value)


def test_the_way_out_works():
    policy = WritePolicy(allow={**WritePolicy().allow, "gossip": timedelta(hours=1)})

    assert policy.ttl_of("gossip") == timedelta(hours=1)
    assert policy.ttl_of("session_summary") == timedelta(days=30)


def test_an_observation_must_be_a_name():
    with pytest.raises(InputError, match="observation must be a name, got 7"):
        WritePolicy().ttl_of(7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "allow",
    [
        ["session_summary"],
        {"": None},
        {7: None},
        {"a": 7},
        {"a": timedelta(0)},
        {"a": timedelta(days=-1)},
    ],
    ids=repr,
)
def test_a_policy_that_cannot_be_meant_is_refused(allow: Any):
    with pytest.raises(PolicyError):
        WritePolicy(allow=allow)


def test_a_policy_is_frozen_and_does_not_follow_the_callers_table():
    table = {"a": None}
    policy = WritePolicy(allow=table)
    table["b"] = None

    assert dict(policy.allow) == {"a": None}
    with pytest.raises(TypeError):
        policy.allow["c"] = None  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        policy.allow = {}  # type: ignore[misc]


def test_a_policy_is_copied_pickled_and_compared():
    policy = WritePolicy(allow={"a": timedelta(days=1)})

    assert pickle.loads(pickle.dumps(policy)) == policy == copy.deepcopy(policy)
    assert policy != WritePolicy()
    assert hash(policy) == hash(copy.copy(policy))
