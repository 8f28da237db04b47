"""Placeholders: `{name}` in arguments, environment variables and files becomes the value of a knob.

Only a name in braces is a placeholder, so `awk '{print $1}'` stays as it is; `{{name}}` is `{name}` as text.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Value
from rasp_tuner.study_file.caller import SHELL, StudyCaller

_PLACEHOLDER = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def as_text(value: Value) -> str:
    """A value as programs read it.

    >>> [as_text(value) for value in (4, 0.5, "zstd", True, None)]
    ['4', '0.5', 'zstd', 'true', 'none']
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def placeholders(text: str) -> list[str]:
    """The names in single braces, in their order.

    >>> placeholders("awk '{print $1}' --threads={threads} {{threads}}")
    ['threads']
    """
    return [match[2] for match in _PLACEHOLDER.finditer(text) if match[2] is not None]


def fill(text: str, values: Mapping[str, Value], quoted: bool = False) -> str:
    """The text with values in place of their names; with `quoted` each is one word to a shell.

    Names without a value stay as they are: `check` refuses them where that would be a mistake.

    >>> fill("--codec={codec} {other}", {"codec": "lz4"})
    '--codec=lz4 {other}'
    >>> fill("cat {input}", {"input": "my file; rm -r x"}, quoted=True)
    "cat 'my file; rm -r x'"
    >>> fill("sort {flag} {input}", {"flag": "", "input": "a"}, quoted=True)
    'sort  a'
    """

    def replaced(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal is not None:
            return f"{{{literal}}}"
        if name not in values:
            return match[0]
        written = as_text(values[name])
        return shlex.quote(written) if quoted and written else written  # an empty choice is no word

    return _PLACEHOLDER.sub(replaced, text)


def fill_words(words: Sequence[str], values: Mapping[str, Value]) -> list[str]:
    """A command's words with their values; one that is only a placeholder with an empty value is left out.

    >>> fill_words(["xz", "{extreme}", "-{level}"], {"extreme": "", "level": 6})
    ['xz', '-6']
    """
    filled = [(word, fill(word, values)) for word in words]
    return [text for word, text in filled if text or not placeholders(word)]


def check(where: str, text: str, known: Iterable[str], caller: StudyCaller = SHELL) -> None:
    """Refuse a placeholder that nothing fills."""
    names = list(known)
    for name in placeholders(text):
        if name not in names:
            example = f"knobs={{{name!r}: 'int:1..32'}}" if caller.in_python else f"--knob {name}=int:1..32"
            raise InvalidSpace(
                f"{where} has the placeholder {{{name}}}, but there is no such knob: add one, as in {example},"
                f" write {{{{{name}}}}} for the text itself, or use one of"
                f" {', '.join(f'{{{known_name}}}' for known_name in names)}"
            )
