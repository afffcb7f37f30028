# SPDX-License-Identifier: Apache-2.0
"""`nccltune compare LOG`: one measurement among published systems."""

import re
from pathlib import Path

import msgspec
import pytest

from nccltune.app.compare_reference import PlacedTest
from nccltune.model.collective import Collective
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.runs import Cli

FIELD = Path(__file__).parents[2] / "data" / "field"
LOW = str(FIELD / "log-01-default-only" / "run.txt")
GOOD = str(FIELD / "node-01-h100-two-nodes" / "all_reduce_2n.txt")
TOPOLOGY = str(FIELD / "node-01-h100-two-nodes" / "topo.xml")


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "nccltune" / "reference"


def h100_log(folder: Path, gb_per_s: float, hosts: int = 2, command: str = "") -> str:
    ranks = 8 * hosts
    times = {
        1 << i: (((1 << i) / gb_per_s / 1e3 * 2 * (ranks - 1) / ranks + 30,) * 2)
        for i in range(10, 34, 2)
    }
    file = folder / "run.txt"
    log = nccl_tests_log([f"n{i}" for i in range(hosts)], times, gpus=8)
    file.write_text(command + log, encoding="utf-8")
    return str(file)


def test_a_low_figure_comes_first_with_what_it_is_compared_with(cli: Cli) -> None:
    out, err = cli("compare", LOW, "--nics", "8x400", code=1)
    lines = out.splitlines()
    assert lines[:4] + lines[7:8] == [
        "test       all-reduce, 2 nodes, 16 ranks (run.txt)",
        "system     2 x 8 NVIDIA H100 80GB HBM3 · 8 x 400 Gbit/s a node · NCCL 2.30.7",
        "low        223 GB/s at 512 MiB: below all 3 published systems like it, 34 % below the"
        " lowest (336 to 427 GB/s)",
        "NICs       8 x 400 Gbit/s are 400 GB/s a node, 56 % of it reached; a ring reaches about"
        " 96 %, a tree more",
        "alike      GPU H100, H200 or H20, 8 a node, 2 nodes, NICs of 400 Gbit/s for each GPU."
        " GB/s at 512 MiB:",
    ]
    assert sum("https://" in line for line in lines) == 3
    assert f"next: nccltune doctor {LOW}" in err


def test_the_guide_shows_this_screen(cli: Cli) -> None:
    page = Path(__file__).parents[3] / "docs" / "guides" / "reference-systems.md"
    block = page.read_text(encoding="utf-8").partition("$ nccltune compare run.txt")[2]
    shown = block.partition("```")[0].splitlines()[1:-2]
    assert shown == cli("compare", LOW, "--nics", "8x400", code=None).out.splitlines()[: len(shown)]


def test_without_the_nic_rate_nothing_is_judged_and_it_is_asked_for(cli: Cli) -> None:
    out = cli("compare", LOW, code=2).out
    assert "undecided  223 GB/s at 512 MiB: the NIC rate is not known" in out
    assert "with 400 Gbit/s for each GPU: 223 GB/s at 512 MiB: below all 3" in out
    assert "needed     --nics 8x400" in out


@pytest.mark.parametrize(
    ("gpu", "needed"),
    [
        ("AMD Radeon Graphics", "a system with AMD Radeon Graphics (the reference set has NVIDIA"),
        (
            "NVIDIA Graphics Device",
            "--gpu NAME, such as H100 (the log does not show the GPU model)",
        ),
    ],
)
def test_a_gpu_without_a_model_is_asked_for_unless_no_system_has_it(
    gpu: str, needed: str, tmp_path: Path, cli: Cli
) -> None:
    text = nccl_tests_log(["a", "b"], {1 << 30: (9e5, 9e5)})
    file = tmp_path / "run.log"
    file.write_text(text.replace("NVIDIA H100 80GB HBM3", gpu), encoding="utf-8")
    assert f"needed     {needed}" in cli("compare", file, code=2).out


