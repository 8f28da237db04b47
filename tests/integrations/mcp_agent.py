"""The official client of MCP, for tests: with a real process, or with a server in this one."""

import contextlib
import functools
import json
import os
import sys

from anyio.from_thread import start_blocking_portal

from rasp_tuner.client import AsyncClient
from tests.later import Later

mcp, mcp_server = Later("mcp"), Later("rasp_tuner.integrations.mcp_server")


@contextlib.asynccontextmanager
async def by_process(url, key, words, errors):
    """A session of the official client with a real process; a warning would end it."""
    env = {name: value for name, value in os.environ.items() if name != "RASP_KEY"}
    args = ["-W", "error", "-m", "rasp_tuner", "mcp", "--url", url, *words]
    command = mcp.StdioServerParameters(
        command=sys.executable, args=args, env={**env, **({"RASP_KEY": key} if key else {})}
    )
    async with mcp.stdio_client(command, errlog=errors) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        yield session


@contextlib.asynccontextmanager
async def in_memory(url, key, read_only=False, timeout=5.0):
    """The official client with a server in this process, which takes no time to start."""
    async with (
        AsyncClient(url, key, timeout=timeout, ask_deadline=None) as client,
        mcp.Client(mcp_server.server_of(client, read_only=read_only)) as session,
    ):
        yield session


class Agent:
    """Calls of a session, from code without an event loop."""

    def __init__(self, portal, session):
        self.portal, self.session = portal, session

    def __getattr__(self, name):
        method = getattr(self.session, name)
        return lambda *args: self.portal.call(functools.partial(method, *args))

    def ok(self, tool, **arguments):
        """The structured answer; the text is the same."""
        result = self.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    def error(self, tool, **arguments):
        """The sentence of a refused call."""
        result = self.call_tool(tool, arguments)
        assert result.is_error
        assert result.structured_content is None
        text = result.content[0].text
        assert "\n" not in text
        assert "cannot read" not in text
        return text


@contextlib.contextmanager
def agent(session):
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(session) as opened:
        yield Agent(portal, opened)
