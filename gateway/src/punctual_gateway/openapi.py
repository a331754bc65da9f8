"""The OpenAPI document of the gateway, at `/openapi.json`.

The generating routes are OpenAI's; described here is what the gateway reads of them and what it
adds. Every addition is optional: a client that knows none of them gets what it got without a
gateway.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import orjson

from punctual_gateway import errors
from punctual_gateway.upstream import Fault

Schema = dict[str, Any]
Headers = dict[str, tuple[str, Schema]]
"""Description and schema by name."""

REQUEST_HEADERS: Headers = {
    "X-Deadline-Ms": (
        "Whole milliseconds from the first byte of the request to the end of the answer. "
        "The smaller of this and `deadline_ms` counts.",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
    ),
    "X-Accept-Shorter": (
        "`true`: a shorter answer is taken where this one would be refused, if the policy makes "
        "counter-offers.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "X-Punctual-Tier": (
        "The request's tier, where the policy has tiers (which may name another header).",
        {"type": "string", "maxLength": 256},
    ),
    "X-Request-Id": (
        "Name of the request, passed on to the pod; made up when absent.",
        {"type": "string", "maxLength": 128},
    ),
}
ANSWER_HEADERS: Headers = {
    "X-Request-Id": ("Name of the request.", {"type": "string"}),
    "Server-Timing": (
        "Milliseconds: `queue;dur=`, and `service;dur=` (a stream: `first_token;dur=`).",
        {"type": "string"},
    ),
    "X-Queue-Predict-Wait": ("Predicted wait in seconds.", {"type": "number"}),
    "X-Punctual-Predicted-Ms": ("Predicted milliseconds in all.", {"type": "number"}),
    "X-Punctual-Deadline-Ms": ("The deadline that counted.", {"type": "integer"}),
    "X-Punctual-Max-Tokens": (
        "Present when `max_tokens` was clamped or shortened.",
        {"type": "integer"},
    ),
    "X-Punctual-Shortened-From": (
        "The `max_tokens` that was asked for, when a shorter answer was taken.",
        {"type": "integer"},
    ),
    "X-Punctual-Promise": (
        "`none`: it was let through without a promise, to learn how long such answers are.",
        {"type": "string", "enum": ["none"]},
    ),
    "X-Punctual-Would-Refuse": (
        "Reason it would have been refused for, under `enforcement: Observe`.",
        {"type": "string"},
    ),
}
REFUSAL_HEADERS: Headers = {
    "Retry-After": ("Whole seconds, 1 to 60.", {"type": "integer", "minimum": 1, "maximum": 60}),
    "retry-after-ms": ("The same in milliseconds.", {"type": "integer", "minimum": 1}),
    "x-should-retry": (
        "`false` when no retry can meet this deadline.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "X-Queue-Predict-Wait": ANSWER_HEADERS["X-Queue-Predict-Wait"],
    "X-Request-Id": ANSWER_HEADERS["X-Request-Id"],
    "X-Punctual-Deadline-Ms": ANSWER_HEADERS["X-Punctual-Deadline-Ms"],
}
FAILURES = {
    "400": "The request is wrong.",
    "404": "The model is not served here.",
    "408": "The body did not come in time.",
    "413": "The body is too long.",
    "429": "The client's quota is used up; or overload, where the policy says 429.",
    "502": "The pod broke.",
    "503": "Refused at arrival, or dropped from the queue.",
    "504": "Stopped at its deadline while it ran.",
}
PLAIN_ROUTES = {
    "/v1/models": ("The model that is served.", "application/json"),
    "/healthz": ("The process answers.", "application/json"),
    "/readyz": ("200: it wants traffic; 503: not yet, or no longer.", "application/json"),
    "/servingz": ("200: it answers, also while it stops; 503: not yet.", "application/json"),
    "/stats": ("The state of one moment.", "application/json"),
    "/signals": ("What an autoscaler reads.", "application/json"),
    "/metrics": ("The same for Prometheus.", "text/plain"),
    "/openapi.json": ("This document.", "application/json"),
}


@cache
def document() -> bytes:
    """The document as JSON."""
    return orjson.dumps(build_document())


def build_document() -> Schema:
    """The document: OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual gateway",
            "description": "Answers by the deadline, or a refusal at once.",
            "version": version("punctual-gateway"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            "/v1/completions": {"post": _generate("createCompletion", "Completion")},
            "/v1/chat/completions": {"post": _generate("createChatCompletion", "Chat")},
            "/v1/models/{model}": {"get": _model()},
            **{path: {"get": _plain(path, *route)} for path, route in PLAIN_ROUTES.items()},
        },
        "components": {
            "schemas": {
                "Completion": _request({"prompt": _prompt()}, "prompt"),
                "Chat": _request(
                    {
                        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
                        "max_completion_tokens": {"type": "integer", "minimum": 1},
                    },
                    "messages",
                ),
                "Error": _error(),
            }
        },
    }


