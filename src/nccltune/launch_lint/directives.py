# SPDX-License-Identifier: Apache-2.0
"""Read the nodes, slots and GPUs that a script asks its scheduler for: #SBATCH, #PBS, #BSUB, #$."""

import contextlib
import re
from collections.abc import Iterator

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.finding import LaunchFinding, error, note, warning
from nccltune.launch_lint.hosts import text_of, with_gpus_of
from nccltune.launch_lint.options import ELSEWHERE, FLUX, SLURM
from nccltune.launch_lint.read import read_options, script_of
from nccltune.launch_lint.shell import LSF_HOSTFILE, OPERATORS_HOSTFILE, ShellScope, ShellValue
from nccltune.launch_lint.typography import DASHES
from nccltune.launch_lint.words import Line, Word, split, whole_number
from nccltune.model.errors import InputError
from nccltune.model.scale import count

_CHUNK = re.compile(r"(\d+)?((?::?[A-Za-z_]\w*=[^:+\s]+)*)")
_OF_LSF = {
    "nodes": re.compile(r"^#BSUB\b.*?\s-nnodes\s+(\d+)", re.M),
    "total": re.compile(r"^#BSUB\b.*?\s-n\s+(\d+)", re.M),
    "slots": re.compile(r"^#BSUB\b.*?\bspan\[ptile=(\d+)\]", re.M),
    "gpus": re.compile(r"^#BSUB\b.*?\s-gpu\s+[\"']?num=(\d+)", re.M),
}
_OF_TORQUE = re.compile(
    r"^#PBS\b.*?\s-l\s*\S*\bnodes=(\d+)(?::ppn=(\d+))?\S*?(?::gpus=(\d+))?", re.M
)
_OF_PBS = re.compile(r"^#PBS\b.*?\s-l\s*\S*\bselect=(\S+)", re.M)

_NUMBERS = (
    ("NSLOTS", re.compile(r"^#\$.*?\s-pe\s+\S+\s+(\d+)\s*$", re.M)),
    ("LSB_DJOB_NUMPROC", _OF_LSF["total"]),
    ("PBS_NUM_NODES", _OF_TORQUE),
)
"""Variables that Grid Engine, LSF and Torque set to a number that the script asks for."""


def with_directives(text: str, site: LaunchContext) -> LaunchContext:
    """Return `site` with what the directives of a script ask the scheduler for."""
    inherited = [option for words in _sbatch_words(text) for option in read_options(words, SLURM)]
    site = _of_lsf(text, _of_pbs(text, _of_flux(text, site)))
    known = [(name, match[1]) for name, of in _NUMBERS if (match := of.search(text)) is not None]
    site = site._replace(exported=(*site.exported, *known))
    plain = _substituted(text)
    of_batch = "Slurm" if inherited else next((n for n, of in _BATCH if of.search(text)), "")
    starts = [line[match.end(1) :] for line in plain.splitlines() if (match := _STARTS.match(line))]
    on_first = site.on_first or ("" if any(map(_SCRIPTS.search, starts)) else of_batch)
    spreads = max(site.spreads, len(starts))
    site = site._replace(inherited=(*site.inherited, *inherited), on_first=on_first)
    modules = [name.lower() for line in _LOADS.findall(text) for name in line.split()]
    site = site._replace(spreads=spreads, modules=(*site.modules, *modules))
    return allocated(site)


_BATCH = (("PBS", re.compile(r"^#PBS\b", re.M)), ("LSF", re.compile(r"^#BSUB\b", re.M)))


def never_started(text: str, around: LaunchContext) -> Iterator[LaunchFinding]:
    """Yield the note on a batch script of several tasks that starts programs of Python alone.

    They may be in the file of `bash FILE`. There is none beside a line that may start the tasks:
    srun, an unknown word before a program, or a program that is given the nodes.
    """
    site = with_directives(text, LaunchContext())
    lines: list[Line] = []
    with contextlib.suppress(InputError):
        lines = split(text) if site.on_first and not site.spreads else []
    scripts: dict[str, None] = {}
    unseen = ""
    for line in lines:  # Grows by the lines of the scripts that it starts.
        if not line.words or line.words[0].text in ("source", "."):
            continue
        first, *rest = (word.text for word in line.words)
        name = script_of(line.words)
        if name is None:
            is_open = any(text.endswith(".py") for text in rest)
            is_open |= any(_PYTHON.search(text) for text in rest[:-1])
        else:
            by_shell = first in ("bash", "sh")
            content = text_of(name, around) if by_shell and name not in scripts else ""
            is_open = not (by_shell or name.endswith(".py"))
            is_open |= any(map(_NAMES_NODES.search, rest)) or bool(_STARTS.search(content or ""))
            unseen = f", and {name} has no srun of its own" if content is None else unseen
            scripts[name] = None
            with contextlib.suppress(InputError):
                lines += split(content or "")
        if is_open or first.startswith(("$", "./", "/")):
            return
    if not scripts or (unseen and len(scripts) > 1):
        return
    nodes, names = site.nodes or 1, " or ".join(scripts)
    tasks = (site.slots or 1) * nodes
    if nodes > 1:
        start = {"PBS": "mpiexec", "LSF": "jsrun or mpirun"}.get(site.on_first, "srun")
        yield note(
            "batch-alone",
            f"{site.on_first} runs the batch script on the first of {nodes} nodes only:"
            f" {count(nodes - 1, 'node')} of the job stay{'s' * (nodes == 2)} idle, unless {names}"
            " starts processes there"
            + f", and one that waits for {tasks} tasks hangs"
            * (tasks > nodes),
            f"what each node is to run starts with {start}",
        )
    elif site.on_first == "Slurm" and tasks > 1 and site.gpus == tasks:
        yield note(
            "batch-alone",
            f"Slurm runs the batch script as one task: if {names} waits for {tasks} tasks of the"
            f" job, as Lightning does{unseen}, it hangs",
            "what each task is to run starts with srun",
        )
    elif not unseen:
        said = f"no launcher: {site.on_first} starts {names} as one process on one node"
        yield note("batch-alone", f"{said}, unless it starts more itself")


