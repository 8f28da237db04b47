"""The Python client of the service: `Client(url, key).create(...)` gives a study that asks and tells like a Tuner.

docs/CLIENT.md says what it does when the server is slow, refuses a request, or is down.
"""

from rasp_tuner.client.async_client import AsyncClient
from rasp_tuner.client.async_study import AsyncStudy, TellReply
from rasp_tuner.client.client import Client
from rasp_tuner.client.edge import Edge
from rasp_tuner.client.errors import (
    AccessDenied,
    ClientError,
    Conflict,
    RequestRefused,
    ServerUnavailable,
    UnknownStudy,
)
from rasp_tuner.client.fallback import is_fallback
from rasp_tuner.client.study import Study

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "AsyncStudy",
    "Client",
    "ClientError",
    "Conflict",
    "Edge",
    "RequestRefused",
    "ServerUnavailable",
    "Study",
    "TellReply",
    "UnknownStudy",
    "is_fallback",
]
