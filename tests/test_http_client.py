"""Requests to servers: kept connections, long answers, servers that go away, proxies."""

import asyncio
import contextlib
import ssl
import subprocess

import pytest

from rasp_tuner import http_client
from rasp_tuner.http_client import MAX_BUFFERED_BYTES, HttpClient, NotSent

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
                elif path == b"/until-the-end":
                    writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
                    return
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


async def send(client, server, *words):
    return await client.send(await client.connect(server), *words)


def talking(test):
    async def run():
        client = HttpClient(2.0)
        async with Peer() as peer:
            try:
                await asyncio.wait_for(test(client, peer), 30.0)
            finally:
                client.close()
        if talks := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(talks, timeout=30.0)  # they end with their connections

    asyncio.run(run())


def test_a_connection_is_kept_for_the_next_request():
    async def test(client, peer):
        for i in range(5):
            answer = await send(client, peer.url, "POST", b"/echo", [(b"authorization", b"Bearer k")], b"body %d" % i)
            assert (answer.status, answer.headers[b"x-one"]) == (201, b"1")
            assert await answer.read() == b"body %d" % i
            answer.close()
        assert peer.connections == 1
        assert b"authorization: Bearer k\r\n" in peer.heads[0]
        left = await send(client, peer.url, "GET", b"/long", [])
        left.close()  # not read to its end: the connection is of no more use
        answer = await send(client, peer.url, "POST", b"/echo", [])
        assert await answer.read() == b""
        assert peer.connections == 2

    talking(test)


def test_a_long_answer_is_taken_as_fast_as_it_is_passed_on():
    async def test(client, peer):
        answer = await send(client, peer.url, "GET", b"/long", [])
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
                await send(client, peer.url, "GET", path, [])
            assert not isinstance(lost.value, NotSent)
        answer = await send(client, peer.url, "GET", b"/half", [])
        with pytest.raises(ConnectionError):
            await answer.read()
        answer.close()
        with pytest.raises(NotSent):
            await send(client, "http://127.0.0.1:9", "GET", b"/echo", [])
        answer = await send(client, peer.url, "GET", b"/echo", [])
        assert await answer.read() == b""
        answer.close()

    talking(test)


def test_an_answer_without_a_length_ends_with_its_connection():
    async def test(client, peer):
        answer = await send(client, peer.url, "GET", b"/until-the-end", [])
        assert await answer.read() == b"all of it"
        answer.close()
        answer = await send(client, peer.url, "POST", b"/echo", [], b"next")
        assert await answer.read() == b"next"
        assert peer.connections == 2

    talking(test)


def test_a_proxy_of_the_environment_is_used_where_it_is_wanted(monkeypatch):
    async def test(client, peer):
        monkeypatch.setenv("http_proxy", peer.url.replace("http://", "http://me:p%40ss@"))
        monkeypatch.setenv("https_proxy", peer.url)
        monkeypatch.setenv("no_proxy", "near.example")
        through = HttpClient(2.0, proxies=True)
        with pytest.raises(ConnectionError):  # it knows no such path
            await send(through, "http://far.example:81", "GET", b"/v1", [])
        assert peer.heads[0].startswith(b"GET http://far.example:81/v1 HTTP/1.1\r\nhost: far.example:81\r\n")
        assert b"proxy-authorization: Basic bWU6cEBzcw==\r\n" in peer.heads[0]
        with pytest.raises(NotSent):
            await through.connect("https://far.example")
        assert peer.heads[1].startswith(b"CONNECT far.example:443 HTTP/1.1\r\n")
        for other in (client.connect("http://far.example:81"), through.connect("http://near.example:81")):
            with pytest.raises(NotSent):
                await other
        assert len(peer.heads) == 2
        through.close()

    talking(test)


def test_a_server_is_known_by_its_certificate_also_behind_a_proxy(monkeypatch, tmp_path):
    key, certificate, name = tmp_path / "key.pem", tmp_path / "certificate.pem", "subjectAltName=DNS:localhost"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", name]
    subprocess.run([*words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(certificate, key)
    tunnels = []

    async def tunnel(reader, writer):
        tunnels.append((await reader.readuntil(b"\r\n\r\n")).split()[1])
        there, back = await asyncio.open_connection("127.0.0.1", int(tunnels[0].split(b":")[1]))
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

        async def pass_on(source, sink):
            with contextlib.suppress(ConnectionError):
                while part := await source.read(65_536):
                    sink.write(part)
            sink.close()
            await sink.wait_closed()

        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async def test(client, peer):
        target = await asyncio.start_server(peer._talk, "127.0.0.1", 0, ssl=secure)
        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        url = f"https://localhost:{target.sockets[0].getsockname()[1]}"
        with pytest.raises(NotSent, match="certificate verify failed"):
            await client.connect(url)
        monkeypatch.setattr(http_client, "_trusted", lambda: ssl.create_default_context(cafile=certificate))
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        through = HttpClient(5.0, proxies=True)
        for each in (client, through, through):
            answer = await send(each, url, "POST", b"/echo", [], b"hidden")
            assert await answer.read() == b"hidden"
            answer.close()
        assert len(tunnels) == 1  # kept for the second
        through.close()
        target.close()
        proxy.close()

    talking(test)
