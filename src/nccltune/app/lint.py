# SPDX-License-Identifier: Apache-2.0
"""Lint: recognise a file or a text by its content, and check it.

It is a tuner configuration (CSV), a topology or graph file, or a launch: a command line, a script,
a Kubernetes manifest, or the output of nccl-tests.
"""

import codecs
import re
import shlex
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from nccltune.app.job import launcher_flavor, read_keys
from nccltune.doctor.evidence.parsers.failures import parse_failures
from nccltune.formats.text.lines import encoding_of
from nccltune.formats.topology.nvidia_smi_matrix import looks_like_matrix
from nccltune.formats.topology.xml_tree import MAX_BYTES
from nccltune.formats.tuner_config.csv_rules import (
    COLUMNS,
    LEAST_COLUMNS,
    UNMARKED,
    foreign_rules,
    read_rules,
)
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch_lint import compose, manifest, output, source
from nccltune.launch_lint.around import read_around
from nccltune.launch_lint.check import LaunchCheck, check_all, placement_of_one
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.directives import never_started, unread_directives
from nccltune.launch_lint.finding import LaunchFinding, note
from nccltune.launch_lint.flow import without_here
from nccltune.launch_lint.options import (
    AZUREML,
    HYDRA,
    INTEL,
    ON_JOB,
    OPENMPI_4,
    OPENMPI_5,
    SLURM,
    TRAINERS,
)
from nccltune.launch_lint.pasted import unnumbered
from nccltune.launch_lint.peers import (
    judge_cluster,
    judge_copies,
    judge_peers,
    judge_ray,
    nics_by_rank,
)
from nccltune.launch_lint.read import NothingToCheckError, no_launcher, starts_something
from nccltune.launch_lint.recipes import judge_dockerfile, lost_exports
from nccltune.launch_lint.source import FoundCommand
from nccltune.launch_lint.stated import (
    checked_alone,
    judge_boxes,
    judge_conf,
    judge_python,
    judge_stated,
    stated_settings,
    without_conf,
)
from nccltune.launch_lint.tasks import task_of
from nccltune.launch_lint.training import configuration_commands, configurations_in
from nccltune.launch_lint.typography import cut_exports, merge_marks
from nccltune.launch_lint.words import quoted
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from nccltune.model.sizes import parse_bytes
from nccltune.study import names
from nccltune.topology.files.load import read_file
from nccltune.topology.lint.check import LintResult as TopologyLintResult
from nccltune.topology.lint.check import lint_files
from nccltune.tune.lint import LintIssue, NumberedRule, file_issue, foreign_separator, lint_rules

_ROW = re.compile(r"\s*\"?[\w-]+\"?\s*,\s*\"?\d[^,]*(?:,[^,]*){3,}")
"""Matches a row of a tuner configuration: a word, a number and at least three more cells."""
_PAGE = re.compile(r"^ *(?:```|~~~|#{1,6} +\w.*\n *\n)", re.M)
"""What a page of Markdown has: a block of code, or a heading."""
_MARKER = re.compile(r"^#+\s*nccltune:", re.M)
_SCRIPT = re.compile(r"\A#!|^#SBATCH\b", re.M)
_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#.*$", re.M)
_NAMES_LAUNCH = re.compile(
    r"^[^#\n]*(?<![\w-])(?:(?:mpirun|mpiexec|srun|torchrun)\s+-|ray (?:start|submit|up|job) "
    r"|process_count_per_instance:)",
    re.M,
)
_KNOWN = (
    "known are tuner configurations (CSV), topology and graph files (XML, nvidia-smi topo -m), "
    "scripts, Kubernetes manifests, output of nccl-tests, and launch commands; ‹kind› names one"
)


class LintKind(StrEnum):
    """The kind of an input to check."""

    CONFIGURATION = "configuration"
    TOPOLOGY = "topology"
    LAUNCH = "launch"


class LintRequest(NamedTuple):
    """The inputs to check: files, folders, launch commands, or a `command` in words.

    `kind` None recognises each by its content. `gpu_memory` is such as `80G`, `settings` are keys
    of a job file (`hosts=a:8,b:8`). `here`: also compare topologies with this machine.
    """

    things: Sequence[str]
    command: Sequence[str] = ()
    kind: LintKind | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_memory: str | None = None
    launcher: str | None = None
    settings: Sequence[str] = ()
    here: bool = False


