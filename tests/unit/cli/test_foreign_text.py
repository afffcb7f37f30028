# SPDX-License-Identifier: Apache-2.0
"""Print names, settings and lines of foreign files literally: no markup, no emoji names, and no
terminal control sequences."""

import ast
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

import nccltune
from nccltune.cli import output, run
from nccltune.cli.output import PlainConsole, hanging, harmless, styled
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.builders import measure, sizes, study_of
from tests.unit.doctor.evidence.test_files_of_people import TEST
from tests.unit.runs import Cli
from tests.unit.topology.samples import FOLDER, MATRIX

# Valid as a file name: it has no slash.
NAME = "[bold]a [red]x :ab: 0000:ab:00.0 [link=x]y \\[dim]"
NASTY = f"{NAME} [/] [/bold] [/red] \\"
STEERING = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eabc \x08"
SOURCES = Path(nccltune.__file__).parent
_OURS = re.compile(r"\x1b\[[0-9;]*m")


def terminal(width: int = 400) -> tuple[Console, io.StringIO]:
    """Return a console that takes its file for a colour terminal, and the file."""
    file = io.StringIO()
    made = PlainConsole(file=file, force_terminal=True, color_system="truecolor", width=width)
    return made, file


def shown(file: io.StringIO) -> str:
    """Return what was written, without our own colours."""
    return _OURS.sub("", file.getvalue())


def print_calls(text: str) -> list[Callable[[Console], None]]:
    """Return the calls with which a verb prints a text."""

    def in_a_table(out: Console) -> None:
        made = Table(box=None, header_style="dim", title=text)
        made.add_column(text, no_wrap=True)
        made.add_row(text)
        made.add_row(styled((text, "green")))
        out.print(made)

    return [
        lambda out: out.print(text),
        lambda out: out.print(text, style="dim", soft_wrap=True),
        lambda out: out.print(text, markup=None, emoji=None),
        lambda out: out.print(styled(("lead", "bold"), "  ", text)),
        lambda out: out.print(styled((text, "red"))),
        lambda out: hanging(out, ("lead  ", "yellow"), 6, text, "dim"),
        in_a_table,
    ]


@pytest.mark.parametrize("number", range(len(print_calls(""))))
def test_text_is_printed_literally(number: int) -> None:
    out, file = terminal()
    print_calls(NASTY)[number](out)
    assert NASTY in shown(file)


@given(st.text(st.sampled_from("[]/\\:ab red=.0#{}😀é"), max_size=60))
def test_any_text_is_printed_literally(text: str) -> None:
    out, file = terminal()
    out.print(styled("<", text, ">"), soft_wrap=True)
    out.print(f"<{text}>", soft_wrap=True)
    assert shown(file) == 2 * f"<{text}>\n"


@pytest.mark.parametrize("number", range(len(print_calls(""))))
def test_control_sequences_are_escaped(number: int) -> None:
    out, file = terminal()
    print_calls(f"a {STEERING} z")[number](out)
    written = shown(file)
    assert not set("\x1b\x07\x08\x9b\u202e") & set(written)
    assert "\\x1b[31mred" in written


def test_a_status_is_printed_literally(monkeypatch: pytest.MonkeyPatch) -> None:
    out, file = terminal()
    with out.status(styled(NASTY)) as live:
        live.update(styled(f"now {NASTY}"))
    assert f"now {NASTY}" in shown(file)


def test_errors_are_printed_literally_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_error(f"{NASTY} {STEERING}", f"{NASTY} {STEERING}")
    lines = capsys.readouterr().err
    assert lines.count(NASTY) == 2
    assert not set("\x1b\x07\x08\x9b\u202e") & set(lines)
    assert harmless("tabs\tand\nlines stay") == "tabs\tand\nlines stay"
    assert run(["analyze", f"{NAME}\x1b[31m"]) == 2
    assert f"{NAME}\\x1b[31m" in capsys.readouterr().err


@pytest.mark.parametrize("width", [40, 80])
def test_errors_are_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, width=width)
    monkeypatch.setattr(output, "stderr", lambda: console)
    output.print_error("many words " * 20, "a way out " * 20)
    lines = shown(file).splitlines()
    assert len(lines) > 2 * 200 // width
    assert max(map(len, lines)) <= width
    assert {line[:7] for line in lines} == {"error: ", "hint:  ", 7 * " "}


def test_exact_output_is_escaped_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output.write_exact("a\x1b[0mb")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.write_exact("a\x1b[0mb")
    assert capsys.readouterr().out == "a\x1b[0mba\\x1b[0mb"


def printed(cli: Cli, *words: str | Path, codes: tuple[int, ...] = (0, 1)) -> str:
    """Run a verb; return its stdout and stderr."""
    return "".join(cli(*words, code=codes))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    samples = measure(sizes(1 << 10, 1 << 20), {"default": 100.0, "tree/ll": 50.0})
    platform = Platform(name=NASTY, gpu=NASTY, settings={"NCCL_DEBUG": NASTY})
    return study_of(tmp_path / NAME, samples, platform)


