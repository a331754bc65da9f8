"""Building policies: every fault is named with its field, its value and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_admission.fields import PolicyError, build, dumped, schema
from punctual_admission.policy import (
    API_VERSION,
    KIND,
    Mode,
    Policy,
    policy_from_object,
    policy_from_spec,
)
from support.admission import make_policy


def problems(spec: object) -> tuple[str, ...]:
    """The sentences with which a spec is refused."""
    with pytest.raises(PolicyError) as caught:
        policy_from_spec(spec)
    return caught.value.problems


def test_a_policy_needs_only_its_model() -> None:
    """All else has defaults: predictive admission with a deadline of 30 s."""
    policy = make_policy()
    assert policy.mode is Mode.PREDICTIVE
    assert policy.budget(None) == 30.0
    assert policy.queue_work_limit is None
    assert policy.pool_work_limit is None


def test_limits_are_told_in_seconds_with_the_headroom_taken_off() -> None:
    """Milliseconds in the object, seconds in the core."""
    policy = make_policy(
        queue={"maximumWorkMilliseconds": 1500},
        pool={"maximumWorkMilliseconds": 2000, "headroomPercent": 25},
    )
    assert policy.queue_work_limit == 1.5
    assert policy.pool_work_limit == pytest.approx(1.5)


def test_a_longer_deadline_than_the_maximum_is_clamped() -> None:
    """Asked for 600 s, allowed 300 s."""
    policy = make_policy()
    assert policy.budget(600.0) == 300.0
    assert policy.budget(0.5) == 0.5


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({}, "spec.model must be given"),
        ([], "spec must be an object, got []"),
        ({"model": 7}, "spec.model must be a string of at most 253 characters, got 7"),
        ({"model": "a b"}, r"spec.model must match [\x21-\x7e]+, got 'a b'"),
        ({"model": "m", "mood": 1}, "spec.mood is not a field; must be one of backend,"),
        ({"model": "m", "mode": "predictive"}, "spec.mode must be one of Unlimited, Bounded,"),
        ({"model": "m", "queue": {"maximumRequests": -1}}, "must be an integer from 0 to 100000"),
        ({"model": "m", "queue": {"maximumRequests": True}}, "got True"),
        ({"model": "m", "queue": {"maximumRequests": 1.5}}, "got 1.5"),
        ({"model": "m", "deadline": {"defaultMilliseconds": "2s"}}, "got '2s'"),
        ({"model": "m", "backend": {"service": "Has Spaces"}}, "spec.backend.service must match"),
        ({"model": "m", "backend": {"stepMicroseconds": [1] * 65}}, "at most 64 items"),
        ({"model": "m", "backend": {"stepMicroseconds": [1, 0]}}, "stepMicroseconds[1] must be"),
        ({"model": "m", "backend": {"stepMicroseconds": [5, 4]}}, "must not decrease, got [5, 4]"),
        ({"model": "m", "refusals": {"overloadStatus": 500}}, "must be 429 or 503, got 500"),
        (
            {"model": "m", "deadline": {"defaultMilliseconds": 9, "maximumMilliseconds": 5}},
            "must be less than or equal to spec.deadline.maximumMilliseconds (5), got 9",
        ),
    ],
)
def test_a_fault_names_field_value_and_what_is_allowed(spec: object, sentence: str) -> None:
    """One sentence each."""
    assert any(sentence in problem for problem in problems(spec))


def test_all_faults_are_told_at_once() -> None:
    """Nobody has to fix a policy one fault at a time."""
    found = problems({"mode": "x", "queue": {"maximumRequests": -1}, "nonsense": 1})
    assert len(found) == 4


def test_a_long_wrong_value_is_shortened() -> None:
    """The message stays readable."""
    (problem,) = problems({"model": "m", "mode": "x" * 500})
    assert len(problem) < 200


def test_sections_of_the_operator_are_left_alone() -> None:
    """`gateway` and `autoscaling` are read by somebody else."""
    assert policy_from_spec({"model": "m", "gateway": {"replicas": 2}}) == make_policy()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("text", "the policy must be an object, got str"),
        ({"kind": KIND, "spec": {"model": "m"}}, "apiVersion must be 'punctual.dev/v1alpha1'"),
        ({"apiVersion": API_VERSION, "kind": "Pod"}, "kind must be 'AdmissionPolicy', got 'Pod'"),
        ({"apiVersion": API_VERSION, "kind": KIND}, "spec must be an object, got None"),
    ],
)
def test_an_object_of_another_kind_is_no_policy(given: object, sentence: str) -> None:
    """apiVersion, kind and spec are checked before anything else."""
    with pytest.raises(PolicyError) as caught:
        policy_from_object(given)
    assert sentence in str(caught.value)


def test_a_whole_object_gives_the_policy_of_its_spec() -> None:
    """Metadata and status do not matter."""
    given = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": {"model": "m"}}
    assert policy_from_object(given) == make_policy()


def test_the_schema_declares_what_validation_allows() -> None:
    """Bounds, words, lengths and defaults come from the same declaration."""
    rendered = schema(Policy)
    places = rendered["properties"]["queue"]["properties"]["maximumRequests"]
    assert rendered["required"] == ["model"]
    assert (places["minimum"], places["maximum"], places["default"]) == (0, 100_000, 8)
    assert rendered["properties"]["mode"]["enum"] == [str(mode) for mode in Mode]
    assert rendered["properties"]["model"]["maxLength"] == 253


def walk(node: dict[str, Any], path: str = "spec") -> list[tuple[str, dict[str, Any]]]:
    """Every node of a schema with its path."""
    found = [(path, node)]
    for name, child in node.get("properties", {}).items():
        found += walk(child, f"{path}.{name}")
    if "items" in node:
        found += walk(node["items"], f"{path}[]")
    return found


def test_every_number_string_and_list_of_the_schema_is_bounded_and_described() -> None:
    """Kubernetes' API conventions: no float, bounds everywhere, list types."""
    for path, node in walk(schema(Policy)):
        assert node["type"] in {"object", "integer", "string", "array"}, path
        if node["type"] == "integer":
            assert {"minimum", "maximum", "format"} <= node.keys(), path
        if node["type"] == "string":
            assert "enum" in node or "maxLength" in node, path
        if node["type"] == "array":
            assert {"maxItems", "x-kubernetes-list-type"} <= node.keys(), path
        if "[]" not in path and path != "spec":
            assert node["description"], path