class LintedConfiguration(NamedTuple):
    """A checked configuration; `source` is the study or file that the user named."""

    source: Path
    path: Path
    rules: int
    issues: list[LintIssue]

    @property
    def is_bad(self) -> bool:
        """Return whether any problem is an error or a warning."""
        return any(issue.severity is not Severity.NOTE for issue in self.issues)


class LintedLaunch(NamedTuple):
    """A checked launch.

    `source` is its file, if any. `commands` has the problems of each command, `findings` those of
    the whole file.
    """

    source: str | None
    commands: list[LaunchCheck]
    findings: list[LaunchFinding]

    @property
    def is_bad(self) -> bool:
        """Return whether any problem is an error or a warning."""
        findings = any(finding.severity is not Severity.NOTE for finding in self.findings)
        return findings or any(command.is_wrong for command in self.commands)


class LintResult(NamedTuple):
    """The results of all checks. Topologies have one result, because nodes are compared."""

    configurations: list[LintedConfiguration]
    topologies: TopologyLintResult | None
    launches: list[LintedLaunch]

    @property
    def is_bad(self) -> bool:
        """Return whether any problem is an error or a warning."""
        return (
            any(item.is_bad for item in self.configurations)
            or (self.topologies is not None and self.topologies.is_bad)
            or any(item.is_bad for item in self.launches)
        )


def lint(request: LintRequest) -> LintResult:
    """Check every input according to its kind. Raises InputError for one of no or two kinds."""
    linted = LintResult([], None, [])
    site, flavors = _site(request), _flavors(request.launcher)
    topologies: list[Path] = []
    refused: list[InputError] = []
    command = list(request.command)
    things = list(request.things)
    if not all(thing.strip() for thing in things):
        raise InputError("an empty name is no file and no command", hint="nccltune lint FILE")
    if not command and things and not _exists(Path(things[0])) and _is_command(things):
        command, things = (things, []) if len(things) > 1 else ([], things)
    for thing in things:
        path = Path(thing)
        if not _exists(path):
            linted.launches.append(_lint_text(thing, request.kind, site, flavors))
            continue
        try:
            kind = request.kind or recognise(path)
            if kind is LintKind.CONFIGURATION:
                linted.configurations.append(_lint_configuration(path))
            elif kind is LintKind.TOPOLOGY:
                topologies += _xml_files(path)
            else:
                linted.launches.append(_lint_launch(_text_of(path), str(path), site, flavors))
        except NothingToCheckError as raised:
            # One of several files need not be one that can be checked.
            refused.append(raised)
            skipped = note("not-checked", f"not checked: {raised.message}")
            linted.launches.append(LintedLaunch(str(path), [], [skipped]))
    if refused and len(refused) == len(things):
        raise refused[0]
    if command:
        found = source.from_words(command, site)
        checks = check_all(found, flavors)
        linted.launches.append(LintedLaunch(None, checks, []))
    if topologies:
        files = [(str(path), read_file(path)) for path in dict.fromkeys(topologies)]
        linted = linted._replace(
            topologies=lint_files(files, here=Path("/") if request.here else None)
        )
    return linted


