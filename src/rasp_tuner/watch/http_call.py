"""One HTTP call by a deadline: no redirects, and an answer of limited size."""

import asyncio
import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, QueryFailed
from rasp_tuner.http_client import HttpClient

MOST_ANSWER_BYTES = 4_000_000  # of an answer
FROM_ENVIRONMENT = "env:"


def call(
    url: str, headers: Mapping[str, str], timeout_s: float, method: str = "GET", body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body of the answer, whatever the status; OSError if there is none in time."""
    try:
        return asyncio.run(_answer(url, headers, timeout_s, method, body))
    except TimeoutError as reason:
        raise OSError(f"it took longer than {timeout_s:g} s to answer") from reason


async def _answer(
    url: str, headers: Mapping[str, str], timeout_s: float, method: str, body: bytes
) -> tuple[int, bytes]:
    parts, sent = urlsplit(url), [(name.encode(), text.encode()) for name, text in headers.items()]
    target = urlunsplit(("", "", parts.path or "/", parts.query, "")).encode()
    client = HttpClient(proxies=True)
    found = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            connection = await client.connect(f"{parts.scheme}://{parts.netloc}")
            answer = await client.send(connection, method, target, sent, body)
            async for part in answer.parts():
                found += part
                if len(found) > MOST_ANSWER_BYTES:
                    raise OSError(f"its answer has more than {MOST_ANSWER_BYTES:,} bytes")
            return answer.status, bytes(found)
    finally:
        client.close()


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
