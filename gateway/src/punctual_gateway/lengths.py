"""What was learned of the lengths of answers: in `/stats`, `/metrics` and the request to a pod."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from punctual_admission.output_length import ENOUGH, QUANTILES, Learned
from punctual_gateway.metrics import gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from punctual_admission.ledger import Ledger
    from punctual_admission.ticket import Ticket

EXPECTED_TOKENS = "X-Punctual-Expected-Tokens"


def expected_headers(ticket: Ticket) -> dict[str, str]:
    """What the pod is to expect of a length that was learned; empty: the maximum.

    The median, since a request is started if it fits more likely than not: the pod's last word
    then counts on what the gateway counted on.
    """
    if ticket.length is None:
        return {}
    return {EXPECTED_TOKENS: str(max(math.ceil(ticket.length.median), 1))}


def describe(ledger: Ledger) -> list[dict[str, Any]]:
    """The groups for `/stats`: shares of the maximum that answers used."""
    return [
        {
            "group": known.group.strip(),
            "maximum_tokens": known.maximum,
            "records": known.records,
            "cold": known.records < ENOUGH,
            "mean_share": round(known.mean, 4),
            "quantiles": {
                f"{quantile:g}": round(share, 4)
                for quantile, share in zip(QUANTILES, known.quantiles, strict=True)
            },
        }
        for known in ledger.lengths.describe()
    ]


def gauges(ledger: Ledger) -> Iterable[Metric]:
    """The same for `/metrics`."""
    groups = {_labels(known): known for known in ledger.lengths.describe()}
    records = {labels: float(known.records) for labels, known in groups.items()}
    yield gauge(
        "punctual_length_records", "Answers that lengths are learned from.", records, LABELS
    )
    shares = {
        (*labels, f"{quantile:g}"): share
        for labels, known in groups.items()
        for quantile, share in zip(QUANTILES, known.quantiles, strict=True)
    }
    text = "Share of the maximum that answers used."
    yield gauge("punctual_length_share", text, shares, (*LABELS, "quantile"))


LABELS = ("group", "maximum_tokens")


def _labels(known: Learned) -> tuple[str, ...]:
    return (known.group.strip(), str(known.maximum))
