"""Random bad requests: each is wrong in at least one way; the same seed gives the same requests.

Some never end. The server refuses them when it has read enough, so the connection may be closed before its answer is
read: `MAY_BE_CUT` names them.
"""

import json
import random
import string
from collections.abc import Callable
from typing import Any

from rasp_lab.reliability.broken_schemas import BrokenSchemas

STUDY = "/v1/studies/web"
FLAGS = "/ofrep/v1/evaluate/flags"
ASKED = 40
WRONG_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" * 60, "01", "+1", ".5", "0x1", '"1"', "true"]
WRONG_VALUES = ["null", "[]", "{}", '""', "[1]", '{"a": 1}', '"x"', "false", "[null]", '{"": 1}', *WRONG_NUMBERS]
POSTS = ["ask", "ask/batch", "tell", "tell/batch", "tell_failed", "observe", "recommend", "what-if"]
GETS = ["", "/suggestions", "/suggestions/s1", "/history", "/situations", "/export"]
NamedRequest = tuple[str, bytes]
ENDLESS = 100_000  # bytes: more than the server reads of what frames a request
MAY_BE_CUT = {"trailers", "framing", "long_head", "pipelined", "too_large"}
SELDOM = {"many_names": 0.1, "many_errors": 0.1, "framing": 0.1}  # a request of these takes as long as ten others


