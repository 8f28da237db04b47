"""The systems by name, each imported only when it is asked for: they need different packages."""

from importlib import import_module

from rasp_lab.real.system import System

SYSTEMS = {
    "sqlite": "sqlite_pragmas:SqlitePragmas",
    "postgres": "postgres_settings:PostgresSettings",
    "compression": "compression:Compression",
    "web": "web_server:WebServer",
    "redis": "redis_server:RedisServer",
    "duckdb": "duckdb_queries:DuckDb",
    "triton-matmul": "triton_system:Matmul",
    "triton-attention": "triton_system:Attention",
    "inference-loop": "inference_loop:InferenceLoop",
}
ON_GPU = ("triton-matmul", "triton-attention", "inference-loop")  # what `python -m rasp_lab.real triton` measures


def load(name: str) -> type[System]:
    """The class of a system."""
    module, _, kind = SYSTEMS[name].partition(":")
    found: type[System] = getattr(import_module(f"rasp_lab.real.{module}"), kind)
    return found
