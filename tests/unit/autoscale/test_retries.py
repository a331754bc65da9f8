"""Which arrivals are retries of one logical request."""

from __future__ import annotations

import pytest

from punctual_gateway.signals import REMEMBERED_NAMES, REMEMBERED_SECONDS, Retries


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Request-Id"])
def test_same_name_is_the_same_request(name: str) -> None:
    retries = Retries()
    assert not retries.is_retry({name: "a"}, 0.0)
    assert retries.is_retry({name: "a"}, 1.0)
    assert not retries.is_retry({name: "b"}, 1.0)


@pytest.mark.parametrize(
    ("count", "retry"), [("0", False), ("1", True), ("17", True), ("", False), ("-1", False),
                         ("x", False), ("²", False), ("9" * 5000, True)],
)  # fmt: skip
def test_client_that_numbers_its_retries_is_believed(count: str, retry: bool) -> None:
    assert Retries().is_retry({"x-stainless-retry-count": count}, 0.0) is retry


def test_requests_without_a_name_are_all_new() -> None:
    retries = Retries()
    assert not retries.is_retry({}, 0.0)
    assert not retries.is_retry({"X-Request-Id": ""}, 0.0)
    assert not retries.is_retry({"X-Request-Id": ""}, 0.0)


def test_name_is_forgotten_after_its_time() -> None:
    retries = Retries()
    retries.is_retry({"X-Request-Id": "a"}, 0.0)
    assert not retries.is_retry({"X-Request-Id": "a"}, REMEMBERED_SECONDS + 1)


def test_memory_of_names_is_bounded() -> None:
    retries = Retries()
    for index in range(REMEMBERED_NAMES + 100):
        retries.is_retry({"X-Request-Id": str(index)}, 0.0)
    assert len(retries._seen) <= REMEMBERED_NAMES + 1