def recognise(path: Path, text: str | None = None) -> LintKind:
    """Return the kind of a file or folder by its content. Raises InputError if that is unclear."""
    if path.is_dir():
        return _recognise_folder(path)
    text = _text_of(path) if text is None else text
    is_xml = text.lstrip("\ufeff \t\r\n").startswith("<") and _PAGE.search(text) is None
    if is_xml:
        return LintKind.TOPOLOGY
    if looks_like_matrix("\n".join(text.splitlines()[:50])):
        _refuse_faults(text, path)
        return LintKind.TOPOLOGY
    is_compose = bool(compose.services_in(text)[0])
    if manifest.is_manifest(text) or is_compose or output.is_output(text):
        return LintKind.LAUNCH
    lines = without_here(text)[0].splitlines()
    plain = [line for line in lines if line.strip() and not line.startswith("#")]
    is_table = any(_ROW.match(line) for line in plain) or bool(_MARKER.search(text))
    is_table = is_table or foreign_separator(text) is not None
    is_script = bool(_SCRIPT.search(text)) or _has_command(text, path)
    if not is_script and (foreign := foreign_rules(text)) is not None:
        what = f"is a configuration of {foreign[0]}, not of a plugin that reads CSV: not checked"
        hint = f"a CSV row has {','.join(COLUMNS[:LEAST_COLUMNS])}"
        raise InputError(what, where=str(path), hint=hint)
    if is_table and is_script and _PAGE.search(text) is None:
        raise InputError(
            "has rows of a configuration and commands of a script",
            where=str(path),
            hint="name it: ‹kind› configuration or ‹kind› launch",
        )
    if is_table and not is_script:
        return LintKind.CONFIGURATION
    if is_script:
        return LintKind.LAUNCH
    if looks_like_matrix(text) and not stated_settings(text):
        _refuse_faults(text, path)
        return LintKind.TOPOLOGY
    # Reading a text that only names a launcher raises the reason why no command was found.
    is_launch = _NAMES_LAUNCH.search(text) or stated_settings(text) or configurations_in(text)
    if is_launch or any(judge_boxes(text)):
        return LintKind.LAUNCH
    if not plain and path.suffix in (".conf", ".csv"):
        return LintKind.CONFIGURATION
    _refuse_faults(text, path)
    what = "is empty" if not text.strip() else "is of no known kind"
    raise NothingToCheckError(what, where=str(path), hint=_KNOWN)


_HARMLESS = (
    "optional",
    "no_verbs",
    "ras",
    "rocm_host",
    "stray_command",
    "gloo_loopback",
    "warning",
)
_FAULTS = "lines of the text state failures, which lint does not check"


def _has_faults(text: str) -> bool:
    # A comment of a script may quote the error that its next line avoids.
    text = _COMMENT.sub("", text) if _SCRIPT.search(text) else text
    return any(one.kind not in _HARMLESS for one in parse_failures(text))


def _faults(text: str, name: str | None) -> list[LaunchFinding]:
    return [note("faults-in-text", _FAULTS, _doctor(name))] if _has_faults(text) else []


def _refuse_faults(text: str, path: Path) -> None:
    if _has_faults(text):
        raise NothingToCheckError(_FAULTS, where=str(path), hint=_doctor(str(path)))


def _doctor(name: str | None) -> str:
    named = "-" if name in (None, "standard input") else shlex.quote(str(name))
    return f"look for the cause: nccltune doctor {named}"


def _recognise_folder(path: Path) -> LintKind:
    if (path / names.TUNER_CONF).is_file():
        return LintKind.CONFIGURATION
    if any(path.rglob("*.xml")):
        return LintKind.TOPOLOGY
    is_study = any((path / name).is_file() for name in (names.SAMPLES, names.PLATFORM))
    hint = f"make it: nccltune tune {shlex.quote(str(path))}" if is_study else "name the files"
    raise InputError("has neither tuner.conf nor *.xml", where=str(path), hint=hint)


def _text_of(path: Path, data: bytes | None = None) -> str:
    data = read_file(path) if data is None else data
    encoding = encoding_of(data[:4])
    if "\0" in (text := data.decode(encoding, errors="replace")):
        raise InputError("is a binary file", where=str(path), hint=_KNOWN)
    return text


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        # A launch command may be longer than the longest file name, which raises an error.
        return False


def _is_command(words: Sequence[str]) -> bool:
    return starts_something([quoted(word) for word in words])


def _has_command(text: str, path: Path) -> bool:
    try:
        return bool(source.from_text(text, LaunchContext(folder=str(path.parent))))
    except InputError:
        return False


