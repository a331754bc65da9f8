"""OpenAI completions: reading and checking a request, writing answers and stream chunks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import orjson

from punctual_model_server.errors import ApiError, bad_request
from punctual_model_server.tokenizer import LONGEST_TOKEN_BYTES, Tokenizer

DONE: Final = b"data: [DONE]\n\n"
DEFAULT_MAX_TOKENS: Final = 16
_MOST_STOPS: Final = 4
_LONGEST_STOP: Final = 256
_SEED_LIMIT: Final = 1 << 63
# Fields that this server has no use for: accepted only at the value that changes nothing.
_NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (0,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


@dataclass(frozen=True, slots=True)
class Completion:
    """A checked request. `seed` is `None` when the caller left the choice to the server."""

    prompt: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None
    stops: tuple[str, ...]
    stream: bool
    include_usage: bool
    ignore_eos: bool
    return_token_ids: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request is checked against."""

    model: str
    max_context: int
    vocabulary: int


def parse_completion(body: bytes, limits: Limits, tokenizer: Tokenizer) -> Completion:
    """Read the body of `POST /v1/completions`.

    Raises:
        ApiError: 400 with the parameter's name, or 404 for a model that is not served here.
    """
    fields = _object(body)
    _check_model(fields.get("model"), limits.model)
    for name, allowed in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and not any(value == a for a in allowed):
            raise bad_request(f"{name} must be {allowed[0]!r} or absent, got {_shown(value)}", name)
    options = _mapping(fields, "stream_options")
    completion = Completion(
        prompt=_prompt(fields.get("prompt"), limits, tokenizer),
        max_tokens=_integer(fields, "max_tokens", DEFAULT_MAX_TOKENS, 1, 1 << 31),
        temperature=_number(fields, "temperature", 1.0, 0.0, 2.0),
        top_p=_top_p(fields),
        seed=_seed(fields),
        stops=_stops(fields.get("stop")),
        stream=_flag(fields, "stream"),
        include_usage=_flag(options, "include_usage"),
        ignore_eos=_flag(fields, "ignore_eos"),
        return_token_ids=_flag(fields, "return_token_ids"),
    )
    _check_context(completion, limits.max_context)
    return completion


