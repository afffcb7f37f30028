# SPDX-License-Identifier: Apache-2.0
"""The screens of `analyze`, `tune` and `explain`, wide and narrow."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nccltune.cli import analyze_screen, explain, output, rule_screen, run
from nccltune.formats.reading.file_report import FileKind, ImportRecord
from nccltune.model.choice import parse_choice
from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from nccltune.tune.explain import DecidedRange, ExplainResult, with_channels
from nccltune.tune.result import Tuning
from tests.unit.builders import measure, sizes, study_of
from tests.unit.report.fixture import SCALE, tuning
from tests.unit.runs import Cli

Shown = Callable[[Callable[[], None], int], list[str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Return a function that gives the lines printed on a terminal of some width."""

    def lines(show: Callable[[], None], width: int) -> list[str]:
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=True, highlight=False)
        for module in (analyze_screen, explain, output, rule_screen):
            monkeypatch.setattr(module, "stdout", lambda: console)
        show()
        return re.sub(r"\x1b\[[\d;]*m", "", file.getvalue()).splitlines()

    return lines


def study_at(path: Path) -> Study:
    fast = {"default": 100.0, "tree/ll": 60.0}
    slow = {"default": 100.0, "tree/ll": 140.0}
    grid = sizes(1 << 10, 1 << 16)
    return study_of(path, measure(grid, lambda size: fast if size < 1 << 13 else slow, noise=0.01))


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_no_figure_of_a_table_is_cut(width: int) -> None:
    rows = [("all-reduce, 16 nodes, 128 ranks", "1 KiB - 512 MiB", "391.2 GB/s", "unknown"),
            ("all-gather, 2 nodes", "8 MiB", "", "3.1 %")]  # fmt: skip
    table = output.plain_table("<collective", ">sizes", ">peak", "<noise")
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    output.PlainConsole(file=file, width=width, force_terminal=True, color_system=None).print(table)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert all(cell in words for row in rows for cell in row[1:])
    stacked = "all-gather, 2 nodes: sizes 8 MiB, noise 3.1 %"
    assert (stacked in words) is (width < 80)


