"""One row per request: what was planned, what came back. Rows are kept as JSON lines."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import orjson

from punctual_admission.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class RequestRow:
    """One request of a trace and how it ended.

    Times in `_at` are seconds from the start of the run; durations are milliseconds from the
    moment the (last) attempt was sent. `None` means that the answer did not say. `outcome`,
    `status` and `latency_ms` belong to the last attempt; `total_ms` runs from the first attempt's
    start.
    """

    index: int
    planned_at: float
    sent_at: float
    deadline_ms: int | None
    prompt_tokens: int
    tokens_wanted: int
    tokens_received: int
    outcome: Outcome
    status: int | None
    latency_ms: float
    total_ms: float
    attempts: int = 1
    ttft_ms: float | None = None
    predicted_ms: float | None = None
    predicted_wait_ms: float | None = None
    queue_ms: float | None = None
    service_ms: float | None = None
    refusal_type: str | None = None
    refusal_code: str | None = None
    retry_after_ms: float | None = None
    request_id: str | None = None
    tier: str = ""
    error: str | None = None

    @property
    def lag_ms(self) -> float:
        """How much later than planned the generator sent the first attempt."""
        return (self.sent_at - self.planned_at) * 1e3


def write_rows(path: Path, rows: Iterable[RequestRow]) -> None:
    """Write rows as JSON lines, one request a line, in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(orjson.dumps(asdict(row), option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def read_rows(path: Path) -> list[RequestRow]:
    """Read rows written by `write_rows`. Raises ValueError naming the line that is no row."""
    with path.open("rb") as file:
        return [_parse(path, number, line) for number, line in enumerate(file, start=1)]


def _parse(path: Path, number: int, line: bytes) -> RequestRow:
    known = {field.name for field in fields(RequestRow)}
    try:
        values = orjson.loads(line)
        row = {key: value for key, value in values.items() if key in known}
        return RequestRow(**{**row, "outcome": Outcome(row["outcome"])})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        msg = f"{path} line {number}: not a request row ({error!r})"
        raise ValueError(msg) from error
