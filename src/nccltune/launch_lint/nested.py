# SPDX-License-Identifier: Apache-2.0
"""Find scripts and commands inside a command: `bash -c TEXT`, `ssh HOST TEXT`, `salloc srun`."""

import itertools
import re
from collections.abc import Sequence

from nccltune.launch_lint.boxes import inside
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.directives import allocated
from nccltune.launch_lint.options import SLURM
from nccltune.launch_lint.read import is_launcher, joined, launcher_at, read_options
from nccltune.launch_lint.words import Line, Word

SHELLS = frozenset({"sh", "bash", "dash", "zsh"})


def script_at(words: Sequence[str], start: int) -> int | None:
    """Return the index of the script of `-c`, `-cx` or `-eo pipefail -c`, or None if none is.

    `start` is the index of the first word behind the shell.
    """
    at, is_c = start, False
    while at < len(words) and words[at][:1] in ("-", "+") and words[at] not in ("-", "--"):
        flags = "" if words[at].startswith("--") else words[at]
        is_c = is_c or (flags.startswith("-") and "c" in flags)
        takes_value = words[at] in ("--rcfile", "--init-file") or "o" in flags.lower()
        at += 1 + takes_value
    at += at < len(words) and words[at] in ("-", "--")
    return at if is_c and at < len(words) else None


def hides_command(words: Sequence[Word]) -> bool:
    """Return whether a line gives the words of a command to a program, as `eval` and Run:ai do."""
    return words[0].text == "eval" or any(word.text == "--master-args" for word in words)


def script_inside(words: tuple[Word, ...], site: LaunchContext) -> tuple[str, LaunchContext] | None:
    """Return the script in `bash -c TEXT`, `ssh HOST TEXT` or `sbatch --wrap TEXT`.

    Also return the script's context.

    The context has the options of sbatch. Return None for other lines.
    """
    names = [word.text.removeprefix("--entrypoint=").rpartition("/")[2] for word in words]
    if names[0] == "sbatch":
        options = read_options(words[1:], SLURM)
        wrapped = next((option.value for option in options if option.name == "wrap"), None)
        if wrapped is None:
            return None
        inherited = (*site.inherited, *options)
        return wrapped, allocated(site._replace(inherited=inherited, on_first="Slurm"))
    given = {word.text: following.text for word, following in itertools.pairwise(words)}
    if is_launcher(given.get("--master-command", "")) and "--master-args" in given:
        return f"{given['--master-command']} {given['--master-args']}", site  # Of Run:ai.
    if names[0] in REMOTE and " " in words[-1].text:
        remote = words[-1].text
        if words[-1].raw.startswith('"'):
            remote = HOST_NAME.sub("${HOST_OF_CALLER}", remote)  # The shell here replaces it.
        return remote, over_ssh(words, site._replace(on_first=""))
    for at, name in enumerate(names[:-2]):
        # `docker run --entrypoint=bash IMAGE -c SCRIPT` has the image between.
        gap = 1 + ("--entrypoint" in (words[at].text.partition("=")[0], words[at - 1].text))
        script = script_at([word.text for word in words], at + gap) if name in SHELLS else None
        if script is not None and " " in words[script].text:
            before = [word.text for word in words[:at]]
            head = before[: next((n for n, w in enumerate(before) if "=" not in w), at)]
            return words[script].text, site._replace(
                around=tuple(before),
                outside=inside(head, site.exported),
                exported=inside(before, site.exported),
            )
    return None


def over_ssh(words: Sequence[Word], site: LaunchContext) -> LaunchContext:
    """Return the context of what `ssh HOST` starts: no variable of the script, without SendEnv."""
    texts = [word.text for word in words]
    if texts[0].rpartition("/")[2] not in REMOTE or re.search("(?i)(?:send|set)env", str(texts)):
        return site
    scope = site.scope and site.scope._replace(values={}, arrays={})
    return site._replace(exported=(), scope=scope, unseen=(), not_passed=site.exported)


REMOTE = ("ssh", "pdsh")
HOST_NAME = re.compile(r"\$\(hostname\b[^()]*\)|`hostname\b[^`]*`|\$\{?HOSTNAME\b\}?")
"""What a shell replaces by the name or the address of its node."""


def in_salloc(words: tuple[Word, ...], site: LaunchContext) -> LaunchContext:
    """Return the context with the options of `salloc OPTIONS srun ...`, or that behind ssh."""
    at = launcher_at(words)
    if words[0].text.rpartition("/")[2] != "salloc" or at is None:
        return over_ssh(words, site)
    options = read_options(words[1:at], SLURM)
    return allocated(site._replace(inherited=(*site.inherited, *options)))


_ASKS = ("--help", "--version", "version", "--usage", "-h", "-V", "--mpi=list", "--check-build")


def only_asks(line: Line) -> bool:
    """Return whether a line such as `srun --help | grep pyxis` only asks the launcher."""
    words = joined(line.words)
    at = launcher_at(words)
    after = [word.text for word in words[at + 1 :]] if at is not None else []
    return bool(after) and after[0] in _ASKS