def test_a_bandwidth_is_shown_for_one_size_and_for_unknown_ranks(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "post.md"
    for text, peak in (
        ("All-reduce, 8 GPUs\n\n| size | time (us) |\n|--|--|\n| 1G | 8142.6 |\n", "231 GB/s"),
        ("All-reduce\n\n| size | time (us) |\n|--|--|\n| 1G | 8142.6 |\n", "132 GB/s (algbw)"),
    ):
        path.write_text(text)
        assert peak in cli("analyze", path).out


def test_a_posted_table_is_explained_by_the_rules_found_in_it(tmp_path: Path, cli: Cli) -> None:
    rows = "".join(f"| {4**k} KiB | {100 + k} | {50 + k} |\n" for k in range(7))
    path = tmp_path / "post.md"
    path.write_text(
        f"All-reduce, 2 nodes, 16 GPUs (us)\n\n| size | default | Tree/LL |\n|--|--|--|\n{rows}"
    )
    out = cli("explain", path).out
    assert "allreduce     2 nodes, 16 ranks" in out
    assert re.search(r"1.00 KiB - 4.00 MiB +tree/ll", out)


@pytest.mark.parametrize(
    ("nccl", "old"), [("2.18.3", True), ("2.20.5", True), ("2.21.5", False), ("2.28.9", False)]
)
def test_rules_that_their_nccl_cannot_load_are_measured_again(
    nccl: str, old: bool, tmp_path: Path, cli: Cli
) -> None:
    study = study_at(tmp_path / "x")
    platform = msgspec.structs.replace(study.platform(), nccl_version=nccl)
    study.write_json(study.platform_path, platform)
    again = f"can only be loaded by NCCL 2.21 or newer, and were measured with {nccl}"
    tuned = cli("tune", study.path).err
    assert (again in tuned, "nccltune verify" in tuned or "nccltune report" in tuned) == (
        old,
        not old,
    )
    deployed = cli("env", study.path, "--plugin", "/p/tuner.so").err
    reported = cli("report", study.path).err
    assert (again in deployed, again in reported) == (old, old)
    assert ("nccltune env" in reported or "nccltune verify" in reported) is not old
    explained = cli("explain", study.path, code=2 if old else 0).err
    assert ("tuner.conf: NCCL " in explained) is old
    assert "--nccl:" not in explained


def test_explain_names_rules_that_never_run(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "tuner.conf"
    rows = ("allreduce,0,9,nvls,ll", "allreduce,9,99,ring,ll", "allgather,0,9,tree,ll")
    path.write_text("".join(f"{row},-1,1,8\n" for row in rows) + "allgather,9,99,tree,ll,-1,2,8\n")
    warned = [line.split() for line in cli("explain", path).out.splitlines() if "never" in line]
    assert [words[:4] for words in warned] == [
        ["warning", "line", "1:", "nvls/ll"],
        ["warning", "line", "3:", "tree/ll"],
        # At its own scale.
        ["warning", "line", "4:", "tree/ll"],
    ]
    rows = (f"allreduce,0,9,nvls_tree,simple,-1,4,{ranks}\n" for ranks in (4, 32))
    path.write_text("".join(rows))
    warned = [line for line in cli("explain", path).out.splitlines() if "never" in line]
    assert warned == [
        "warning    line 1: nvls_tree/simple never runs for allreduce: nvls_tree needs 2 GPUs or"
        " more in each node, as NCCL counts nodes"
    ]


def test_tune_leaves_out_choices_that_never_run_at_a_scale(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "times.csv"
    rows = [
        f"allreduce,{size},{choice},-1,4,{ranks},{time_us}"
        for size in (1 << 20, 1 << 21, 1 << 22)
        for ranks in (4, 32)
        for choice, time_us in (("nvls_tree,simple", 50.0), ("ring,simple", 90.0))
        for _ in range(2)
    ]
    names = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us"
    path.write_text("\n".join([names, *rows]) + "\n")
    out = cli("tune", path).out
    assert re.findall(r"MiB +(\w+/simple) +candidate", out) == ["ring/simple", "nvls_tree/simple"]
    (said,) = [line for line in out.splitlines() if line.startswith("left out")]
    assert "6 timings of nvls_tree/simple, 4 nodes, 4 ranks: no rule, nvls_tree needs" in said


def test_a_table_without_rules_is_answered_with_its_real_reason(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    half, measured, few = (folder / f"{name}.txt" for name in ("half", "measured", "few"))
    half.write_text(
        "All-reduce, 8 GPUs (us)\n\n|size|Ring/LL|NVLS|\n|-|-|-|\n|8K|13|18|\n|1M|80|38|\n"
    )
    assert "of an unknown number of nodes" in cli("explain", half, code=2).err
    measured.write_text("collective,bytes,latency_us\nallreduce,8,9.1,1,2,3,4\n")
    assert f"nccltune tune {measured} -o" in cli("lint", measured, code=1).out
    few.write_text(
        "2 nodes x 8 H100, all_reduce, 16 ranks, time in us\n"
        "size   default   Ring LL   Ring Simple\n"
        "8K     20        13        23\n1M     90        80        48\n"
        "64M    900       2100      470\n"
    )
    tuned = cli("tune", few)
    assert "so few sizes and rounds cannot show it" in tuned.out
    assert "%" not in tuned.out
    assert "next: measure more rounds" in tuned.err


def test_tune_labels_the_interval_the_gains_of_single_sizes_and_the_sms(shown: Shown) -> None:
    lines = shown(lambda: rule_screen.show_tuning(tuning()), 120)
    rules = [line for line in lines if "x  95 % CI" in line]
    assert rules == [
        " 1.00 KiB - 58.6 KiB  tree/ll         "
        "1.55x  95 % CI 1.50-1.60  (per size 1.50-1.60)  sure  SMs 8 (default 24)",
        " 58.6 KiB - 1.00 MiB  ring/simple     1.40x  95 % CI 1.30-1.50  candidate  SMs unknown",
    ]


def test_tune_and_explain_name_what_a_rule_replaces(shown: Shown) -> None:
    found = tuning()
    group = found.groups[0]
    ran = group.rules[1].rule.choice
    rows = [msgspec.structs.replace(row, default_ran=ran) for row in group.decisions]
    changed = msgspec.structs.replace(
        found, groups=[msgspec.structs.replace(group, decisions=rows), *found.groups[1:]]
    )
    lines = shown(lambda: rule_screen.show_tuning(changed), 160)
    assert sum(line.endswith(f"instead of {ran.label}") for line in lines) == len(group.rules)
    low, high = rows[0].bytes, rows[-1].bytes
    explained = ExplainResult(
        tuner="x.so",
        nccl="2.28.9",
        interface=5,
        plugin=None,
        scale=group.scale,
        log=[],
        warnings=[],
        collectives={
            group.collective: [
                DecidedRange(low, high - 1, "tree/ll"),
                DecidedRange(high, high, "default"),
            ]
        },
    )
    for width in (40, 160):
        lines = shown(lambda: explain.show([with_channels(explained, changed)]), width)
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(lines).split())
        assert f"instead of {ran.label}" in text
        assert f"NCCL ran {ran.label}" in text


def test_tune_lists_the_runs_that_would_decide_a_candidate(shown: Shown) -> None:
    found = tuning()
    rules = list(found.groups[0].rules)
    rules[1] = msgspec.structs.replace(rules[1], decided_by="4 more runs")
    longest = msgspec.structs.replace(rules[1].rule, choice=parse_choice("nvls_tree/simple/16"))
    rules[1] = msgspec.structs.replace(rules[1], rule=longest)
    group = msgspec.structs.replace(found.groups[0], rules=rules)
    changed: Tuning = msgspec.structs.replace(found, groups=[group])
    text = " ".join(" ".join(shown(lambda: rule_screen.show_tuning(changed), 120)).split())
    assert (
        "candidate 58.6 KiB - 1.00 MiB: faster than the default beyond an assumed noise of 5 %; "
        "runs that decide: 4 more runs"
    ) in text
    assert "nvls_tree/simple/16 1.40x" in text


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_of_tune_or_analyze_is_wider_than_the_terminal(
    shown: Shown, tmp_path: Path, width: int
) -> None:
    study = study_at(tmp_path / "x")
    assert run(["analyze", str(study.path)]) == 0
    from nccltune.analyze.result import Analysis
    from nccltune.app.analyze import Analyzed, AnalyzedInput

    analysis = study.read_json(study.findings_path, Analysis)
    for show in (
        lambda: rule_screen.show_tuning(tuning()),
        lambda: analyze_screen.show(
            AnalyzedInput([Analyzed(analysis, [], measure="nccltune sweep")]), tmp_path
        ),
    ):
        assert max(map(len, shown(show, width))) <= width


def test_narrow_lines_keep_a_number_with_its_unit_and_label(shown: Shown) -> None:
    lines = shown(lambda: rule_screen.show_tuning(tuning()), 40)
    assert "  1.00 KiB - 58.6 KiB  tree/ll" in lines
    assert not [line for line in lines if line.endswith((" 95", "95 %", " CI", "size", "SMs"))]
    assert any("95 % CI 1.50-1.60" in line for line in lines)


def test_suspect_runs_with_the_same_doubt_are_one_line(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "x")
    records = [
        ImportRecord(
            file=f"run-{number}.txt",
            file_hash=str(number),
            kind=FileKind.NCCL_TESTS_TEXT,
            sentences=[f"the printed average {number}.5 GB/s is not that of the rows"],
        )
        for number in range(28)
    ]
    study.append_lines(study.imports_path, records)
    lines = cli("analyze", study.path).out.splitlines()
    suspect = [line for line in lines if line.startswith("suspect run")]
    assert len(suspect) == 1
    assert "run-0.txt: the printed average 0.5 GB/s" in suspect[0]
    assert suspect[0].endswith("(27 more like this: --json lists them)")
    assert any(line.startswith("bad crossover") for line in lines)


def explained(*ranges: DecidedRange) -> ExplainResult:
    return ExplainResult(
        tuner="x.so",
        nccl="2.28.9",
        interface=5,
        plugin="nccltune",
        scale=SCALE,
        log=[],
        warnings=[],
        collectives={Collective.ALLREDUCE: list(ranges)},
    )


def with_defaults(channels: int | None) -> Tuning:
    """Return the tuning with the channels of NCCL's default at every size."""
    found = tuning()
    groups = [
        msgspec.structs.replace(
            group,
            decisions=[
                msgspec.structs.replace(row, default_channels=channels) for row in group.decisions
            ],
        )
        for group in found.groups
    ]
    changed: Tuning = msgspec.structs.replace(found, groups=groups)
    return changed


def test_explain_shows_the_sms_that_are_known(shown: Shown) -> None:
    asked = explained(
        DecidedRange(1 << 10, 60_000, "tree/ll"),
        DecidedRange(60_001, 1 << 20, "ring/simple/16", [], 16),
        DecidedRange((1 << 20) + 1, 1 << 30, "default"),
    )
    known = with_channels(asked, with_defaults(24))
    lines = shown(lambda: explain.show([known]), 120)[-3:]
    assert [line.split("  ")[-1].strip() for line in lines] == [
        "SMs 8 (default 24)",
        "SMs 16 (default 24)",
        "SMs 24",
    ]


def test_explain_shows_unknown_sms_where_channels_were_not_counted(shown: Shown) -> None:
    asked = explained(
        DecidedRange(60_001, 1 << 20, "nvls_tree/simple"),
        DecidedRange(1 << 21, 1 << 30, "default"),
    )
    known = with_channels(asked, with_defaults(None))
    lines = shown(lambda: explain.show([known]), 120)[-2:]
    assert lines[0].endswith("SMs unknown")
    assert "nvls_tree/simple  60001-1048576 bytes" in lines[0]
    assert lines[1].endswith("bytes")


def test_channels_of_another_choice_or_scale_are_not_taken() -> None:
    asked = explained(DecidedRange(1 << 10, 60_000, "tree/ll128"))
    assert with_channels(asked, tuning()).collectives[Collective.ALLREDUCE][0].channels is None
    other = msgspec.structs.replace(
        explained(DecidedRange(1 << 10, 60_000, "tree/ll")), scale=Scale(4, 32)
    )
    assert with_channels(other, tuning()).collectives[Collective.ALLREDUCE][0].channels is None


def test_a_damaged_tuning_does_not_hide_what_the_plugin_decides(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "x")
    cli("tune", study.path)
    study.tuning_path.write_text("{")
    out = cli("explain", study.path).out
    assert "tree/ll" in out
    assert "SMs unknown" in out
