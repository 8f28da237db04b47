"""Which extra of rasp-lab brings an optional package: what an error about a missing one says to install."""

from collections.abc import Mapping

EXTRAS: Mapping[str, str] = {  # package as imported -> what to install
    "matplotlib": "rasp-lab",
    "scipy": "rasp-lab",
    "joblib": "rasp-lab",
    "cmaes": "rasp-lab",
    "optuna": "rasp-lab[peers]",
    "botorch": "rasp-lab[peers]",
    "gpytorch": "rasp-lab[peers]",
    "torch": "rasp-lab[peers]",  # the agent `botorch` imports it first; preset="paper" raises its own error
    "vowpalwabbit": "rasp-lab[peers]",
    "sklearn": "rasp-lab[peers]",
    "ray": "rasp-lab[ray]",
}


def requirement_of(module: str) -> str:
    """What to install for the module.

    >>> requirement_of("botorch.models"), requirement_of("yaml")
    ('rasp-lab[peers]', 'rasp-lab')
    """
    return EXTRAS.get(module.partition(".")[0], "rasp-lab")