@pytest.mark.parametrize(
    ("collective", "bytes_", "asked"),
    [
        (Collective.ALLREDUCE, 8, False),
        (Collective.ALLREDUCE, 1 << 30, True),
        (Collective.ALLTOALL, 1 << 30, False),
    ],
)
def test_nics_that_no_figure_needs_are_not_asked_for(
    collective: Collective, bytes_: int, asked: bool, tmp_path: Path, cli: Cli
) -> None:
    text = nccl_tests_log(["a", "b"], {bytes_: (9e5, 9e5)}, collective=collective)
    text = text.replace("NVIDIA H100", "NVIDIA L4")
    file = tmp_path / "run.log"
    program = f"{collective.nccl_tests_name}_perf"
    file.write_text(f"NCCL_ALGO=TREE ./{program} -g 8\n{text}", encoding="utf-8")
    out = cli("compare", file, code=2).out
    assert ("needed     --nics" in out) is asked
    assert "limited by NCCL_ALGO=TREE. This GPU has no figure" in out


def test_a_fall_of_the_curve_is_named(tmp_path: Path, cli: Cli) -> None:
    rates = {1 << 21: 5.0, 1 << 23: 15.0, 1 << 25: 29.5, 1 << 26: 5.3, 1 << 28: 4.1, 1 << 29: 5.3}
    for rate in (None, 30.0):
        times = {size: (size / (rate or own) / 1e3,) * 2 for size, own in rates.items()}
        file = tmp_path / "run.log"
        file.write_text(nccl_tests_log(["a", "b"], times), encoding="utf-8")
        out = cli("compare", file, code=None).out
        assert ("notice     bus bandwidth falls from 29.5 GB/s at 32 MiB" in out) is (rate is None)
        line = cli("compare", file, "--oneline", code=None).out
        assert ("; bus bandwidth falls from 29.5 GB/s at 32 MiB" in line) is (rate is None)


def test_a_hole_that_recovers_is_named_as_analyze_names_it(tmp_path: Path, cli: Cli) -> None:
    """Also where only in place falls: the verdict is of the largest and smallest size alone."""
    rates = {1 << i: min(300.0, 4e-5 * (1 << i)) for i in range(14, 33)}
    holes = {1 << i: rates[1 << i] / 3 for i in range(20, 25)}
    for number, places in enumerate(((holes, holes), ({}, holes), ({}, {}))):
        times = {
            size: tuple(size / {**rates, **own}[size] / 1e3 for own in places) for size in rates
        }
        file = tmp_path / f"run{number}.log"
        file.write_text(nccl_tests_log(["a", "b"], times, gpus=8), encoding="utf-8")
        analyzed = cli("analyze", file, "--json").document
        kinds = ("dip", "falling-time")
        seen = [x["sentence"] for x in analyzed["findings"] if x["kind"] in kinds]
        assert bool(seen) is any(places)
        screens = [cli("compare", file, *more, code=None).out for more in ((), ("--oneline",))]
        for words in seen:
            plain = words.removeprefix("all-reduce, 2 nodes, 16 ranks").lstrip(":, ")
            assert all(plain in screen for screen in screens)
        assert all(("bus bandwidth falls" in x) is bool(seen) for x in screens)


def test_of_wrong_results_alone_no_figure_counts(tmp_path: Path, cli: Cli) -> None:
    text = Path(h100_log(tmp_path, 200)).read_text(encoding="utf-8")
    first, second, good = (tmp_path / name for name in ("first.txt", "second.txt", "run.txt"))
    for number, file in enumerate((first, second), 7):
        file.write_text(text.replace("       0", f"       {number}"), encoding="utf-8")
    several = ([first], [first, "--nics", "8x400"], [first, good], [first, second, second], [good])
    for arguments in several:
        for more in ((), ("--oneline",)):
            out, err = cli("compare", *arguments, *more, code=None)
            known = arguments == [good]
            assert bool(out.strip()) is known
            assert ("no figure counts: 24 timings with wrong results (#wrong)" in err) is (
                arguments[:2] == [first, "--nics"] or arguments in ([first], [first, good])
            )
            assert known or "nccltune doctor" in err
    assert f"hint:  nccltune doctor {first}\n" in cli("analyze", first, code=2).err


@pytest.mark.parametrize(
    ("gpu", "said"), [("A100", True), ("H900", True), ("H100", False), ("h200", False)]
)
def test_a_gpu_that_contradicts_the_log_is_said(
    gpu: str, said: bool, tmp_path: Path, cli: Cli
) -> None:
    words = f"the GPU stated, {gpu}, is not used: the log shows NVIDIA H100 80GB HBM3"
    for more in ((), ("--oneline",)):
        out = cli("compare", h100_log(tmp_path, 200), "--gpu", gpu, *more, code=None).out
        assert (words in out) is said


