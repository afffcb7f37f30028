# SPDX-License-Identifier: Apache-2.0
"""What import, analyze and tune say of tables as people paste them."""

import shlex
from pathlib import Path

import pytest

from tests.unit.runs import Cli

HEADER = (
    "# out-of-place in-place\n# size count type redop root time algbw busbw #wrong time algbw busbw"
    " #wrong\n"
)

FOOTER = "# Out of bounds values : 0 OK\n"


def rows(ranks: int, times: dict[int, float], wrong: int = 0) -> str:
    """Return rows of all-reduce, out of place and in place."""
    text = ""
    for size, time_us in times.items():
        rate = size / time_us / 1e3
        half = f" {time_us:.2f} {rate:.2f} {rate * 2 * (ranks - 1) / ranks:.2f} {wrong}"
        text += f"{size} {size // 4} float sum -1{half}{half}\n"
    return text


SMOOTH = {1 << 20: 50.0, 1 << 21: 80.0, 1 << 22: 140.0}
FALLING = {1 << 20: 900.0, 1 << 21: 80.0, 1 << 22: 140.0}


def screens(tmp_path: Path, cli: Cli, *texts: str) -> tuple[str, str, str]:
    """Return what import, analyze and tune print."""
    names = []
    for number, text in enumerate(texts):
        names.append(str(tmp_path / f"t{number}.md"))
        Path(names[-1]).write_text(text)
    study = str(tmp_path / "study")
    printed = []
    for words in (["import", *names, "-o", study], ["analyze", study], ["tune", study]):
        found = cli(*words, code=None)
        printed.append(" ".join((found.out + found.err).split()))
    return printed[0], printed[1], printed[2]


def test_two_tables_of_unknown_nodes_have_a_curve_each(tmp_path: Path, cli: Cli) -> None:
    text = HEADER + rows(16, SMOOTH) + "\n...\n\n" + HEADER + rows(16, FALLING)
    read, shown, tuned = screens(tmp_path, cli, "# all_reduce\n" + text)
    assert f"next: nccltune analyze {tmp_path / 'study'}" in read
    assert "all-reduce, ? nodes, 16 ranks, run 1" in shown
    assert "run 2: 2 MiB takes 80 us and 1 MiB 900 us" in shown
    assert "run 1: 2 MiB" not in shown
    assert "12 timings of an unknown number of nodes" in tuned
    assert "wrong results" not in tuned
    assert "--ranks" not in tuned


def test_times_without_ranks_have_no_bandwidth(tmp_path: Path, cli: Cli) -> None:
    table = "| Size | Time (us) |\n|---|---|\n| 1048576 | 50 |\n| 4194304 | 140 |\n"
    _, shown, _ = screens(tmp_path, cli, "## Reduce Scatter\n\n" + table)
    assert "reduce-scatter, ? nodes, ? ranks" in shown
    assert "GB/s" not in shown
    assert "curve no clear falling time; the noise is unknown, so smaller ones may not" in shown
    assert "number of nodes and ranks is unknown" in shown


def test_one_size_has_no_shape(tmp_path: Path, cli: Cli) -> None:
    text = "# all_reduce\n" + HEADER + rows(8, {1 << 30: 5e4}) + FOOTER
    _, shown, _ = screens(tmp_path, cli, text)
    assert "one size: it shows no shape" in shown
    assert "no dip" not in shown


def test_a_bandwidth_above_a_gap_is_reached_somewhere_below(tmp_path: Path, cli: Cli) -> None:
    cut = {8: 9.0, 16: 9.0, 1 << 30: 5e3}
    _, shown, _ = screens(tmp_path, cli, "# all_reduce\n" + HEADER + rows(8, cut))
    assert "<= 1 GiB <= 1 GiB" in shown
    assert "still grows" not in shown


def test_tune_says_which_timings_it_leaves_out(tmp_path: Path, cli: Cli) -> None:
    start = "### Two Nodes\n\n"
    _, _, tuned = screens(
        tmp_path,
        cli,
        start + "./all_reduce_perf -b 1M -g 16\n" + HEADER + rows(16, SMOOTH),
        start + "NCCL_ALGO=Tree ./all_reduce_perf -b 1M -g 16\n" + HEADER + rows(16, SMOOTH),
        "# all_reduce\n" + HEADER + rows(8, SMOOTH),
    )
    assert "left out 6 timings of NCCL_ALGO=Tree, protocol chosen by NCCL: neither" in tuned
    assert "left out 6 timings of an unknown number of nodes or ranks" in tuned
    limited, unscaled = cli("tune", tmp_path / "study", "--dry-run", "--json").document["left_out"]
    assert limited.startswith("6 timings of NCCL_ALGO=Tree")
    assert unscaled == "6 timings of an unknown number of nodes or ranks"
    two = "NCCL_PROTO=Simple ./all_reduce_perf -b 1M -g 16\n" + HEADER
    for factor, words in ((0.5, "whole choice, but looks up to 2.00x faster; for a rule"), (1, "")):
        faster = {size: factor * time_us for size, time_us in SMOOTH.items()}
        plain = "./all_reduce_perf -b 1M -g 16\n" + HEADER + rows(16, SMOOTH)
        folder = tmp_path / str(factor)
        folder.mkdir()
        _, _, tuned = screens(folder, cli, start + plain, start + two + rows(16, faster))
        assert "no whole choice was measured beside the default" in tuned
        assert (words or "whole choice Wrote") in tuned