def test_the_default_of_a_section_spells_out_its_nested_values() -> None:
    """A server checks a section's rules before it fills in nested defaults."""
    deadline = schema(Policy)["properties"]["deadline"]
    assert deadline["default"] == {"defaultMilliseconds": 30_000, "maximumMilliseconds": 300_000}
    assert deadline["x-kubernetes-validations"][0]["message"].startswith("`defaultMilliseconds`")


def test_a_dumped_policy_builds_the_same_policy_again() -> None:
    """Defaults included, absent fields left out."""
    policy = make_policy(backend={"stepMicroseconds": [1000, 2000]}, mode="Bounded")
    assert policy_from_spec(dumped(policy)) == policy
    assert "maximumWorkMilliseconds" not in dumped(policy)["queue"]


def test_null_means_the_default() -> None:
    """As a server drops nulls, so does the builder."""
    assert policy_from_spec({"model": "m", "queue": None, "mode": None}) == make_policy()


def test_a_nested_section_must_be_an_object() -> None:
    """A string where a section belongs is told with its path."""
    assert problems({"model": "m", "queue": "long"}) == (
        "spec.queue must be an object, got 'long'",
    )


def test_a_builder_without_a_path_calls_the_outermost_object_spec() -> None:
    """The message names something a user knows."""
    with pytest.raises(PolicyError, match="spec must be an object"):
        build(Policy, 3)