def test_a_rate_that_the_run_exceeds_is_no_comparison(tmp_path: Path, cli: Cli) -> None:
    file = Path(h100_log(tmp_path, 240))
    text = file.read_text(encoding="utf-8").replace("H100 80GB HBM3", "A100-SXM4-40GB")
    file.write_text(text, encoding="utf-8")
    out = cli("compare", file, code=2).out
    assert "with 50 Gbit/s for each GPU: more than they carry" in out


def test_a_normal_figure_has_exit_code_0(cli: Cli) -> None:
    out = cli("compare", GOOD, "--nics", "8x400").out
    assert "normal     470 GB/s at 8 GiB: above all 5 published" in out


def test_the_ceiling_and_the_nics_come_from_the_topology(cli: Cli) -> None:
    out = cli("compare", GOOD, "--topology", TOPOLOGY).out
    assert "8 x 400 Gbit/s a node" in out
    assert "\nceiling    " in out


def test_nccls_own_model_is_named_beside_and_decides_nothing(tmp_path: Path, cli: Cli) -> None:
    log = h100_log(tmp_path, 90, hosts=2)
    (test,) = cli("compare", log, "--topology", TOPOLOGY, "--json", code=1).document["tests"]
    small, large = test["model"]["figures"]
    assert (small["choice"], small["bytes"]) == ("tree/ll", 1 << 10)
    assert (large["choice"], large["bytes"]) == ("nvls_tree/simple", 4 << 30)
    assert round(large["busbw_gb_per_s"]) == 460
    assert [limit["name"] for limit in test["limits"]] == ["NICs", "ceiling"]
    low, high = test["model"]["expected_gb_per_s"]
    assert 250 < low < 0.8 * 460 < 1.05 * 460 < high < 550
    assert (
        "model      NCCL's own cost model (2.28.3), no verdict: 460 GB/s at 4 GiB by"
        f" nvls_tree/simple, measured 90.0 (expected {low:.0f} to {high:.0f}); 25.3 us"
        " at 1 KiB by tree/ll, measured 30.0 us"
    ) in cli("compare", log, "--topology", TOPOLOGY, code=None).out
    out = cli("compare", log, "--topology", TOPOLOGY, "--oneline", code=1).out
    assert "; NCCL's own cost model (2.28.3), no verdict" in out


def test_a_run_without_a_topology_has_the_usual_node_which_decides_nothing(
    tmp_path: Path, cli: Cli
) -> None:
    words = "-x NCCL_IB_HCA=mlx5 all_reduce_perf -b 1K -e 4G -f 4\n"
    log = h100_log(tmp_path, 90, hosts=2, command=words)
    (test,) = cli("compare", log, "--nics", "8x400", "--json", code=1).document["tests"]
    node = "the usual node of 8 x H100-SXM5 with 8 NICs of 400 Gbit/s"
    assert test["assumed_node"] == node
    ceiling = test["limits"][1]
    assert (ceiling["name"], ceiling["decides"]) == ("ceiling", False)
    assert 487 < ceiling["gb_per_s"] < 560
    low, high = test["model"]["expected_gb_per_s"]
    assert low < 430 < 487 < high
    lines = cli("compare", log, "--nics", "8x400", code=1).out.splitlines()
    assert f"assumed    {node}, for ceiling and model; --topology FILE has the real one" in lines
    (line,) = cli("compare", log, "--nics", "8x400", "--oneline", code=1).out.splitlines()
    assert f"; assumed: {node}" in line
    assert f"(expected {low:.0f} to {high:.0f})" in line
    shown = cli("compare", log, "--topology", TOPOLOGY, "--json", code=1).document["tests"][0]
    assert shown["assumed_node"] is None


def test_the_ceiling_of_one_usual_node_needs_no_nics(tmp_path: Path, cli: Cli) -> None:
    out = cli("compare", h100_log(tmp_path, 470, hosts=1)).out
    assert "\nassumed    the usual node of 8 x H100-SXM5, for ceiling" in out
    assert "\nceiling    491 GB/s, 96 % of it reached" in out


