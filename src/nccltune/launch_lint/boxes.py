# SPDX-License-Identifier: Apache-2.0
"""Read what starts a program in a container, such as `docker run`, and sudo."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

DOCKERS = ("docker", "podman", "nerdctl")
"""Commands that read options as docker does."""
APPTAINERS = ("apptainer", "singularity")
PODS = ("kubectl", "oc")
SERVICE = ("docker", "run", "--env-host")
"""A service of Compose, whose variables all reach its program: docker has no such option."""
VERBS = {
    **dict.fromkeys(DOCKERS, ("run", "exec")),
    **dict.fromkeys(APPTAINERS, ("run", "exec")),
    **dict.fromkeys(PODS, ("exec",)),
    "enroot": ("start",),
}
"""The subcommands that start a program in a container."""
CLEAN = ("--cleanenv", "-e", "--containall", "-C")
"""Options of apptainer that keep the caller's variables out of the container."""
_VLLM = re.compile(r"(?:[\w.-]+(?::\d+)?/)*vllm-openai(?:-rocm)?(?:[:@]\S+)?")
_FLAG = re.compile(
    r"--?\w[\w-]*=.*|-[diPqt]|-\w{2}.*|--(?:detach|interactive|tty|rm|init|privileged|publish-all"
    r"|read-only|no-healthcheck|oom-kill-disable|quiet|replace|rmi|env-host|unsetenv-all)",
    re.S,
)
"""An option of docker run that takes no value, or has it in the same word."""
_PASSES_ALL = ("--env-host", "--preserve-env", "-E")
_NAME = re.compile(r"(?:-e|--env=)?(?:(?:APPTAINER|SINGULARITY)ENV_)?([A-Za-z_]\w*)(?:=.*|)", re.S)
_END = r"(?=\s|,[a-z]+=|$)"
_DEVICES = rf"(?P<devices>(?!all\b|none\b|void\b)[\w:/-]+(?:,[\w:/-]+)*){_END}"
_GPUS = re.compile(
    rf"(?:^|\s)--gpus[= ](?:(?:count=)?(?P<count>\d{{1,5}}){_END}|\S*?\bdevice=(?:{_DEVICES})|)"
)
_VISIBLE = re.compile(rf"\bNVIDIA_VISIBLE_DEVICES=(?:{_DEVICES}|)(?P<count>)")
_CDI = re.compile(r"\bnvidia\.com/gpu=(\S+)")


class ContainerBox(NamedTuple):
    """What starts a program in a container, or sudo.

    - `words`: the words before the launcher, the shell or the program that it starts.
    - `verb`: the index of its word, such as `run`, among `words`.
    - `options`: the words behind it.
    """

    name: str
    words: Sequence[str]
    verb: int

    @property
    def options(self) -> Sequence[str]:
        """Return the words behind the verb."""
        return self.words[self.verb + 1 :]

    @property
    def is_service(self) -> bool:
        """Return whether it is a service of a Compose file."""
        return tuple(self.words[: len(SERVICE)]) == SERVICE

    @property
    def gpus(self) -> int | None:
        """Return how many GPUs its options give it, None if they do not say.

        >>> ContainerBox("docker", ("docker", "run", "--gpus", "device=0,1", "i"), 1).gpus
        2
        """
        text = " ".join(self.options).replace('"', "").replace("'", "")
        given = _GPUS.search(text) or _VISIBLE.search(text)
        if given is None:
            cdi = set(_CDI.findall(text))
            return len(cdi) if cdi and not cdi & {"all"} else None
        if given["count"]:
            return int(given["count"])
        return len(given["devices"].split(",")) if given["devices"] else None

    @property
    def image(self) -> int:
        """Return the index of docker's image among `options`: the first word that is no option."""
        at = 0
        while at < len(self.options) and self.options[at].startswith("-"):
            at += 1 if _FLAG.fullmatch(self.options[at]) else 2
        return at

    @property
    def text(self) -> str:
        """Return the words that start it: `docker run`."""
        verb = self.words[self.verb]
        return self.name if self.name == "sudo" else f"{self.name} {verb}"

    @property
    def keeps(self) -> bool:
        """Return whether it gives the program all variables of its caller."""
        if self.name in APPTAINERS:
            return not set(self.options).intersection(CLEAN)
        return any(word.partition("=")[0] in _PASSES_ALL for word in self.options)

    @property
    def passed(self) -> set[str]:
        """Return the names of the variables that its options set or pass on."""
        return {match[1] for word in self.options if (match := _NAME.fullmatch(word))}


def boxes(words: Sequence[str]) -> Iterator[ContainerBox]:
    """Yield what `words` start a program in."""
    for at, word in enumerate(words):
        name = PurePosixPath(word).name
        if name == "sudo":
            yield ContainerBox(name, words, at)
        if (verbs := VERBS.get(name)) is None:
            continue
        verb = next((n for n in range(at + 1, len(words)) if words[n] in verbs), None)
        # What `docker compose run` starts has the GPUs and the memory of the service.
        if verb is not None and "compose" not in words[at + 1 : verb]:
            yield ContainerBox(name, words, verb)


def entrypoint_of(image: str) -> tuple[str, ...]:
    """Return what the containers of a published image start, or no word if that is not known.

    >>> entrypoint_of("vllm/vllm-openai:v0.11.0")
    ('vllm', 'serve')
    """
    return ("vllm", "serve") if _VLLM.fullmatch(image) else ()


def env_files(words: Sequence[str]) -> list[str]:
    """Return the files of variables that `words` name: `--env-file FILE`, `--env-file=FILE`."""
    pairs = itertools.pairwise((*words, ""))
    named = ((w.partition("=")[2] or following) for w, following in pairs if _ENV_FILE.match(w))
    return [name for name in named if name]


def variables_in(text: str) -> list[tuple[str, str]]:
    """Return the variables of a file of `NAME=VALUE` lines, as they are written."""
    lines = (line.strip() for line in text.splitlines())
    return [(w.partition("=")[0], w.partition("=")[2]) for w in lines if _ASSIGNS.match(w)]


_ENV_FILE = re.compile(r"--env-file(?:=|$)")


def inside(
    words: Sequence[str], exported: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Return the variables that a shell gets from `words` before it and from their caller."""
    pairs = [(w.partition("=")[0], w.partition("=")[2]) for w in words if _ASSIGNS.match(w)]
    found = [*exported, *pairs]
    for box in boxes(words):
        given = {w.partition("=")[0] for w in box.options if _ASSIGNS.match(w)}
        found = [(n, v) for n, v in found if box.keeps or n in box.passed or n in given]
    return tuple(found)


_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
