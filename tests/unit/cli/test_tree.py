# SPDX-License-Identifier: Apache-2.0
"""The whole command tree: how many verbs and options, one meaning for each flag, JSON documents."""

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import nccltune.cli
from nccltune.cli import SECTIONS, VERBS, cli
from nccltune.cli.options import FLAGS
from nccltune.cli.requests import class_at
from nccltune.cli.verb import Verb, option_rows
from nccltune.examples import examples
from tests.unit.runs import Cli
from tests.unit.topology.samples import FOLDER

MOST_VERBS, MOST_GROUPS, MOST_OPTIONS = 18, 5, 16
READS_ONLY = {
    "compare", "explain", "lint", "predict", "topo show", "topo what-if", "net env",
    "net stats", "sendrecv env", "launch render", "status", "workload show",
}  # fmt: skip
"""Verbs that write nothing and start nothing that measures."""
SOURCES = Path(nccltune.cli.__file__).parent


class Found(NamedTuple):
    """A verb with its full name."""

    name: str
    command: click.Command
    context: click.Context


def verbs(
    command: click.Command = cli, context: click.Context | None = None, name: str = ""
) -> Iterator[Found]:
    context = context or click.Context(cli, info_name="nccltune", **cli.context_settings)
    if not isinstance(command, click.Group):
        yield Found(name, command, context)
        return
    for inner in command.list_commands(context):
        found = command.get_command(context, inner)
        assert found is not None
        child = click.Context(found, parent=context, info_name=inner)
        yield from verbs(found, child, f"{name} {inner}".strip())


ALL = list(verbs())
NAMED = pytest.mark.parametrize("found", ALL, ids=lambda found: found.name)


def options(found: Found) -> list[click.Option]:
    return [item for item in found.command.params if isinstance(item, click.Option)]


def test_the_number_of_verbs_and_groups_is_bounded() -> None:
    groups = SECTIONS["Groups"]
    assert len(groups) <= MOST_GROUPS
    assert len(VERBS) - len(groups) <= MOST_VERBS
    assert list(SECTIONS) == [
        "Start", "Step by step", "Deploy and keep", "Find out why", "Groups",
    ]  # fmt: skip


@NAMED
def test_a_verb_has_few_options_and_the_common_ones(found: Found) -> None:
    assert isinstance(found.command, Verb)
    plain, advanced = option_rows(found.command, found.context)
    assert len(plain) <= MOST_OPTIONS
    flags = {flag for option in options(found) for flag in option.opts}
    assert {"--json", "-q", "--quiet", "-v", "--verbose"} <= flags
    assert ("--dry-run" in flags) is not (found.name in READS_ONLY)
    assert ("--help-advanced" in flags) is bool(advanced)
    assert not [option.name for option in options(found) if option.hidden]


@NAMED
def test_a_verb_has_help_with_examples_of_itself(found: Found, cli: Cli) -> None:
    out = cli(*found.name.split(), "--help").out
    assert out.startswith(f"Usage: nccltune {found.name} ")
    examples_shown = [line for line in out.split("Examples:")[1].splitlines() if line.strip()]
    assert sum(f"nccltune {found.name}" in line for line in examples_shown) >= 2
    assert max(map(len, examples_shown)) <= 100


def test_a_flag_has_one_type_and_one_meaning() -> None:
    kinds: dict[str, set[object]] = defaultdict(set)
    texts: dict[str, set[str]] = defaultdict(set)
    for found in ALL:
        for option in options(found):
            flag = max(option.opts, key=len)
            # `ab` compares two libraries; elsewhere there is one.
            is_repeated = option.multiple and flag != "--nccl"
            kinds[flag].add((type(option.type), option.is_flag, is_repeated, *option.opts))
            texts[flag].add(option.help or "")
    for flag, found_kinds in kinds.items():
        assert len(found_kinds) == 1, flag
        # A text of its own is for a flag of one verb, or the same in all.
        meaning = FLAGS.get(flag, {}).get("help")
        if meaning is None:
            assert len(texts[flag]) == 1, f"{flag}: give it a meaning in cli/options.py"
        else:
            assert all(text.startswith(meaning) for text in texts[flag]), flag
    assert not FLAGS.keys() - kinds.keys()