@pytest.mark.parametrize(
    ("rate", "old", "new", "options"),
    [
        (390, "", "", ""),
        (390, "H100 80GB HBM3", "H100 PCIe", "--nics 8x400"),
        (390, "", "", "--nics 3x400"),
        (560, "", "", "--nics 8x400"),
        (30, "", "n0:1:1 [0] NCCL INFO Using network Socket\n", "--nics 8x400"),
        (90, "", "-x NCCL_IB_HCA=mlx5_0,mlx5_1 all_reduce_perf -b 1K\n", "--nics 8x400"),
    ],
    ids=["no NICs", "cards", "uneven NICs", "faster than it", "sockets", "fewer NICs used"],
)
def test_where_the_node_may_be_another_one_nothing_is_said(
    tmp_path: Path, cli: Cli, rate: float, old: str, new: str, options: str
) -> None:
    file = Path(h100_log(tmp_path, rate))
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(old, new) if old else new + text, encoding="utf-8")
    found = cli("compare", file, *options.split(), "--json", code=None).document["tests"]
    for test in found:
        assert (test["assumed_node"], test["model"]) == (None, None)
        assert "ceiling" not in [limit["name"] for limit in test["limits"]]
        assert any("NET/Socket" in cause for cause in test["causes"]) is ("Socket" in new)
    assert found


def test_four_gpus_may_be_half_a_board(tmp_path: Path, cli: Cli) -> None:
    times = {1 << i: ((1 << i) / 200e3,) * 2 for i in range(26, 33)}
    file = tmp_path / "run.txt"
    file.write_text(nccl_tests_log(["a"], times, gpus=4), encoding="utf-8")
    out = cli("compare", file, code=None).out
    assert "test       all-reduce, 1 node, 4 ranks" in out
    assert "ceiling" not in out


def test_the_model_alone_gives_no_verdict(cli: Cli) -> None:
    study = Path(__file__).parents[3] / "examples" / "h200x4-1-node"
    tests = cli("compare", study, "--json").document["tests"]
    (gather,) = (test for test in tests if test["collective"] == "allgather")
    assert msgspec.convert(gather, PlacedTest).is_judged, "by the ceiling"
    alone = msgspec.convert({**gather, "limits": []}, PlacedTest)
    assert alone.model is not None
    assert alone.model.figures
    assert not alone.is_judged


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("NCCL_NTHREADS=256", "(2.28.3) is left out: NCCL_NTHREADS is set, and the model does not"),
        ("NCCL_ALGO=Ring", "no verdict: 381 GB/s at 4 GiB by ring/simple, measured 389"),
        ("NCCL_NVLS_ENABLE=off", "is left out: NCCL_NVLS_ENABLE: 'off' is not a whole number"),
        ("NCCL_NVLS_ENABLE=0", "no verdict: 381 GB/s at 4 GiB by ring/simple, measured 389"),
    ],
)
def test_settings_count_in_the_model_or_leave_it_out(
    tmp_path: Path, cli: Cli, words: str, expected: str
) -> None:
    command = f"mpirun -np 16 -x {words} all_reduce_perf -b 1K -e 4G -f 4\n"
    file = h100_log(tmp_path, 390, command=command)
    assert expected in cli("compare", file, "--topology", TOPOLOGY, code=None).out


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run1.txt", "65.5 GB/s at 1 MiB by ring/ll"),
        ("run2.txt", "is left out: it gives nvls/simple no latency here"),
        ("run3.txt", None),
        ("run4.txt", None),
    ],
)
def test_a_plugin_a_preloaded_library_and_no_latency_leave_the_model_out(
    cli: Cli, name: str, expected: str | None
) -> None:
    log = FIELD / "log-03-settings-of-the-command-line" / name
    out = cli("compare", log, "--topology", TOPOLOGY, code=None).out
    assert "test       all-reduce" in out
    assert ("cost model" in out) is (expected is not None)
    assert (expected or "") in out


def test_an_unknown_version_of_the_model_is_stated(cli: Cli) -> None:
    out = cli("compare", GOOD, "--topology", TOPOLOGY, code=None).out
    assert "own cost model (2.32.3, as the version is not known), no verdict: 461 GB/s at" in out


def test_a_topology_of_fewer_gpus_has_no_model(tmp_path: Path, cli: Cli) -> None:
    file = Path(__file__).parents[3] / "examples" / "l40s-one-switch" / "topo.xml"
    out = cli("compare", h100_log(tmp_path, 390), "--topology", file, code=None).out
    assert "topo.xml: names 4 GPUs, not 8" in out