class BadRequests:
    """Bad requests, each by one of the methods below; deterministic by its seed."""

    def __init__(self, seed: int, document: dict[str, Any]) -> None:
        """`document`: the server's OpenAPI document."""
        self.rng = random.Random(seed)
        self._schemas = BrokenSchemas(document, self.rng)
        self._kinds: list[Callable[[], bytes]] = [
            self.broken_json,
            self.wrong_number,
            self.wrong_value,
            self.wrong_field,
            self.wrong_shape,
            self.unknown_id,
            self.answered_otherwise,
            self.wrong_metrics,
            self.wrong_context,
            self.wrong_params,
            self.wrong_flag,
            self.wrong_event,
            self.wrong_study,
            self.wrong_path,
            self.wrong_method,
            self.wrong_type,
            self.wrong_host,
            self.wrong_origin,
            self.wrong_query,
            self.wrong_import,
            self.too_large,
            self.too_deep,
            self.bad_bytes,
            self.broken_schema,
            self.many_names,
            self.many_errors,
            self.long_text,
            self.repeated_header,
            self.random_request,
            self.trailers,
            self.framing,
            self.long_head,
            self.pipelined,
        ]
        self._weights = [SELDOM.get(make.__name__, 1.0) for make in self._kinds]

    def request(self) -> NamedRequest:
        """A name for its kind, and the bytes to send."""
        make = self.rng.choices(self._kinds, self._weights)[0]
        return make.__name__, make()

    # correct requests

    def _right(self, path: str) -> dict[str, Any]:
        context, params, metrics = {"qps": 1.0}, {"pool": 4, "timeout": 1.0}, {"p99_ms": 20.0}
        bodies: dict[str, dict[str, Any]] = {
            "ask": {"context": context},
            "recommend": {"context": context},
            "what-if": {"context": context},
            "ask/batch": {"contexts": [context, context]},
            "tell": {"id": self._told(), "metrics": metrics},
            "tell_failed": {"id": self._told(), "reason": "no"},
            "tell/batch": {"tells": [{"id": self._told(), "metrics": metrics}]},
            "observe": {"context": context, "params": params, "metrics": metrics},
        }
        return bodies[path]

    def _told(self) -> str:
        return f"s{self.rng.randrange(ASKED)}"

    def _post(self, path: str, body: bytes | str, **headers: str) -> bytes:
        data = body.encode() if isinstance(body, str) else body
        full = path if path.startswith("/") else f"{STUDY}/{path}"
        lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(data))}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {full} HTTP/1.1\r\n{head}\r\n".encode() + data

    def _get(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> bytes:
        return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    def _some(self) -> str:
        return self.rng.choice(POSTS)

    def _word(self) -> str:
        return "".join(self.rng.choices(string.ascii_letters + string.digits, k=self.rng.randint(3, 12)))

    # wrong requests

    def broken_json(self) -> bytes:
        path = self._some()
        text = json.dumps(self._right(path))
        cut = self.rng.randrange(len(text))
        wrong = self.rng.choice(
            [text[:cut], text + "]", text[:cut] + "\x01" + text[cut:] + "}", "{" + text, f"{text},"]
        )
        return self._post(path, wrong)

    def wrong_number(self) -> bytes:
        path = self.rng.choice(["ask", "ask/batch", "tell", "tell/batch", "observe", "recommend"])
        text = json.dumps(self._right(path))
        for right in ("20.0", "1.0"):
            if right in text:
                wrong = [number for number in WRONG_NUMBERS if right == "20.0" or number != "true"]
                return self._post(path, text.replace(right, self.rng.choice(wrong), 1))  # a context may be true
        raise AssertionError(path)

    def wrong_value(self) -> bytes:
        """One field of the right body is something else."""
        path = self._some()
        body = self._right(path)
        field = self.rng.choice([name for name in body if name != "reason"] or ["id"])
        wrong = self.rng.choice([w for w in WRONG_VALUES if not (field == "context" and w in ("null", "[1]"))])
        text = json.dumps({**body, field: "?"})
        return self._post(path, text.replace('"?"', wrong, 1))

    def wrong_field(self) -> bytes:
        path = self._some()
        body = self._right(path)
        if self.rng.random() < 0.5:
            return self._post(path, json.dumps({**body, self._word() + "_": 1}))
        field = self.rng.choice([name for name in body if name != "reason"])
        text = json.dumps(body)
        return self._post(path, f"{{{json.dumps(field)}: 1, {text[1:]}")  # the name comes twice

    def wrong_shape(self) -> bytes:
        return self._post(
            self._some(), self.rng.choice(["", "null", "1", "true", '"a"', "[[]]", "[1, 2]", " ", "\ufeff{}"])
        )

    def unknown_id(self) -> bytes:
        ids = ["s999999", "s-1", "s", "S1", "1", "s01", "s1 ", "x" * 21, "s1\u0000", "s" + "9" * 19, "s1.0", "../s1"]
        path = self.rng.choice(["tell", "tell_failed"])
        return self._post(path, json.dumps({**self._right(path), "id": self.rng.choice(ids)}))

    def answered_otherwise(self) -> bytes:
        """Of an id that was answered before."""
        value = self.rng.uniform(1e3, 1e6)
        if self.rng.random() < 0.5:
            return self._post("tell", json.dumps({"id": self._told(), "metrics": {"p99_ms": value}}))
        return self._post("tell_failed", json.dumps({"id": self._told(), "reason": self._word()}))

    def wrong_metrics(self) -> bytes:
        metrics = self.rng.choice([{}, {self._word(): 1.0}, {"p99_ms": 1.0, self._word(): 2.0}, {"P99_MS": 1.0}])
        path = self.rng.choice(["tell", "observe"])
        body = {**self._right(path), "metrics": metrics}
        if path == "tell":
            body["id"] = f"s{ASKED}"  # a pending one
        return self._post(path, json.dumps(body))

    def wrong_context(self) -> bytes:
        contexts = [{}, [], [1.0, 2.0], {"qps": 1.0, self._word(): 1.0}, {self._word(): 1.0}, {"qps": [1.0]}, "qps", 7]
        path = self.rng.choice(["ask", "recommend", "observe", "ask/batch"])
        wrong: Any = self.rng.choice(contexts)
        body = {"contexts": [{"qps": 1.0}, wrong]} if path == "ask/batch" else {**self._right(path), "context": wrong}
        return self._post(path, json.dumps(body))

    def wrong_params(self) -> bytes:
        params = [
            {},
            {"pool": 4},
            {"pool": 0, "timeout": 1.0},
            {"pool": 4.5, "timeout": 1.0},
            {"pool": 65, "timeout": 1.0},
        ]
        params += [{"pool": "4", "timeout": 1.0}, {"pool": 4, "timeout": 11.0}, {"pool": 4, "timeout": None}]
        params += [{"pool": 4, "timeout": 1.0, self._word(): 1}, {"pool": True, "timeout": 1.0}]
        return self._post("observe", json.dumps({**self._right("observe"), "params": self.rng.choice(params)}))

    def wrong_flag(self) -> bytes:
        key = self.rng.choice([f"/{self._word()}", f"/web.{self._word()}", "/web", "/web.pool", ""])
        contexts = [{}, None, [], 7, {"qps": "x"}, {"qps": None}, {"qps": [1]}, {"targetingKey": 7, "qps": 1.0}]
        if key in ("/web", "/web.pool", ""):
            return self._post(f"{FLAGS}{key}", json.dumps({"context": self.rng.choice(contexts)}))
        return self._post(
            f"{FLAGS}{key}", self.rng.choice(["{}", '{"context": {"qps": 1.0}}', '{"context": {"qps": NaN}}'])
        )

    def wrong_event(self) -> bytes:
        pending, word = f"s{ASKED}", self._word()
        details = [
            {},
            {"variant": pending},
            {"value": 1.0},
            {"value": "x", "variant": pending},
            {word: 1, "variant": pending},
        ]
        more = [
            {"value": 1.0, "variant": self.rng.choice(["s999999", "", 7, "s01"])},
            {"failed": 7, "variant": pending},
        ]
        name = self.rng.choice(["web", "web", f"web.{word}", word])
        event = {"trackingEventName": name, "trackingEventDetails": self.rng.choice([*details, *more])}
        return self._post("/ofrep/v1/track", json.dumps(event))

    def wrong_study(self) -> bytes:
        new: dict[str, Any] = {
            "name": self._word(),
            "space": {"a": {"type": "float", "low": 0.0, "high": 1.0}},
            "metrics": {"m": "min"},
        }
        knobs: list[Any] = [
            {"type": "float", "low": 1.0, "high": 0.0},
            {"type": "float", "low": 0.0, "high": 1.0, "log": True},
            {"type": "int", "low": 1.5, "high": 3},
            {"type": "int", "low": 1, "high": 10**30, "log": True, "step": 0},
            {"type": "float", "low": -1e308, "high": 1e308, "step": 1e-308},
            {"type": "categorical", "choices": []},
            {"type": "categorical", "choices": ["a", "a"]},
            {"type": "categorical", "choices": [[1], [2]]},
            {"type": "else"},
            {},
        ]
        wrongs: list[dict[str, Any]] = [
            {"name": self.rng.choice(["", ".x", "a/b", "x" * 65, "a b", "\u00e9", "a\n", None, 1])},
            {"space": self.rng.choice([{}, [], None, {"": knobs[0]}, {"a": self.rng.choice(knobs)}])},
            {
                "metrics": self.rng.choice(
                    [{}, None, {"m": "up"}, {"m": {"weight": -1.0}}, {"m": {"weight": 0.0}}, ["m"]]
                )
            },
            {"context": self.rng.choice([-1, 1e3, 100_000, ["a", "a"], [""], "a", {"a": 1}])},
            {"default": self.rng.choice([{}, {"b": 1}, {"a": 2.0}, {"a": "x"}, {"a": None}, []])},
            {"preset": self.rng.choice(["none", "", None, 1])},
            {"seed": self.rng.choice([-1, 2**64, 1.5, "0", None])},
            {"guard": self.rng.choice([-1.0, "a", []])},
            {"switching_cost": self.rng.choice([-1.0, None, "a"])},
            {"lease_s": self.rng.choice([0, -1.0, None, "a"])},
            {"max_pending": self.rng.choice([0, -1, 1.5, 10**9, None])},
            {"name": "web"},  # exists with another definition
            {self._word() + "_": 1},
        ]
        return self._post("/v1/studies", json.dumps({**new, **self.rng.choice(wrongs)}))

    def wrong_path(self) -> bytes:
        word = self._word()
        paths = [
            f"/{word}",
            f"/v1/{word}",
            f"{STUDY}/{word}",
            f"/v1/studies/{word}/ask",
            f"/v1/studies/{word}",
            "//",
            "/v1",
        ]
        paths += [
            f"{STUDY}/../../x",
            "/static/../app.py",
            "/static/%2e%2e/app.py",
            "/static/%00",
            f"{STUDY}/suggestions/{word}",
        ]
        paths += [f"{STUDY}/ask/", "/v1/studies/.web", f"/v1/studies/{'x' * 70}", "/v1/studies/%00", "/studies/a%2fb/c"]
        path = self.rng.choice(paths)
        return self._get(path) if self.rng.random() < 0.5 else self._post(path, "{}")

    def wrong_method(self) -> bytes:
        method = self.rng.choice(["PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO", "DELETE"])
        path = self.rng.choice(["/", "/healthz", f"{STUDY}/ask", f"{STUDY}/tell", f"{STUDY}/export", "/v1/studies"])
        return self._get(path, method)

    def wrong_type(self) -> bytes:
        path = self._some()
        kinds = [
            "text/plain",
            "",
            "application/xml",
            "multipart/form-data",
            "application/x-www-form-urlencoded",
            "json",
        ]
        return self._post(path, json.dumps(self._right(path)), Content_Type=self.rng.choice(kinds))

    def wrong_host(self) -> bytes:
        path = self._some()
        hosts = ["example.org", "", "127.0.0.1.example.org", "localhost.", "[::2]", "127.0.0.2", "a:b:c", "\u00ff"]
        return self._post(path, json.dumps(self._right(path)), Host=self.rng.choice(hosts))

    def wrong_origin(self) -> bytes:
        path, data = self._some(), json.dumps(self._right("ask"))
        if self.rng.random() < 0.5:
            return self._post(path, data, Origin=self.rng.choice(["https://example.org", "null", "http://127.0.0.1.x"]))
        return self._post(path, data, Sec_Fetch_Site=self.rng.choice(["cross-site", "same-site", "x"]))

    def wrong_query(self) -> bytes:
        wrong = self.rng.choice(["0", "-1", "1e3", "a", "", "1025", "9" * 30, "1.5", "%00", "\u0661".encode().hex()])
        return self._get(f"{STUDY}/{self.rng.choice(['history?points', 'suggestions?limit'])}={wrong}")

    def wrong_import(self) -> bytes:
        header = {"format": "rasp-study", "version": 1, "definition": {}, "created": 0.0, "events": 1}
        event = {"seq": 1, "kind": "ask", "at": 0.0, "body": {}}
        lines = [header, event, {"count": 1, "sha256": "0" * 64}]
        i = self.rng.randrange(3)
        lines[i] = self.rng.choice([{}, {"format": 1}, {**header, "version": 2}, {**event, "seq": "1"}])
        raw = "\n".join(map(json.dumps, lines))
        name = self.rng.choice(["", "?name=web", "?name=..", "?name=%00", f"?name={self._word()}"])
        return self._post(f"/v1/studies/import{name}", raw, Content_Type="application/x-ndjson")

    def too_large(self) -> bytes:
        if self.rng.random() < 0.2:
            return self._post("ask/batch", json.dumps({"contexts": [[1.0]] * 1_001}))
        return self._post("ask", "{}", Content_Length=self.rng.choice(["1048577", "99999999999", "1" * 25]))

    def too_deep(self) -> bytes:
        depth = self.rng.choice([50, 1_000, 20_000])
        inner = self.rng.choice([("[", "]"), ('{"a":', "}")])
        return self._post(self._some(), f'{{"context": {inner[0] * depth}1{inner[1] * depth}}}')

    def bad_bytes(self) -> bytes:
        if self.rng.random() < 0.5:
            return self._post(self._some(), self.rng.randbytes(self.rng.randint(1, 200)))
        wrong = self.rng.choice(["\\ud800", "\\udfff", "\\u0000\\ud834"])
        return self._post("tell_failed", f'{{"id": "s{ASKED}", "reason": "{wrong}"}}')

    def broken_schema(self) -> bytes:
        path = self.rng.choice(list(self._schemas.paths))
        return self._post(path.replace("{name}", "web"), self._schemas.body(path))

    def many_names(self) -> bytes:
        """More names than an object may have, one of them twice or none."""
        word = self._word()
        names = [f"{word}{i}" for i in range(self.rng.choice([1_100, 10_000]))]
        text = ",".join(f'"{name}":1' for name in [*names, self.rng.choice(["b", names[0]])])
        return self._post(self._some(), self.rng.choice([f"{{{text}}}", f'{{"context": {{{text}}}}}']))

    def many_errors(self) -> bytes:
        wrong = self.rng.choice(['"x"', "[[]]", "{}", '{"a":[]}', "[{}]"])
        many = f"[{','.join([wrong] * self.rng.choice([900, 20_000]))}]"
        knob = f'{{"type":"categorical","choices":{many}}}'
        study = f'{{"name":"new","metrics":{{"m":"min"}},"space":{{"a":{knob}}}}}'
        bodies = {
            "ask": f'{{"context":{many}}}',
            "ask/batch": f'{{"contexts":[{{"none":1}},{many}]}}',
            "tell/batch": f'{{"tells":{many}}}',
            "forget": f'{{"ids":{many}}}',
            "/v1/studies": study,
        }
        path = self.rng.choice(list(bodies))
        return self._post(path, bodies[path])

    def long_text(self) -> bytes:
        text = self.rng.choice(["x", "\u00e9", "9"]) * self.rng.choice([5_000, 200_000])
        path = self.rng.choice(["tell", "tell_failed", "observe"])
        field = {"tell": "id", "tell_failed": "reason", "observe": "key"}[path]
        return self._post(path, json.dumps({**self._right(path), field: text}))

    def repeated_header(self) -> bytes:
        name = self.rng.choice(["Host", "Content-Type", "Content-Length"])
        value = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": "2"}[name]
        head, _, body = self._post(self._some(), "{}").partition(b"\r\n")
        return head + f"\r\n{name}: {value}\r\n".encode() + body

    def random_request(self) -> bytes:
        """Bytes that begin no request."""
        return b"\x00" + self.rng.randbytes(self.rng.randint(10, 2_000)) + b"\r\n\r\n"

    # requests that never end

    def _chunked(self, body: bytes) -> bytes:
        head = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        return f"POST {STUDY}/{self._some()} HTTP/1.1\r\n{head}\r\n".encode() + body

    def trailers(self) -> bytes:
        few = self.rng.choice([b"a:b\r\n", b"x-%s: 1\r\n" % self._word().encode()])
        many = self.rng.choice([few * (ENDLESS // len(few)), b"a: " + b"b" * ENDLESS])
        return self._chunked(b"0\r\n" + many)

    def framing(self) -> bytes:
        """Chunks of one byte each, or a chunk with an extension that does not end."""
        return self._chunked(self.rng.choice([b"1\r\n \r\n" * (ENDLESS // 5), b"1;" + b"x" * ENDLESS]))

    def long_head(self) -> bytes:
        few = b"X-%s: 1\r\n" % self._word().encode()
        many = self.rng.choice([few * 200, b"X: " + b"x" * ENDLESS, few * (ENDLESS // len(few))])
        return b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n" + many + b"\r\n\r\n"

    def pipelined(self) -> bytes:
        """Many wrong requests at once; the first is answered, and then the connection is closed."""
        return self._get("/nothing") * 200
