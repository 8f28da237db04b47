"""Who started a study, a shell or Python: messages name options as they are written there."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StudyCaller:
    """What a study was started by."""

    program: str = "rasp tune"
    in_python: bool = False
    name: str = ""  # what gives a study another name, if that is not the option

    def option(self, name: str, value: object = None) -> str:
        """An option as it is written there.

        >>> shell, python = StudyCaller(), StudyCaller(in_python=True)
        >>> shell.option("repeats", 3), shell.option("fresh", True), shell.option("inputs", "data/*")
        ('--repeats 3', '--fresh', "--inputs 'data/*'")
        >>> python.option("repeats", 3), python.option("fresh", True), python.option("out")
        ('repeats=3', 'fresh=True', 'out=...')
        """
        if self.in_python:
            return f"{name}={'...' if value is None else repr(value)}"
        return f"--{name}" if value in (None, True) else f"--{name} {shlex.quote(str(value))}"

    @property
    def renamed_by(self) -> str:
        """What gives a study another name."""
        return self.name or self.option("name")

    @property
    def again(self) -> str:
        """What goes on with a study."""
        return "the same call" if self.in_python else "the same command"


SHELL, PYTHON = StudyCaller(), StudyCaller(in_python=True)  # of `rasp tune`, and of `tune()`
