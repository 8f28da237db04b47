"""MlflowLogger: the steps of a tuner in MLflow, one run for each tuner (docs/MLFLOW.md).

`log` reads what is new in the tuner's record and puts it in a queue; a thread sends it. So a slow or dead tracking
server costs the loop nothing, and what waits is sent when the server is back.
"""

import logging
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rasp_tuner.base.checks import number, show
from rasp_tuner.errors import InvalidValue, MissingExtra
from rasp_tuner.tuner import Tuner

try:
    import mlflow
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag
    from mlflow.utils.mlflow_tags import MLFLOW_RUN_NAME
except ModuleNotFoundError as reason:
    raise MissingExtra(
        "MlflowLogger needs mlflow, which is not installed: pip install 'rasp-tuner[mlflow]'"
    ) from reason

from rasp_tuner.integrations.mlflow_steps import Step, TextNumbers, clean, definition, new_steps

log = logging.getLogger("rasp_tuner")
NEXT_STEP = "rasp.next_step"  # the tag of a run that says which step is to be logged next
MOST_STEPS_WAITING = 10_000  # steps
LARGEST_BATCH = 800  # values in one request; MLflow takes 1,000 with params and tags
PARAMS_AT_ONCE = 100
REACHABLE_S = 5.0  # to wait for a connection
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # before a failed request is made again


class HasTuner(Protocol):
    """An adapter of this library: `RaspSampler`, `RaspSearch`, `RaspStrategy`."""

    @property
    def tuner(self) -> Tuner | None: ...


