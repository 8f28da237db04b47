"""Build hook of the wheel: its source is src/rasp_lab of the repository. An editable install needs no copy of it."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LabSourceHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Hatchling can include a folder outside of the project, but then in editable installs, too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"]["../src/rasp_lab"] = "rasp_lab"
