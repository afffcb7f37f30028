# SPDX-License-Identifier: Apache-2.0
"""Check the settings of NCCL that a text states, with or without a launch command.

Such texts are environment files, values of Helm, patches of manifests, and scripts that start NCCL
from Python.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import dedent
from typing import NamedTuple

from nccltune.formats.tuner_config.nccl_conf import conf_lines
from nccltune.launch.placement import Placement
from nccltune.launch_lint.command import LaunchCommand, LaunchContext, Prediction, View
from nccltune.launch_lint.finding import LaunchFinding, error, note
from nccltune.launch_lint.nested import SHELLS
from nccltune.launch_lint.options import LOCAL
from nccltune.launch_lint.rules import containers, network, nics, serving, settings, variables
from nccltune.launch_lint.words import Word, split
from nccltune.model.errors import InputError
from nccltune.model.nccl_variables import PREFIX, is_foreign, nearest_variable, table

_NAME = r"([A-Z][A-Z0-9_]{3,})"
_WORD = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"'`|&;)}]*)"""
_VALUE = f"({_WORD})"
_ASSIGNMENTS = re.compile(
    r"(?:^[ \t>$#*-]*|\b(?:export|env|ENV|set)[ \t]+|(?:-x|-e|--env)[ \t=]+|[\"'`\[,])"
    rf"((?:[A-Za-z_]\w*={_WORD}[ \t]*)+)",
    re.M,
)
"""`A=1 B=2` where a command or a list begins, and not in the midst of a sentence."""
_ASSIGNMENT = re.compile(rf"(?<!\S){_NAME}={_VALUE}")
_FORMS = tuple(
    re.compile(form, re.M)
    for form in (
        rf"^[ \t]*(?:ENV|setenv|-genv)[ \t]+{_NAME}[ \t=]+{_VALUE}",
        # More words behind the value are a sentence.
        rf"^[ \t]*(?:-[ \t]+)?{_NAME}[ \t]*:[ \t]+{_VALUE}[ \t\r]*$",
        # Of Python or TOML.
        rf"""^[ \t]*{_NAME}[ \t]+=[ \t]*("[^"\n]*"|'[^'\n]*')[ \t,;\r]*$""",
        rf"""["']{_NAME}["'][ \t]*\]?[ \t]*[:=,][ \t]*(?:value[ \t]*=[ \t]*)?{_VALUE}""",
        rf"""\bname["']?:[ \t]*["']?{_NAME}["']?\s*,?\s*["']?value["']?:[ \t]*{_VALUE}""",
    )
)
"""Other notations: ENV NAME VALUE, NAME: VALUE, ["NAME"] = "VALUE", name: NAME value: VALUE."""
_NEXT = re.compile(r",[A-Za-z_]\w*=.*")
_MOST = 1000
"""Maximum number of settings of a text that are read."""
_COMMENT = re.compile(r"^[ \t]*(?:#|//).*|(?<=\s)#[ \t].*", re.M)


class StatedSetting(NamedTuple):
    """A variable that a text assigns. `is_read` tells that the text itself reads it: `$NAME`."""

    name: str
    value: str
    is_read: bool = False


def stated_settings(text: str) -> list[StatedSetting]:
    """Return the variables that a text assigns in any notation, or none if NCCL has none of them.

    >>> [one[:2] for one in stated_settings("A=1 NCCL_ALGO=Ring x\\nNCCL_DEBUG: 'INFO'")]
    [('NCCL_ALGO', 'Ring'), ('NCCL_DEBUG', 'INFO')]
    """
    text = _COMMENT.sub("", text)
    found = [
        (runs.start(1) + one.start(), one[1], one[2])
        for runs in _ASSIGNMENTS.finditer(text)
        for one in _ASSIGNMENT.finditer(runs[1])
    ]
    forms = (one for form in _FORMS for one in form.finditer(text))
    found += [(one.start(1), one[1], one[2]) for one in forms if one[2] not in ("null", "~")]
    # A list of choices and `<0 or 1>` are no value, and of `A=1,B=2` the first one is.
    found = [(at, name, _NEXT.sub("", value)) for at, name, value in found if value[:1] not in "[<"]
    read = set(re.findall(r"\$[{(]?([A-Z]\w+)", text))
    given = dict.fromkeys(
        (name, value.strip("\"'").rstrip(",;.:!?]")) for _, name, value in sorted(found)[:_MOST]
    )
    if not any(_is_of_nccl(name) for name, _ in given):
        return []
    return [StatedSetting(name, value, name in read) for name, value in given]


