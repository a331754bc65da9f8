"""What is wanted and said for a policy in a cluster."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from punctual_operator.conditions import ConditionType, Finding, Status
from punctual_operator.kinds import child_key
from punctual_operator.observed import BackendService, Endpoint, Failure, GatewayPod, Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.reconcile import build_status, invalid, reconcile
from punctual_operator.reports import GatewayReport, PodReport
from punctual_operator.resources.deployment import GatewayImage
from punctual_operator.settings import parse_settings

IMAGE = GatewayImage("gateway:1")
NOW = "2026-01-02T00:00:00Z"
T = ConditionType


def found(policy: AdmissionPolicy, observed: Observed, kind: ConditionType) -> Finding:
    findings = {finding.type: finding for finding in reconcile(policy, observed, IMAGE).findings}
    assert set(findings) == set(ConditionType)
    return findings[kind]


def pod_report(**changes: Any) -> PodReport:
    base = PodReport(
        url="http://10.0.0.1:8000",
        usable=True,
        problem="",
        model="gpt2",
        ratio=1.0,
        step_seconds=(0.01, 0.012),
        prefill_base=0.02,
        prefill_per_token=0.001,
    )
    return dataclasses.replace(base, **changes)


def reporting(observed: Observed, report: GatewayReport) -> Observed:
    return dataclasses.replace(observed, reports={"gpt2-gateway-a": report})


def test_ready_when_gateway_pods_and_policy_are_there(make_policy: Any, healthy: Observed) -> None:
    observed = reporting(healthy, GatewayReport(generation=3, pods=(pod_report(),)))
    policy = make_policy()
    for kind in (T.GATEWAY_AVAILABLE, T.BACKENDS_DISCOVERED, T.POLICY_APPLIED, T.READY):
        assert found(policy, observed, kind).status is Status.TRUE
    assert found(policy, observed, T.OBJECTIVE_ATTAINABLE).reason == "Attainable"
    assert found(policy, observed, T.AUTOSCALING_ACTIVE).reason == "NotConfigured"


def test_every_condition_is_set_on_the_first_visit(make_policy: Any) -> None:
    policy = make_policy()
    status = build_status(policy, Observed(), reconcile(policy, Observed(), IMAGE), NOW)
    assert {one["type"] for one in status["conditions"]} == {str(kind) for kind in ConditionType}
    assert status["observedGeneration"] == 3
    assert "inventory" not in status


def test_deadline_changes_the_config_map_alone(make_policy: Any) -> None:
    before, after = (
        {child_key(one): one for one in reconcile(policy, Observed(), IMAGE).manifests}
        for policy in (make_policy(), make_policy(deadline={"defaultMilliseconds": 700}))
    )
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {("ConfigMap", "gpt2-gateway")}


def test_replicas_are_left_out_only_where_they_are_scaled(make_policy: Any) -> None:
    scaled = make_policy(gateway={"scaling": {}, "replicas": 5})
    fixed = make_policy(gateway={"replicas": 5})
    specs = [
        next(
            one
            for one in reconcile(policy, Observed(), IMAGE).manifests
            if one["kind"] == "Deployment"
        )
        for policy in (scaled, fixed)
    ]
    assert [spec["spec"].get("replicas") for spec in specs] == [None, 5]


@pytest.mark.parametrize(
    ("own", "pulled_with"), [([], ["everywhere"]), (["here", "also-here"], ["here", "also-here"])]
)
def test_gateway_is_pulled_with_the_secrets_of_its_policy_or_else_of_the_operator(
    own: list[str], pulled_with: list[str], make_policy: Any
) -> None:
    policy = make_policy(gateway={"imagePullSecrets": own})
    image = parse_settings(["--gateway-pull-secret=everywhere"]).image
    manifests = reconcile(policy, Observed(), image).manifests
    (deployment,) = [one for one in manifests if one["kind"] == "Deployment"]
    secrets = deployment["spec"]["template"]["spec"]["imagePullSecrets"]
    assert secrets == [{"name": name} for name in pulled_with]


def test_grace_period_covers_accepting_finishing_and_ending(make_policy: Any) -> None:
    policy = make_policy(gateway={"acceptSeconds": 7, "finishSeconds": 90})
    manifests = reconcile(policy, Observed(), IMAGE).manifests
    template = next(one for one in manifests if one["kind"] == "Deployment")["spec"]["template"]
    assert template["spec"]["terminationGracePeriodSeconds"] > 7 + 90
    arguments = template["spec"]["containers"][0]["args"]
    assert {"--drain-accept-seconds=7", "--drain-limit-seconds=90"} <= set(arguments)


def test_what_is_not_wanted_any_more_is_pruned(make_policy: Any, healthy: Observed) -> None:
    budget = ("PodDisruptionBudget", "gpt2-gateway")
    observed = dataclasses.replace(healthy, children={**healthy.children, budget: {}})
    policy = make_policy(gateway={"disruptionBudget": "Disabled"})
    assert reconcile(policy, observed, IMAGE).prune == {budget}


def test_younger_policy_on_a_service_gets_nothing_and_loses_nothing(
    make_policy: Any, healthy: Observed
) -> None:
    observed = dataclasses.replace(healthy, older_rival="first")
    desired = reconcile(make_policy(), observed, IMAGE)
    assert (desired.manifests, desired.prune) == ((), frozenset())
    ready = found(make_policy(), observed, T.READY)
    assert (ready.status, ready.reason) == (Status.FALSE, "Conflict")
    assert "'first'" in ready.message


def test_object_of_somebody_else_is_left_alone(make_policy: Any, healthy: Observed) -> None:
    taken = frozenset({("Service", "gpt2-gateway")})
    observed = dataclasses.replace(healthy, taken=taken)
    desired = reconcile(make_policy(), observed, IMAGE)
    assert taken.isdisjoint(child_key(one) for one in desired.manifests)
    assert found(make_policy(), observed, T.READY).reason == "NameTaken"


def test_unreadable_policy_says_so_in_every_condition() -> None:
    findings = invalid("spec.mode must be one of ...")
    assert {finding.type for finding in findings} == set(ConditionType)
    assert all("spec.mode" in finding.message for finding in findings)


CHANGES: dict[str, tuple[ConditionType, dict[str, Any], str]] = {
    "no service": (T.BACKENDS_DISCOVERED, {"service": None}, "ServiceNotFound"),
    "service with an address": (
        T.BACKENDS_DISCOVERED,
        {"service": BackendService(headless=False, selector="app=gpt2")},
        "ServiceNotHeadless",
    ),
    "no pods": (T.BACKENDS_DISCOVERED, {"endpoints": ()}, "NoPods"),
    "no ready pods": (
        T.BACKENDS_DISCOVERED,
        {"endpoints": (Endpoint("10.0.0.1", ready=False),)},
        "NoReadyPods",
    ),
    "another port": (T.BACKENDS_DISCOVERED, {"backend_ports": frozenset({9000})}, "WrongPort"),
    "quota": (
        T.GATEWAY_AVAILABLE,
        {"failures": {("Service", "x"): Failure(403, "exceeded quota: q, used: services=1")}},
        "QuotaExceeded",
    ),
    "refused": (
        T.GATEWAY_AVAILABLE,
        {"failures": {("Service", "x"): Failure(422, "is invalid")}},
        "ApplyFailed",
    ),
    "being made": (T.GATEWAY_AVAILABLE, {"children": {}}, "Creating"),
    "no replica to ask": (T.POLICY_APPLIED, {"pods": ()}, "NoGatewayReplica"),
    "not asked": (T.POLICY_APPLIED, {}, "Asking"),
    "no answer": (
        T.POLICY_APPLIED,
        {"unread": {"gpt2-gateway-a": "no answer in time"}},
        "GatewayUnreachable",
    ),
    "nothing measured": (T.OBJECTIVE_ATTAINABLE, {}, "NoMeasurement"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_cause_is_named(name: str, make_policy: Any, healthy: Observed) -> None:
    kind, change, reason = CHANGES[name]
    finding = found(make_policy(), dataclasses.replace(healthy, **change), kind)
    assert (finding.reason, finding.status) != ("", Status.TRUE)
    assert finding.reason == reason


@pytest.mark.parametrize(
    ("selector", "remedy"),
    [("app=gpt2", "start model pods with these labels"), ("", "service.kubernetes.io/headless")],
)
def test_service_without_pods_says_what_it_takes(
    selector: str, remedy: str, make_policy: Any, healthy: Observed
) -> None:
    service = BackendService(headless=True, selector=selector)
    observed = dataclasses.replace(healthy, service=service, endpoints=())
    assert remedy in found(make_policy(), observed, T.BACKENDS_DISCOVERED).message


REPORTS: dict[str, tuple[ConditionType, GatewayReport, str]] = {
    "old generation": (T.POLICY_APPLIED, GatewayReport(generation=2), "Pending"),
    "rejected": (
        T.POLICY_APPLIED,
        GatewayReport(generation=2, problems=("spec.x is not a field",)),
        "PolicyRejected",
    ),
    "applied": (T.POLICY_APPLIED, GatewayReport(generation=3), "Applied"),
    "another model": (
        T.BACKENDS_DISCOVERED,
        GatewayReport(3, pods=(pod_report(usable=False, model="llama"),)),
        "WrongModel",
    ),
    "silent pods": (
        T.BACKENDS_DISCOVERED,
        GatewayReport(3, pods=(pod_report(usable=False, model="", problem="no connection"),)),
        "PodsUnusable",
    ),
    "slow pods": (
        T.OBJECTIVE_ATTAINABLE,
        GatewayReport(3, pods=(pod_report(step_seconds=(3.0, 4.0)),)),
        "ModelTooSlow",
    ),
    "too much load": (
        T.OBJECTIVE_ATTAINABLE,
        GatewayReport(3, pods=(pod_report(),), offered_load=2.3),
        "TooFewPods",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_report_of_a_gateway_is_understood(name: str, make_policy: Any, healthy: Observed) -> None:
    kind, report, reason = REPORTS[name]
    assert found(make_policy(), reporting(healthy, report), kind).reason == reason


def test_usable_pod_outweighs_a_port_that_the_service_does_not_list(
    make_policy: Any, healthy: Observed
) -> None:
    observed = dataclasses.replace(healthy, backend_ports=frozenset({9000}))
    observed = reporting(observed, GatewayReport(3, pods=(pod_report(),)))
    assert found(make_policy(), observed, T.BACKENDS_DISCOVERED).status is Status.TRUE


def test_too_slow_model_gives_the_numbers_to_set(make_policy: Any, healthy: Observed) -> None:
    policy = make_policy(
        deadline={"defaultMilliseconds": 100, "maximumMilliseconds": 100},
        requests={"defaultMaxTokens": 16},
    )
    observed = reporting(healthy, GatewayReport(3, pods=(pod_report(),)))
    message = found(policy, observed, T.OBJECTIVE_ATTAINABLE).message
    # 21 ms of prefill and 15 steps of 10 ms; within 100 ms there are 7 steps after the first token
    assert "takes 170 ms" in message
    assert "at least 171" in message
    assert "at most 8," in message


def test_first_token_objective_asks_for_the_prefill_alone(
    make_policy: Any, healthy: Observed
) -> None:
    policy = make_policy(
        objective="FirstToken", deadline={"defaultMilliseconds": 25, "maximumMilliseconds": 25}
    )
    observed = reporting(healthy, GatewayReport(3, pods=(pod_report(),)))
    assert found(policy, observed, T.OBJECTIVE_ATTAINABLE).reason == "Attainable"


def test_assumed_speed_is_used_where_none_is_reported(make_policy: Any, healthy: Observed) -> None:
    policy = make_policy(backend={"service": "s", "stepMicroseconds": [50_000]})
    assert found(policy, healthy, T.OBJECTIVE_ATTAINABLE).reason == "Attainable"


@pytest.mark.parametrize(
    ("tiers", "mode", "reason", "who"),
    [
        ([{"name": "a", "reservedPercent": 70}], "Predictive", "ShareTooSmall", "without a tier"),
        ([{"name": "a", "reservedPercent": 20}], "Predictive", "Attainable", ""),
        ([{"name": "a", "reservedPercent": 70}], "Deadline", "Attainable", ""),
        (
            [
                {"name": "a", "reservedPercent": 40},
                {"name": "b", "defaultDeadlineMilliseconds": 600},
            ],
            "Predictive",
            "ShareTooSmall",
            "tier 'b'",
        ),
    ],
)
def test_share_that_others_have_reserved_may_leave_too_little(
    tiers: list[dict[str, Any]],
    mode: str,
    reason: str,
    who: str,
    make_policy: Any,
    healthy: Observed,
) -> None:
    """A default answer takes about half of the deadline of one second."""
    policy = make_policy(
        mode=mode,
        deadline={"defaultMilliseconds": 1000, "maximumMilliseconds": 1000},
        requests={"defaultMaxTokens": 50},
        tiers=tiers,
    )
    observed = reporting(healthy, GatewayReport(3, pods=(pod_report(),)))
    finding = found(policy, observed, T.OBJECTIVE_ATTAINABLE)
    assert finding.reason == reason
    assert who in finding.message


@pytest.mark.parametrize(("offered", "reason"), [(0.95, "TooFewPods"), (0.85, "Attainable")])
def test_too_few_pods_ends_with_some_distance(
    offered: float, reason: str, make_policy: Any, healthy: Observed
) -> None:
    condition = {"type": "ObjectiveAttainable", "status": "False", "reason": "TooFewPods"}
    policy = make_policy(status={"conditions": [condition]})
    report = GatewayReport(3, pods=(pod_report(),), offered_load=offered)
    assert found(policy, reporting(healthy, report), T.OBJECTIVE_ATTAINABLE).reason == reason


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (("ErrImagePull", "not found"), "ImagePullFailed"),
        (("InvalidImageName", "bad"), "ImagePullFailed"),
        (("Unschedulable", "0/3 nodes"), "Unschedulable"),
        (("CrashLoopBackOff", "exit status 2"), "Crashing"),
        (("CreateContainerError", ""), "CreateContainerError"),
        (None, "Starting"),
    ],
)
def test_trouble_of_a_pod_is_told(
    trouble: tuple[str, str] | None, reason: str, make_policy: Any, deployments: Any
) -> None:
    pod = GatewayPod("gpt2-gateway-a", "", ready=False, trouble=trouble)
    observed = Observed(pods=(pod,), children=deployments(available=0))
    finding = found(make_policy(), observed, T.GATEWAY_AVAILABLE)
    assert (finding.status, finding.reason) == (Status.FALSE, reason)


def test_trouble_of_a_rollout_is_told_while_another_replica_serves(
    make_policy: Any, deployments: Any
) -> None:
    pod = GatewayPod("gpt2-gateway-b", "", ready=False, trouble=("ErrImagePull", "not found"))
    observed = Observed(pods=(pod,), children=deployments(available=1))
    finding = found(make_policy(), observed, T.GATEWAY_AVAILABLE)
    assert (finding.status, finding.reason) == (Status.TRUE, "PartlyAvailable")
    assert "not found" in finding.message


@pytest.mark.parametrize(
    ("message", "reason"),
    [("pods is forbidden: exceeded quota: q", "QuotaExceeded"), ("violates x", "PodsRefused")],
)
def test_pods_that_the_server_refuses_are_told(
    message: str, reason: str, make_policy: Any, deployments: Any
) -> None:
    condition = {"type": "ReplicaFailure", "status": "True", "message": message}
    observed = Observed(children=deployments(available=0, conditions=[condition]))
    assert found(make_policy(), observed, T.GATEWAY_AVAILABLE).reason == reason


def test_zero_replicas_are_told(make_policy: Any, deployments: Any) -> None:
    observed = Observed(children=deployments(wanted=0))
    assert found(make_policy(), observed, T.GATEWAY_AVAILABLE).reason == "ScaledToZero"


def scaler(**conditions: tuple[str, str, str]) -> dict[tuple[str, str], Any]:
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    return {("HorizontalPodAutoscaler", "gpt2-pool"): {"status": {"conditions": listed}}}


@pytest.mark.parametrize(
    ("conditions", "status", "reason"),
    [
        ({}, Status.UNKNOWN, "Waiting"),
        ({"AbleToScale": ("False", "FailedGetScale", "no")}, Status.FALSE, "TargetNotScalable"),
        (
            {"ScalingActive": ("False", "FailedGetExternalMetric", "no")},
            Status.FALSE,
            "MetricUnavailable",
        ),
        ({"ScalingActive": ("False", "ScalingDisabled", "0")}, Status.FALSE, "ScaledToZero"),
        ({"ScalingActive": ("False", "Odd", "odd")}, Status.FALSE, "Odd"),
        ({"ScalingActive": ("True", "ValidMetricFound", "ok")}, Status.TRUE, "Active"),
        (
            {
                "ScalingActive": ("True", "ValidMetricFound", "ok"),
                "ScalingLimited": ("True", "TooManyReplicas", "max"),
            },
            Status.TRUE,
            "AtMaximum",
        ),
    ],
)
def test_autoscaler_is_mirrored(
    conditions: dict[str, Any], status: Status, reason: str, make_policy: Any
) -> None:
    policy = make_policy(autoscaling={"targetName": "gpt2"})
    finding = found(policy, Observed(children=scaler(**conditions)), T.AUTOSCALING_ACTIVE)
    assert (finding.status, finding.reason) == (status, reason)


def test_autoscaler_in_trouble_leaves_the_gateway_ready(
    make_policy: Any, healthy: Observed
) -> None:
    policy = make_policy(autoscaling={"targetName": "gpt2"})
    failing = scaler(ScalingActive=("False", "FailedGetExternalMetric", "no"))
    observed = dataclasses.replace(healthy, children={**healthy.children, **failing})
    observed = reporting(observed, GatewayReport(3, pods=(pod_report(),)))
    assert found(policy, observed, T.READY).status is Status.TRUE


@pytest.mark.parametrize(
    ("minimum", "desired", "reason"), [(0, 0, "ScaledToZero"), (0, 1, "NoPods"), (1, 0, "NoPods")]
)
def test_idle_pool_without_pods_is_well_where_its_autoscaler_wants_none(
    minimum: int, desired: int, reason: str, make_policy: Any, healthy: Observed
) -> None:
    policy = make_policy(autoscaling={"targetName": "gpt2", "minimumReplicas": minimum})
    idle = {("HorizontalPodAutoscaler", "gpt2-pool"): {"status": {"desiredReplicas": desired}}}
    children = {**healthy.children, **idle}
    observed = dataclasses.replace(healthy, endpoints=(), children=children)
    finding = found(policy, observed, T.BACKENDS_DISCOVERED)
    assert finding.reason == reason
    assert (finding.status is Status.TRUE) is (reason == "ScaledToZero")


def test_unchanged_cluster_gives_an_unchanged_status(make_policy: Any, healthy: Observed) -> None:
    policy = make_policy()
    first = build_status(policy, healthy, reconcile(policy, healthy, IMAGE), NOW)
    again = make_policy(status=first)
    second = build_status(again, healthy, reconcile(again, healthy, IMAGE), "2026-02-01T00:00:00Z")
    assert second == first
