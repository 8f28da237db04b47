"""Agents by name. Each lives in its own file, imported only when it is asked for: some need heavy peers."""

import re
from collections.abc import Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from rasp_lab.bench.agents.base import Agent, Factory
from rasp_lab.bench.domains.base import Task
from rasp_lab.bench.plugins import import_named, is_import_path
from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue

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
    "rasp-paper-no-surrogate": "paper_readings:no_surrogate",
    "rasp-paper-first-value": "paper_readings:first_value",
    "rasp-paper-always-slow": "paper_readings:always_slow",
    "rasp-paper-trained": "paper_readings:trained",
    "rasp-repaired": "paper_repaired:repaired",
    "ra-gd": "ra_gd:RaGd",
}
OF_PAPER_PAGE = frozenset(  # which `make paper` runs, and `make results` does not
    {
        "rasp-paper-no-surrogate",
        "rasp-paper-first-value",
        "rasp-paper-always-slow",
        "rasp-paper-trained",
        "rasp-repaired",
    }
)


def register(name: str, factory: Factory) -> None:
    """Make your own agent known under `name`: anything that, called with a task and a seed, gives an `Agent`."""
    if name in AGENTS:
        raise InvalidValue(f"an agent named {name!r} exists already; choose another name")
    AGENTS[name] = factory


def registered() -> dict[str, Factory]:
    """The agents registered in this process; worker processes must be sent them."""
    return {name: entry for name, entry in AGENTS.items() if not isinstance(entry, str)}


def parse(name: str) -> tuple[str, dict[str, float]]:
    """An agent's registered name, or where to import it from, and its settings.

    >>> parse("rasp-paper[top_k=1,kappa=0.5]")
    ('rasp-paper', {'top_k': 1.0, 'kappa': 0.5})
    >>> parse("my_package.agents:Mine")
    ('my_package.agents:Mine', {})
    """
    found = re.fullmatch(r"([^\[\]]+)(?:\[(\w+=[-+.\w]+(?:,\w+=[-+.\w]+)*)\])?", name)
    if found is None or not (found[1] in AGENTS or is_import_path(found[1])):
        raise InvalidValue(
            f"no agent {show(name)}; there are {sorted(AGENTS)}, with settings as in rasp-paper[top_k=1],"
            " and your own as module:Factory"
        )
    try:
        settings = {
            key: float(value) for key, value in (pair.split("=") for pair in (found[2] or "").split(",") if pair)
        }
    except ValueError as reason:
        raise InvalidValue(f"settings of agent {show(name)} must be numbers: {reason}") from reason
    return found[1], settings


def check(name: str) -> None:
    """Refuse a name that is unknown, and settings that the agent does not take. Plain names import nothing."""
    plain, settings = parse(name)
    if settings or plain not in AGENTS:
        resolve(name)


def resolve(name: str) -> Factory:
    """What builds the agent, with the settings that its name carries."""
    plain, settings = parse(name)
    entry = AGENTS.get(plain, plain)
    if isinstance(entry, str):
        entry = import_named(f"{__name__}.{entry}" if plain in AGENTS else entry, "agent")
    build: Factory = entry
    return partial(build, **_as_arguments(plain, build, settings)) if settings else build


def create(name: str, task: Task, seed: int) -> Agent:
    """A fresh agent for a task; a name may carry settings, as in rasp-paper[top_k=1]."""
    return resolve(name)(task, seed)


def _as_arguments(name: str, build: Factory, settings: Mapping[str, float]) -> dict[str, Any]:
    """Settings as a factory takes them: all in `settings`, or each as a keyword of its own."""
    taken = [p.name for p in signature(build).parameters.values() if p.kind is Parameter.KEYWORD_ONLY]
    if "settings" in signature(build).parameters:
        return {"settings": dict(settings)}
    unknown = sorted(set(settings) - set(taken))
    if unknown:
        raise InvalidValue(f"agent {show(name)} has no setting {unknown[0]!r}; it has {taken or 'none'}")
    return dict(settings)
