# SPDX-License-Identifier: Apache-2.0
"""Split a command into launcher, options and program, and find the possible launchers."""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.program import is_nccl_test, nearest_nccl_test
from nccltune.launch_lint.boxes import DOCKERS, PODS, VERBS, entrypoint_of
from nccltune.launch_lint.command import ELIDED, UNKNOWN_OPTIONS, UNLISTED, LaunchCommand, Option
from nccltune.launch_lint.options import (
    ACCELERATE,
    APRUN,
    AZUREML,
    COMMON,
    DEEPSPEED,
    FLUX,
    HOROVOD,
    HYDRA,
    INTEL,
    JSRUN,
    LOCAL,
    OPENMPI_4,
    OPENMPI_5,
    PALS,
    SERVERS,
    SGLANG,
    SLURM,
    TABLES,
    TORCHRUN,
    VLLM,
    Spec,
)
from nccltune.launch_lint.words import Line, Word, nearest
from nccltune.model.errors import InputError
from nccltune.model.names import listed

_OPENMPI = (OPENMPI_4, OPENMPI_5)
_BY_NAME: dict[str, tuple[Flavor, ...]] = {
    "mpirun": (*_OPENMPI, HYDRA, INTEL, PALS),
    "mpiexec": (*_OPENMPI, HYDRA, INTEL, PALS),
    "mpirun.openmpi": _OPENMPI,
    "mpiexec.openmpi": _OPENMPI,
    "orterun": (OPENMPI_4,),
    "prterun": (OPENMPI_5,),
    "mpirun.mpich": (HYDRA,),
    "mpiexec.mpich": (HYDRA,),
    "mpiexec.hydra": (HYDRA, INTEL),
    "srun": (SLURM,),
    **dict.fromkeys(("torchrun", "torchrun_jsc", "tune run"), (TORCHRUN,)),
    **dict.fromkeys(("llamafactory-cli train", "lmf train", "colossalai run"), (TORCHRUN,)),
    "deepspeed": (DEEPSPEED,),
    "accelerate launch": (ACCELERATE,),
    "flux run": (FLUX,),
    "flux submit": (FLUX,),
    "jsrun": (JSRUN,),
    "aprun": (APRUN,),
    **dict.fromkeys(("horovodrun", "torchpack dist-run"), (HOROVOD,)),
    "azureml": (AZUREML,),
    "vllm serve": (VLLM,),
    "sglang serve": (SGLANG,),
}
_PYTHON = re.compile(r"python[\d.]*|\$\{?PYTHON(?:_?BIN|_?EXE\w*)?\}?")
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torchrun_jsc": "torchrun",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate launch",
    "horovod.runner.launch": "horovodrun",
    "vllm.entrypoints.openai.api_server": "vllm serve",
    "vllm.entrypoints.api_server": "vllm serve",
    "sglang.launch_server": "sglang serve",
    "dynamo.vllm": "vllm serve",
    "dynamo.sglang": "sglang serve",
}
_NO_LAUNCHERS = ("deepspeed.launcher.launch",)
WRAPPERS = frozenset(
    listed("""
env numactl taskset time timeout sudo nohup nsys ncu docker podman singularity apptainer stdbuf
singularity_wrapper apptainer_wrapper
exec chrt nice enroot poetry uv conda pipenv nvprof rocprof rocprofv3 compute-sanitizer gdb strace
perf
""")
)
_ABBREVIATED = (SLURM, DEEPSPEED, TORCHRUN)
"""Launchers that take every beginning of a long name that is only one option's."""
_GLUED_BY = (SLURM, FLUX, JSRUN, APRUN, DEEPSPEED)
"""Launchers that take the value of a short option in the same word: -N2."""
_NAMES_LAUNCHER = re.compile(r"-[vVl]|which|type|hash|--?\w{0,32}(?:mpi|launch)[\w-]{0,32}")
"""What precedes the name of a launcher: `command -v mpirun`, `solver -l srun`."""
_SIGNS = (
    (INTEL, re.compile(r"/(?:intel|oneapi|impi)[^/]*/|^I_MPI_|^module:(?:intel-?mpi|impi)")),
    (HYDRA, re.compile(r"^(?:MPICH|MV2|MPIR_CVAR)_|^module:(?:cray-)?(?:mpich|mvapich)")),
    (OPENMPI_4, re.compile(r"^OMPI_MCA_|^--?mca$|^module:(?:openmpi|hpcx)")),
)
"""What shows whose `mpirun` it is: a path, a variable, or a module that the script loads."""
_SHORT = 3
_GLUED = re.compile(r"-([a-zA-Z])(.+)")