def test_a_short_flag_has_one_long_one() -> None:
    long: dict[str, set[str]] = defaultdict(set)
    for found in ALL:
        for option in options(found):
            for flag in option.opts:
                if not flag.startswith("--"):
                    long[flag].add(max(option.opts, key=len))
    assert long == {"-o": {"--output"}, "-q": {"--quiet"}, "-v": {"--verbose"}}


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_of_help_is_wider_than_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for name in ["", *(found.name for found in ALL), *SECTIONS["Groups"]]:
        text = cli(*name.split(), "--help").out.partition("  Examples:")[0]
        wide = [line for line in text.splitlines() if len(line) > width]
        # A metavar may be longer than the line.
        assert not [line for line in wide if not re.match(r"  -.*[|\[]", line)], name


@NAMED
def test_advanced_options_are_shown_on_request(found: Found, cli: Cli) -> None:
    _, advanced = option_rows(found.command, found.context)
    if not advanced:
        cli(*found.name.split(), "--help-advanced", code=2)
        return
    plain = cli(*found.name.split(), "--help").out
    full = cli(*found.name.split(), "--help-advanced").out
    assert "Advanced options:" not in plain
    for row, _ in advanced:
        flag = row.split()[0].rstrip(",")
        assert not re.search(rf"^  {flag}(?![\w-])", plain, re.M)
        assert re.search(rf"^  {flag}(?![\w-])", full, re.M)


@NAMED
def test_each_option_is_an_argument_of_the_verb_or_a_field_of_one(found: Found) -> None:
    callback = found.command.callback
    assert callback is not None
    places = getattr(callback, "places", {})
    own = inspect.signature(callback).parameters
    fields = ["as_json", *(name for name in own if name not in places)]
    for argument, place in places.items():
        kind = class_at(place)
        # The annotation, which mypy checks, and the class that is built are the same one.
        assert own[argument].annotation == kind.__name__
        names = [*inspect.signature(kind).parameters]
        fields += [name for name in names if name not in fields]
        fields += ["sizes"] if "low" in names else []
    given = {item.name for item in found.command.params if item.expose_value}
    takes_others = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in own.values())
    assert takes_others or given <= set(fields)


def test_no_verb_imports_another_one() -> None:
    """Code that verbs share is in app/, in a screen or in a module of options."""
    modules = {f"nccltune.cli.{found.name.replace(' ', '.').replace('-', '_')}" for found in ALL}
    modules = {name + "_" if name.endswith("import") else name for name in modules}
    bad = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            bad += [f"{path.name}: {name}" for name in names if name in modules]
    assert bad == []