def test_the_collective_is_asked_for_once(tmp_path: Path, cli: Cli) -> None:
    table, study = tmp_path / "my table.md", tmp_path / "study"
    table.write_text("| Size | Time (us) |\n|---|---|\n| 1048576 | 50 |\n| 4194304 | 140 |\n")

    def printed(*words: str) -> str:
        return cli(*words, code=None).err

    start = f"nccltune import '{table}'"
    named = f"{start} -o {study} --collective NAME"
    assert f"give what is unknown: {named}" in printed("import", str(table), "-o", str(study))
    step = printed(*shlex.split(named.replace("NAME", "allreduce"))[1:])
    again = f"{start} --collective allreduce -o {study} --nodes N --ranks N"
    assert f"next: for rules, add what is unknown: {again}\n" in step
    options = f"-o {study} --collective allreduce --nodes N --ranks N"
    assert f"next: nccltune import FILES {options}\n" in printed("analyze", str(study))
    once = f"next: nccltune analyze '{table}' --collective allreduce --nodes N --ranks N\n"
    assert once in printed("analyze", str(table), "--collective", "allreduce")
    table.write_text(table.read_text().replace("| Size", "all_reduce_perf\n\n| Size"))
    known = f"next: nccltune analyze '{table}' --nodes N --ranks N\n"
    assert known in printed("analyze", str(table))
    assert f"nccltune import FILES... {options};" in printed("tune", str(study))
    given = ("analyze", str(table), "--collective", "allreduce")
    assert f"next: nccltune {shlex.join(given)} --nodes N --ranks N\n" in printed(*given)
    # Not where the program's own footer names it.
    log = tmp_path / "run.txt"
    log.write_text(HEADER + rows(8, SMOOTH) + "# Collective test concluded: all_reduce_perf\n")
    assert f"next: nccltune analyze {log} --nodes N\n" in printed("analyze", str(log))
    assert "Wrote 2 samples" in cli(*shlex.split(again.replace(" N", " 2"))[1:]).out


def test_columns_of_two_states_are_compared_as_the_refusal_says(tmp_path: Path, cli: Cli) -> None:
    table = tmp_path / "table.md"
    rows = "| 1048576 | 50 | 40 |\n| 4194304 | 140 | 130 |\n"
    table.write_text("| size | before (us) | after (us) |\n|---|---|---|\n" + rows)
    given = ("--collective", "allreduce")
    found = cli("import", table, *given, "-o", tmp_path / "study", code=2).err
    assert "measured: column 'before' in" in found
    assert f"nccltune compare {table} {' '.join(given)}; or --split" in found
    assert "second     after" in cli("compare", table, *given).out


def test_wrong_results_are_the_reason_if_nothing_else_is(tmp_path: Path, cli: Cli) -> None:
    text = "`all_reduce_perf -b 1M -g 1` fails:\n" + HEADER + rows(2, SMOOTH, wrong=7)
    read, _, tuned = screens(tmp_path, cli, text)
    assert "elements came out wrong" in read
    assert "1 rank" not in read
    assert "6 timings with wrong results" in tuned
    assert "unknown number" not in tuned


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            "ring/ll128",
            "ring/ll128 gave wrong results at 16 MiB (10 timings failed the data check)",
        ),
        (
            "default",
            "calls without a forced choice gave wrong results at 16 MiB (10 timings "
            "failed the data check)",
        ),
    ],
)
def test_no_rule_hides_wrong_results(tmp_path: Path, cli: Cli, choice: str, words: str) -> None:
    study, sizes = tmp_path / "study", [1 << power for power in range(16, 25)]
    for name, factor in (("default", 1.0), ("ring/ll128", 0.5)):
        for run in range(5):
            bad = rows(8, {sizes[-1]: 400.0 * factor}, wrong=16 if name == choice else 0)
            times = {size: (20 + size / 1e5) * factor * (1 + run / 1e3) for size in sizes[:-1]}
            log = tmp_path / f"{run}-{name.replace('/', '-')}.txt"
            log.write_text("# all_reduce\n" + HEADER + rows(8, times) + bad + FOOTER)
            given = ("--choice", name, "--nodes", "1", "--ranks", "8", "--in-rounds")
            cli("import", log, *given, "-o", study, code=None)
    tuned = " ".join(cli("tune", study).out.split())
    assert f"wrong all-reduce, 1 node, 8 ranks: {words}, so no rule" in tuned
    assert "(0 rules)" in tuned
    assert "#" in (study / "tuner.conf").read_text()
    for verb in (("analyze",), ("env",), ("report", "--terminal")):
        found = cli(*verb, study, code=None)
        assert words in " ".join((found.out + found.err).split()), verb
        assert "was measured" not in found.out
