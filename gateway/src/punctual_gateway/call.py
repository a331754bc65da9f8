"""One call of the API, parsed: what the decision needs and what goes to the pod."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from punctual_admission.policy import Policy
from punctual_gateway.deadlines import body_deadline
from punctual_gateway.errors import RequestError
from punctual_gateway.strict_json import JsonError, parse_object
from punctual_gateway.tokens import TokenCounter

MOST_TOKENS = 1_000_000_000
"""`max_tokens` above this is a mistake; below it is clamped to the context."""


class Route(StrEnum):
    """The routes that generate."""

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"


@dataclass(slots=True)
class Call:
    """A valid call. `prompt_tokens` is exact, or an estimate that is rather too high."""

    route: Route
    fields: dict[str, Any]
    prompt_tokens: int
    exact: bool
    max_tokens: int
    clamped: bool
    """Whether the client asked for more tokens than the context holds."""
    stream: bool
    deadline_ms: int | None
    accepts_shorter: bool = False
    """Whether the caller takes a shorter answer where this one would be refused."""
    shortened_from: int | None = None
    """What it asked for, if it got less."""

    def shorten(self, tokens: int) -> None:
        """Ask the pod for so many tokens only."""
        self.shortened_from, self.max_tokens = self.max_tokens, tokens

    def upstream_body(self) -> bytes:
        """The body for the pod: what was read, said again, and always streamed."""
        fields = self.fields
        fields["stream"] = True
        name = "max_tokens"
        if self.route is Route.CHAT and "max_completion_tokens" in fields:
            name = "max_completion_tokens"
        fields[name] = self.max_tokens
        if not self.stream:
            fields["stream_options"] = {"include_usage": True}
        return orjson.dumps(fields)


def parse_call(
    route: Route, body: bytes, policy: Policy, counter: TokenCounter, context: int | None
) -> Call:
    """Parse a body; raises RequestError. `context` is the pods' context in tokens, if known."""
    try:
        fields = parse_object(body)
    except JsonError as error:
        raise RequestError(400, str(error), code="invalid_json") from error
    deadline_ms = body_deadline(fields)
    _check_model(fields, policy.model)
    _check_single(fields)
    stream = _flag(fields, "stream")
    read_prompt = _read_prompt if route is Route.COMPLETIONS else _read_messages
    prompt_tokens, exact = read_prompt(fields, counter)
    wanted = _read_max_tokens(fields, route)
    wanted = policy.requests.default_max_tokens if wanted is None else wanted
    max_tokens = _clamp(wanted, prompt_tokens, exact, context)
    return Call(
        route, fields, prompt_tokens, exact, max_tokens,
        clamped=max_tokens < wanted, stream=stream, deadline_ms=deadline_ms,
    )  # fmt: skip


def _check_model(fields: dict[str, Any], served: str) -> None:
    model = fields.get("model")
    if model is None:
        # Said explicitly to the pod, so that both mean the same one.
        fields["model"] = served
    elif not isinstance(model, str):
        raise _wrong("model", "a string", model)
    elif model != served:
        raise RequestError(
            404,
            f"model must be '{served}', got {model[:80]!r}",
            code="model_not_found",
            param="model",
        )


def _check_single(fields: dict[str, Any]) -> None:
    for name in ("n", "best_of"):
        value = fields.get(name)
        if value is not None and (type(value) is not int or value != 1):
            raise _wrong(name, "1: a promise is about one answer", value)


def _flag(fields: dict[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _wrong(name, "true or false", value)


def _read_max_tokens(fields: dict[str, Any], route: Route) -> int | None:
    names: tuple[str, ...] = ("max_tokens",)
    if route is Route.CHAT:
        names = ("max_completion_tokens", "max_tokens")
    for name in names:
        value = fields.get(name)
        if value is None:
            fields.pop(name, None)
            continue
        if type(value) is not int or not 1 <= value <= MOST_TOKENS:
            raise _wrong(name, f"an integer from 1 to {MOST_TOKENS}", value)
        return value
    return None


def _read_prompt(fields: dict[str, Any], counter: TokenCounter) -> tuple[int, bool]:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return counter.text(prompt)
    if isinstance(prompt, list) and set(map(type, prompt)) == {int} and min(prompt) >= 0:
        return len(prompt), True
    raise _wrong("prompt", "a string, a list of token ids, or a list of one of these", prompt)


def _read_messages(fields: dict[str, Any], counter: TokenCounter) -> tuple[int, bool]:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", "a list of at least one message", messages)
    for message in messages:
        if not isinstance(message, dict):
            raise _wrong("messages", "a list of objects", message)
    return counter.messages(messages), False


def _clamp(wanted: int, prompt_tokens: int, exact: bool, context: int | None) -> int:
    """As many tokens as the context leaves; raises RequestError when it leaves none."""
    if context is None:
        return wanted
    left = context - prompt_tokens
    if not exact:
        # The estimate may be too high: the pod, which counts, has the last word.
        return wanted if wanted < context else max(left, 1)
    if left > 0:
        return min(wanted, left)
    raise RequestError(
        400,
        f"prompt must be shorter than the context of {context} tokens, got {prompt_tokens}",
        code="context_length_exceeded",
        param="prompt",
    )


def _wrong(name: str, allowed: str, value: object) -> RequestError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return RequestError(
        400, f"{name} must be {allowed}, got {shown}", code="invalid_value", param=name
    )