def _lint_configuration(path: Path) -> LintedConfiguration:
    config = path / names.TUNER_CONF if path.is_dir() else path
    read = read_rules(config)
    whole = file_issue(_text_of(config), str(config)) if read.problems else None
    issues = [whole] if whole is not None else []
    if whole is None or whole.kind == "rounded":
        issues += [
            LintIssue(
                Severity.WARNING if problem.message == UNMARKED else Severity.ERROR,
                *("unreadable", problem.line, problem.message, problem.hint),
            )
            for problem in read.problems
        ]
    if read_file(config).startswith(codecs.BOM_UTF8):
        issues.append(
            LintIssue(
                Severity.NOTE,
                "nvidia",
                1,
                "the file begins with a byte order mark: NVIDIA's example plugin reads it as a part"
                " of the first word",
                "save it as UTF-8 without a mark",
            )
        )
    issues += [
        LintIssue(Severity.NOTE, "nvidia", note.line, note.message, note.hint)
        for note in read.notes
    ]
    numbered = [NumberedRule(item.line, item.rule) for item in read.rules]
    issues += lint_rules(numbered, read.header.get("nccl"))
    return LintedConfiguration(path, config, len(read.rules), issues)


def _xml_files(path: Path) -> list[Path]:
    """Return the XML files of `path`, or InputError if there is none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.rglob("*.xml"))
    if not found:
        raise InputError("has no *.xml", where=str(path), hint="name the files themselves")
    return found


def _lint_text(
    text: str, kind: LintKind | None, site: LaunchContext, flavors: tuple[Flavor, ...]
) -> LintedLaunch:
    """Check a launch command. Raises InputError if it is neither a command nor a file's name."""
    if text == "-":
        name = Path("standard input")
        text = _text_of(name, sys.stdin.buffer.read(MAX_BYTES + 1))
        if (kind := kind or recognise(name, text)) is not LintKind.LAUNCH:
            raise InputError(f"is a {kind}", where=str(name), hint="name a file that has it")
        return _lint_launch(text, None, site, flavors)
    if not re.search(r"\s", text) and not _is_command([text]):
        raise InputError(
            "no such file, and no launch command", where=text, hint=f"quote a command; {_KNOWN}"
        )
    return _lint_launch(text, None, site, flavors)


def _lint_launch(
    text: str, name: str | None, site: LaunchContext, flavors: tuple[Flavor, ...]
) -> LintedLaunch:
    """Check the manifests, commands, outputs and settings of a text. Raises InputError for none."""
    text = unnumbered(text)
    site, alone = _configured(text, name, site)
    services, plain = compose.services_in(text)
    documents, rest = manifest.manifests_in(plain, name or "")
    rest, site = task_of(rest := without_conf(rest), site) or (rest, site)
    is_template = bool(documents) and manifest.is_template(text)
    findings = [
        *judge_conf(text, name or ""),
        *manifest.judge_manifests(documents, text, of_template=is_template),
    ]
    found, reasons = list[FoundCommand](), list[InputError]()
    is_output = output.is_output(rest)
    try:
        if documents:
            found += manifest.from_manifests(documents, site, name or "")
        found += compose.from_services(services, site)
    except InputError as raised:
        reasons.append(raised)
    try:
        if is_output:
            found += source.from_lines(rest, read_around(rest, site._replace(ran=True)))
        elif rest.strip():
            found += source.from_text(rest, site)
    except InputError as raised:
        reasons.append(raised)
    # Another launcher does not read accelerate's configuration.
    found, alone = (found, []) if found else (alone, alone)
    named = {each.site.service for each in found}
    findings += [
        *([*lost_exports(rest), *cut_exports(rest)] if found else never_started(rest, site)),
        *unread_directives(rest),
        *merge_marks(text),
        *compose.judge_services([one for one in services if one[0] not in named], site),
        *judge_dockerfile(rest),
        *nics_by_rank(plain),
        *judge_python(rest),
    ]
    findings += _unseen(
        [
            *(name for one in found for name in one.site.unseen),
            *compose.unseen_files(services, site),
        ]
    )
    checks, unchecked = _checked(found, flavors, reasons)
    found = found if checks else []
    findings += unchecked if not is_output else []
    findings += [*judge_peers(checks), *judge_cluster(rest), *judge_ray(rest), *judge_copies(rest)]
    findings += judge_boxes(rest, [p.placement for one in checks for p, _ in one.predictions])
    if is_output:
        findings += output.judge_output(rest)
    elif (
        given := [*compose.settings_of(services, site), *(stated := stated_settings(plain))]
    ) or is_template:
        known = {
            (one.finding.id, one.finding.message) for check in checks for one in check.findings
        }
        findings += [
            finding._replace(message=f"{place}{finding.message}")
            for place, own in [
                *((f"service {x[0]}: ", compose.settings_of([x], site)) for x in services),
                ("", stated),
            ]
            for finding in judge_stated(own, alone=not found, placement=placement_of_one(checks))
            if (finding.id, finding.message) not in known
        ]
        if not found and reasons:
            findings += judge_boxes(rest)
            findings.append(checked_alone(given, reasons[0].message))
    if not (found or findings or is_output):
        findings += [*manifest.checked_pods(documents), *judge_boxes(rest)]
        if not text.strip():
            raise InputError("is empty", where=name or "standard input")
        if not findings:
            raise reasons[0] if reasons else no_launcher()
    if is_template or alone or any(AZUREML in one.flavors for one in checks):
        # The line of the file has {{ }} where the command that was checked has unknown values. That
        # of a job of Azure ML has no launcher, and a configuration has no command.
        checks = [one._replace(fixed=None) for one in checks]
    findings += [] if documents else _faults(rest, name)
    return LintedLaunch(name, checks, findings)


