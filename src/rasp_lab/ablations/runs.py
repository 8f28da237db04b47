"""Runs of an agent with one part of the engine replaced; finished ones are kept, so that a stopped command goes on."""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from rasp_lab import REPOSITORY
from rasp_lab.ablations.conditions import QUIET, identity, world
from rasp_lab.ablations.parts import FAMILIES, FULL, Ablation
from rasp_lab.bench import agents
from rasp_lab.bench.agents.rasp import Rasp
from rasp_lab.bench.domains.base import Task
from rasp_lab.bench.runner.protocol import Cell, Row, play
from rasp_tuner.engine.kernel import native

CODE = (  # what a finished run depends on
    "src/rasp_tuner/engine/**/*.py",
    "src/rasp_tuner/base/*.py",
    "src/rasp_tuner/contexts/*.py",
    "src/rasp_tuner/optimizer/*.py",
    "src/rasp_tuner/records/*.py",
    "src/rasp_lab/bench/domains/*.py",
    "src/rasp_tuner/*.py",
    "src/rasp_lab/ablations/parts.py",
    "src/rasp_lab/ablations/conditions.py",
)
REPORT_EVERY_SECONDS = 5.0


@dataclass(frozen=True)
class Job:
    """One run: which part is missing in which world."""

    world: str
    seed: int
    horizon: int
    ablation: str = FULL
    family: str = "quadratic"
    wrap: str = QUIET
    agent: str = ""  # instead of the ablation's

    @property
    def changed(self) -> Ablation:
        return FAMILIES[self.family][self.ablation]

    @property
    def key(self) -> str:
        """The same for two jobs that are the same run."""
        ablation = f"{self.family}: {self.ablation}" if self.changed.replacements else FULL
        agent = self.agent or self.changed.agent
        return "|".join([identity(self.world), self.wrap, ablation, agent, str(self.seed), str(self.horizon)])


def run(job: Job) -> list[Row]:
    """The steps of one run; whatever was replaced for it is put back."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(native, "available", lambda: False))  # parts are replaced in Python
        for where, name, instead in job.changed.replacements:
            stack.enter_context(patch.object(where, name, instead))
        cell = Cell(job.world, job.agent or job.changed.agent, job.seed, job.horizon)
        return list(play(cell, world(job.world, job.wrap)))


def regret(job: Job) -> float:
    return sum(row.regret for row in run(job))


def steps(job: Job) -> dict[str, list[float]]:
    """Loss and regret of every step."""
    rows = run(job)
    return {"loss": [row.loss for row in rows], "regret": [row.regret for row in rows]}


class Watched(Rasp):
    """RASP that counts how often its settings change, and remembers which expert led."""

    def __init__(self, task: Task, seed: int, settings: Mapping[str, float]) -> None:
        super().__init__(task, seed, settings=settings)
        self.changes, self._before, self._ids = 0, None, []

    def ask(self, context: np.ndarray) -> tuple[str, np.ndarray]:
        id, point = super().ask(context)
        self.changes += self._before is not None and not np.array_equal(point, self._before)
        self._before = point
        self._ids.append(id)
        return id, point

    def leaders(self) -> list[str]:
        """The expert that had most weight at each step after the first, whatever its noise."""
        return [self.tuner.explain(id).expert.split(" (")[0] for id in self._ids[1:]]


def watched(job: Job) -> dict[str, Any]:
    """Regret, number of changes and leading experts of one run; the agent may be `watched@<switching cost>`."""
    made: list[Watched] = []

    def build(task: Task, seed: int) -> Watched:
        made.append(Watched(task, seed, {"switching_cost": float(job.agent.partition("@")[2] or 0.0)}))
        return made[-1]

    with patch.dict(agents.AGENTS):
        agents.register("watched", build)
        total = regret(replace(job, agent="watched"))
    return {"regret": total, "changes": made[0].changes, "leaders": made[0].leaders()}


class Runs:
    """Results of jobs, kept in one file for each state of the code."""

    def __init__(self, folder: Path | None, processes: int = 1) -> None:
        self._path = None if folder is None else folder / f"{code_fingerprint()}.jsonl"
        self._processes = processes
        self._known: dict[str, Any] = {}
        if self._path is not None and self._path.exists():
            whole, _, half = self._path.read_text().rpartition("\n")
            if half:  # of a command that was killed
                self._path.write_text(f"{whole}\n")
            for line in whole.splitlines():
                entry = json.loads(line)
                self._known[entry["run"]] = entry["result"]

    def __call__(self, work: Callable[[Job], Any], jobs: Sequence[Job]) -> list[Any]:
        """What `work` makes of each job, in their order."""
        keys = [f"{work.__name__}|{job.key}" for job in jobs]
        missing = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._known}
        started = told = time.monotonic()
        for done, (key, result) in enumerate(self._results(work, missing), start=1):
            self._keep(key, result)
            now = time.monotonic()
            if now - told > REPORT_EVERY_SECONDS:
                left = (now - started) / done * (len(missing) - done)
                sys.stderr.write(f"{done} of {len(missing)} runs, about {left / 60:.0f} minutes left\n")
                told = now
        return [self._known[key] for key in keys]

    def _results(self, work: Callable[[Job], Any], missing: Mapping[str, Job]) -> Iterable[tuple[str, Any]]:
        if self._processes == 1:
            yield from ((key, work(job)) for key, job in missing.items())
            return
        with ProcessPoolExecutor(self._processes) as pool:
            waiting = {pool.submit(work, job): key for key, job in missing.items()}
            for finished in as_completed(waiting):
                yield waiting[finished], finished.result()

    def _keep(self, key: str, result: Any) -> None:
        self._known[key] = result
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps({"run": key, "result": result}) + "\n")


def code_fingerprint() -> str:
    """A hash of all code that a run depends on."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in CODE for path in REPOSITORY.glob(pattern)}):
        found.update(path.read_bytes())
    return found.hexdigest()[:12]