def test_one_line_for_a_chat(cli: Cli) -> None:
    (line,) = cli("compare", LOW, "--nics", "8x400", "--oneline", code=1).out.splitlines()
    assert line.startswith("all-reduce on 2 x 8 NVIDIA H100 80GB HBM3")
    assert "below all 3 published systems like it" in line


def test_json_has_thresholds_with_sources(cli: Cli) -> None:
    (test,) = cli("compare", GOOD, "--nics", "8x400", "--json").document["tests"]
    sizes = {row["bytes"]: row for row in test["placement"]["sizes"]}
    largest = sizes[8 << 30]
    assert largest["low"] < largest["p25"] < largest["median"] < largest["p75"] < largest["high"]
    assert "OCI BM.GPU.H100.8" in largest["systems"]
    assert all(row["sources"] and row["systems"] for row in sizes.values())
    assert "https://github.com/NVIDIA/nccl-tests/issues/309" in largest["sources"]
    figures = test["placement"]["bandwidth"]["systems"]
    assert all(item["sources"][0].startswith("https://") for item in figures)


def test_nothing_alike_is_refused_and_the_nearest_is_named(tmp_path: Path, cli: Cli) -> None:
    out = cli("compare", h100_log(tmp_path, 150, hosts=100), "--nics", "8x200", code=2).out
    assert "not known  150 GB/s at 4 GiB: no published system is like it" in out
    assert "differs in nodes and NIC rate" in out


def test_own_systems_are_added_and_found_again(
    tmp_path: Path, configuration: Path, cli: Cli
) -> None:
    own = configuration / "lab.jsonl"
    healthy = h100_log(tmp_path, 180, hosts=2)
    assert "1 curves added" in cli("compare", healthy, "--nics", "8x150", "-o", own).err
    slow = h100_log(tmp_path, 90, hosts=2)
    out = cli("compare", slow, "--nics", "8x150", code=1).out
    assert "low        90.0 GB/s at 4 GiB: below the one published system like it" in out
    assert "lab, 2 x 8 NVIDIA H100 80GB HBM3, 150 Gbit/s a GPU" in out


def test_more_than_the_nics_carry_is_no_verdict(tmp_path: Path, cli: Cli) -> None:
    out = cli("compare", h100_log(tmp_path, 180, hosts=2), "--nics", "2x100", code=2).out
    assert "more than these NICs carry: check --nics" in out
    rack = tmp_path / "rack.csv"
    head = "size_bytes,busbw_gbs,test,nodes,gpus_per_node\n"
    rack.write_text(f"{head}4294967296,743,all_reduce_perf,32,4\n", encoding="utf-8")
    out = cli("compare", str(rack), "--gpu", "GB200", "--nics", "4x400").out
    assert "normal     743 GB/s" in out
    assert "check --nics" not in out


def test_a_reference_system_needs_all_facts(tmp_path: Path, cli: Cli) -> None:
    err = cli("compare", LOW, "-o", tmp_path / "lab.jsonl", code=2).err
    assert "a reference system needs these facts: nics" in err
    assert not (tmp_path / "lab.jsonl").exists()


def test_one_gpu_a_node_counts_one_nic(tmp_path: Path, cli: Cli) -> None:
    times = {1 << i: ((1 << i) / 48e3,) * 2 for i in range(28, 34)}
    file = tmp_path / "run.txt"
    file.write_text(nccl_tests_log(["a", "b"], times), encoding="utf-8")
    out = cli("compare", file, "--nics", "8x400").out
    assert "measured   48.0 GB/s at 8 GiB: no published system is like it" in out
    assert (
        "normal     8 NICs, of which one for each GPU counts: 1 x 400 Gbit/s are 50.0 GB/s a node,"
        " 96 % of it reached; a ring reaches about 96 %\n" in out
    )
    assert "more than these NICs carry" in cli("compare", file, "--nics", "1x200", code=2).out


@pytest.mark.parametrize(
    ("share", "code", "label"), [(0.9, 0, "normal"), (0.7, 2, "NICs"), (0.2, 1, "low")]
)
def test_the_nic_rate_decides_where_no_system_is_alike(
    tmp_path: Path, cli: Cli, share: float, code: int, label: str
) -> None:
    log = h100_log(tmp_path, 100 * share, hosts=3)
    out = cli("compare", log, "--nics", "8x100", code=code).out
    assert f"\n{label:<11}8 x 100 Gbit/s are 100 GB/s a node" in out


