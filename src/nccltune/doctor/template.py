# SPDX-License-Identifier: Apache-2.0
"""Texts of rules: words with expressions in braces, `GPU {it.index} has {it.nvlinks} links`."""

import re
import shlex
from typing import NamedTuple

from nccltune.doctor.expression import Compiled, Scope, compile_expression
from nccltune.doctor.spoken import spoken
from nccltune.doctor.unknown import Env
from nccltune.model.errors import InputError

_PART = re.compile(r"\{([^{}]*)\}")


class Template(NamedTuple):
    """Compiled: texts and expressions in turn. `of_each`: it speaks of one member (`it`)."""

    parts: tuple[str | Compiled, ...]
    needs: frozenset[str]
    of_each: bool

    def fill(self, env: Env, *, for_shell: bool = False) -> str:
        """The text; `for_shell` quotes what was filled in, since evidence is foreign."""
        filled = []
        for part in self.parts:
            if isinstance(part, str):
                filled.append(part)
            else:
                words = spoken(part.run(env))
                filled.append(shlex.quote(words) if for_shell else words)
        return "".join(filled)


def compile_template(text: str, scope: Scope) -> Template:
    """`text` compiled. `{{` and `}}` are braces. Raises InputError as expressions do."""
    parts: list[str | Compiled] = []
    needs: set[str] = set()
    of_each = False
    at = 0
    # Doubled braces stand for one: hidden while the others are looked for.
    hidden = text.replace("{{", "\x01").replace("}}", "\x02")
    for found in _PART.finditer(hidden):
        parts.append(_words(hidden[at : found.start()], text))
        compiled = compile_expression(found.group(1), scope)
        of_each = of_each or re.search(r"\bit\b", found.group(1)) is not None
        needs |= compiled.needs
        parts.append(compiled)
        at = found.end()
    parts.append(_words(hidden[at:], text))
    return Template(tuple(part for part in parts if part), frozenset(needs), of_each)


def _words(hidden: str, text: str) -> str:
    if "{" in hidden or "}" in hidden:
        raise InputError(f"a brace without its other one: {text!r}", hint="write {{ for a brace")
    return hidden.replace("\x01", "{").replace("\x02", "}")
