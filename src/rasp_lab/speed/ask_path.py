"""The Python calls of one `ask` and one `tell`, in order: how long the path is, and through which files it goes.

python -m rasp_lab.speed.ask_path            # counts, of a Tuner and over HTTP
python -m rasp_lab.speed.ask_path --list     # and every call

The study has an Int, a Float, a default and one context. Over HTTP a server runs in this process, and calls of all its
threads count; those of its own (`service/`) are also told apart, since the rest is the tuner's.
"""

import argparse
import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import rasp_tuner
from rasp_tuner import Float, Int, Tuner
from rasp_tuner.service.http.application import create_app
from rasp_tuner.service.server import HttpServer, uvicorn_config
from rasp_tuner.service.storage.store import Store, sqlite_url
from rasp_tuner.space import Space

HOME = str(Path(rasp_tuner.__file__).parent) + "/"
KNOBS = {"pool": Int(1, 64, log=True), "timeout_s": Float(0.1, 10.0)}
DEFAULT = {"pool": 8, "timeout_s": 1.0}
WARM_UP = 70  # steps
SETTLED_S = 0.05  # after which the writer has done all that follows a commit, and idles


class Calls:
    """Those made inside the library, while it listens."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._listens = False

    def watch(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if self._listens and event == "call" and path.startswith(HOME):
            self.seen.append(f"{path.removeprefix(HOME)}:{frame.f_code.co_qualname}")

    def of(self, run: Callable[[], Any], settled_s: float = 0.0) -> Any:
        self.seen.clear()
        self._listens = True
        try:
            result = run()
            time.sleep(settled_s)
        finally:
            self._listens = False
        return result

    def print(self, name: str, listed: bool) -> None:
        own = [call for call in self.seen if call.startswith("service/")]
        said = f"; of the service {len(own)} through {_files(own)}" if own else ""
        print(f"{name}: {len(self.seen)} Python calls through {_files(self.seen)} files{said}")
        if listed:
            print("\n".join(f"  {call}" for call in self.seen))


def _files(calls: list[str]) -> int:
    return len({call.partition(":")[0] for call in calls})


def in_process(calls: Calls, listed: bool) -> None:
    tuner = Tuner(KNOBS, {"p99_ms": "min"}, ["qps"], DEFAULT)
    for i in range(WARM_UP):
        s = tuner.ask({"qps": 1.0 + i % 3})
        tuner.tell(s.id, {"p99_ms": 10.0 + s.params["pool"]})
    sys.setprofile(calls.watch)
    s = calls.of(lambda: tuner.ask({"qps": 1.0}))
    calls.print("ask", listed)
    calls.of(lambda: tuner.tell(s.id, {"p99_ms": 12.0}))
    calls.print("tell", listed)
    sys.setprofile(None)


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a server in this process."""
    app = create_app(Store(sqlite_url(folder)))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = HttpServer(uvicorn_config(app, log_level="critical"), app.service.broadcaster)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def over_http(calls: Calls, listed: bool) -> None:
    threading.setprofile(calls.watch)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as port:
        link = http.client.HTTPConnection("127.0.0.1", port)

        def post(path: str, body: dict[str, Any]) -> Any:
            link.request("POST", f"/v1/studies{path}", json.dumps(body), {"content-type": "application/json"})
            return json.loads(link.getresponse().read())

        space = Space(KNOBS).to_json()
        study = {"name": "web", "space": space, "metrics": {"p99_ms": "min"}, "context": ["qps"], "default": DEFAULT}
        post("", study)
        for i in range(WARM_UP):
            s = post("/web/ask", {"context": {"qps": 1.0 + i % 3}})
            post("/web/tell", {"id": s["id"], "metrics": {"p99_ms": 10.0 + s["params"]["pool"]}})
        time.sleep(SETTLED_S)
        s = calls.of(lambda: post("/web/ask", {"context": {"qps": 1.0}}), SETTLED_S)
        calls.print("HTTP ask", listed)
        calls.of(lambda: post("/web/tell", {"id": s["id"], "metrics": {"p99_ms": 12.0}}), SETTLED_S)
        calls.print("HTTP tell", listed)
    threading.setprofile(None)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--list", action="store_true", help="print every call")
    listed = words.parse_args().list
    calls = Calls()
    in_process(calls, listed)
    over_http(calls, listed)


if __name__ == "__main__":
    main()
