"""An HTTP hook: the parameters as JSON, by POST or PUT; tried again where that may help."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rasp_tuner.base.checks import one_of, whole
from rasp_tuner.errors import InvalidSpace, QueryFailed, SinkFailed
from rasp_tuner.space import Params
from rasp_tuner.study_file.fields import seconds
from rasp_tuner.watch.http_call import call, check_headers, check_url, filled_headers
from rasp_tuner.watch.sinks.sink import Sink, SinkFields

METHODS = ("POST", "PUT", "PATCH")
FIRST_PAUSE_S = 0.2  # doubled after each try
SHOWN_TEXT = 200


@dataclass(frozen=True)
class HookSink(Sink):
    """Sends {"study": name, "params": {...}}; any status from 200 to 299 means that the parameters are in use."""

    study: str
    url: str
    method: str
    headers: Mapping[str, str]
    timeout_s: float
    retries: int

    def body(self, params: Params) -> str:
        return json.dumps({"study": self.study, "params": params}, ensure_ascii=False)

    def deliver(self, params: Params) -> None:
        failure = ""
        for i in range(1 + self.retries):
            if i:
                time.sleep(FIRST_PAUSE_S * 2 ** (i - 1))
            failure, final = self._try(params)
            if not failure:
                return
            if final:
                break
        tries = "" if i == 0 else f" in {i + 1} tries"
        raise SinkFailed(f"sink {self.name!r}: {self.method} {self.url} {failure}{tries}")

    def _try(self, params: Params) -> tuple[str, bool]:
        """Why it failed, if it did, and whether another try would fail, too."""
        try:
            headers = {"Content-Type": "application/json", **filled_headers(f"sink {self.name!r}", self.headers)}
            status, body = call(self.url, headers, self.timeout_s, self.method, self.body(params).encode())
        except QueryFailed as reason:
            return f"was not sent: {reason}", True
        except OSError as reason:
            return f"has no answer: {reason}", False
        if 200 <= status < 300:
            return "", True
        said = " ".join(body[:SHOWN_TEXT].decode("utf-8", "replace").split())
        return f"is answered {status}{f' ({said})' if said else ''}", status < 500 and status not in (408, 429)

    def shown(self, params: Params) -> str:
        return f"sends {self.method} {self.url}:\n{self.body(params)}"

    def problems(self) -> list[str]:
        try:
            filled_headers(f"sink {self.name!r}", self.headers)
        except QueryFailed as reason:
            return [str(reason)]
        return []


def hook_sink(fields: SinkFields) -> HookSink:
    url = check_url(f"{fields.where}.url", fields.take("url"))
    method = one_of(f"{fields.where}.method", fields.take("method", "POST"), METHODS, InvalidSpace)
    return HookSink(
        fields.name,
        fields.modes,
        fields.knobs,
        fields.study,
        url,
        method,
        check_headers(fields.where, fields.take("headers", {}), fields.take("token_env")),
        seconds(f"{fields.where}.timeout", fields.take("timeout", 5)) or 0.0,
        whole(f"{fields.where}.retries", fields.take("retries", 2), 0, 20, InvalidSpace),
    )
