"""The sections of `AdmissionPolicy.spec` that only the operator reads: gateway and autoscaling."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from punctual_admission.fields import (
    choice,
    integer,
    optional_integer,
    optional_section,
    required_text,
    text,
    texts,
)

OBJECT_NAME = r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?"
IMAGE = r"|[a-zA-Z0-9][-a-zA-Z0-9._:/@]*"


class Switch(StrEnum):
    """Whether an optional object is made."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class ImagePull(StrEnum):
    """When a node fetches the image; the words are those of Kubernetes."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class TargetKind(StrEnum):
    """What can hold the model pods."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"


@dataclass(frozen=True, slots=True)
class GatewayScaling:
    """The number of gateway replicas by their use of CPU."""

    minimum_replicas: int = integer(1, 1, 64, "Fewest gateway replicas.")
    maximum_replicas: int = integer(4, 1, 64, "Most gateway replicas.")
    target_cpu_percent: int = integer(
        70, 10, 100, "Use of the requested CPU to aim at, averaged over the replicas."
    )
    RULES: ClassVar = (
        (
            "self.minimumReplicas <= self.maximumReplicas",
            "`minimumReplicas` must be less than or equal to `maximumReplicas`",
        ),
    )


@dataclass(frozen=True, slots=True)
class Gateway:
    """The Deployment of the gateway. A change here replaces its pods, one by one."""

    image: str = text("", 512, "Image of the gateway; empty: the one of the operator.", IMAGE)
    image_pull_policy: ImagePull = choice(
        ImagePull.IF_NOT_PRESENT, "When a node fetches the image."
    )
    image_pull_secrets: tuple[str, ...] = texts(
        8,
        253,
        "Secrets in the policy's namespace with which the image is pulled; "
        "empty: those that the operator names.",
    )
    replicas: int = integer(1, 0, 64, "Gateway replicas; not used where `scaling` is given.")
    scaling: GatewayScaling | None = optional_section(
        GatewayScaling,
        "Number of replicas by their use of CPU, as metrics-server tells it; absent: `replicas`.",
    )
    service_port: int = integer(80, 1, 65535, "Port of the gateway's Service.")
    cpu_millicores: int = integer(250, 10, 64_000, "CPU that a replica requests.")
    memory_mebibytes: int = integer(
        256, 64, 65_536, "Memory that a replica requests, and its limit."
    )
    accept_seconds: int = integer(
        5, 0, 300, "How long a stopping replica still accepts, until no client is sent to it."
    )
    finish_seconds: int = integer(
        300, 1, 86_400, "How long a stopping replica may take to finish what it admitted."
    )
    disruption_budget: Switch = choice(
        Switch.ENABLED, "Whether at most one replica at a time may be evicted."
    )
    network_policy: Switch = choice(
        Switch.DISABLED, "Whether a NetworkPolicy limits what the gateway may talk to."
    )
    priority_class: str = text("", 253, "PriorityClass of the gateway's pods.", rf"|{OBJECT_NAME}")


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """The number of model pods by the work that is asked for, refused work included."""

    target_name: str = required_text(
        253, "Name of the object that holds the model pods.", OBJECT_NAME
    )
    target_kind: TargetKind = choice(TargetKind.DEPLOYMENT, "Kind of that object.")
    minimum_replicas: int = integer(
        1, 0, 1000, "Fewest model pods; 0 takes Kubernetes 1.37, or its gate HPAScaleToZero."
    )
    maximum_replicas: int = integer(4, 1, 1000, "Most model pods.")
    target_utilisation_percent: int = integer(
        70, 10, 95, "Share of its engine's time that a model pod is to be busy."
    )
    scale_down_stabilisation_seconds: int | None = optional_integer(
        0,
        3600,
        "How long the need must have been lower; absent: five times as long as the pods took to "
        "start, 300 at least.",
    )
    tolerance_percent: int | None = optional_integer(
        0,
        100,
        "Share of the target within which the count stays; absent: Kubernetes' 10. "
        "Takes Kubernetes 1.35.",
    )
    queue_wait: Switch = choice(
        Switch.DISABLED, "Whether the wait in the queue is a further signal."
    )
    target_queue_wait_milliseconds: int = integer(
        500, 1, 3_600_000, "Wait in the queue (95th percentile) to aim at."
    )
    rejections: Switch = choice(Switch.DISABLED, "Whether refused requests are a further signal.")
    target_rejections_per_pod_milli: int = integer(
        100, 1, 1_000_000, "Refused requests per second and model pod to aim at, in thousandths."
    )
    RULES: ClassVar = (
        (
            "self.minimumReplicas <= self.maximumReplicas",
            "`minimumReplicas` must be less than or equal to `maximumReplicas`",
        ),
    )
