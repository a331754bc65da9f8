"""Puts the chunks of a stream together to the answer that a client which does not stream gets."""

from __future__ import annotations

from typing import Any

import orjson

from punctual_gateway.call import Route

_SET_ONCE = frozenset({"role", "id", "type", "index"})
_CHUNK_ONLY = frozenset({"choices", "usage", "object"})


class Assembly:
    """Collects chunks; `body` is then the whole answer."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._head: dict[str, Any] = {}
        self._choice: dict[str, Any] = {}
        self._text: list[str] = []
        self._message: dict[str, Any] = {}
        self.usage: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        """Take one chunk."""
        for key, value in chunk.items():
            if key not in _CHUNK_ONLY:
                self._head.setdefault(key, value)
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in chunk["choices"]:
            self._take(choice)

    def _take(self, choice: dict[str, Any]) -> None:
        for key, value in choice.items():
            if key == "text":
                self._text.append(value or "")
            elif key == "delta":
                _merge(self._message, value or {})
            elif key == "finish_reason":
                self._choice[key] = value
            elif key == "index":
                self._choice.setdefault(key, value)
            elif value is not None:
                _merge(self._choice, {key: value})

    def body(self, prompt_tokens: int, generated: int) -> bytes:
        """The whole answer as JSON; usage is counted here where the pod did not tell it."""
        chat = self._route is Route.CHAT
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None}
        choice |= self._choice
        if chat:
            choice["message"] = {"role": "assistant", "content": None} | self._message
        else:
            choice["text"] = "".join(self._text)
        whole = dict(self._head)
        whole["object"] = "chat.completion" if chat else "text_completion"
        whole["choices"] = [choice]
        whole["usage"] = self.usage or {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": prompt_tokens + generated,
        }
        return orjson.dumps(whole)


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: texts and lists grow, objects merge, items with an index merge by it."""
    for key, value in delta.items():
        known = into.get(key)
        if known is None or key in _SET_ONCE:
            into[key] = _copied(value)
        elif isinstance(known, str) and isinstance(value, str):
            into[key] = known + value
        elif isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            _extend(known, value)
        elif value is not None:
            into[key] = value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        fresh: dict[str, Any] = {}
        _merge(fresh, value)
        return fresh
    if isinstance(value, list):
        grown: list[Any] = []
        _extend(grown, value)
        return grown
    return value


def _extend(known: list[Any], more: list[Any]) -> None:
    for item in more:
        index = item.get("index") if isinstance(item, dict) else None
        same = None
        if index is not None:
            same = next((one for one in known if one.get("index") == index), None)
        if same is None:
            known.append(_copied(item))
        else:
            _merge(same, item)