_NAMES_NODES = re.compile(r"^--?host|[$`].*(?:node|host|tasks|nprocs)", re.I)
"""A word that may give a program the nodes of the job."""
_PYTHON = re.compile(r"(?:^|/)python[\d.]*$")


_LOADS = re.compile(r"^[ \t]*(?:module (?:load|add|swap \S+)|ml(?: load)?)[ \t]+([^#;&|\n]*)", re.M)
_STARTS = re.compile(rf"[^#\n]*?\b({'|'.join(map(re.escape, ELSEWHERE))})(?:\s|$)")
"""A line that may start anything on other nodes, up to what it starts there."""
_SCRIPTS = re.compile(r"\b(?:ba)?sh\b|torch|accelerate|\$0|\s[\"']?\$\{?\w+\}?[\"']?\s*(?:&.*)?$")
"""A part of such a line that may start on other nodes what the script runs on the first."""


def _substituted(text: str) -> str:
    """Return a script without the commands whose output it takes, and with joined lines."""
    return re.sub(r"\$\([^()\n]*\)|`[^`\n]*`|\\\n", " ", text)


_COMMENT = re.compile(r"""("[^"]*"|'[^']*'|\\.)|#.*""")
"""What ends the options of a directive: sbatch takes a `#` within a word for that, too."""


def _sbatch_words(text: str) -> Iterator[tuple[Word, ...]]:
    for line in text[: _first_command(text)].splitlines():
        if line.startswith("#SBATCH"):
            for part in split(_COMMENT.sub(r"\1", line.removeprefix("#SBATCH"))):
                yield part.words


def _first_command(text: str) -> int | None:
    """Return where the first command of one script begins, or None for other texts."""
    is_script = text.startswith("#!") and text.count("\n#!") == 0 and "<<" not in text
    match = _COMMAND.search(text) if is_script else None
    return match.start() if match is not None else None


_LONGEST = 80
_COMMAND = re.compile(r"^[ \t]*[^#\s]", re.M)
_DIRECTIVE = re.compile(r"^#(SBATCH|PBS)[ \t]+(-[^\s#][^#\n]*)", re.M)
_COMMENTED = re.compile(r"^#[ \t]+(SBATCH|PBS)[ \t]+(-[^\s#][^#\n]*)", re.M)

_DASHED = re.compile(rf"^(#(?:!|SBATCH|PBS|BSUB).*?[ \t]([{DASHES}]\w\S*))", re.M)
_CUT = re.compile(r"^#SBATCH[ \t]+((?:[^#\"'\\\n]*[ \t])?(-[^\s#\"'\\]*)#\S+)", re.M)
"""A word with # in it, behind words without quotes."""


def _shown(options: str) -> str:
    options = " ".join(options.split())
    return options if len(options) <= _LONGEST else f"{options[:_LONGEST]} ..."


def unread_directives(text: str) -> Iterator[LaunchFinding]:
    """Find directives behind the first command, with dashes, and those that are all comments."""
    end = _first_command(text)
    if end is not None and (late := _DIRECTIVE.search(text, end)) is not None:
        who = "Slurm" if late[1] == "SBATCH" else "PBS"
        yield warning(
            "directive-late",
            f"#{late[1]} {_shown(late[2])} stands behind the first command: {who} reads no"
            " directive there",
            "write it above the first command",
        )
    if (cut := _CUT.search(text[:end])) is not None:
        yield warning(
            "directive-cut",
            f"#SBATCH {_shown(cut[1])}: for Slurm a comment begins at #, and it reads"
            f" {cut[2]} alone",
            "write \\#",
        )
    for line, word in _DASHED.findall(text):
        said = f"{_shown(line)}: {word} begins with the character U+{ord(word[0]):04X}, no hyphen"
        yield error("dash", f"{said}: it is not read as an option", f"write -{word[1:]}")
    bare = _COMMENTED.search(text)
    if bare is not None and re.search(rf"^#{bare[1]}\b", text, re.M) is None:
        said = f"'# {bare[1]} {_shown(bare[2])}' is a comment: a directive has no blank behind #"
        yield note("directive-comment", said)


