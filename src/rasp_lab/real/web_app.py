"""The application behind web_server.py: Starlette with its gzip middleware, whose settings come with each request."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path.cwd()  # the server is started in the folder of its files


class SentSettings:
    """Settings in a header, so that all agents share a server and none waits for a restart."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._packed: dict[tuple[int, int], ASGIApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        level, minimum, chunk = (int(number) for number in dict(scope["headers"])[b"x-settings"].split(b","))
        scope["chunk_kb"] = chunk
        app = self._app
        if level:
            if (level, minimum) not in self._packed:
                self._packed[level, minimum] = GZipMiddleware(self._app, minimum_size=minimum, compresslevel=level)
            app = self._packed[level, minimum]
        await app(scope, receive, send)


async def page(request: Request) -> Response:
    """A page from memory, as an application would make it."""
    return Response(_pages[request.path_params["name"]], media_type="text/html")


async def file(request: Request) -> Response:
    """A file in chunks."""
    response = FileResponse(FOLDER / request.path_params["name"])
    response.chunk_size = 1024 * request.scope["chunk_kb"]
    return response


_pages = {path.name: path.read_bytes() for path in FOLDER.glob("*.html")}
app = SentSettings(Starlette(routes=[Route("/page/{name}", page), Route("/file/{name}", file)]))
