"""Build hook of the wheel: compiles the kernel where there is a C compiler, and does without where there is none."""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNEL = Path("src/rasp_tuner/engine/kernel")


class NativeKernelHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Runs for ordinary and for editable installs: the library lies beside the module that loads it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build = _module(Path(self.root) / KERNEL / "build.py")
        why_not = None if version == "editable" and build.is_current() else build.build()
        if why_not:
            sys.stderr.write(f"native kernel not built, NumPy does its work: {why_not}\n")
            build.LIBRARY.unlink(missing_ok=True)
            return
        build_data["artifacts"].append(str(KERNEL / build.LIBRARY.name))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"  # the library knows nothing of Python


def _module(file: Path) -> ModuleType:
    """A file of the package, without the package: its dependencies are not here yet."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {file}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
