"""The deadline a client asks for: `X-Deadline-Ms`, `deadline_ms`, or both (then the smaller).

A deadline is a whole number of milliseconds, counted from the first byte of the request. Whatever
else is written there is an error of the client, never "no deadline". Zero is a deadline: nothing
can meet it, so it is refused as unreachable.
"""

from __future__ import annotations

from multidict import CIMultiDictProxy, istr

from punctual_gateway.errors import RequestError

HEADER = istr("X-Deadline-Ms")
FIELD = "deadline_ms"
MOST_DIGITS = 18
"""More digits are a mistake; fewer are clamped to the policy's maximum."""


def header_deadline(headers: CIMultiDictProxy[str]) -> int | None:
    """Milliseconds from the header, None when absent; raises RequestError."""
    values = headers.getall(HEADER, ())
    if not values:
        return None
    if len(values) > 1:
        raise _invalid(HEADER, ", ".join(values))
    text = values[0].strip(" \t")
    if not text.isascii() or not text.isdigit() or len(text) > MOST_DIGITS:
        raise _invalid(HEADER, text)
    return int(text)


def body_deadline(fields: dict[str, object]) -> int | None:
    """Take `deadline_ms` out of the body, None when absent or null; raises RequestError."""
    value = fields.pop(FIELD, None)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 10**MOST_DIGITS:
        raise _invalid(FIELD, value)
    return value


def smaller(one: int | None, other: int | None) -> int | None:
    """The smaller of two deadlines, where None is no deadline."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _invalid(param: str, value: object) -> RequestError:
    shown = repr(value)[:60]
    return RequestError(
        400,
        f"{param} must be a whole number of milliseconds of at least 0, got {shown}",
        code="invalid_deadline",
        param=param,
    )