def test_a_forced_ring_is_not_compared_with_what_only_nvls_reaches(
    tmp_path: Path, cli: Cli
) -> None:
    command = "mpirun -np 16 -x NCCL_ALGO=Ring all_reduce_perf -b 1K -e 4G -f 4\n"
    out = cli("compare", h100_log(tmp_path, 390, command=command), "--nics", "8x400").out
    assert "no published system is like it" in out
    assert "normal     8 x 400 Gbit/s are 400 GB/s a node, 97 % of it reached" in out
    assert "notice     NCCL_ALGO=Ring is set" in out
    out = cli("compare", h100_log(tmp_path, 365, hosts=1, command=command)).out
    assert "normal     364 GB/s at 4 GiB: as fast as" in out or "normal     364 GB/s" in out
    assert "ml-engineering, 8 H200" in out


def table(folder: Path, rates: dict[int, float]) -> Path:
    rows = ["# size count type redop root" + " time algbw busbw #wrong" * 2]
    for size, rate in rates.items():
        cells = f" {size / rate / 1e3:.2f} {rate:.2f} {rate:.2f} 0"
        rows.append(f"{size} {size // 4} float sum -1{cells}{cells}")
    file = folder / "run.txt"
    file.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return file


def test_a_table_without_its_program_needs_the_collective(tmp_path: Path, cli: Cli) -> None:
    file = table(tmp_path, {1 << i: 20.0 for i in range(28, 32)})
    asked = ["compare", str(file), "--nodes", "2", "--ranks", "2", "--gpu", "A100"]
    assert "80 % of it reached" in cli(*asked, "--collective", "allreduce", "--nics", "1x200").out
    assert (
        "'everything' is not a collective" in cli(*asked, "--collective", "everything", code=2).err
    )


@pytest.mark.parametrize(
    ("sizes", "rates", "low"),
    [
        (range(20, 28), [3.0] * 8, True),
        (range(20, 28), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], False),
        (range(20, 26), [3.0] * 6, False),  # It ends at 32 MiB.
        (range(24, 28, 3), [3.0] * 2, False),
        (range(28, 30), [3.0] * 2, True),
    ],
)
def test_a_curve_that_rises_no_more_is_judged_below_a_gib(
    sizes: range, rates: list[float], low: bool, tmp_path: Path, cli: Cli
) -> None:
    file = table(tmp_path, {1 << i: rate for i, rate in zip(sizes, rates, strict=True)})
    asked = ["compare", str(file), "--nodes", "2", "--ranks", "2", "--gpu", "A100"]
    out = cli(*asked, "--collective", "allreduce", "--nics", "1x200", code=None).out
    assert ("12 % of it reached" in out) == low
    assert ("still rising" not in out) == low
    asked[3:] = ["1", "--ranks", "4", "--gpu", "A100", "--collective", "allreduce"]
    assert "GPUs, NVLink or PCIe" not in cli(*asked, code=None).out
    rows = (f"all_reduce,{size},TCP_eth0,0.402\n" for size in (2 << 30, 4 << 30))
    file.write_text("collective,size_bytes,transport,busbw\n" + "".join(rows), encoding="utf-8")
    assert "low        within a node, 41 % of a single lane" in cli(*asked, code=1).out
    asked[3:8] = ["2", "--ranks", "16", "--gpu", "H100"]
    out, err = cli(*asked, "--nics", "8x400", code=1)
    assert "cause      the network is NET/Socket: TCP" in out
    assert "doctor" not in err


def test_a_study_is_placed_beside_the_ceiling_of_its_topology(cli: Cli) -> None:
    study = Path(__file__).parents[3] / "examples" / "h200x4-1-node"
    out = cli("compare", study).out
    assert "normal     354 GB/s at 1 GiB" in out
    assert "ceiling    394 GB/s, 90 % of it reached: GPU0 -> NVS" in out
    assert "notice     NCCL_NVLS_ENABLE=0 is set" in out


def test_each_run_of_a_pasted_file_is_placed(tmp_path: Path, cli: Cli) -> None:
    texts = [
        Path(h100_log(tmp_path, rate, hosts=hosts)).read_text(encoding="utf-8")
        for rate, hosts in ((470, 1), (155, 2))
    ]
    file = tmp_path / "thread.md"
    command = "mpirun -np 16 -x NCCL_ALGO=Ring all_reduce_perf\n"
    ring = texts[1].replace("Pid   4", "Pid   9")
    file.write_text("\n".join([*texts, command + ring]), encoding="utf-8")
    lines = cli("compare", file, "--nics", "8x400", code=1).out.splitlines()
    verdicts = [line[:10].strip() for line in lines if " at 4 GiB" in line[:40] and line[0] != " "]
    assert verdicts == ["normal", "low", "measured"]
    assert "undecided  155 GB/s at 4 GiB" in cli("compare", file).out


