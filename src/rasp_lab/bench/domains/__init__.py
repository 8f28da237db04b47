"""Domains by name, built when asked for."""

from collections.abc import Callable
from typing import Any

from rasp_lab.bench.domains import beyond, streams, synthetic, worlds
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.wrappers import harder
from rasp_lab.bench.plugins import import_named, is_import_path
from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue

DOMAINS: dict[str, Callable[[], ExperimentDomain[Any]]] = {
    "1_LLM_Inference": synthetic.llm_inference,
    "2_AutoML_HPO": synthetic.automl_hpo,
    "3_Robot_ISP_Tuning": synthetic.robot_isp,
    "4_Wafer_Etching_Drift": synthetic.wafer_etching,
    "5_Switching_LQR": synthetic.switching_lqr,
    "6_Smooth_Quadratic": synthetic.smooth_quadratic,
    "7_Regime_Switch_Simple": synthetic.regime_switch_simple,
    "8_Server_Flash_Crowd": synthetic.server_flash_crowd,
    "9_Real_Trace_Replay": synthetic.real_trace_replay,
    "A1_Adversarial_Context": synthetic.adversarial_context,
    "A2_Adversarial_Offcentre": beyond.adversarial_offcentre,
    "H1_Recurring_Regimes": beyond.recurring_regimes,
    **streams.STREAMS,
    **worlds.WORLDS,
}

PAPER_CONSTANTS: dict[str, dict[str, float]] = {  # the paper's Table hyperparams: "base step scale (Flash/ISP)"
    "3_Robot_ISP_Tuning": {"base_step": 0.25},
    "8_Server_Flash_Crowd": {"base_step": 0.25},
    # Table real_dataset_params
    "S1_California_Housing": {"prompt_dim": 32, "experts": 8, "prompt_rate": 0.01, "full_rate": 1e-4},
    "S2_Boston_Housing": {"prompt_dim": 24, "experts": 6, "prompt_rate": 0.005, "full_rate": 3e-4},
    "S3_Digits": {"prompt_dim": 24, "experts": 6, "prompt_rate": 0.005, "full_rate": 3e-4},
}
PAPER = tuple(DOMAINS)[:10]  # the paper's Appendix A
SYNTHETIC = PAPER[:9]  # without the adversarial one
STREAMS = tuple(streams.STREAMS)
WORLDS = tuple(worlds.WORLDS)  # a seed is a world
BEYOND = ("A2_Adversarial_Offcentre", "H1_Recurring_Regimes")
SWITCHING = (  # the paper's Section 5; of these 5 does not switch before step 100
    "1_LLM_Inference",
    "3_Robot_ISP_Tuning",
    "5_Switching_LQR",
    "7_Regime_Switch_Simple",
    "8_Server_Flash_Crowd",
)
RECURRING = (  # a regime comes back: what memory is for. 5 needs more than 200 steps
    "1_LLM_Inference",
    "3_Robot_ISP_Tuning",
    "5_Switching_LQR",
    "8_Server_Flash_Crowd",
    "H1_Recurring_Regimes",
)


BUILT_IN = frozenset(DOMAINS)


def register(name: str, build: Callable[[], ExperimentDomain[Any]]) -> None:
    """Make your own domain known under `name`: anything that, called without arguments, gives one."""
    if name in DOMAINS or "+" in name:
        raise InvalidValue(f"a domain needs a new name without '+', got {show(name)}; there are {list(DOMAINS)}")
    DOMAINS[name] = build


def registered() -> dict[str, Callable[[], ExperimentDomain[Any]]]:
    """The domains registered in this process; worker processes must be sent them."""
    return {name: build for name, build in DOMAINS.items() if name not in BUILT_IN}


def short_name(domain: str) -> str:
    """The first two words of a name, narrow enough for a table of many columns.

    >>> short_name("1_LLM_Inference"), short_name("1_LLM_Inference+delay=3")
    ('1 LLM', '1 LLM +delay=3')
    """
    plain, *ways = domain.split("+")
    return " ".join([*plain.split("_")[:2], *(f"+{way}" for way in ways)])


def create(name: str, seed: int = 0) -> ExperimentDomain[Any]:
    """A fresh domain for runs with this seed, which matters where each seed is a world of its own.

    A name may say how the domain is made harder, as in H1_Recurring_Regimes+outliers+delay=3.
    """
    plain, *ways = name.split("+")
    if plain not in DOMAINS and not is_import_path(plain):
        raise InvalidValue(f"no domain {show(plain)}; there are {list(DOMAINS)}, and your own as module:Name")
    domain: ExperimentDomain[Any] = DOMAINS[plain]() if plain in DOMAINS else import_named(plain, "domain")()
    domain = domain.drawn(seed)
    domain.paper_constants = PAPER_CONSTANTS.get(plain, domain.paper_constants)
    for way in ways:
        domain = harder(domain, way)
    return domain
