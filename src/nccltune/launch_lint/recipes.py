# SPDX-License-Identifier: Apache-2.0
"""Read recipes of make, and the command that a container of a Dockerfile starts, as scripts."""

import copy
import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

from nccltune.launch_lint.finding import LaunchFinding, warning
from nccltune.launch_lint.pods import unexpanded
from nccltune.launch_lint.words import split
from nccltune.model.nccl_variables import table

_RULE = re.compile(
    r"^[\w.%/$()-]+(?: [\w.%/$()-]+)? *::?(?![:=/])[^\n=]*\n(?:[ \t]*(?:#[^\n]*)?\n)*\t", re.M
)
_ASSIGNED = re.compile(r"(export +)?([A-Za-z_]\w*) *(\?|::?|\+)?= *(.*?)(?: +#.*)?")
_DIRECTIVE = re.compile(r"(?:ifn?eq|ifn?def|else|endif|-?include|define|endef|unexport)\b")
_EXPORTS = re.compile(r"\t *[@+-]* *(export(?: +[A-Za-z_]\w*=[^\s;&|]*)+) *")


def is_makefile(text: str) -> bool:
    """Return whether a text has a rule of make: a target, and a line behind a tab below it."""
    return not text.startswith("#!") and _RULE.search(text) is not None


def as_script(text: str) -> str:
    """Return a Makefile as a script; another text as it is.

    >>> as_script("NP ?= 16\\nrun:\\n\\t@mpirun -n $(NP) a\\n")
    'NP="16"\\n#run:\\nmpirun -n ${NP} a\\n'
    """
    if not is_makefile(text):
        return text
    lines = []
    for line in re.sub(r"\\\n[ \t]*", " ", text).split("\n"):
        assigned = _ASSIGNED.fullmatch(line)
        if line.startswith("\t"):
            # What a line of its own exports is gone before the next one.
            lost = _EXPORTS.fullmatch(line) and ".ONESHELL" not in text
            lines.append("" if lost else _for_shell(line.lstrip("\t @+-")))
        elif assigned is not None:
            export, name, sign, value = assigned.groups()
            plus = "+" if sign == "+" else ""
            value = (" " if plus else "") + re.sub(r'(["\\`])', r"\\\1", _for_shell(value))
            lines.append(f'{export or ""}{name}{plus}="{value}"')
        elif line.partition("#")[0].rstrip().endswith(":") or _DIRECTIVE.match(line):
            lines.append(f"#{line}")
        else:
            lines.append(line)
    return "\n".join(lines)


def _for_shell(text: str) -> str:
    """Return a text of make as a shell has it. Names in small letters may be commands."""
    text = re.sub(r"\$\(([A-Z_]\w*)\)", r"${\1}", text.replace("$(shell ", "$("))
    return text.replace("$$", "$")


def lost_exports(text: str) -> Iterator[LaunchFinding]:
    """Find `export A=1` as a line of a recipe, before others: each line has its own shell."""
    if not is_makefile(text) or ".ONESHELL" in text:
        return
    lines = re.sub(r"\\\n[ \t]*", " ", text).split("\n")
    for line, following in pairwise(lines):
        match = _EXPORTS.fullmatch(line)
        if match is not None and following.startswith("\t"):
            yield warning(
                "export-lost",
                f"{match[1]}: make runs each line of a recipe in a shell of its own, so that the"
                " next line does not have it",
                "write it above the rule without the tab, or join the lines by '&& \\'",
            )


_FROM = re.compile(
    r"\A(?:[ \t]*(?:#.*|ARG .*)?\n)*FROM[ \t]+(?:--\S+[ \t]+)*[\w./:@${}+-]*[\w}]"
    r"(?:[ \t]+AS[ \t]+\S+)?[ \t\r]*\n(?=(?:.*\n)*?[ \t]*(?:RUN|ENV|COPY|ENTRYPOINT|CMD)[ \t])",
    re.I,
)
"""The first lines of a Dockerfile, and not of a letter: "From Ann:"."""
_STAGE = re.compile(r"(?:--\S+\s+)*(\S*)(?:\s+as\s+(\S+))?")
_INSTRUCTION = re.compile(r"[ \t]*(ENV|FROM|ENTRYPOINT|CMD)[ \t]+(.*)", re.I)


def started_by(text: str) -> str:
    """Return a Dockerfile as the script that its container runs; another text as it is.

    What the image is built with (`RUN`) is no part of it.

    >>> started_by('FROM a\\nRUN make\\nENV A=1\\nCMD ["torchrun", "t.py"]\\n')
    'export A=1\\ntorchrun t.py'
    """
    if _FROM.match(text) is None:
        return text
    lines: list[str] = []
    started = {"ENTRYPOINT": "", "CMD": ""}
    stages = {"": (lines, started)}
    is_own = False
    plain = re.sub(r"^[ \t]*#.*\n", "", text, flags=re.M)
    for line in re.sub(r"\\[ \t]*\r?\n", " ", plain).splitlines():
        if (match := _INSTRUCTION.fullmatch(line)) is None:
            continue
        name, value = match[1].upper(), match[2].strip()
        if name == "ENV":
            pair = re.fullmatch(r"(\w+)[ \t]+(.*)", value)
            lines.append(f"export {f'{pair[1]}={shlex.quote(pair[2])}' if pair else value}")
        elif name == "FROM":
            base, stage = _STAGE.findall(value.lower())[0]
            lines, started = copy.deepcopy(stages.get(base, ([], {"ENTRYPOINT": "", "CMD": ""})))
            stages[stage or "/"] = lines, started
            is_own = False
        else:
            is_own |= name == "CMD"
            # The CMD of the stage before is not for another ENTRYPOINT.
            started |= {name: value} if is_own else {name: value, "CMD": ""}
    words = [_words(value) for value in started.values()]
    # A shell's ENTRYPOINT gets no words of CMD.
    words = words[:1] if words[0] and words[0] == started["ENTRYPOINT"] else words
    return "\n".join([*lines, " ".join(filter(None, words))])


def judge_dockerfile(text: str) -> Iterator[LaunchFinding]:
    """Find `RUN export A=1`, which the image does not keep, and `CMD ["torchrun", "$A"]`."""
    script = started_by(text)
    lines = _RUN.findall(text) if _FROM.match(text) is not None else []
    names = [name for line in lines for name in _EXPORT.findall(line) if name in table()]
    if names := [name for name in dict.fromkeys(names) if f"{name}=" not in script]:
        yield warning(
            "export-lost",
            f"{', '.join(names)}: RUN exports to a shell that ends with it: no container has it",
            f"write ENV {names[0]}=VALUE",
        )
    if script != text and _LIST.search(text):
        words = [word.text for line in split(script.rpartition("\n")[2])[:1] for word in line.words]
        fix = f'start it with a shell: ["sh", "-c", "{" ".join(words)}"]'
        yield from unexpanded("ENTRYPOINT or CMD", words, fix)


_RUN = re.compile(r"^[ \t]*RUN[ \t]+((?:.*\\[ \t]*\r?\n)*.*)", re.I | re.M)
_EXPORT = re.compile(r"(?:\A|&&|;)\s*(?:\\\s*)?export\s+([A-Z]\w*)=")
_LIST = re.compile(r"^[ \t]*(?:ENTRYPOINT|CMD)[ \t]+\[", re.I | re.M)


def _words(value: str) -> str:
    try:
        words = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return shlex.join(map(str, words)) if isinstance(words, list) else value