_SCRIPT = re.compile(r"[\w./~${}-]*\.(?:sh|bash|py|yml|yaml)")
_RUNS_SCRIPTS = ("bash", "sh", "source", "sbatch", "qsub", "make", "ansible-playbook")


def script_of(words: Sequence[Word]) -> str | None:
    """Return the script or module that a command starts: `./run.sh`, `python -m bench`, or None.

    Variables and wrappers, such as `singularity exec IMAGE`, may precede it.
    """
    texts = [word.text for word in words if not _ASSIGNS.match(word.text)]
    names = [PurePosixPath(text).name for text in texts]
    if names and names[0] in WRAPPERS:
        starts = (n in _RUNS_SCRIPTS or _PYTHON.fullmatch(n) or _SCRIPT.fullmatch(n) for n in names)
        at = next(itertools.compress(itertools.count(), starts), len(names))
        names, texts = names[at:], texts[at:]
    if not names:
        return None
    if _PYTHON.fullmatch(names[0]) and "-m" in texts[1:-1]:
        return f"python -m {texts[texts.index('-m') + 1]}"
    runs = names[0] in _RUNS_SCRIPTS or _PYTHON.fullmatch(names[0]) is not None
    if runs and names[0] == "make":
        return " ".join(["make", *texts[1:2]])
    return next((t for t in (texts if runs else texts[:1]) if _SCRIPT.fullmatch(t)), None)


class NothingToCheckError(InputError):
    """A text or file holds nothing that is checked."""


def no_launcher(lines: Iterable[Line] = ()) -> InputError:
    """Return the error for a text with neither a launcher nor a program of nccl-tests.

    `lines` are its lines. A script that one of them starts may start a launcher.
    """
    scripts = [name for line in lines if (name := script_of(line.words)) is not None]
    if scripts:
        names = ", ".join(dict.fromkeys(scripts[:4]))
        return NothingToCheckError(
            f"no launch command is in this text; what {names} starts was not followed",
            hint="check the file that has the launcher: nccltune lint FILE",
        )
    return NothingToCheckError(
        "no launch command is in this text",
        hint="looked for mpirun, mpiexec, prterun, srun, torchrun, deepspeed, accelerate launch,"
        " horovodrun, llamafactory-cli, colossalai, flux run, jsrun, aprun and the programs of"
        " nccl-tests; for a file, give its path",
    )