def _generate(name: str, schema: str) -> Schema:
    answers = {
        "200": {
            "description": "OpenAI's answer, whole or as server-sent events, as the pod made it.",
            "headers": _headers(ANSWER_HEADERS),
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/event-stream": {"schema": {"type": "string"}},
            },
        }
    }
    for status, description in FAILURES.items():
        headers: Headers = REFUSAL_HEADERS if status in ("429", "503") else {}
        answers[status] = {
            "description": description,
            "headers": _headers(headers),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {
        "operationId": name,
        "parameters": _parameters(),
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": answers,
    }


def _parameters() -> list[Schema]:
    return [
        {"name": name, "in": "header", "description": text, "schema": schema}
        for name, (text, schema) in REQUEST_HEADERS.items()
    ]


def _headers(headers: Headers) -> Schema:
    return {
        name: {"description": text, "schema": schema} for name, (text, schema) in headers.items()
    }


def _model() -> Schema:
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "operationId": "retrieveModel",
        "parameters": [name],
        "responses": {
            "200": {"description": "The model."},
            "404": {"description": "It is not served here."},
        },
    }


def _plain(path: str, description: str, content: str) -> Schema:
    name = path.rsplit("/", 1)[1].partition(".")[0]
    schema: Schema = {"type": "object" if content == "application/json" else "string"}
    answers = {"200": {"description": description, "content": {content: {"schema": schema}}}}
    if path in ("/readyz", "/servingz"):
        answers["503"] = {"description": "Not ready.", "content": {content: {"schema": schema}}}
    return {"operationId": f"get{name.capitalize()}", "responses": answers}


def _prompt() -> Schema:
    tokens = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
    one = {"anyOf": [{"type": "string"}, tokens]}
    return {"anyOf": [*one["anyOf"], {"type": "array", "items": one, "maxItems": 1}]}


def _request(fields: Schema, required: str) -> Schema:
    return {
        "type": "object",
        "description": "All of OpenAI's fields are passed on; these are read.",
        "required": [required],
        "properties": {
            "model": {"type": "string"},
            "max_tokens": {
                "type": "integer",
                "minimum": 1,
                "description": "Absent: the policy's default. Clamped to what the context leaves.",
            },
            "stream": {"type": "boolean", "default": False},
            "n": {"const": 1},
            "deadline_ms": {
                "type": "integer",
                "minimum": 0,
                "description": "As `X-Deadline-Ms`. Zero can be met by nobody and is refused.",
            },
            **fields,
        },
    }


def _error() -> Schema:
    kinds = sorted({face.kind for face in errors.REASONS.values()} | OTHER_KINDS)
    codes = [reason.value for reason in errors.REASONS] + [fault.value for fault in Fault]
    return {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string", "enum": kinds},
                    "param": {"type": ["string", "null"]},
                    "code": {
                        "type": ["string", "null"],
                        "description": "Why, stable.",
                        "examples": codes,
                    },
                    "punctual": {
                        "type": "object",
                        "description": "The numbers behind the decision.",
                        "additionalProperties": {"type": ["number", "null"]},
                    },
                },
            }
        },
    }


OTHER_KINDS = {errors.INVALID_REQUEST, errors.UPSTREAM_ERROR, errors.SERVER_ERROR}
