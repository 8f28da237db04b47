"""Origins: sites whose pages may evaluate flags from a browser (CORS). Only OFREP is open to them."""

import re
from collections.abc import Iterable
from dataclasses import replace

from rasp_tuner.service.http.route import OFREP_PATH, Request, Response

ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
USUAL_PORTS = {"http": ":80", "https": ":443"}  # browsers leave them out
PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, If-None-Match, X-API-Key",
    "Access-Control-Max-Age": "600",
}


class Origins:
    """The origins that were named when the server was started; raises a ValueError for what is none."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._allowed = frozenset(_origin(given).encode() for given in origins)

    def allow(self, request: Request) -> bool:
        """Whether a page of such a site makes this request, and may."""
        return request.headers.get(b"origin") in self._allowed and request.path.startswith(OFREP_PATH)

    def open(self, response: Response, request: Request) -> Response:
        """The response, with what lets the page read it."""
        if not self._allowed or not self.allow(request):
            return response
        readable = {
            "Access-Control-Allow-Origin": request.headers[b"origin"].decode("latin-1"),
            "Access-Control-Expose-Headers": "ETag, Retry-After",
            "Vary": "Origin",
        }
        return replace(response, headers={**response.headers, **readable})


NOWHERE = Origins()


def _origin(given: str) -> str:
    """An origin as browsers write it."""
    text = given.lower().removesuffix("/")
    if not ORIGIN.fullmatch(text):
        raise ValueError(f"an origin is a scheme and a host, as in https://shop.example:8443; this is {given[:80]!r}")
    return text.removesuffix(USUAL_PORTS[text.partition(":")[0]])