def _is_of_nccl(name: str) -> bool:
    return name.startswith(PREFIX) or (nearest_variable(name) or "").startswith(PREFIX)


def judge_stated(
    given: Sequence[StatedSetting], *, alone: bool, placement: Placement | None = None
) -> Iterator[LaunchFinding]:
    """Yield what is wrong with settings, whatever they are set for.

    If they are `alone`, without a command, they are also compared with each other. `placement` is
    that of the commands beside them, None if it is not known.
    """
    names = [one.name for one in given]
    for one in given:
        view = _view((one,))
        # What the text reads itself may be a name of its own.
        yield from _without_edits(rule(view) for rule in _ALONE[one.is_read :])
    # With two values of one name, it is unknown which holds beside the others.
    twice = {name: None for name in names if names.count(name) > 1}
    rules = _TOGETHER if alone and not twice else (variables.left_over,)
    view = _view([one for one in given if one.name not in twice])
    view = view._replace(prediction=view.prediction._replace(placement=placement))
    yield from _without_edits(rule(view) for rule in rules)
    for name in twice if alone else ():
        if name in table():  # Of others, NCCL_VERSION is one of a build.
            values = [one.value or "nothing" for one in given if one.name == name]
            yield note("stated-twice", f"the text sets {name} to {' and to '.join(values)}")


def judge_conf(text: str, file: str) -> Iterator[LaunchFinding]:
    """Yield lines of nccl.conf that NCCL reads otherwise than a shell (`NAME = value`).

    A text with another name may write that file, by `<<` of a shell or `content:` of Ansible.
    """
    if _CONF.search(file) is None:
        shown = (block for block in _SHOWN_FILE.finditer(text) if "nccl.conf" in block[0])
        blocks = (*_CONF_BLOCK.finditer(text), *shown)
        text = "\n".join(dedent(block[1]) for block in blocks)
    for number, name, value in conf_lines(text):
        right = _CONF_WORD.sub("", name).strip()
        known = table().get(right)
        if known is None and not right.startswith(PREFIX):
            continue
        meant = re.sub(r"\s+#.*", "", value).strip().strip("\"'")
        if name != right:
            yield error(
                "conf-line",
                f"nccl.conf:{number}: NCCL takes all before '=' for the name, so that {name!r} sets"
                " nothing",
                f"write {right}={meant}",
            )
        # NCCL reads a number up to what is none.
        elif value != meant and not re.match(r"\s*\d+(?![\w.,])", value):
            yield error(
                "conf-line",
                f"nccl.conf:{number}: NCCL takes all behind '=' for the value: {value!r}",
                f"write {right}={meant}",
            )


def without_conf(text: str) -> str:
    """Return a text without what it shows of nccl.conf and the like: no variables of a shell.

    >>> without_conf("$ cat /etc/nccl.conf\\nNCCL_DEBUG=INFO\\n$ ls\\n")
    '$ ls\\n'
    """
    return _SHOWN_FILE.sub("", text)


_SHOWN_FILE = re.compile(
    r"^[^\n]*(?:\bcat [~/\w.-]*(?:nccl\.conf|\.deepspeed_env)|\bnccl\.conf[`\"*]{0,3}:)"
    r"[ \t]*\n"
    r"((?:(?:#[^\n]*|[A-Z]\w+[ \t]*=[ \t]*[^\s;&|]*[ \t]*)(?:\n|\Z))+)",
    re.M,
)
_CONF = re.compile(r"nccl[^/]*\.conf[^/]*$")
_CONF_BLOCK = re.compile(
    r"^(?=[^\n]*nccl\.conf\b)[^\n]*?(?:<<-?[ \t]*[\"']?\w+|(?:\n[ \t]*)?content:[ \t]*\|)[^\n]*\n"
    r"((?:[ \t]*(?:#|(?:\w+[ \t]+)?NCCL_\w+[ \t]*=)[^\n]*\n)+)",
    re.M,
)
_CONF_WORD = re.compile(r"^\s*(?:export|set(?:env)?|ENV)\s+")