def test_a_study(study: Study, cli: Cli) -> None:
    assert NASTY in printed(cli, "analyze", study.path)
    assert NAME in printed(cli, "tune", study.path)
    assert NAME in printed(cli, "lint", study.path)
    assert NAME in printed(cli, "explain", study.path)
    assert NAME in printed(cli, "report", study.path)
    # The report wraps its lines, also inside the name.
    words = " ".join(printed(cli, "report", "--terminal", study.path).split())
    assert "[bold]a [red]x :ab: 0000:ab:00.0" in words
    assert NAME in printed(cli, "env", study.path)


def test_configurations(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / f"{NAME}.conf"
    path.write_text(f"allreduce,0,1,{NASTY},ll,-1,-1,-1,-1,-1\n")
    found = printed(cli, "lint", path)
    assert NAME in found
    assert f"{path}:1: " in found
    scale = ("--nodes", "1", "--ranks", "2")
    assert NAME in printed(cli, "explain", path, *scale, codes=(0, 1, 2))


def test_imports(tmp_path: Path, cli: Cli) -> None:
    good, cut, other = (tmp_path / f"all_reduce {NAME}{end}" for end in (".txt", "-cut.txt", ".md"))
    good.write_text(TEST)
    cut.write_text(TEST.replace(" 100.0 ", " [red]x ", 1))
    other.write_text("no measurements\n")
    found = printed(cli, "import", good, cut, other, "-o", tmp_path / "study", codes=(0, 1, 2))
    assert f"all_reduce {NAME}.md" in found
    assert f"all_reduce {NAME}-cut.txt" in found


def test_topologies(tmp_path: Path, cli: Cli) -> None:
    text = (FOLDER / "virtual-switches.xml").read_text()
    path = tmp_path / f"{NAME}.xml"
    path.write_text(re.sub(r'name="[^"]*"', f'name="{NAME}"', text))
    assert path.read_text() != text
    for verb in ("topo show", "lint", "topo what-if"):
        found = printed(cli, *verb.split(), path, codes=(0, 1, 2))
        assert NAME in found, verb
    matrix = tmp_path / f"{NAME}.txt"
    matrix.write_text(MATRIX.replace("mlx5_0", "[bold]m:ab:"))
    assert "[bold]m:ab:" in printed(cli, "topo", "show", matrix)


def test_jobs(tmp_path: Path, cli: Cli) -> None:
    command = f"srun -N 2 --ntasks-per-node=8 '{NASTY}' -g 4 -x 'NCCL_ALGO={NASTY}'"
    assert "[red]x :ab: 0000:ab:00.0" in printed(cli, "lint", command, codes=(0, 1, 2))
    job = tmp_path / "job.toml"
    job.write_text(f'program = ["./a", {NAME!r}]\n[environment]\nNCCL_DEBUG_FILE = {NAME!r}\n')
    words = ["launch", "render", job, "--launcher", "slurm:23.02", "--nodes", "1"]
    assert "[red]x :ab: 0000:ab:00.0" in printed(cli, *words, "--gpus", "4", codes=(0, 1, 2))


def test_the_doctor(tmp_path: Path, cli: Cli) -> None:
    for node in (f"1 {NAME}", f"2 {NAME}"):
        (tmp_path / node).mkdir()
        (tmp_path / node / f"{NAME}.log").write_text(
            "h:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n"
            f"h:1:1 [0] NCCL WARN {NASTY} {STEERING}\n"
            f"h:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1{NASTY}.\n"
        )
        (tmp_path / node / f"{NAME}.md").write_text("roses\n")
        (tmp_path / node / "nvidia-smi.txt").write_text(
            f"index, name\n0, {NAME if node[0] == '1' else 'B'}\n"
        )
    for words in ((), ("--all",)):
        found = printed(cli, "doctor", tmp_path, *words)
        assert f"{NAME}.md: its kind is not recognised" in found
        assert f"NCCL_P2P_DISABLE=1{NASTY}" in found
        assert NASTY in found
        assert f"1 x {NAME}" in found
        assert not set("\x1b\x07\x08\x9b\u202e") & set(found)


def test_no_module_uses_markup() -> None:
    """No module of cli and report parses markup, has tags in a text, or makes its own console."""
    bad = []
    for path in [*(SOURCES / "cli").rglob("*.py"), *(SOURCES / "report").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            where = f"{path.relative_to(SOURCES)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom) and node.module == "rich.markup":
                bad.append(f"{where}: imports rich.markup")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.search(r"\[/(?:bold|dim|red|green|yellow|cyan|magenta|)?\]|\[/$", node.value):
                    bad.append(f"{where}: has a tag: use styled()")
            elif isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name == "Console" or name == "from_markup":
                    bad.append(f"{where}: calls {name}: use nccltune.cli.output")
    assert bad == []