STUDY = str(examples()["h200x4-as-4-nodes"])
TOPOLOGY = str(FOLDER / "dgx.xml")
LOGS = Path(__file__).parents[2] / "data" / "field" / "log-21-two-versions"
DOCUMENTS = {
    "analyze": ["--dry-run", STUDY],
    "tune": ["--dry-run", STUDY],
    "report": [STUDY],
    "import": [f"{STUDY}/samples.jsonl", "-o", "study", "--dry-run"],
    "demo": ["--dry-run"],
    "compare": [f"{LOGS}/nccl-2.28.txt", f"{LOGS}/nccl-2.29.txt"],
    "lint": [TOPOLOGY],
    "predict": [TOPOLOGY, "--sizes", "1K-1M", "--against", "2.27.7"],
    "doctor": ["--rule", "gdr-read"],
    "ab": ["NCCL_X=1", "--dry-run"],
    "topo show": [TOPOLOGY],
    "topo what-if": [TOPOLOGY, "--nodes", "2"],
    "topo convert": [TOPOLOGY, "--pcie", "5x16"],
    "net env": ["--plugin", "/x/libnccl-net-nccltune.so"],
    "net stats": [],
    "sendrecv env": ["--library", "/x/libnccltune-sendrecv.so"],
    "launch render": ["--launcher", "openmpi:5", "--", "all_reduce_perf"],
    "env": ["tuner.conf", "--plugin", "/x/tuner.so"],
}
"""Words that make a verb print its document here, without GPUs and compiled parts."""


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_document_begins_with_its_schema_version(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuner.conf").write_text("allreduce,0,1024,ring,ll,-1,-1,-1\n")
    before = sorted(tmp_path.iterdir())
    words = [*verb.split(), "--json", *DOCUMENTS[verb]]
    document = cli(*words, code=(0, 1)).document
    assert next(iter(document)) == "schema_version"
    assert document["schema_version"] == 1
    assert sorted(tmp_path.iterdir()) == before


def test_every_document_is_printed_in_one_place() -> None:
    """Only `print_json`, which adds the version, writes JSON to stdout."""
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert path.name == "output.py" or "json.dumps" not in text, path
        assert path.name in ("output.py", "verb.py") or "as_json" not in text, path


def test_quiet_leaves_out_hints_and_verbose_adds_what_is_written(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    conf = str(tmp_path / "x.conf")
    assert "next: nccltune verify" in cli("tune", STUDY, "-o", conf, "--dry-run").err
    assert cli("tune", STUDY, "-o", conf, "--dry-run", "-q").err == ""
    assert "verbose    nccltune " in cli("lint", TOPOLOGY, "-v").err
    assert "verbose" not in cli("lint", TOPOLOGY).err
    assert "contradict" in cli("lint", TOPOLOGY, "-q", "-v", code=2).err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["try"], "it is now: nccltune ab"),
        (["calibrate"], "it is now: nccltune topo what-if"),
        (["net-stats"], "it is now: nccltune net stats"),
        (
            ["sendrecv", "fairness"],
            "it is now: nccltune ab NCCLTUNE_SENDRECV_CHUNK=67108864 -- COMMAND",
        ),
        (["lint-launch"], "it is now: nccltune lint"),
        (["topo", "write"], "it is now: nccltune topo convert"),
        (["topo", "lint"], "it is now: nccltune lint"),
        (["launch", "job.toml"], "nccltune launch run job.toml"),
        (["sweep", "--p2p"], "it is now: nccltune ab"),
        (["run", "--", "all_reduce_perf", "-b", "8"], "it is now: nccltune launch run"),
        (["launch", "run", "--gpus-per-node", "8"], "it is now: --gpus"),
        (["launch", "sweep"], "it is now: nccltune launch run --choice CHOICE -- PROGRAM"),
        (["sendrecv", "sweep", "--policies"], "it is now: nccltune ab NCCLTUNE_SENDRECV_POLICY="),
        (
            ["topo", "convert", "--cpus", "2"],
            "it is now: nccltune topo convert FILE, of the host's",
        ),
        (["topo", "convert", "--switches=2"], "it is now: nccltune topo convert FILE, of the host"),
        (["sweep", "--bugdet", "3"], "did you mean '--budget'? nccltune sweep --help"),
        (["analyse"], "did you mean 'analyze'?"),
        (["topo", "shwo"], "did you mean 'show'?"),
        (["topo", "show", "--frobnicate"], "nccltune topo show --help"),
    ],
)
def test_a_wrong_word_exits_with_2_and_names_the_right_one(
    words: list[str], hint: str, cli: Cli
) -> None:
    error, hint_line = cli(*words, code=2).err.splitlines()[:2]
    assert error.startswith("error: no such ")
    assert hint_line.startswith(f"hint:  {hint}")


@NAMED
def test_both_spellings_of_the_collective_are_one(found: Found) -> None:
    own = [word for item in options(found) for word in item.opts if "--collective" in word]
    assert len(own) < 2
    for word in own:
        for given in ("--collective", "--collectives"):
            context = found.command.make_context(
                found.name, [f"{given}=allgather", "x"], resilient_parsing=True
            )
            assert context.params[word.removeprefix("--")] == "allgather"
