"""Which extra brings an optional package: what an error about a missing one says to install."""

from collections.abc import Mapping

EXTRAS: Mapping[str, str] = {  # package as imported -> extra in pyproject.toml
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "bench",
    "scipy": "bench",
    "joblib": "bench",
    "cmaes": "bench",
    "optuna": "peers",
    "botorch": "peers",
    "gpytorch": "peers",
    "torch": "peers",  # the agent `botorch` imports it first; preset="paper" raises its own error, which names `neural`
    "vowpalwabbit": "peers",
    "sklearn": "peers",
    "ray": "ray",
    "mlflow": "mlflow",
    "kernel_tuner": "kernel-tuner",
    "uvicorn": "serve",
    "pydantic": "serve",
    "httptools": "serve",
    "prometheus_client": "serve",
    "sqlalchemy": "serve",
    "openfeature": "openfeature",
    "httpx": "client",
    "psycopg": "postgres",
    "mcp": "mcp",
}


def extra_of(module: str, otherwise: str) -> str:
    """The extra that brings the module; `otherwise` for one that is not listed.

    >>> extra_of("botorch.models", otherwise="bench"), extra_of("yaml", otherwise="bench")
    ('peers', 'bench')
    """
    return EXTRAS.get(module.partition(".")[0], otherwise)