def joined(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return the words, in which the words that name one launcher are joined to one word.

    `python -m torch.distributed.run` is `torchrun`, and `flux run` is one word.
    """
    result: list[Word] = []
    at = 0
    while at < len(words):
        texts = [word.text for word in words[at : at + 5]]
        name = PurePosixPath(texts[0]).name
        length, joint = 1, f"{name} {texts[1]}" if len(texts) > 1 else ""
        if _PYTHON.fullmatch(name):
            # Options of Python may precede: `python -u -m MODULE`.
            behind = next((n for n in range(1, len(texts)) if texts[n][:1] != "-"), 0)
            module = module_meant(texts[behind]) if behind else ""
            if behind and texts[behind - 1] != "-m":
                path = f".{texts[behind].removesuffix('.py').replace('/', '.')}"
                is_file = texts[behind].endswith(".py")
                module = next((m for m in _MODULES if is_file and path.endswith(f".{m}")), "")
            joint = _MODULES.get(module, "")
            length = behind + 1 if joint else 1
        elif joint in _BY_NAME and (name != "tune" or "".join(texts[2:3]).startswith("-")):
            length = 2
        elif _is_entrypoint(words, at):
            result.append(Word(" ".join(entrypoint_of(texts[0])), words[at].raw))
            at += 1
            continue
        raw = " ".join(word.raw for word in words[at : at + length])
        result.append(Word(joint, raw) if length > 1 else words[at])
        at += length
    return tuple(result)


_MOST_OPTIONS = 256
"""Maximum number of words of `docker run` before its image."""


def _is_entrypoint(words: Sequence[Word], at: int) -> bool:
    """Return whether the word at `at` is the image of `docker run` that starts what it is for."""
    if not entrypoint_of(words[at].text):
        return False
    before = [word.text for word in words[max(0, at - _MOST_OPTIONS) : at]]
    is_run = "run" in before and any(text.rpartition("/")[2] in DOCKERS for text in before)
    is_own = any(text.startswith("--entrypoint") for text in before)
    return is_run and not is_own


def module_meant(name: str) -> str:
    """Return the module that starts processes whose name a misspelt one is; else the name."""
    is_other = name in _MODULES or name.partition(".")[2].count(".") != 1 or name in _NO_LAUNCHERS
    return name if is_other else nearest(name, _MODULES, 0.93) or name


def launcher_at(words: Sequence[Word]) -> int | None:
    """Return the index of the launcher in `words`, or None if no launcher precedes the program."""
    for at, word in enumerate(words):
        if is_launcher(word.text):
            if at and _NAMES_LAUNCHER.fullmatch(words[at - 1].text):
                continue
            if PurePosixPath(word.text).name == "deepspeed" and not _is_started(words, at):
                continue
            return at
        if is_nccl_test(word.text):
            return None
    return None


def _is_started(words: Sequence[Word], at: int) -> bool:
    """Return whether `deepspeed` at `at` is started, and not an argument: `pip install deepspeed`.

    A launcher, a wrapper or a variable may precede it.
    """
    first = next((w.text for w in words[:at] if "=" not in w.text and w.text[:1] != "$"), None)
    name = PurePosixPath(first or "").name
    known = first is None or name in WRAPPERS or is_launcher(name)
    return at + 1 < len(words) and known and words[at - 1].text != "install"


def is_launcher(word: str) -> bool:
    """Return whether a word names a launcher."""
    return PurePosixPath(word).name in _BY_NAME and not _ASSIGNS.match(word)


_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")


def program_at(words: Sequence[Word]) -> int | None:
    """Return the index of an nccl-tests binary that is started without a launcher, or None.

    Variables (NAME=VALUE) and wrappers such as `sudo` or `numactl` may precede the binary. A name
    similar to that of a binary counts too, because it is probably misspelt.
    """
    is_wrapped = False
    for at, word in enumerate(words):
        name, sign, _ = word.text.partition("=")
        if sign and name.isidentifier():
            continue
        # A value that is not known may have blanks: `$ROOT/build/all_reduce_perf`.
        if (" " not in word.text or " " not in word.raw) and (
            is_nccl_test(word.text) or nearest_nccl_test(word.text) is not None
        ):
            return at
        if PurePosixPath(word.text).name in WRAPPERS:
            is_wrapped = True
        elif not is_wrapped and word.text in PODS:
            # Only the words behind `--` are a command. Others name pods, files and jobs.
            texts = [word.text for word in words]
            end = texts.index("--") + 1 if "exec" in texts and "--" in texts else len(texts)
            found = program_at(words[end:])
            return None if found is None else end + found
        elif not is_wrapped:
            return None
    return None


_NAME_PROGRAMS = frozenset(
    listed("""
- echo printf killall pkill pgrep kill ldd nm file ls which whereis cp mv rm scp rsync chmod ln grep
""")
)
"""Commands that name programs and start none of them, and an item of a list in YAML."""


def starts_something(words: Sequence[Word]) -> bool:
    """Return whether a line of a script starts a launcher or a program of nccl-tests."""
    words = joined(words)
    first = PurePosixPath(words[0].text).name if words else ""
    verbs = VERBS.get(first)
    # `docker build -t deepspeed .` names an image.
    if first in _NAME_PROGRAMS or (verbs and not any(word.text in verbs for word in words)):
        return False
    return launcher_at(words) is not None or program_at(words) is not None


def is_command(words: Sequence[Word]) -> bool:
    """Return whether words are a command from the first on, and not prose that names one."""
    words = joined(words)
    at = launcher_at(words)
    if at is None:
        at = program_at(words)
    if at is None or not any(word.text.startswith("-") for word in words[at:]):
        return False
    before = [word.text for word in words[:at] if "=" not in word.text and word.text[:1] != "-"]
    # `run` is of `poetry run`.
    return all(PurePosixPath(text).name in {*WRAPPERS, "run"} for text in before)


def read(
    line: Line, wanted: Sequence[Flavor] = (), names: Iterable[str] = ()
) -> dict[Flavor, LaunchCommand]:
    """Return the parsed command for each launcher that the line may be for.

    `wanted` limits the launchers. `names` are variables that are set around the command. Raises
    InputError if the line has neither a launcher nor a program of nccl-tests, has several programs
    (`:`), or cannot be for `wanted`.
    """
    line = Line(joined(line.words), line.tail)
    at = launcher_at(line.words)
    if at is None:
        at = program_at(line.words)
        if at is None:
            raise no_launcher()
        if wanted and LOCAL not in wanted:
            raise InputError(
                f"there is no launcher in this command, not {wanted[0].words}",
                where="--launcher",
                hint="leave --launcher out",
            )
        words = line.words
        return {LOCAL: LaunchCommand(words[:at], Word("", ""), (), words[at:], line.tail)}
    texts = (*(word.text for word in line.words), *names)
    shown = {sign for sign, of in _SIGNS if any(map(of.search, texts))}
    flavors = _flavors(line.words[at].text, wanted, shown)
    found = {flavor: _read(line, at, flavor) for flavor in flavors}
    if wanted:
        return found
    # Options that a launcher does not have are evidence for the other launchers.
    faults = {flavor: _faults(command, flavor) for flavor, command in found.items()}
    by_family: dict[Launcher, int] = {}
    for flavor, number in faults.items():
        family = flavor.launcher
        by_family[family] = min(number, by_family.get(family, number))
    fewest = min(by_family.values())
    kept = [flavor for flavor in found if by_family[flavor.launcher] == fewest]
    if len(by_family) > 1 and fewest and len({flavor.launcher for flavor in kept}) > 1:
        # No launcher knows every option of the line. Keep only the first launcher, the most common
        # one, and let rules report the options that it does not know.
        kept = [flavor for flavor in kept if flavor.launcher is kept[0].launcher]
    # If versions of a launcher differ in the options that they know, keep those that know the most.
    # The rule `only_one_version` reports this.
    least = {
        family: min(faults[f] for f in kept if f.launcher is family)
        for family in by_family
        if any(f.launcher is family for f in kept)
    }
    kept = [flavor for flavor in kept if faults[flavor] == least[flavor.launcher]]
    # Without a sign of Intel MPI (a path, a variable, an option), assume MPICH's hydra, and Cray's
    # mpiexec only for options that no other one has.
    others = (*_OPENMPI, HYDRA, *[INTEL] * (INTEL in shown))
    for usual, other in ((HYDRA, INTEL), *((one, PALS) for one in others)):
        if usual in kept:
            kept = [flavor for flavor in kept if flavor != other]
    if PALS in kept:
        kept = [PALS]
    return {flavor: found[flavor] for flavor in kept}


def _flavors(launcher: str, wanted: Sequence[Flavor], shown: set[Flavor]) -> tuple[Flavor, ...]:
    path = PurePosixPath(launcher)
    possible = _BY_NAME[path.name]
    if any(part in launcher for part in ("mpich", "hydra")):
        possible = tuple(flavor for flavor in possible if flavor.launcher is Launcher.HYDRA)
    if not wanted and INTEL in shown and INTEL in possible:
        return tuple(flavor for flavor in possible if flavor in (INTEL, PALS))
    if not wanted:
        # Signs of two libraries show neither.
        family = {flavor.launcher for flavor in shown} if len(shown) == 1 else set()
        alike = {Launcher.HYDRA: (Launcher.HYDRA, Launcher.PALS)}
        kinds = [kind for one in family for kind in alike.get(one, (one,))]
        return tuple(flavor for flavor in possible if flavor.launcher in kinds) or possible
    kept = tuple(flavor for flavor in wanted if flavor in possible)
    if not kept:
        raise InputError(
            f"{path.name} is not a launcher of {wanted[0].words}",
            where="--launcher",
            hint="leave --launcher out",
        )
    return kept


def _faults(command: LaunchCommand, flavor: Flavor) -> int:
    unknown = sum(option.meaning is None for option in command.options)
    # MPICH reads -N as -n, which no user intends. A line with -N is for Open MPI.
    return unknown + int(
        flavor.launcher is Launcher.HYDRA and any(o.name == "N" for o in command.options)
    )


def _read_server(line: Line, at: int) -> LaunchCommand:
    """Read the command of a server, whose options stand in any order with the model."""
    (flavor,) = _BY_NAME[line.words[at].text]
    table, words, options = TABLES[flavor], line.words, []
    place = at + 1
    while place < len(words):
        text, end = words[place].text, place + 1
        name, sign, value = text.lstrip("-").partition("=")
        full = name.replace("_", "-")
        longer = [one for one in table if one.startswith(full)] if text[:2] == "--" else []
        # Python's argparse takes the beginning of a name: `--tensor-parallel 8`.
        spec = table.get(longer[0] if len(longer) == 1 else full) if text[:1] == "-" else None
        meaning, values = "", [value]
        if spec is not None:
            end += 0 if sign else spec.words
            meaning = spec.meaning
            values = [value] if sign else [word.text for word in words[place + 1 : end]]
        elif text in ELLIPSES:
            meaning = ELIDED
        elif _OPTIONS.match(text) or _ALL_WORDS.fullmatch(text):
            meaning = UNKNOWN_OPTIONS
        options.append(Option(words[place:end], name or text, tuple(values), meaning))
        place = end
    return LaunchCommand(words[:at], words[at], tuple(options), (), line.tail)


_ALL_WORDS = re.compile(r"\$[@*]|\$\{\w+\[[@*]\]\}")


def _read(line: Line, at: int, flavor: Flavor) -> LaunchCommand:
    if flavor in SERVERS:
        return _read_server(line, at)
    words, options = line.words, []
    place = at + 1
    end: tuple[Word, ...] = ()
    program_from = next(
        (n for n, word in enumerate(words) if n > at and is_nccl_test(word.text)), 0
    )
    while place < len(words):
        text = words[place].text
        if text.startswith(("$", "`")) and (
            place < program_from or _holds_options(words, place, flavor)
        ):
            # A variable with options that the text does not show.
            options.append(Option(words[place : place + 1], text, (), UNKNOWN_OPTIONS))
            place += 1
            continue
        if text in ELLIPSES:
            options.append(Option(words[place : place + 1], text, (), ELIDED))
            place += 1
            continue
        if not text.startswith("-") or text == "-":
            break
        if text == "--":
            end, place = words[place : place + 1], place + 1
            break
        option, place = _option(words, place, flavor)
        # deepspeed reads -1 as not given.
        is_default = flavor == DEEPSPEED and option.value == "-1"
        options.append(option._replace(meaning="") if is_default else option)
    program = words[place:]
    return LaunchCommand(words[:at], words[at], tuple(options), program, line.tail, end)


ELLIPSES = ("...", "\u2026", "[...]")
"""Words for what a text leaves out."""
_OPTIONS = re.compile(r"\$\{?\w*(?:ARG(?!ET)|OPT|FLAG|PARAM)\w*", re.I)
_PROGRAM = re.compile(r"(?:.*/)?(?:python[\d.]*|bash|sh|.*\.(?:py|sh))")


def _holds_options(words: Sequence[Word], at: int, flavor: Flavor) -> bool:
    """Return whether a variable before the program has options, by its name or what follows it."""
    behind = (w.text for w in words[at + 1 :] if not w.text.startswith(("$", "`")))
    following = next(behind, "")
    is_before = is_launcher(following) or _PROGRAM.fullmatch(following) is not None
    if following.startswith("--"):
        is_before = following.strip("-").partition("=")[0].replace("_", "-") in TABLES[flavor]
    return is_before or _OPTIONS.match(words[at].text) is not None


def read_options(words: Sequence[Word], flavor: Flavor) -> tuple[Option, ...]:
    """Return the options of words without a launcher and a program, as in a `#SBATCH` line."""
    options, place = [], 0
    while place < len(words):
        option, place = _option(words, place, flavor)
        options.append(option)
    return tuple(options)


def _option(words: Sequence[Word], at: int, flavor: Flavor) -> tuple[Option, int]:
    word = words[at]
    name, sign, value = word.text.lstrip("-").partition("=")
    table = TABLES[flavor]
    spec = table.get(name)
    # srun would read -ppn as -p with the partition `pn`, which no user intends. So an option that
    # another launcher knows is not split.
    foreign = flavor in COMMON and any(name in other for other in COMMON.values())
    match = _GLUED.fullmatch(word.text) if flavor in _GLUED_BY else None
    if spec is None and not foreign and match is not None:
        glued = table.get(match[1])
        if glued is not None and (glued.words or glued.is_optional):
            value = match[2].removeprefix("=")
            return Option((word,), match[1], (value,), glued.meaning), at + 1
        if flavor == SLURM and (cluster := _cluster(words, at)) is not None:
            return cluster
    is_mpi = flavor.launcher is Launcher.OPENMPI and word.text[:2] != "--"
    if is_mpi and spec is None and name and all(table.get(one) == Spec(0, "") for one in name):
        return Option((word,), name[0], (), ""), at + 1  # Open MPI reads -vv as -v -v.
    if spec is None and flavor.launcher is Launcher.HYDRA and name == "N":
        spec = table["n"]
    if spec is None and flavor in (TORCHRUN, ACCELERATE):
        spec = table.get(name.replace("_", "-"))
    is_long = word.text.startswith("--")
    if spec is None and flavor in _ABBREVIATED and is_long and (flavor != SLURM or not foreign):
        begin = name.replace("_", "-") if flavor == TORCHRUN else name
        longer = {known for key, known in table.items() if key.startswith(begin)}
        if len(longer) == 1:
            spec = longer.pop()
        elif flavor == SLURM:
            spec = Spec(_guess_words(words, at), UNLISTED)
    meaning = spec.meaning if spec is not None else None
    if sign:
        return Option((word,), name, (value,), meaning), at + 1
    count = spec.words if spec is not None else _guess(words, at, name, flavor)
    if spec is not None and name in ("genv", "env") and count == 2:
        # hydra and PALS also take NAME=VALUE in one word.
        count = 1 if "=" in (words[at + 1].text if at + 1 < len(words) else "=") else 2
    if meaning == "mca" and "=" in (words[at + 1].text if at + 1 < len(words) else ""):
        # `--mca NAME=VALUE` is wrong (two words are needed). The next word is not meant as a value.
        count = 1
    taken = words[at : at + 1 + count]
    return Option(tuple(taken), name, tuple(w.text for w in taken[1:]), meaning), at + len(taken)


def _cluster(words: Sequence[Word], at: int) -> tuple[Option, int] | None:
    """Read `-lu` or `-lN2` of srun: short options in one word, the last of which takes a value."""
    table, letters = TABLES[SLURM], words[at].text[1:]
    rest = letters.lstrip("".join(one for one in letters if table.get(one) == Spec(0, "")))
    if rest in ("", letters):
        return (Option((words[at],), letters, (), ""), at + 1) if not rest else None
    if (last := table.get(rest[0])) is None:
        return None
    end = at + 1 + (0 if rest[1:] else last.words)
    values = (rest[1:],) if rest[1:] else tuple(word.text for word in words[at + 1 : end])
    return Option(tuple(words[at:end]), rest[0], values, last.meaning), end


def nearest_option(name: str, flavor: Flavor) -> str | None:
    """Return the launcher's option with the most similar name, or None if none is similar.

    Names of fewer than four letters are not compared: they resemble too many other names.
    """
    plain = name.lower().replace("_", "-")
    long = [known for known in TABLES[flavor] if len(known) > _SHORT]
    if len(name) <= _SHORT:
        return None
    squeezed = {known.replace("-", "").replace("_", ""): known for known in long}
    if (same := squeezed.get(plain.replace("-", ""))) is not None:
        return same
    return nearest(plain, long, 0.84)


def _guess(words: Sequence[Word], at: int, name: str, flavor: Flavor) -> int:
    """Return how many words follow an option that the launcher does not know.

    This is the number for the same option of another launcher, else for the option with the most
    similar name. Without such an option, return 1 if the following word looks like a value, else 0.
    """
    following = words[at + 1].text if at + 1 < len(words) else "-"
    for table in COMMON.values():
        if name in table:
            return _of_other(table[name], following)
    near = nearest_option(name, flavor)
    if near is not None:
        return _of_other(TABLES[flavor][near], following)
    return _guess_words(words, at)


def _guess_words(words: Sequence[Word], at: int) -> int:
    """Return 1 if the word after the option at `at` looks like its value, else 0."""
    following = words[at + 1].text if at + 1 < len(words) else "-"
    return 0 if following.startswith("-") or "/" in following or is_nccl_test(following) else 1


def _of_other(spec: Spec, following: str) -> int:
    return 1 if spec.words == 2 and "=" in following else spec.words