def judge_python(text: str) -> Iterator[LaunchFinding]:
    """Yield `os.environ["NCCL_P2P_DISABLE"] = 1`: Python takes text there."""
    for match in _PYTHON_NUMBER.finditer(_COMMENT.sub("", text)):
        yield error(
            "environ-not-text",
            f"{match[1]} gets {match[2]}, which is no text: Python stops with a TypeError",
            f'write "{_PYTHON_TRUTH.get(match[2], match[2])}"',
        )


_PYTHON_NUMBER = re.compile(
    r"\bos\.(?:environ(?:\[|\.setdefault\()|putenv\()\s*[\"']((?:NCCL|CUDA|FI|UCX|TORCH|GLOO)_\w+)"
    r"[\"'](?:\s*\]\s*=|\s*,)\s*(-?\d+|True|False)\s*(?:\)\s*)?(?:;|$)",
    re.M,
)
_PYTHON_TRUTH = {"True": "1", "False": "0"}


def judge_boxes(
    text: str, beside: Iterable[Placement | None] | None = None
) -> Iterator[LaunchFinding]:
    """Yield what is wrong with `docker run`, and what it lacks for NCCL with `-e NCCL_...`.

    `beside` commands with these placements, only the memory of containers with a shell is judged.
    """
    if beside is not None and not any(one is not None and one.most_gpus > 1 for one in beside):
        return
    with contextlib.suppress(InputError):
        for line in split(text):
            words = tuple(word.text for word in line.words)
            if beside is not None:
                is_shell = bool(words) and words[-1].rpartition("/")[2] in SHELLS
                view = _view(())._replace(site=LaunchContext(around=words))
                yield from _without_edits([containers.shared_memory(view)] * is_shell)
                continue
            given = stated_settings(" ".join(words))
            if given:
                yield from judge_box({one.name: one.value for one in given}, words)
            view = _view(())
            view = view._replace(site=view.site._replace(around=words))
            yield from _without_edits([containers.image(view)])


def judge_box(
    given: Mapping[str, str], words: Sequence[str], *, is_split: bool = True, in_swarm: bool = False
) -> Iterator[LaunchFinding]:
    """Yield what a container lacks that `words` start with the variables `given`.

    `is_split`: its program uses several GPUs. `in_swarm`: `docker stack deploy` starts it.
    """
    view = _view([StatedSetting(*pair) for pair in given.items()])
    view = view._replace(site=view.site._replace(around=tuple(words), in_swarm=in_swarm))
    rules = (*[containers.shared_memory] * is_split, containers.infiniband)
    yield from _without_edits(rule(view) for rule in rules)


_ALONE = (
    variables.names,
    variables.removed,
    variables.values,
    variables.quoted,
    settings.graph,
    nics.interfaces,
    nics.devices,
    nics.networks,
    network.plugin,
    serving.host_ip,
)
_TOGETHER = (
    settings.contradictions,
    settings.sockets,
    settings.weak,
    nics.gids,
    variables.left_over,
    variables.by_sockets,
    network.provider,
    network.removed,
)


def _view(given: Sequence[StatedSetting]) -> View:
    command = LaunchCommand((), Word("", ""), (), ())
    nowhere = Prediction(None, (), unknown="no launch command")
    site = LaunchContext(exported=tuple((one.name, one.value) for one in given))
    return View(command, LOCAL, site, None, nowhere)


def _without_edits(found: Iterable[Iterable[LaunchFinding]]) -> Iterator[LaunchFinding]:
    """Yield findings without edits, since there is no command to edit."""
    return (finding._replace(edits=()) for findings in found for finding in findings)


def checked_alone(given: Sequence[StatedSetting], why: str) -> LaunchFinding:
    """Return the note that settings were checked without a command. `why` is why there is none."""
    names = [one.name for one in given if _is_of_nccl(one.name) and not is_foreign(one.name)]
    names = list(dict.fromkeys(names))
    why = f"this {why}" if why.startswith("is ") else why
    if not names:
        return note("settings-alone", f"{why}, and there is no setting of NCCL")
    shown = ", ".join(names[:_SHOWN]) + (" and others" if len(names) > _SHOWN else "")
    return note("settings-alone", f"{why}; checked by themselves: {shown}")


_SHOWN = 6
