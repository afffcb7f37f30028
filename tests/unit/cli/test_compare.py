# SPDX-License-Identifier: Apache-2.0
"""`nccltune compare` as a command: screens, the line for a chat, JSON and exit codes."""

import itertools
import re
from pathlib import Path

import pytest

from nccltune.model.collective import Collective
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.runs import Cli

LOGS = Path(__file__).parents[2] / "data" / "field" / "log-21-two-versions"
BEFORE, AFTER = str(LOGS / "nccl-2.28.txt"), str(LOGS / "nccl-2.29.txt")


def pairs(folder: Path, weak: str = "") -> str:
    """Logs of 15 pairs of 6 nodes; the test of `e` and `f` failed."""
    for number, (a, b) in enumerate(itertools.combinations("abcdef", 2)):
        wobble = 1 + 0.0002 * (number % 5)
        slow = 1.135 * wobble if weak in (a, b) else wobble
        times = {1 << i: ((1 << i) / 27e3 * slow, (1 << i) / 27e3 * slow) for i in range(25, 31)}
        log = nccl_tests_log(
            [f"node-{a}", f"node-{b}"],
            times if a + b != "ef" else {},
            collective=Collective.ALLTOALL,
            pid=100 * number,
        )
        folder.mkdir(exist_ok=True)
        (folder / f"{a}-{b}.log").write_text(log, encoding="utf-8")
    return str(folder)


def test_the_verdict_comes_before_the_table(cli: Cli) -> None:
    out, err = cli("compare", BEFORE, AFTER, code=1)
    assert err == ""
    assert [line.rstrip() for line in out.splitlines()[:9]] == [
        "first      nccl-2.28.txt",
        "second     nccl-2.29.txt",
        "differs    NCCL: 2.28.3 first, 2.29.7 second",
        "unknown    not shown by both, so they may differ, too: CUDA driver version, network, NCCL"
        " settings",
        "slower     all-reduce, 1 node, 8 ranks: NCCL 2.29.7 is 1.37x slower than 2.28.3 from 1 KiB"
        " to 256 KiB (9 of 9 sizes, beyond the scatter)",
        "",
        "all-reduce, 1 node, 8 ranks (mean of out of place and in place)",
        "   size    first   second  ratio",
        "  1 KiB  24.0 us  33.1 us  1.37x    slower",
    ]
    assert out.splitlines()[-1].startswith(
        "noise      1 run and 1 run: neighbouring sizes are judged together; differences under 5 %"
        " for the whole curve (assumed) are not shown to be more than noise"
    )


def test_faster_has_exit_code_0(cli: Cli) -> None:
    assert "faster     all-reduce, 1 node, 8 ranks: NCCL 2.28.3 is 1.37x faster" in (
        cli("compare", AFTER, BEFORE).out
    )


def test_one_line_for_a_chat(cli: Cli) -> None:
    assert cli("compare", BEFORE, AFTER, "--oneline", code=1).out == (
        "nccl-2.28.txt to nccl-2.29.txt (NCCL 2.28.3 to 2.29.7): all-reduce, 1 node, 8 ranks: NCCL"
        " 2.29.7 is 1.37x slower than 2.28.3 from 1 KiB to 256 KiB (9 of 9 sizes, beyond the"
        " scatter)\n"
    )


def test_json_has_the_numbers(cli: Cli) -> None:
    document = cli("compare", BEFORE, AFTER, "--json", code=1).document
    assert document["different"] == [{"fact": "NCCL", "first": "2.28.3", "second": "2.29.7"}]
    (test,) = document["tests"]
    assert [point["bytes"] for point in test["points"]] == [1 << i for i in range(10, 19)]
    assert test["ranges"][0]["ratio"] == pytest.approx(1.373, abs=0.001)


def test_several_differences_have_no_single_cause(tmp_path: Path, cli: Cli) -> None:
    text = Path(AFTER).read_text(encoding="utf-8").replace("node-a", "node-b")
    (tmp_path / "after.txt").write_text(text.replace("H100 80GB HBM3", "H200"), encoding="utf-8")
    out = cli("compare", BEFORE, tmp_path / "after.txt", code=1).out
    assert "differs    GPU: NVIDIA H100 80GB HBM3 first, NVIDIA H200 second" in out
    assert "differs    hosts: node-a first, node-b second" in out
    assert "cause      3 things differ: which of them matters cannot be separated" in out
    assert "after.txt is 1.37x slower than nccl-2.28.txt" in out


