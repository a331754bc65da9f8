"""The HTTP face: routes, the error envelope, and what is told of the server's state."""

from __future__ import annotations

import logging
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from punctual_model_server.capacity import Capacity
from punctual_model_server.completions import Completions
from punctual_model_server.engine_client import Engine
from punctual_model_server.errors import ApiError
from punctual_model_server.headers import REQUEST_ID, read_request_id
from punctual_model_server.metrics import Metrics
from punctual_model_server.settings import Settings
from punctual_model_server.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_JSON: Final = "application/json"
_CLIENT_LEFT: Final = 499  # nobody reads it; aiohttp wants some answer


class Front:
    """The application over one engine."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        capacity: Capacity,
        metrics: Metrics,
        tokenizer: Tokenizer,
    ) -> None:
        self.completions = Completions(
            settings, engine, capacity, metrics, tokenizer, self._headers
        )
        self._settings = settings
        self._engine = engine
        self._capacity = capacity
        self._metrics = metrics
        self._identity = {
            "X-Punctual-Model": settings.served_model_name,
            "X-Punctual-Instance": capacity.instance,
        }

    def build_app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(
            middlewares=[self._envelope], client_max_size=self._settings.max_body_bytes
        )
        app.router.add_post("/v1/completions", self.completions.handle)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/capacity", self._get_capacity)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._get_metrics)
        return app

    @web.middleware
    async def _envelope(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every failure into the error envelope, with the identity headers."""
        allowed: dict[str, str] = {}
        try:
            return await handler(request)
        except ApiError as error:
            failure = error
        except web.HTTPException as error:
            failure = ApiError(error.status, _reason(request, error), code=_code(error.status))
            allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        except ConnectionError:  # the client left while it was being written to
            return web.Response(status=_CLIENT_LEFT)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            failure = ApiError(500, "internal error", kind="server_error", code="internal_error")
        self._metrics.observe_error(failure.code or failure.kind)
        return failure.response(self._headers(read_request_id(request.headers)) | allowed)

    def _headers(self, name: str) -> dict[str, str]:
        return {**self._identity, REQUEST_ID: name}

    async def _models(self, _: web.Request) -> web.Response:
        ready = self._engine.ready
        entry = {
            "id": self._settings.served_model_name,
            "object": "model",
            "created": int(ready.calibration.calibrated_at) if ready else 0,
            "owned_by": "punctual",
            "max_model_len": ready.max_context if ready else None,
        }
        return self._json({"object": "list", "data": [entry]})

    async def _get_capacity(self, _: web.Request) -> web.Response:
        return self._json(self._capacity.document())

    async def _healthz(self, _: web.Request) -> web.Response:
        """200 while the front answers and the engine is heard of."""
        engine, limit = self._engine, self._settings.stuck_seconds
        silent = engine.ready is not None and engine.age_seconds > limit
        healthy = engine.state != "dead" and not silent
        body = {"state": engine.state, "age_seconds": engine.age_seconds}
        return self._json(body, 200 if healthy else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        """200 once calibrated, until a drain begins."""
        state = self._engine.state
        return self._json({"state": state}, 200 if state == "ready" else 503)

    async def _get_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _json(self, document: object, status: int = 200) -> web.Response:
        return web.Response(
            status=status,
            body=orjson.dumps(document),
            content_type=_JSON,
            headers=self._identity,
        )


def _reason(request: web.Request, error: web.HTTPException) -> str:
    if error.status == web.HTTPNotFound.status_code:
        return f"there is no {request.method} {request.path}"
    return error.text or error.reason


def _code(status: int) -> str:
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    return codes.get(status, "invalid_request")
