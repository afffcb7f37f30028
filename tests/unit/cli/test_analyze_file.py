# SPDX-License-Identifier: Apache-2.0
"""`analyze` and `tune` of a file, a folder of files and standard input, without a study."""

import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

import pytest

from nccltune.model.collective import Collective
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.runs import Cli


def log(slow: float = 1.0, command: str = "") -> str:
    sizes = [1 << power for power in range(20, 29)]
    times = {size: (slow * (20 + size / 40e3), slow * (20 + size / 40e3)) for size in sizes}
    return command + nccl_tests_log(["node-a", "node-b"], times)


FORCED = "NCCL_ALGO=Ring NCCL_PROTO=Simple "


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["run.txt", "folder", "-"])
def test_what_is_no_study_is_analyzed_as_its_import_is_and_nothing_is_written(
    cli: Cli, inside: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = inside / "run.txt"
    if name == "folder":
        path = inside / "folder" / "run.txt"
        path.parent.mkdir()
    path.write_text(log(), encoding="utf-8")
    cli("import", str(path), "-o", "study")
    before = sorted(inside.rglob("*"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log().encode())))
    found = json.loads(cli("analyze", name, "--json").out)
    of_study = json.loads(cli("analyze", "study", "--dry-run", "--json").out)
    assert found["conditions"] == of_study["conditions"] != []
    assert [item["kind"] for item in found["findings"]] == [
        item["kind"] for item in of_study["findings"]
    ]
    assert sorted(inside.rglob("*")) == before
    if name != "-":
        out, err = cli("analyze", name)
        assert "2 nodes" in out
        assert f"nccltune import {name} FILES -o STUDY" in err
        assert err.startswith(f"next: nccltune compare {name} --nics NICSxGBIT  # is it normal? (")
        assert f"compare {name} --nodes 2 --nics" in cli("analyze", name, "--nodes", "2").err
        assert "/tmp" not in out + err


