"""Length-prefixed pickles over a socket pair between front and engine.

The front writes through its event loop and so never blocks on an engine that does not read; the
engine reads with a timeout and writes blocking. Both ends are one program: nothing else can write
to the pair, so pickle is safe here.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct

_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 16


class ChannelClosedError(ConnectionError):
    """The other end is gone."""


def pack(message: object) -> bytes:
    """Return the frame that carries `message`."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Puts messages together from whatever pieces arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[object]:
        """Take the next bytes and return the messages they complete, in order."""
        self._buffer += data
        messages: list[object] = []
        at = 0
        while (body := self._body_at(at)) is not None:
            messages.append(pickle.loads(self._buffer[body[0] : body[1]]))  # noqa: S301 - own end
            at = body[1]
        del self._buffer[:at]
        return messages

    def _body_at(self, at: int) -> tuple[int, int] | None:
        begin = at + _LENGTH.size
        if len(self._buffer) < begin:
            return None
        end = begin + int(_LENGTH.unpack_from(self._buffer, at)[0])
        return (begin, end) if len(self._buffer) >= end else None


class EngineChannel:
    """The engine's end: reads with a timeout, writes blocking.

    Raises:
        ChannelClosedError: the front process is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reader = FrameReader()
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def receive(self, timeout: float) -> list[object]:
        """Return the messages that are there, waiting at most `timeout` seconds for the first."""
        messages: list[object] = []
        wait_ms = timeout * 1000
        while self._poll.poll(wait_ms):
            wait_ms = 0
            messages += self._reader.feed(self._read())
        return messages

    def send(self, message: object) -> None:
        """Write one message."""
        try:
            self._socket.sendall(pack(message))
        except OSError as error:
            raise ChannelClosedError(str(error)) from error

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not data:
            raise ChannelClosedError("the front process closed the channel")
        return data
