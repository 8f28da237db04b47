"""Agents by name. Each lives in its own file, imported only when it is asked for: some need heavy peers."""

import re
from importlib import import_module

from rasp_tuner.bench.agents.base import Agent, Factory
from rasp_tuner.bench.domains.base import Task
from rasp_tuner.checks import show
from rasp_tuner.errors import InvalidValue, MissingExtra

AGENTS: dict[str, str | Factory] = {  # name -> module:factory, or the factory itself
    "static": "static:Static",
    "random": "random:RandomSearch",
    "cma-es": "cma:CmaEs",
    "warm-cma-es": "warm_cma:WarmCmaEs",
    "gp-ucb": "gp_ucb:GpUcb",
    "gp-ucb-0.25": "gp_ucb:gp_ucb_025",
    "gp-ucb-0.5": "gp_ucb:gp_ucb_05",
    "gp-ucb-1": "gp_ucb:gp_ucb_1",
    "tpe": "tpe:Tpe",
    "turbo": "turbo:Turbo",
    "botorch": "botorch:BoTorch",
    "vw-cats": "vw:VwCats",
    "rasp": "rasp:Rasp",
    "rasp-paper": "rasp:paper",
    "rasp-no-memory": "rasp:no_memory",
    "rasp-paper-no-memory": "rasp:paper_no_memory",
    "rasp-paper-mlp": "rasp:paper_mlp",
    "ra-gd": "ra_gd:RaGd",
}


def register(name: str, factory: Factory) -> None:
    """Make your own agent known under `name`: anything that, called with a task and a seed, gives an `Agent`."""
    if name in AGENTS:
        raise InvalidValue(f"an agent named {name!r} exists already; choose another name")
    AGENTS[name] = factory


def parse(name: str) -> tuple[str, dict[str, float]]:
    """An agent's registered name and its settings.

    >>> parse("rasp-paper[top_k=1,kappa=0.5]")
    ('rasp-paper', {'top_k': 1.0, 'kappa': 0.5})
    """
    found = re.fullmatch(r"([^\[\]]+)(?:\[(\w+=[-+.\w]+(?:,\w+=[-+.\w]+)*)\])?", name)
    if found is None or found[1] not in AGENTS:
        raise InvalidValue(
            f"no agent {show(name)}; there are {sorted(AGENTS)}, with settings as in rasp-paper[top_k=1]"
        )
    try:
        settings = {
            key: float(value) for key, value in (pair.split("=") for pair in (found[2] or "").split(",") if pair)
        }
    except ValueError as reason:
        raise InvalidValue(f"settings of agent {show(name)} must be numbers: {reason}") from reason
    return found[1], settings


def create(name: str, task: Task, seed: int) -> Agent:
    """A fresh agent for a task; a name may carry settings, as in rasp-paper[top_k=1]."""
    plain, settings = parse(name)
    entry = AGENTS[plain]
    if not isinstance(entry, str):
        return entry(task, seed)
    module, factory = entry.split(":")
    try:
        found = import_module(f"rasp_tuner.bench.agents.{module}")
    except ModuleNotFoundError as reason:
        raise MissingExtra(
            f"agent {plain!r} needs {reason.name}, which is not installed: pip install 'rasp-tuner[bench]'"
        ) from reason
    build = getattr(found, factory)
    agent: Agent = build(task, seed, settings=settings) if settings else build(task, seed)
    return agent