@contextmanager
def piped(path: Path, text: str) -> Iterator[None]:
    """Write a text into a pipe that can be read once, as the shell's `<(...)` does."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text, "utf-8"), daemon=True)
    writer.start()
    yield
    writer.join()
    path.unlink()


def test_runs_of_a_loop_over_sizes_are_one_curve(cli: Cli, inside: Path) -> None:
    hosts = ["node-a", "node-b"]
    runs = [nccl_tests_log(hosts, {512 << k: (20.0 + k, 21.0 + k)}) for k in range(6)]
    (inside / "loop.txt").write_text("\n".join(runs), encoding="utf-8")
    assert len(json.loads(cli("analyze", "loop.txt", "--json").out)["conditions"]) == 2
    assert cli("compare", "loop.txt", code=2).out.startswith("test       all-reduce, 2 nodes")


def test_runs_under_titles_are_shown_one_by_one_and_compared(
    cli: Cli, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'## Before\n{log(1.5)}\n=== "After"\n{log()}\n'
    (inside / "both.md").write_text(text, encoding="utf-8")
    out = cli("analyze", "both.md").out
    order = ("After is 1.50x faster", "under 'Before'", "under 'After'")
    assert [out.index(words) for words in order] == sorted(out.index(words) for words in order)
    document = json.loads(cli("analyze", "both.md", "--json").out)
    assert len(document["analyses"]) == 2
    assert document["compared"]["first"] == "Before"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    once = [cli("analyze", "-", "--json").out]
    with piped(inside / "pipe", text):
        once.append(cli("analyze", "pipe", "--json").out)
    for out in once:
        assert json.loads(out)["compared"]["tests"] == document["compared"]["tests"]
    _, err = cli("tune", "both.md", code=2)
    assert "both.md: the runs are of different conditions" in err
    assert "nccltune import both.md -o STUDY --split" in err


def test_a_file_is_tuned_and_its_rules_written_only_where_asked(cli: Cli, inside: Path) -> None:
    runs = [(1.5, ""), (1.0, FORCED)] * 6
    text = "".join(
        log(slow * (1 + number % 3 / 500), f"$ {settings}mpirun -np 2 all_reduce_perf\n")
        for number, (slow, settings) in enumerate(runs)
    )
    (inside / "runs.txt").write_text(text, encoding="utf-8")
    out, err = cli("tune", "runs.txt")
    assert "ring/simple" in out
    assert "Not written (-o FILE does)" in out
    assert "nccltune import runs.txt -o STUDY && nccltune verify STUDY -- mpirun" in err
    assert [path.name for path in inside.iterdir()] == ["runs.txt"]
    cli("tune", "runs.txt", "-o", "rules.conf")
    assert "ring,simple" in (inside / "rules.conf").read_text(encoding="utf-8")


def test_what_a_file_does_not_state_is_stated_to_tune_too(cli: Cli, inside: Path) -> None:
    text = "".join(
        log(slow * (1 + number % 3 / 500), f"$ {settings}mpirun some_program\n")
        for number, (slow, settings) in enumerate([(1.5, ""), (1.0, FORCED)] * 6)
    )
    lines = [line for line in text.splitlines() if not line.startswith(("#  Rank", "# Coll"))]
    (inside / "bare.txt").write_text("\n".join(lines), encoding="utf-8")
    assert (
        "nccltune tune bare.txt --collective allreduce --nodes N"
        in cli("tune", "bare.txt", code=2).err
    )
    out, err = cli("tune", "bare.txt", "--collective=allreduce", "--nodes=2", "--ranks=2")
    assert "ring/simple" in out
    assert "import bare.txt --collective=allreduce --nodes=2 --ranks=2 -o STUDY && " in err


def test_a_file_without_measurements_says_why(cli: Cli, inside: Path) -> None:
    (inside / "notes.txt").write_text("nothing measured here\n", encoding="utf-8")
    _, err = cli("analyze", "notes.txt", code=2)
    assert "notes.txt" in err
    assert "nccl-tests" in err
    (inside / "empty").mkdir()
    (inside / "folder").mkdir()
    (inside / "folder" / "notes.txt").write_text("nothing measured here\n", encoding="utf-8")
    known = err[err.index("known are") :]
    assert cli("import", "folder", "-o", "study", code=2).err.endswith(known)
    assert "no study" in cli("analyze", "empty", code=2).err
    assert "no such study" in cli("analyze", "missing.txt", code=2).err


@pytest.mark.parametrize(
    ("verb", "wrong", "says"),
    [
        ("analyze", False, "nccltune import FILE FILES -o STUDY  # FILE: what was piped, saved\n"),
        ("analyze", True, "nccltune doctor FILE  # FILE: what was piped, saved\n"),
        ("compare", True, "nccltune doctor FILE  # FILE: what was piped, saved\n"),
    ],
)
def test_after_a_pipe_a_next_command_names_a_file(
    verb: str, wrong: bool, says: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    text = log().replace("       0", "       7") if wrong else log()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    err = cli(verb, "-", code=None).err
    assert says in err
    assert " - " not in err


@pytest.mark.parametrize("verb", ["analyze", "tune"])
@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("wrong", "next: nccltune doctor run.txt"),
        ("copies", "next: rebuild nccl-tests: make clean; make MPI=1"),
        ("2.4.8", "next: update NCCL: choices can be forced since 2.5"),
    ],
)
def test_the_next_step_is_about_what_was_found(
    case: str, says: str, verb: str, cli: Cli, inside: Path
) -> None:
    text = log()
    if case == "wrong":
        text = text.replace("       0 ", "       7 ", 1)
    elif case == "copies":
        copy = "#  Rank  {}  Group  0 Pid {} on {} device  {} [0000:1b:00] NVIDIA H100 80GB HBM3\n"
        device = [line for line in text.splitlines(keepends=True) if line.startswith("#  Rank")]
        copies = [copy.format(i, pid, host, i)
                  for pid, host in ((11, "node-a"), (12, "node-b")) for i in (0, 1)]  # fmt: skip
        text = text.replace("".join(device), "".join(copies))
    else:
        setting = "node-a:1:1 [0] NCCL INFO NCCL_TREE_THRESHOLD set by environment to 0.\n"
        text = f"NCCL version {case}\n{setting}{text}"
    (inside / "run.txt").write_text(text)
    found = cli(verb, "run.txt", *(["--nodes", "1"] if case == "copies" else []))
    assert says in found.err
    assert "sweep" not in found.err
    if (verb, case) == ("analyze", "2.4.8"):
        assert "default    ring, not chosen by NCCL: NCCL_TREE_THRESHOLD=0 rules" in found.out
        assert "only the default was measured" not in found.out


MATRIX = """\
$ nvidia-smi topo -m
\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity
GPU0\t X \tNV4\tNV4\tNV4\tPXB\t0-15
GPU1\tNV4\t X \tNV4\tNV4\tPXB\t0-15
GPU2\tNV4\tNV4\t X \tNV4\tPXB\t0-15
GPU3\tNV4\tNV4\tNV4\t X \tPXB\t0-15
mlx5_0\tPXB\tPXB\tPXB\tPXB\t X

