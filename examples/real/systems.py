"""The systems by name, each imported only when it is asked for: they need different packages."""

from importlib import import_module

from examples.real.system import System

# A system on a GPU (Triton kernels) goes here, too; `missing` says where it cannot run.
SYSTEMS = {
    "sqlite": "sqlite_pragmas:SqlitePragmas",
    "postgres": "postgres_settings:PostgresSettings",
    "compression": "compression:Compression",
    "web": "web_server:WebServer",
}


def load(name: str) -> type[System]:
    """The class of a system."""
    module, _, kind = SYSTEMS[name].partition(":")
    found: type[System] = getattr(import_module(f"examples.real.{module}"), kind)
    return found