def _checked(
    found: Sequence[FoundCommand], flavors: tuple[Flavor, ...], reasons: list[InputError]
) -> tuple[list[LaunchCheck], list[LaunchFinding]]:
    """Return the checks of commands, and notes on the others; if all are, puts why in `reasons`."""
    refused: list[tuple[str, InputError]] = []
    if (checks := check_all(found, flavors, refused)) or not refused:
        said = dict.fromkeys(f"not checked: {line}: {why.message}" for line, why in refused)
        return checks, [note("not-checked", one) for one in said]
    reasons.insert(0, refused[0][1])
    return [], []


def _configured(
    text: str, name: str | None, site: LaunchContext
) -> tuple[LaunchContext, list[FoundCommand]]:
    """Return `site` with the folder and the configurations of accelerate of a text, and commands.

    There are none if the text has commands.
    """
    site = site if name is None else site._replace(folder=str(Path(name).parent))
    shown = configurations_in(text, Path(name or "").name)
    site = site._replace(files=(*site.files, *shown))
    if re.search(r"\baccelerate[ -]launch\b", text) is not None:
        return site, []
    return site, [x for one in configuration_commands(shown) for x in source.from_words(one, site)]


def _unseen(files: Sequence[str]) -> list[LaunchFinding]:
    """Return the note on files that a script reads and that are not here, if there are any."""
    named = ", ".join(dict.fromkeys(files))
    said = f"what {named} sets is not known here, and was not checked"
    return [note("source-unseen", said)] if named else []


def _site(request: LintRequest) -> LaunchContext:
    keys = read_keys(request.settings)
    hosts = keys.pop("hosts", [])
    if keys:
        raise InputError("lint takes hosts=A,B alone", where="‹settings›")
    memory = request.gpu_memory
    return LaunchContext(
        nodes=request.nodes,
        hosts=tuple(hosts),
        gpus=request.gpus,
        given_gpus=request.gpus,
        gpu_memory=parse_bytes(memory) if memory is not None else None,
    )


def _flavors(text: str | None) -> tuple[Flavor, ...]:
    """Return the flavors of a launcher (`openmpi:5` is one); empty, which is all, for None."""
    if text is None:
        return ()
    wanted = launcher_flavor(text, known=[item.value for item in Launcher])
    hydra = INTEL if wanted.is_intel else HYDRA
    known = [
        flavor
        for flavor in (OPENMPI_4, OPENMPI_5, hydra, SLURM, *TRAINERS, *ON_JOB)
        if flavor.launcher is wanted.launcher
    ]
    if not known:
        raise InputError(
            f"{wanted.words} has no command line to check",
            where="‹launcher›",
            hint="openmpi, openmpi:4, openmpi:5, hydra, hydra:2021 (Intel MPI), slurm, torchrun,"
            " deepspeed, accelerate, flux, jsrun, aprun or pals",
        )
    # Only Open MPI has command lines that differ by version.
    if wanted.launcher is not Launcher.OPENMPI or not wanted.version:
        return tuple(known)
    found = [item for item in known if item.version[:1] == wanted.version[:1]]
    if not found:
        raise InputError(
            f"{wanted.words} is not one that is known here",
            where="‹launcher›",
            hint="openmpi:4 or openmpi:5",
        )
    return tuple(found)