"""


def test_a_topology_in_the_text_of_the_results_gives_what_the_links_allow(
    cli: Cli, inside: Path
) -> None:
    times = {1 << power: ((20 + (1 << power) / 130e3,) * 2) for power in range(20, 31, 2)}
    post = inside / "post.txt"
    for hosts, wanted in ((["node-a"], 1), (["node-a", "node-b"], 0)):
        post.write_text(MATRIX + nccl_tests_log(hosts, times, gpus=4), encoding="utf-8")
        found = json.loads(cli("analyze", "post.txt", "--json").out)
        assert sum("the links allow" in item["sentence"] for item in found["findings"]) == wanted
    # Two nodes: the matrix does not show how fast its NIC is.
    words = "".join(cli("analyze", "post.txt"))
    assert "topo.txt: does not name the speed of NIC mlx5_0" in words
    assert "/nccltune-" not in words


@pytest.mark.parametrize(
    ("names", "foreign"),
    [(("NCCL", "Ours"), 1), (("NCCL 2.18", "NCCL 2.20"), 0), (("CustomAR", "SymmMem"), 2),
     (("before", "after"), 0), (("base", "NCCL custom build"), 0)],
)  # fmt: skip
def test_nothing_is_said_of_the_default_of_runs_that_are_not_of_nccl(
    cli: Cli, inside: Path, names: tuple[str, str], foreign: int
) -> None:
    rows = "".join(f"| {2**k} KiB | {40 + k} | {20 + k} |\n" for k in range(10))
    head = f"| size | {names[0]} (us) | {names[1]} (us) |\n|---|---|---|\n"
    (inside / "post.md").write_text(f"All-reduce, 8 GPUs, 1 node\n\n{head}{rows}")
    out = cli("analyze", "post.md").out
    assert out.count("runs       column") == 2
    assert out.count("by their name these runs may not be of NCCL") == foreign
    assert out.count("\ndefault ") == 2 - foreign


def test_runs_of_rccl_have_its_name_and_no_sweep(cli: Cli, inside: Path) -> None:
    rows = "".join(f"| {2**k} KiB | {40 + k} | {20 + k} |\n" for k in range(10))
    head = "| size | RCCL default (us) | MSCCL++ (us) |\n|---|---|---|\n"
    (inside / "post.md").write_text(f"# RCCL 2.20.5, 8 GPUs, 1 node\n\n{head}{rows}")
    out = cli("analyze", "post.md", "--collective", "allreduce").out
    titles = [line for line in out.splitlines() if line.startswith("platform")]
    assert len(titles) == 2
    assert "RCCL 2.20.5" in titles[0]
    assert "NCCL" not in titles[1]
    for library, wanted in (("NCCL", 1), ("RCCL", 0)):
        (inside / "one.md").write_text(
            f"{library}: all_reduce_perf, 8 GPUs, 1 node\n\n| size | time (us) |\n|---|---|\n"
            + "".join(f"| {2**k} KiB | {40 + k} |\n" for k in range(10))
        )
        _, err = cli("analyze", "one.md", "--nodes", "1", "--ranks", "8")
        assert err.count("nccltune sweep") == wanted
        assert "run again with NCCL_ALGO" in err


def test_an_unknown_choice_is_named_where_nothing_is_read(cli: Cli, inside: Path) -> None:
    text = "All-gather 16 GPUs 2 nodes, NCCL_PROTO=Simple\n\nsize,time (us)\n1024,12\n4096,21\n"
    (inside / "post.csv").write_text(text)
    _, err = cli("analyze", "post.csv", code=2)
    assert "line 1 has NCCL_PROTO=Simple: nothing names the rest" in err


def test_a_scale_that_loses_bandwidth_is_told_beside_the_curves(cli: Cli, inside: Path) -> None:
    rows = "".join(f"{n},{8 * n},8192,{rate}\n" for n, rate in ((2, 372), (4, 361), (8, 210)))
    (inside / "scales.csv").write_text(f"Nodes,GPUs,Size (MB),all_reduce busbw (GB/s)\n{rows}")
    out = cli("analyze", "scales.csv").out
    assert "361 GB/s with 4 nodes, 210 GB/s with 8 nodes at 8 GiB: 42 % lost" in out
    assert out.count("\n\nplatform ") == 1


def test_a_setting_that_names_runs_is_no_other_program(cli: Cli, inside: Path) -> None:
    table = "| size | time (us) |\n|---|---|\n"
    slow, fast = (
        table + "".join(f"| {2**k} KiB | {factor * (40 + k)} |\n" for k in range(10))
        for factor in (2, 1)
    )
    text = f"All-reduce, 8 GPUs\n\nWithout any setting:\n\n{slow}\nWith NCCL_PXN_DISABLE=1:\n\n"
    (inside / "post.md").write_text(text + fast)
    out = cli("analyze", "post.md").out
    assert "NCCL_PXN_DISABLE=1 is 2.00x faster than Without any setting" in out
    assert "may not be of NCCL" not in out


def test_of_a_large_fleet_only_curves_with_a_finding_are_printed(cli: Cli, inside: Path) -> None:
    (inside / "pairs").mkdir()
    for first, second in combinations(("n1", "n2", "n3", "n4"), 2):
        rate = 12e3 if "n4" in (first, second) else 40e3
        times = {1 << i: (50 + (1 << i) / rate,) * 2 for i in range(24, 33, 2)}
        if (first, second) == ("n1", "n2"):
            times[1 << 26] = (9e4, 9e4)
        made = nccl_tests_log([first, second], times, gpus=8)
        (inside / "pairs" / f"{first}_{second}.txt").write_text(made, encoding="utf-8")
    out = cli("analyze", "pairs", code=1).out
    assert "n4: " in out
    assert out.count("\nplatform ") == 1
    assert "runs       n1_n2.txt\n" in out
    assert "falling time" in out
    assert "not shown for 5 of 6 sets of runs" in out


def test_a_folder_of_three_scales_is_a_series(cli: Cli, inside: Path) -> None:
    for nodes, gb_per_s in ((2, 40.0), (3, 20.0), (4, 40.0)):
        times = {1 << i: ((1 << i) / gb_per_s / 1e3 + 50,) * 2 for i in range(24, 33, 2)}
        hosts = [f"n{i}" for i in range(nodes)]
        made = nccl_tests_log(hosts, times, gpus=8, collective=Collective.ALLGATHER)
        put = inside / "runs" / f"{nodes}.txt"
        put.parent.mkdir(exist_ok=True)
        put.write_text(made, encoding="utf-8")
    out = cli("analyze", "runs", code=1).out
    assert "GB/s with 3 nodes at 4 GiB, but 37.5 GB/s with 2" in out
    assert "platform " in out
    assert "scales  " not in out
    (inside / "runs" / "3.txt").unlink()
    assert "scaling" not in cli("analyze", "runs").out
    cli("import", "runs", "-o", "study")
    assert (
        "scales     bus bandwidth at 4 GiB: all-gather, 2 nodes, 16 ranks 37.5 GB/s; all-gather, 4"
        " nodes, 32 ranks 38.7 GB/s, 1.03 times that of the first\n"
    ) in cli("analyze", "study").out
    cli("import", "runs/2.txt", "-o", "small")
    assert "scales  " not in cli("analyze", "small").out


@pytest.mark.parametrize(("runs", "said"), [(1, "unknown"), (3, "few rounds"), (4, "%")])
def test_noise_that_few_rounds_cannot_show_is_not_unknown(
    runs: int, said: str, cli: Cli, inside: Path
) -> None:
    for number in range(runs):
        times = {1 << i: ((1 << i) / 40e3 + 50 + number,) * 2 for i in range(24, 33, 2)}
        made = nccl_tests_log(["n0", "n1"], times, gpus=8, pid=100 * number)
        (inside / f"{number}.txt").write_text(made, encoding="utf-8")
    cli("import", *(f"{number}.txt" for number in range(runs)), "-o", "study")
    row = cli("analyze", "study").out.splitlines()[2]
    assert row.startswith("all-reduce, 2 nodes, 16 ranks ")
    assert row.endswith(said)


@pytest.mark.parametrize("calls", [1, 10])
def test_groups_of_calls_are_named_and_measured_again(calls: int, cli: Cli, inside: Path) -> None:
    text = log(command=f"$ mpirun -np 4 all_reduce_perf -m {calls}\n")
    (inside / "m.txt").write_text(text.replace("agg iters: 1", f"agg iters: {calls}"))
    out, err = cli("analyze", "m.txt")
    assert out.startswith("runs       -m 10: 10 calls in a group\n") == (calls > 1)
    assert ("--pipe-ops 10" in err) == (calls > 1)


def test_rules_of_another_tuner_are_not_explained(cli: Cli, inside: Path) -> None:
    rows = '# Meta\nallgather,"[0,262144)",ring,ll128,-1,*,*,*,*,*\n'
    (inside / "tuner.csv").write_text(rows)
    err = cli("explain", "tuner.csv", code=2).err
    assert "tuner.csv:2: is a configuration of NCCLX's tuner" in err
    assert "hint:  a CSV row has collective,minBytes" in err
