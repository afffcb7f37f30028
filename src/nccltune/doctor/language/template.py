# SPDX-License-Identifier: Apache-2.0
"""Compile texts of rules with expressions in braces: `GPU {it.index} has {it.nvlinks} links`."""

import re
import shlex
from typing import NamedTuple

from nccltune.doctor.language.evaluation import Env
from nccltune.doctor.language.expression import Compiled, Scope, compile_expression
from nccltune.doctor.language.functions import format_value
from nccltune.model.errors import InputError

_PART = re.compile(r"\{([^{}]*)\}")


class Template(NamedTuple):
    """A compiled text: words and expressions in their order."""

    parts: tuple[str | Compiled, ...]
    needs: frozenset[str]

    def fill(self, env: Env, *, for_shell: bool = False) -> str:
        """Return the text with the values of its expressions.

        `for_shell` quotes the values for a shell, because facts may come from foreign files.
        """
        filled: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                is_once = filled[-1:] == ["1"] and part.startswith(" times")
                filled[-1:] = ["once"] if is_once else filled[-1:]
                filled.append(part.removeprefix(" times") if is_once else part)
            else:
                words = format_value(part.run(env))
                filled.append(shlex.quote(words) if for_shell else words)
        return "".join(filled)


def compile_template(text: str, scope: Scope) -> Template:
    """Return `text` compiled. `{{` and `}}` are literal braces.

    Raises InputError if an expression is wrong, or if a brace has no partner.
    """
    parts: list[str | Compiled] = []
    needs: set[str] = set()
    at = 0
    # Doubled braces mean one literal brace. Replace them first, so that they are not matched.
    hidden = text.replace("{{", "\x01").replace("}}", "\x02")
    for found in _PART.finditer(hidden):
        parts.append(_words(hidden[at : found.start()], text))
        compiled = compile_expression(found.group(1), scope)
        needs |= compiled.needs
        parts.append(compiled)
        at = found.end()
    parts.append(_words(hidden[at:], text))
    return Template(tuple(part for part in parts if part), frozenset(needs))


def _words(hidden: str, text: str) -> str:
    if "{" in hidden or "}" in hidden:
        raise InputError(f"a brace without its other one: {text!r}", hint="write {{ for a brace")
    return hidden.replace("\x01", "{").replace("\x02", "}")
