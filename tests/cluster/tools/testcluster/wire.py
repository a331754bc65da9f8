"""A TCP connection between a client and the API server that a test can cut or freeze."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit

CHUNK = 65536
POLL_SECONDS = 0.05


class Wire:
    """Listens on 127.0.0.1 and carries every connection on to `server` (a URL).

    `cut` closes what is open, as a restarted load balancer does; `freeze` carries nothing on and
    closes nothing, as a lost route does; `restore` accepts and carries new connections again (what
    was open while frozen stays silent).
    """

    def __init__(self, server: str) -> None:
        target = urlsplit(server)
        self._target = (target.hostname or "127.0.0.1", target.port or 443)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.server = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._links: list[_Link] = []
        self._frozen = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> int:
        """Close all open connections and return how many there were."""
        with self._lock:
            links, self._links = self._links, []
        alive = [link for link in links if link.is_open]
        for link in links:
            link.close()
        return len(alive)

    def freeze(self) -> int:
        """Let nothing through any more, without a word; return how many connections were open."""
        self._frozen.set()
        with self._lock:
            alive = [link for link in self._links if link.is_open]
        for link in alive:
            link.silence()
        return len(alive)

    def restore(self) -> None:
        """Carry new connections again."""
        self._frozen.clear()

    def close(self) -> None:
        """Cut everything and stop listening."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        self.cut()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            link = _Link(client)
            with self._lock:
                self._links.append(link)
            if self._frozen.is_set():
                link.silence()
            else:
                link.connect(self._target)


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket) -> None:
        self._sockets = [client]
        self._silent = threading.Event()
        self._done = threading.Event()

    @property
    def is_open(self) -> bool:
        return not self._done.is_set()

    def connect(self, target: tuple[str, int]) -> None:
        try:
            server = socket.create_connection(target, timeout=5)
        except OSError:
            self.close()
            return
        client = self._sockets[0]
        self._sockets.append(server)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def silence(self) -> None:
        self._silent.set()

    def close(self) -> None:
        self._done.set()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        while not self._done.is_set() and not self._silent.is_set():
            try:
                if not select.select([source], [], [], POLL_SECONDS)[0]:
                    continue
                data = source.recv(CHUNK)
                if not data or self._silent.is_set():
                    break
                sink.sendall(data)
            except (OSError, ValueError):
                break  # one of the two was closed meanwhile
        if not self._silent.is_set():
            self.close()
