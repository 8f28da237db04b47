"""The client by which a server talks to another: kept connections, long answers, servers that go away."""

import asyncio

import pytest

from rasp_tuner.service.http.peer_client import MAX_BUFFERED_BYTES, NotSent, PeerClient

LONG = 3 * MAX_BUFFERED_BYTES


class Peer:
    """A server that answers by the path of the request."""

    def __init__(self):
        self.connections, self.heads = 0, []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()

    async def _talk(self, reader, writer):
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                _, _, length = head.lower().partition(b"content-length: ")
                body = await reader.readexactly(int(length.split(b"\r\n")[0])) if length else b""
                path = head.split()[1]
                if path == b"/echo":
                    writer.write(
                        b"HTTP/1.1 201 Created\r\nX-One: 1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
                    )
                elif path == b"/long":
                    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    for start in range(0, LONG, 65_536):
                        part = b"x" * min(65_536, LONG - start)
                        writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                        await writer.drain()
                    writer.write(b"0\r\n\r\n")
                elif path == b"/half":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                    return
                elif path == b"/garbage":
                    writer.write(b"not HTTP at all\r\n\r\n")
                else:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def talking(test):
    async def run():
        client = PeerClient()
        async with Peer() as peer:
            try:
                await asyncio.wait_for(test(client, peer), 30.0)
            finally:
                client.close()

    asyncio.run(run())


def test_a_connection_is_kept_for_the_next_request():
    async def test(client, peer):
        for i in range(5):
            answer = await client.send(peer.url, "POST", b"/echo", [(b"authorization", b"Bearer k")], b"body %d" % i)
            assert (answer.status, dict(answer.headers)[b"x-one"]) == (201, b"1")
            assert await answer.read() == b"body %d" % i
            answer.close()
        assert peer.connections == 1
        assert b"authorization: Bearer k\r\n" in peer.heads[0]
        left = await client.send(peer.url, "GET", b"/long", [])
        left.close()  # not read to its end: the connection is of no more use
        answer = await client.send(peer.url, "POST", b"/echo", [])
        assert await answer.read() == b""
        assert peer.connections == 2

    talking(test)


def test_a_long_answer_is_taken_as_fast_as_it_is_passed_on():
    async def test(client, peer):
        answer = await client.send(peer.url, "GET", b"/long", [])
        size, most = 0, 0
        async for part in answer.parts():
            size += len(part)
            most = max(most, answer._source._buffered)
            await asyncio.sleep(0)
        assert size == LONG
        assert most < 2 * MAX_BUFFERED_BYTES
        answer.close()

    talking(test)


def test_a_server_that_goes_away_is_told_from_one_that_is_not_there():
    async def test(client, peer):
        for path in (b"/gone", b"/garbage"):
            with pytest.raises(ConnectionError) as lost:
                await client.send(peer.url, "GET", path, [])
            assert not isinstance(lost.value, NotSent)
        answer = await client.send(peer.url, "GET", b"/half", [])
        with pytest.raises(ConnectionError):
            await answer.read()
        answer.close()
        with pytest.raises(NotSent):
            await client.send("http://127.0.0.1:9", "GET", b"/echo", [])
        answer = await client.send(peer.url, "GET", b"/echo", [])
        assert await answer.read() == b""
        answer.close()

    talking(test)