def allocated(site: LaunchContext) -> LaunchContext:
    """Return `site` with the nodes, slots and GPUs of its inherited options (`#SBATCH`).

    An mpirun in the script uses these numbers.
    """
    by_meaning = {option.meaning: option.value for option in site.inherited}

    def number(meaning: str) -> int | None:
        return whole_number(by_meaning.get(meaning, "")) or None

    nodes = number("nodes") or site.nodes
    slots = number("per_node") or site.slots
    total = number("total")
    if slots is None and total is not None:
        slots = -(-total // (nodes or 1))
    return with_gpus_of(site.inherited, site._replace(nodes=nodes, slots=slots))


def _of_flux(text: str, site: LaunchContext) -> LaunchContext:
    for line in text.splitlines():
        match = re.match(r"#\s*(?:FLUX|flux):\s+(-.*)", line)
        for part in split(match[1].replace("'", "")) if match is not None else []:
            for option in read_options(part.words, FLUX):
                number = whole_number(option.value)
                if option.meaning == "nodes" and number:
                    site = site._replace(nodes=number)
                elif option.meaning == "gpus_per_node" and number:
                    site = site._replace(gpus=number)
    return site


def _of_pbs(text: str, site: LaunchContext) -> LaunchContext:
    """Return `site` with the chunks of `select=2:ngpus=4:mpiprocs=4`, or `nodes=2:ppn=8`.

    Each chunk is taken for a node.
    """
    selected = _OF_PBS.search(text)
    if selected is not None:
        chunks = [_CHUNK.match(chunk) for chunk in selected[1].split("+")]
        counts = [int(chunk[1] or 1) if chunk is not None else 0 for chunk in chunks]
        first = dict(part.partition("=")[::2] for part in selected[1].split("+")[0].split(":")[1:])
        slots, gpus = whole_number(first.get("mpiprocs", "")), whole_number(first.get("ngpus", ""))
        nodes = sum(counts)
    elif (match := _OF_TORQUE.search(text)) is not None:
        nodes = int(match[1])
        slots, gpus = (int(part) if part else None for part in match.groups()[1:])
    else:
        return site
    return site._replace(
        nodes=nodes or site.nodes, slots=slots or site.slots, gpus=gpus or site.gpus
    )


def _of_lsf(text: str, site: LaunchContext) -> LaunchContext:
    numbers = {
        name: int(match[1])
        for name, of in _OF_LSF.items()
        if (match := of.search(text)) is not None
    }
    slots, nodes = numbers.get("slots"), numbers.get("nodes")
    if slots and nodes is None and "total" in numbers:
        nodes = -(-numbers["total"] // slots)
    return site._replace(
        nodes=nodes or site.nodes, slots=slots or site.slots, gpus=numbers.get("gpus") or site.gpus
    )


_MOST_HOSTS = 1024


def scope_of(site: LaunchContext) -> ShellScope:
    """Return the variables that the context gives: those of a container, and Slurm's own."""
    if site.scope is not None:
        return site.scope.copy()
    values = {name: ShellValue(value) for name, value in site.exported}
    by_meaning = {option.meaning: whole_number(option.value) for option in site.inherited}
    per_node = by_meaning.get("per_node")
    total = by_meaning.get("total") or (
        per_node * site.nodes if per_node is not None and site.nodes is not None else None
    )
    each = f"{per_node}(x{site.nodes})" if site.nodes != 1 else per_node
    known = {
        "SLURM_TASKS_PER_NODE": each if per_node and site.nodes else None,
        "SLURM_NNODES": site.nodes,
        "SLURM_JOB_NUM_NODES": site.nodes,
        "SLURM_NTASKS": total,
        "SLURM_NPROCS": total,
        "SLURM_NTASKS_PER_NODE": per_node,
        "SLURM_GPUS_PER_NODE": site.gpus_per_node if "gpus_per_node" in by_meaning else None,
        "SLURM_GPUS_ON_NODE": site.gpus_per_node,
    }
    if site.inherited:
        for name, number in known.items():
            if number is not None:
                values.setdefault(name, ShellValue(str(number)))
    if site.workers is not None:
        for name in ("OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"):
            values.setdefault(name, ShellValue(OPERATORS_HOSTFILE))
    files: dict[str, str] = dict(site.files)
    if site.nodes is not None and site.workers is None and not site.inherited:
        # The hosts of a job of PBS or LSF: their names are not known, their number is.
        hosts = [f"node{n}" for n in range(min(site.nodes, _MOST_HOSTS))]
        values.setdefault("PBS_NODEFILE", ShellValue("$PBS_NODEFILE"))
        files["$PBS_NODEFILE"] = "".join(f"{host}\n" * (site.slots or 1) for host in hosts)
        values.setdefault("LSB_DJOB_HOSTFILE", ShellValue(LSF_HOSTFILE))
        files[LSF_HOSTFILE] = "\n".join(hosts)
    return ShellScope(values, {}, site.nodes, site.gpus_per_node, site.workers, files)