class MlflowLogger:
    """Logs metrics, knobs, contexts, situations, forecasts and the budget of every step to one run.

    Call `log()` as often as you like, in the tuner's thread. `close()`, or the end of a `with` block, ends the run.

    tuner         or an adapter that has one
    experiment    its name; made if it is not there
    run_id        a run to go on with, as of a process before: steps that it has are not logged again
    tracking_uri  as of MLflow, whose own settings hold without it
    tags          more tags of the run
    texts         of contexts, as of `Tuner.history`: a tuner keeps only hashes of those
    report        whether `close` adds the tuner's report, an HTML page, as an artifact
    """

    def __init__(
        self,
        tuner: Tuner | HasTuner,
        experiment: str = "rasp-tuner",
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
        texts: Mapping[str, Iterable[str]] | None = None,
        report: bool = True,
    ) -> None:
        if not isinstance(tuner, Tuner) and not hasattr(tuner, "tuner"):
            raise InvalidValue(f"tuner must be a Tuner or an adapter that has one, got {show(tuner)}")
        if not isinstance(experiment, str) or not experiment:
            raise InvalidValue(f"experiment must be a name, got {show(experiment)}")
        for name, given in (("run_name", run_name), ("run_id", run_id), ("tracking_uri", tracking_uri)):
            if given is not None and (not isinstance(given, str) or not given):
                raise InvalidValue(f"{name} must be a text or None, got {show(given)}")
        if tags is not None and not isinstance(tags, Mapping):
            raise InvalidValue(f"tags must be texts by name, got {show(tags)}")
        self._source, self._texts, self._report = tuner, texts, report
        self._experiment, self._run_name, self._uri = experiment, run_name, tracking_uri
        self._tags, self._own_run = dict(tags or {}), run_id is None
        self._run_id = run_id
        self._next_step, self._described = 0, -1  # the id() of the tuner whose definition was queued
        own = tuner if isinstance(tuner, Tuner) else tuner.tuner
        self._first_step = None if own is None else own.learned  # steps before it are older than this logger
        self._lock, self._changed = threading.Lock(), threading.Condition()
        self._steps: deque[Step] = deque()
        self._params: dict[str, str] = {}  # to be sent
        self._sent_params: set[str] = set()  # which MLflow does not let change
        self._lost, self._failures, self._ending = 0, 0, False
        self._client: MlflowClient | None = None
        self._numbers = TextNumbers({})
        self._thread = threading.Thread(target=self._send_all, name="rasp-mlflow", daemon=True)
        self._thread.start()

    @property
    def run_id(self) -> str | None:
        """The run's id; None before the tracking server has answered."""
        return self._run_id

    @property
    def waiting(self) -> int:
        """How many steps were not sent yet."""
        return len(self._steps)

    @property
    def lost(self) -> int:
        """How many steps were dropped: more than 10,000 waited, or 1,000 were learned between two calls of `log`."""
        return self._lost

    def log(self) -> None:
        """Queue all steps that were learned since the last call; sends nothing, and never fails for the server."""
        tuner = self._source if isinstance(self._source, Tuner) else self._source.tuner
        if tuner is None or self._ending:
            return
        with self._lock:
            steps = new_steps(tuner, self._next_step, self._texts)
            described = definition(tuner) if self._described != id(tuner) else {}
            if self._first_step is None:
                self._first_step = tuner.learned
            missed = max(steps[0][0] - max(self._next_step, self._first_step), 0) if steps else 0
            self._next_step, self._described = max(self._next_step, tuner.learned), id(tuner)
            with self._changed:
                self._params |= {name: text for name, text in described.items() if name not in self._sent_params}
                self._steps.extend(steps)
                over = max(len(self._steps) - MOST_STEPS_WAITING, 0)
                for _ in range(over):
                    self._steps.popleft()
                if missed + over and not self._lost:
                    log.warning("steps are missing in MLflow from now on: log() is called too seldom, or it is away")
                self._lost += missed + over
                self._changed.notify()

    def __call__(self, *_: object) -> None:
        """The same as `log`: as a callback of Optuna's `study.optimize`."""
        self.log()

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Whether all that waits was sent within this time."""
        self.log()
        until = time.monotonic() + number("timeout_s", timeout_s)
        with self._changed:
            while (self._steps or self._params) and time.monotonic() < until:
                self._changed.wait(0.05)
            return not self._steps and not self._params

    def close(self, timeout_s: float = 30.0, status: str = "FINISHED") -> None:
        """Send what waits, add the report and end the run; gives up after this time, and says so."""
        if self._ending:
            return
        sent = self.flush(timeout_s)
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(timeout=1.0)
        if not sent or self._client is None or self._run_id is None:
            log.warning(
                "MLflow was away or refused what was sent: %d steps of run %s were not logged. They are on the tuner's"
                " record: a logger with run_id= sends the latest 1,000 again",
                self.waiting,
                self._run_id,
            )
            return
        try:
            tuner = self._source if isinstance(self._source, Tuner) else self._source.tuner
            if self._report and tuner is not None:
                with tempfile.TemporaryDirectory() as folder:
                    tuner.report(Path(folder) / "report.html", texts=self._texts)
                    self._client.log_artifact(self._run_id, str(Path(folder) / "report.html"))
            if self._own_run:
                self._client.set_terminated(self._run_id, status)
        except Exception as reason:  # noqa: BLE001  # of any store: a program does not fail for its log
            log.warning("MLflow run %s was not ended: %s", self._run_id, reason)

    def __enter__(self) -> "MlflowLogger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(status="FINISHED" if error is None else "FAILED" if isinstance(error, Exception) else "KILLED")

    def _send_all(self) -> None:
        """The thread: sends until the end; after a failure it waits, twice as long each time."""
        while True:
            with self._changed:
                while not (self._steps or self._params or self._ending):
                    self._changed.wait()
                if self._ending:
                    return
            try:
                self._send_some()
                if self._failures:
                    log.info("MLflow is back after %d failed requests", self._failures)
                self._failures = 0
            except Exception as reason:  # noqa: BLE001  # of any store: requests, databases, files
                if not self._failures:
                    log.warning("MLflow is away or refuses what is sent, and steps wait: %s", reason)
                pause = min(FIRST_PAUSE_S * 2**self._failures, LONGEST_PAUSE_S)
                self._failures = min(self._failures + 1, 30)
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, pause)

    def _send_some(self) -> None:
        check_reachable(self._uri or mlflow.get_tracking_uri())
        client, run_id = self._connected()
        with self._changed:
            params = dict(list(self._params.items())[:PARAMS_AT_ONCE])
            steps: list[Step] = []
            values = 0
            for step in self._steps:
                values += len(step[1])
                if values > LARGEST_BATCH and steps:
                    break
                steps.append(step)
        now = int(time.time() * 1000)
        metrics = [
            Metric(name, value, now, step)
            for step, values_by_name in steps
            for name, value in self._numbers.numbers(values_by_name).items()
        ]
        tags = self._numbers.tags() | ({NEXT_STEP: str(steps[-1][0] + 1)} if steps else {})
        named = [Param(name, text) for name, text in params.items()]
        client.log_batch(run_id, metrics, named, [RunTag(name, text) for name, text in tags.items()], synchronous=True)
        with self._changed:
            self._sent_params |= set(params)
            self._params = {name: text for name, text in self._params.items() if name not in self._sent_params}
            for step in steps:
                if self._steps and self._steps[0] is step:  # it may have been dropped meanwhile
                    self._steps.popleft()
            self._changed.notify_all()

    def _connected(self) -> tuple[MlflowClient, str]:
        """The client and the run, which is made or found at the first call that succeeds."""
        if self._client is None or self._run_id is None:
            client = MlflowClient(tracking_uri=self._uri)
            if self._run_id is None:
                found = client.get_experiment_by_name(self._experiment)
                experiment = client.create_experiment(self._experiment) if found is None else found.experiment_id
                name = {MLFLOW_RUN_NAME: self._run_name} if self._run_name else {}
                self._run_id = client.create_run(experiment, tags={**self._tags, **name}).info.run_id
            else:
                self._go_on(client, self._run_id)
            self._client = client
        return self._client, self._run_id

    def _go_on(self, client: MlflowClient, run_id: str) -> None:
        """Take up a run where it stopped."""
        run = client.get_run(run_id)
        after = int(run.data.tags.get(NEXT_STEP, "0"))
        self._numbers = TextNumbers(run.data.tags)
        with self._changed:
            kept = [step for step in self._steps if step[0] >= after]
            self._steps.clear()
            self._steps.extend(kept)
            self._sent_params |= set(run.data.params)
            self._params = {name: text for name, text in self._params.items() if name not in self._sent_params}
        for name, text in self._tags.items():
            client.set_tag(run_id, clean(name), text)


def check_reachable(uri: str) -> None:
    """An OSError if nobody answers there. MLflow itself would find out after minutes, with a warning for every try."""
    server = urlsplit(uri)
    if server.scheme not in ("http", "https") or server.hostname is None:
        return
    if server.scheme in getproxies() and not proxy_bypass(server.hostname):
        return  # the proxy would answer
    port = server.port or (443 if server.scheme == "https" else 80)
    socket.create_connection((server.hostname, port), timeout=REACHABLE_S).close()
