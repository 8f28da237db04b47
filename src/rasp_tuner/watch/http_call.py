"""One HTTP call by a deadline: no redirects, and an answer of limited size."""

import http.client
import io
import os
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, QueryFailed

MOST_ANSWER_BYTES = 4_000_000  # of an answer
FROM_ENVIRONMENT = "env:"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry a token elsewhere, and turn a POST into a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class _Timed(io.RawIOBase):
    """What a socket receives until a deadline: a timeout of its own starts anew with every byte."""

    def __init__(self, sock: socket.socket, received: Any) -> None:
        self._sock, self._received = sock, received
        self._timeout_s = sock.gettimeout() or 0.0
        self._deadline = time.monotonic() + self._timeout_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0.0:
            raise TimeoutError(f"it took longer than {self._timeout_s:g} s to answer")
        self._sock.settimeout(left)
        found: int | None = self._received.readinto(buffer)
        return found

    def close(self) -> None:
        self._received.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer whose status, headers and body all come before the deadline."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Timed(sock, self.fp.detach()))


class _Plain(http.client.HTTPConnection):
    response_class = _Answer


class _Secure(http.client.HTTPSConnection):
    response_class = _Answer


class _PlainHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Plain, req)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Secure, req)


_OPENER = urllib.request.build_opener(_NoRedirects, _PlainHandler, _SecureHandler)


def call(
    url: str, headers: Mapping[str, str], timeout_s: float, method: str = "GET", body: bytes | None = None
) -> tuple[int, bytes]:
    """Status and body of the answer, whatever the status; OSError if there is none in time."""
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310 - check_url let it pass
    try:
        try:
            answer = _OPENER.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            answer = error  # an answer as well
        with answer:
            return answer.status, _read(answer)
    except http.client.HTTPException as reason:
        raise OSError(f"it does not speak HTTP: {type(reason).__name__} {reason}".rstrip()) from reason
    except urllib.error.URLError as reason:
        raise OSError(reason.reason if isinstance(reason.reason, str) else str(reason.reason)) from reason


def _read(answer: Any) -> bytes:
    """The body."""
    parts, size = [], 0
    while part := answer.read1(65536):
        parts.append(part)
        size += len(part)
        if size > MOST_ANSWER_BYTES:
            raise OSError(f"its answer has more than {MOST_ANSWER_BYTES:,} bytes")
    return b"".join(parts)


def check_url(field: str, given: object) -> str:
    """An address that can be called."""
    try:
        parts = urlsplit(given) if isinstance(given, str) else None
        sound = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, sound = None, False
    if parts is None or not sound or not isinstance(given, str) or not _is_plain(given) or " " in given:
        raise InvalidSpace(
            f"{field} must be an address such as http://localhost:9090, in plain ASCII (%C3%A4 for ä), got"
            f" {show(given)}"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidSpace(
            f"{field} must not hold a password, for study files are read by many: put it into an environment variable"
            ' and say so with token_env = "NAME" or headers = { Authorization = "env:NAME" }'
        )
    return given


def check_headers(field: str, given: object, token_env: object) -> dict[str, str]:
    """Headers as a study file has them; `env:NAME` stands for what is in an environment variable."""
    if not isinstance(given, Mapping) or not all(isinstance(v, str) for pair in given.items() for v in pair):
        raise InvalidSpace(f'{field}.headers must be a table of texts, as in {{ X-Team = "shop" }}, got {show(given)}')
    for name, text in given.items():
        if not re.fullmatch(r"[\w!#$%&'*+.^`|~-]+", name, re.ASCII) or not _is_plain(text):
            raise InvalidSpace(f"{field}.headers: {show(name)} must be a word of ASCII, and its text one line of it")
    found = dict(given)
    if token_env is not None:
        if not isinstance(token_env, str) or not token_env:
            raise InvalidSpace(f"{field}.token_env must be the name of an environment variable, got {show(token_env)}")
        found["Authorization"] = f"Bearer {FROM_ENVIRONMENT}{token_env}"
    return found


def filled_headers(field: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers to send, secrets from the environment included; QueryFailed if a variable is not set."""
    found = {}
    for name, text in headers.items():
        before, sign, variable = text.partition(FROM_ENVIRONMENT)
        if sign and before in ("", "Bearer "):
            if variable not in os.environ:
                raise QueryFailed(f"{field}: the environment variable {variable} is not set; header {name} needs it")
            text = before + os.environ[variable].strip()
            if not _is_plain(text):  # the text itself is a secret
                raise QueryFailed(
                    f"{field}: the environment variable {variable} must hold plain ASCII on one line, for it is sent as"
                    f" header {name}"
                )
        found[name] = text
    return found


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()