class Writer:
    """Writes the JSON of one answer; the constant parts are prepared once."""

    def __init__(self, answer_id: str, model: str, include_usage: bool, token_ids: bool) -> None:
        self._head: dict[str, object] = {
            "id": answer_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        prefix = orjson.dumps(self._head)[:-1]
        self._prefix = b"data: " + prefix + b',"choices":[{"index":0,"logprobs":null,"text":'
        self._suffix = b'}],"usage":null}\n\n' if include_usage else b"}]}\n\n"
        self._open = b',"finish_reason":null' + self._suffix
        self._token_ids = token_ids

    def chunk(self, text: str, token: int, finish: str | None) -> bytes:
        """Return the event of one token."""
        if finish is None and not self._token_ids:
            return self._prefix + orjson.dumps(text) + self._open
        ids = b',"token_ids":[%d]' % token if self._token_ids and token >= 0 else b""
        reason = orjson.dumps(finish)
        return b"".join(
            (self._prefix, orjson.dumps(text), ids, b',"finish_reason":', reason, self._suffix)
        )

    def usage_chunk(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """Return the event that carries the token counts."""
        usage = _usage(prompt_tokens, completion_tokens)
        return b"data: " + orjson.dumps(self._head | {"choices": [], "usage": usage}) + b"\n\n"

    def whole(self, text: str, tokens: list[int], finish: str | None, prompt_tokens: int) -> bytes:
        """Return the body of an answer that is not streamed."""
        choice: dict[str, object] = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
        }
        if self._token_ids:
            choice["token_ids"] = tokens
        usage = _usage(prompt_tokens, len(tokens))
        return orjson.dumps(self._head | {"choices": [choice], "usage": usage})


def error_event(error: ApiError) -> bytes:
    """Return the stream event that tells of a failure after the answer has begun."""
    return b"data: " + error.body() + b"\n\n"


def _usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def _object(body: bytes) -> dict[str, object]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body must be JSON: {error}", code="invalid_json") from error
    if not isinstance(fields, dict):
        raise bad_request(
            f"the body must be a JSON object, got {_shown(fields)}", code="invalid_json"
        )
    return fields


def _check_model(value: object, served: str) -> None:
    if value is None or value == served:
        return
    if not isinstance(value, str):
        raise bad_request(f"model must be a string, got {_shown(value)}", "model")
    raise ApiError(
        404,
        f"model {_shown(value)} is not served here; the model must be {served!r}",
        code="model_not_found",
        param="model",
    )


def _check_context(completion: Completion, max_context: int) -> None:
    prompt, wanted = len(completion.prompt), completion.max_tokens
    if prompt + wanted > max_context:
        raise bad_request(
            f"prompt ({prompt} tokens) plus max_tokens ({wanted}) must be at most the context of"
            f" {max_context} tokens",
            "max_tokens" if prompt < max_context else "prompt",
            "context_length_exceeded",
        )


def _prompt(value: object, limits: Limits, tokenizer: Tokenizer) -> list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return _encode(value, limits, tokenizer)
    if not isinstance(value, list) or not value:
        raise bad_request(
            f"prompt must be a string, a list of token ids, or a list of one of these;"
            f" got {_shown(value)}",
            "prompt",
        )
    for token in value:
        if type(token) is not int or not 0 <= token < limits.vocabulary:
            raise bad_request(
                f"token ids in prompt must be integers from 0 to {limits.vocabulary - 1},"
                f" got {_shown(token)}",
                "prompt",
            )
    return value


def _encode(text: str, limits: Limits, tokenizer: Tokenizer) -> list[int]:
    # No token is longer than this: a text beyond it cannot fit, and need not be tokenized to know.
    if len(text) > limits.max_context * LONGEST_TOKEN_BYTES:
        raise bad_request(
            f"prompt of {len(text)} characters must fit the context of {limits.max_context} tokens",
            "prompt",
            "context_length_exceeded",
        )
    return tokenizer.encode(text)


def _stops(value: object) -> tuple[str, ...]:
    values = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) > _MOST_STOPS:
        raise bad_request(
            f"stop must be a string or a list of at most {_MOST_STOPS}, got {_shown(value)}", "stop"
        )
    for stop in values:
        if not isinstance(stop, str) or not 1 <= len(stop) <= _LONGEST_STOP:
            raise bad_request(
                f"each stop must be a string of 1 to {_LONGEST_STOP} characters, got"
                f" {_shown(stop)}",
                "stop",
            )
    return tuple(values)


def _integer(fields: dict[str, object], name: str, default: int, lowest: int, highest: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not lowest <= value <= highest:
        raise bad_request(
            f"{name} must be an integer from {lowest} to {highest}, got {_shown(value)}", name
        )
    return value


def _seed(fields: dict[str, object]) -> int | None:
    if fields.get("seed") is None:
        return None
    return _integer(fields, "seed", 0, -_SEED_LIMIT, _SEED_LIMIT - 1)


def _number(
    fields: dict[str, object], name: str, default: float, lowest: float, highest: float
) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad_request(f"{name} must be a number, got {_shown(value)}", name)
    if not lowest <= value <= highest:
        raise bad_request(f"{name} must be from {lowest} to {highest}, got {_shown(value)}", name)
    return float(value)


def _top_p(fields: dict[str, object]) -> float:
    value = _number(fields, "top_p", 1.0, 0.0, 1.0)
    if value == 0.0:
        raise bad_request("top_p must be above 0 and at most 1, got 0", "top_p")
    return value


def _flag(fields: dict[str, object], name: str) -> bool:
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise bad_request(f"{name} must be true or false, got {_shown(value)}", name)
    return value


def _mapping(fields: dict[str, object], name: str) -> dict[str, object]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be an object, got {_shown(value)}", name)
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
