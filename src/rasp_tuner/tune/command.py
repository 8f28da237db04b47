"""A command with placeholders: the words of a program call, or one line for a shell."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Value
from rasp_tuner.study_file import template

SHELL = "/bin/sh"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. No shell reads the values, unless one was asked for; then each is quoted."""

    words: tuple[str, ...]
    shell: bool = False

    @classmethod
    def parse(cls, given: str | Sequence[str], shell: bool = False) -> "Command":
        """From words, or from one line that is split as a shell would.

        >>> Command.parse("stat -c %s {input}").words
        ('stat', '-c', '%s', '{input}')
        """
        if isinstance(given, str) and not shell:
            try:
                given = shlex.split(given)
            except ValueError as reason:
                raise InvalidSpace(f"the command {show(given)} cannot be split into words: {reason}") from reason
        words = (given,) if isinstance(given, str) else tuple(given)
        if not words or not all(isinstance(word, str) for word in words) or not words[0].strip():
            raise InvalidSpace(f"a command must be words, such as ./compress --level {{level}}, got {show(given)}")
        return cls((" ".join(words),), True) if shell else cls(words)

    def filled(self, values: Mapping[str, Value]) -> list[str]:
        """The words to start."""
        if self.shell:
            return [SHELL, "-c", template.fill(self.words[0], values, quoted=True)]
        return template.fill_words(self.words, values)

    def shown(self, values: Mapping[str, Value]) -> str:
        """As one would type it."""
        filled = self.filled(values)
        return filled[2] if self.shell else shlex.join(filled)

    def check_program(self) -> None:
        """Refuse a program that is not there; a shell will say so itself."""
        program = self.words[0]
        line = any(sign in program for sign in " |;<>&$")
        if self.shell or shutil.which(program) is not None or (template.placeholders(program) and not line):
            return
        hint = ""
        if "/" not in program and Path(program).is_file():
            hint = f"; did you mean ./{program}?"
        elif Path(program).is_file():
            hint = f"; make it executable with chmod +x {shlex.quote(program)}"
        elif line:
            hint = "; if this is a line for a shell, add --shell"
        raise InvalidSpace(
            f"the program {program!r} was not found or cannot be executed: check its name and PATH{hint}"
        )