def test_emulated_nodes_are_like_no_system(cli: Cli) -> None:
    study = Path(__file__).parents[3] / "examples" / "h200x4-as-4-nodes"
    out = cli("compare", study, "--nics", "1x400", code=2).out
    assert "notice     the nodes are parts of one machine" in out
    assert "needed" not in out


def test_ranks_that_share_gpus_are_like_no_system(tmp_path: Path, cli: Cli) -> None:
    times = {1 << i: ((1 << i) / 60e3,) * 2 for i in range(28, 34)}
    file = tmp_path / "run.txt"
    text = nccl_tests_log(["a"], times, gpus=8, buses=("1b", "2b", "3b", "4b"))
    for rank in range(8):
        text = text.replace(f"device  {rank} ", f"device  {rank % 4} ")
    file.write_text(text.replace("device  3 [0000:4b", "device  2 [0000:3b"), encoding="utf-8")
    out = cli("compare", file, "--nodes", "1", code=2).out
    assert "system     NVIDIA H100 80GB HBM3" in out
    assert "notice     measured with ranks that share a GPU" in out
    assert "alike" not in out
    own = tmp_path / "lab.jsonl"
    err = cli("compare", file, "--nodes", "1", "-o", own, code=2).err
    assert "ranks that share a GPU make no reference system" in err
    assert not own.exists()


def test_a_host_name_with_a_blank_is_read(tmp_path: Path, cli: Cli) -> None:
    file = Path(h100_log(tmp_path, 475, hosts=1))
    text = file.read_text(encoding="utf-8").replace("n0 device", "NODE A device")
    file.write_text(text, encoding="utf-8")
    assert "system     8 NVIDIA H100 80GB HBM3" in cli("compare", file).out


def test_wrong_results_are_a_finding(tmp_path: Path, cli: Cli) -> None:
    file = Path(h100_log(tmp_path, 475, hosts=1))
    file.write_text(file.read_text(encoding="utf-8").replace("       0  ", "       3  ", 2))
    out = cli("compare", file, code=1).out
    assert "wrong      2 timings with wrong results, left out" in out
    assert "normal     " in out
    line = cli("compare", file, "--oneline", code=1).out
    assert "; 2 timings with wrong results, left out" in line


def test_a_topology_in_the_text_of_the_results_gives_a_ceiling(cli: Cli, tmp_path: Path) -> None:
    rows = [f"GPU{a} " + " ".join("X" if a == b else "NV4" for b in range(4)) for a in range(4)]
    matrix = "\n".join(["      GPU0 GPU1 GPU2 GPU3", *rows, ""])
    times = {1 << 30: (8100.0, 8100.0)}
    post = tmp_path / "post.txt"
    post.write_text(f"My node:\n{matrix}\n{nccl_tests_log(['n0'], times, gpus=4)}", "utf-8")
    out, _ = cli("compare", str(post), code=None)
    assert "% of it reached: GPU0 -> GPU1" in out
    post.write_text(f"{matrix}\nand the other\n{matrix}\n{nccl_tests_log(['n0'], times, gpus=4)}")
    out, _ = cli("compare", str(post), code=None)
    assert "of it reached" not in out


@pytest.mark.parametrize(("gb_per_s", "verdict"), [(3.0, "low"), (22.0, "normal")])
def test_the_nic_of_a_dgx_spark_is_known(
    gb_per_s: float, verdict: str, tmp_path: Path, cli: Cli
) -> None:
    times = {1 << 32: ((1 << 32) / 2 / gb_per_s / 1e3,) * 2}
    log = nccl_tests_log(["s1", "s2"], times, collective=Collective.ALLGATHER)
    file = tmp_path / "run.txt"
    file.write_text(re.sub(r"NVIDIA \w[\w ]*", "NVIDIA GB10", log), encoding="utf-8")
    out = cli("compare", str(file), code=None).out
    assert f"\n{verdict} " in out
    assert "dgx-spark-playbooks/pull/103" in out
