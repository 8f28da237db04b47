"""BoundedHttpProtocol: HTTP/1.1 on one connection, with limits on the size and the time of a request's head.

uvicorn limits neither: an endless head would fill memory, and half a request would keep its connection open for ever.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536  # about: checked whenever bytes arrive
READ_TIMEOUT_S = 30.0  # for the head, and between two parts of a body


class BoundedHttpProtocol(HttpToolsProtocol):
    """Closed by `close_if_late`, which the server calls every second."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0  # bytes of an incomplete head; None outside a head
        self._waits_since: float | None = self.loop.time()  # for the client; None while the client waits for us

    def data_received(self, data: bytes) -> None:
        if self._head is None and self._waits_since is not None:
            self._waits_since = self.loop.time()
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
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
        """Close the connection if the client has not finished its request in time."""
        if self._waits_since is not None and now - self._waits_since > READ_TIMEOUT_S:
            self.transport.close()


def close_late_connections(connections: Any) -> None:
    """Close all connections whose client is late."""
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        if isinstance(connection, BoundedHttpProtocol):
            connection.close_if_late(now)
