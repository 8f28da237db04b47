"""Which extra brings an optional package: what an error about a missing one says to install."""

from collections.abc import Mapping

EXTRAS: Mapping[str, str] = {  # package as imported -> what to install
    "typer": "rasp-tuner[cli]",
    "rich": "rasp-tuner[cli]",
    "torch": "rasp-tuner[fleet]",  # preset="paper" raises its own error, which names `neural`
    "ray": "rasp-tuner[ray]",
    "optuna": "rasp-tuner[optuna]",
    "kernel_tuner": "rasp-tuner[kernel-tuner]",
    "uvicorn": "rasp-tuner[serve]",
    "pydantic": "rasp-tuner[serve]",
    "prometheus_client": "rasp-tuner[serve]",
    "sqlalchemy": "rasp-tuner[serve]",
    "httptools": "rasp-tuner[client]",
    "psycopg": "rasp-tuner[postgres]",
    "mcp": "rasp-tuner[mcp]",
    "redis": "rasp-tuner[redis]",
    "opentelemetry": "rasp-tuner[otel]",
}


def requirement_of(module: str, otherwise: str, extras: Mapping[str, str] = EXTRAS) -> str:
    """What to install for the module; `otherwise` for one that is not listed.

    >>> requirement_of("sqlalchemy.orm", otherwise="rasp-lab"), requirement_of("yaml", otherwise="rasp-lab")
    ('rasp-tuner[serve]', 'rasp-lab')
    """
    return extras.get(module.partition(".")[0], otherwise)