def test_a_fleet_names_the_node_first(tmp_path: Path, cli: Cli) -> None:
    out = cli("compare", pairs(tmp_path / "pairs", weak="d"), code=1).out.splitlines()
    assert out[:4] == [
        "fleet      14 runs of 6 nodes",
        "failed     1 test gave no result: pairs/e-f.log",
        "slow node  all-to-all, 2 nodes, 2 ranks: node-d: 11.9 of 13.5 GB/s at 1 GiB in 5 of 5"
        " pairs",
        "",
    ]
    assert out[4].startswith(
        "all-to-all, 2 nodes, 2 ranks: 14 runs of 6 nodes, usual 13.5 GB/s at 1 GiB, spread 0.0"
    )
    assert re.fullmatch(r"node-d +5 +5 +11\.9 +11\.9 +11\.9", out[6])
    assert cli("compare", tmp_path / "pairs", "--oneline", code=1).out == (
        "14 runs: slow node: all-to-all, 2 nodes, 2 ranks: node-d: 11.9 of 13.5 GB/s at 1 GiB in"
        " 5 of 5 pairs; 1 test gave no result: pairs/e-f.log\n"
    )
    assert cli("analyze", tmp_path / "pairs", code=1).out.startswith("fleet      14 runs")


def test_nodes_that_ran_only_once_are_not_called_normal(tmp_path: Path, cli: Cli) -> None:
    """A slow pair of which no node has another run: which of both is slow is not known."""
    for number in range(8):
        slow = (1.0 if number else 1.3) * (1 + 0.0002 * number)
        times = {1 << i: ((1 << i) / 27e3 * slow,) * 2 for i in range(25, 31)}
        log = nccl_tests_log([f"n{2 * number}", f"n{2 * number + 1}"], times, pid=100 * number)
        (tmp_path / f"{number}.log").write_text(log, encoding="utf-8")
    out = cli("compare", tmp_path, code=1).out
    assert "slow run   all-reduce, 2 nodes, 2 ranks: n0 - n1:" in out
    assert "these nodes have no other run: run each with another node" in out
    assert "most other runs of these nodes are normal" not in out


def test_a_sound_fleet_has_exit_code_0(tmp_path: Path, cli: Cli) -> None:
    folder = Path(pairs(tmp_path / "pairs"))
    (folder / "e-f.log").unlink()
    assert cli("analyze", folder).out.startswith("fleet      14 runs")
    out = cli("compare", folder).out
    assert "slow       nothing in 1 test beyond the noise of the runs" in out
    assert cli("compare", *sorted(folder.iterdir()), "--oneline").out == (
        "14 runs: nothing is slower than the others beyond noise\n"
    )


def test_the_guide_shows_what_a_fleet_prints(tmp_path: Path, cli: Cli) -> None:
    """The same lines, but for the numbers of runs and nodes and the names."""
    page = Path(__file__).parents[3] / "docs" / "guides" / "comparing.md"
    shown = page.read_text(encoding="utf-8").partition("$ nccltune compare pairs/\n")[2]
    out = cli("compare", pairs(tmp_path / "pairs", weak="d"), code=1).out.splitlines()

    def form(line: str) -> str:
        return re.sub(r"\S*node-\S+|\S+\.log|[\d.]+", "#", line)

    lines = shown.partition("```")[0].splitlines()
    assert [form(line) for line in lines] == [form(line) for line in out[: len(lines)]]


def test_too_few_runs_to_judge_are_exit_code_2_and_lead_to_analyze(
    tmp_path: Path, cli: Cli
) -> None:
    times = {1 << i: (30.0 + (1 << i) / 2e5,) * 2 for i in range(10, 30, 2)}
    for number in range(3):
        own = {size: (both[0] * (1 + number / 100),) * 2 for size, both in times.items()}
        (tmp_path / f"run{number}.log").write_text(nccl_tests_log(["a", "b"], own, pid=number))
    for more in ((), ("--oneline",)):
        out, err = cli("compare", tmp_path, *more, code=2)
        assert "nothing: no test has four runs at one scale" in out
        assert "slower than the others" not in out
        assert err.endswith(f"next: nccltune analyze {tmp_path}\n")


def test_an_input_without_a_measurement_is_an_error(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no table\n", encoding="utf-8")
    err = cli("compare", file, code=2).err.splitlines()
    assert err[0].startswith(f"error: {file}: no measurement to compare: notes.txt: nothing in it")
    assert err[1].startswith("hint:  known are output and JSON of nccl-tests")
