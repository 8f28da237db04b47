"""Protocol: HTTP/1.1 on one connection, parsed by httptools, with bounds on a request's head and on waiting for it.

uvicorn bounds neither there: a head without end would fill memory, half a request would hold its connection for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 65_536  # bytes, about: looked at whenever some arrive
READ_S = 30.0  # for a head to arrive, and between two pieces of a body


class Protocol(HttpToolsProtocol):
    """Closed by `close_if_late`, which the server calls every second."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0  # bytes of a head that is not whole; None outside of one
        self._waits_since: float | None = self.loop.time()  # for the client; None while it waits for us

    def data_received(self, data: bytes) -> None:
        if self._head is None and self._waits_since is not None:
            self._waits_since = self.loop.time()
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._waits_since = 0, self.loop.time()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._waits_since = None
        super().on_message_complete()

    def close_if_late(self, now: float) -> None:
        """Close the connection if the client has begun a request, or none at all, and does not go on."""
        if self._waits_since is not None and now - self._waits_since > READ_S:
            self.transport.close()


def close_late(connections: Any) -> None:
    """Of all connections, those whose client keeps the server waiting."""
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        if isinstance(connection, Protocol):
            connection.close_if_late(now)
