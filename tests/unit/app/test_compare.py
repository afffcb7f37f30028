# SPDX-License-Identifier: Apache-2.0
"""Compare files, studies and folders, as they are read."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from nccltune.app.compare import FleetCompared, SidesCompared, compare_paths
from nccltune.app.compare_reference import ReferenceCompared, ReferenceRequest
from nccltune.cli import run
from nccltune.compare.runs import FactDifference
from nccltune.examples import example
from nccltune.model.collective import Collective
from nccltune.model.errors import InputError
from tests.unit.nccl_tests_logs import Times, nccl_tests_log

RANDOM = random.Random(2)
SIZES = [1 << i for i in range(25, 33)]
FIELD = Path(__file__).parents[2] / "data" / "field" / "log-21-two-versions"


def times(gb_per_s: float, sizes: Sequence[int] = SIZES, noise: float = 0.004) -> Times:
    """Times of sizes large enough for that bandwidth."""

    def one(size: int) -> float:
        return size / (gb_per_s * 1e3) * (1 + RANDOM.gauss(0, noise))

    return {size: (one(size), one(size)) for size in sizes}


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def sides(first: Path, second: Path, **options: int) -> SidesCompared:
    found = compare_paths([first, second], assumed_noise=0.05, **options)
    assert isinstance(found, SidesCompared)
    return found


def fleet(*paths: Path) -> FleetCompared:
    found = compare_paths(paths, assumed_noise=0.05)
    assert isinstance(found, FleetCompared)
    return found


def pair_logs(folder: Path, *, named: bool = True) -> None:
    """136 pairs of 17 nodes on changing ports; node 4 is weak, and one test failed."""
    hosts = [f"node-{i}" for i in range(1, 18)]
    for number, (first, second) in enumerate(itertools.combinations(hosts, 2)):
        rate = 13.5 * 2 / (1.135 if "node-4" in (first, second) else 1.0)
        failed = (first, second) == ("node-5", "node-16")
        log = nccl_tests_log(
            [first, second] if named else ["pod-worker-0", "pod-worker-1"],
            {} if failed else times(rate),
            collective=Collective.ALLTOALL,
            buses=("1b", "43", "52")[number % 3 : number % 3 + 2] or ("9d",),
            pid=4000 + 10 * number,
        )
        put(folder / f"nccl_N2_G1_{first}_{second}.log", log)


def test_two_versions_of_nccl_are_compared_size_by_size() -> None:
    found = sides(FIELD / "nccl-2.28.txt", FIELD / "nccl-2.29.txt")
    assert found.different == [FactDifference("NCCL", "2.28.3", "2.29.7")]
    (test,) = found.tests
    assert test.title == "all-reduce, 1 node, 8 ranks"
    assert test.placements == ["out of place", "in place"]
    (item,) = test.ranges
    assert (item.low_bytes, item.high_bytes, item.beyond) == (1 << 10, 1 << 18, 9)
    assert item.ratio == pytest.approx(33.2 / 24.1, rel=0.01)
    assert found.has_finding


def test_the_other_order_is_faster_and_no_finding() -> None:
    assert not sides(FIELD / "nccl-2.29.txt", FIELD / "nccl-2.28.txt").has_finding


def test_pairs_of_nodes_name_the_weak_node_and_the_failed_test(tmp_path: Path) -> None:
    pair_logs(tmp_path / "pairs")
    found = fleet(tmp_path / "pairs")
    (test,) = found.tests
    assert (test.title, test.runs, test.hosts) == ("all-to-all, 2 nodes, 2 ranks", 135, 17)
    (slow,) = test.slow
    assert slow.sentence == "node-4: 11.9 of 13.5 GB/s at 4 GiB in 16 of 16 pairs"
    assert found.failed == ["pairs/nccl_N2_G1_node-5_node-16.log"]
    assert found.failed_nodes == {"node-5": 1, "node-16": 1}
    assert found.has_finding


def test_hosts_are_taken_from_file_names_if_no_run_shows_machines(tmp_path: Path) -> None:
    pair_logs(tmp_path / "pairs", named=False)
    (test,) = fleet(tmp_path / "pairs").tests
    assert test.hosts == 17
    assert test.slow[0].names == ["node-4"]


def test_a_scaling_series_is_read_from_a_folder(tmp_path: Path) -> None:
    for nodes in (1, 2, 4, 8, 16, 32, 64, 128):
        rate = {1: 300.0, 64: 60.0, 128: 35.0}.get(nodes, 90.0)
        ranks = nodes * 4
        log = nccl_tests_log(
            [f"n{i}" for i in range(nodes)],
            times(rate / Collective.ALLREDUCE.bus_factor(ranks)),
            gpus=4,
        )
        put(tmp_path / "scale" / f"n{nodes}.out", log)
    found = fleet(tmp_path / "scale")
    (series,) = found.scaling
    assert [row.nodes for row in series.rows] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [round(row.gb_per_s[-1]) for row in series.rows] == [300, 90, 90, 90, 90, 90, 60, 35]
    assert len(series.sentences) == 2
    assert "with 32 nodes" in series.sentences[0]
    assert "with 64 nodes" in series.sentences[0]
    assert not found.has_finding


def test_health_checks_of_single_nodes_name_the_slow_one(tmp_path: Path) -> None:
    for i in range(24):
        rate = 210.0 if i == 11 else 240.0
        log = nccl_tests_log([f"gpu{i:02d}"], times(rate), gpus=8, pid=100 * i)
        put(tmp_path / "checks" / f"health-{i:02d}.txt", log)
    (test,) = fleet(tmp_path / "checks").tests
    assert [item.names for item in test.slow] == [["gpu11"]]


def test_health_checks_of_one_node_name_the_day(tmp_path: Path) -> None:
    for i in range(24):
        log = nccl_tests_log(["gpu01"], times(200.0 if i > 17 else 240.0), gpus=8, pid=100 * i)
        put(tmp_path / "checks" / f"day-{i:02d}.txt", log)
    (test,) = fleet(tmp_path / "checks").tests
    (slow,) = test.slow
    assert slow.kind == "period"
    assert slow.names[0] == "checks/day-18.txt"
    assert len(slow.names) == 6


def test_a_table_cut_out_of_a_log_is_the_same_run(tmp_path: Path) -> None:
    for i in range(5):
        log = nccl_tests_log([f"gpu{i}"], times(240.0), gpus=8, pid=100 * i)
        put(tmp_path / "runs" / f"{i}.out", log)
        rows = [line for line in log.splitlines() if "Rank" not in line]
        put(tmp_path / "runs" / f"{i}.txt", "\n".join(rows))
    found = fleet(tmp_path / "runs")
    assert found.runs == 5
    assert found.tests[0].hosts == 5


def test_studies_are_compared_with_logs_and_with_each_other(tmp_path: Path) -> None:
    study = example("h200x4-as-4-nodes")
    with pytest.raises(InputError, match="hold the same run"):
        sides(study, study)
    assert sides(study, FIELD / "nccl-2.28.txt").tests[0].bus_factors is not None
    for name in ("2.28", "2.29"):
        log = str(FIELD / f"nccl-{name}.txt")
        assert run(["import", log, "-o", str(tmp_path / name), "-q"]) == 0
    found = sides(tmp_path / "2.28", tmp_path / "2.29")
    assert found.different == [FactDifference("NCCL", "2.28.3", "2.29.7")]
    assert found.has_finding
    assert sides(tmp_path / "2.28", FIELD / "nccl-2.29.txt").has_finding


def test_a_node_is_compared_with_the_rest_of_its_fleet(tmp_path: Path) -> None:
    for i in range(5):
        log = nccl_tests_log([f"gpu{i}"], times(240.0 if i else 200.0), gpus=8, pid=100 * i)
        put(tmp_path / "fleet" / f"{i}.txt", log)
    node, others = tmp_path / "fleet" / "0.txt", tmp_path / "fleet"
    found = sides(others, node)
    assert found.tests[0].runs == (4, 1)
    assert found.has_finding
    assert found.warnings == ["fleet: 1 run left out: the other input"]
    reverse = sides(node, others)
    assert reverse.tests[0].runs == (1, 4)
    assert not reverse.has_finding
    # Two folders that share a run are no two sides.
    put(tmp_path / "more" / "0.txt", node.read_text(encoding="utf-8"))
    put(tmp_path / "more" / "9.txt", nccl_tests_log(["gpu9"], times(240.0), gpus=8, pid=900))
    with pytest.raises(InputError, match="hold the same run"):
        sides(others, tmp_path / "more")


def test_a_folder_of_runs_is_one_side(tmp_path: Path) -> None:
    for side, rate in (("before", 240.0), ("after", 228.0)):
        for i in range(4):
            log = nccl_tests_log(["gpu01"], times(rate), gpus=8, pid=1000 * i)
            put(tmp_path / side / f"{i}.txt", log)
    found = sides(tmp_path / "before", tmp_path / "after")
    (test,) = found.tests
    assert (test.runs, test.noise) == ((4, 4), "runs")
    assert found.has_finding  # 5 % in all of 4 runs


def test_a_pasted_table_has_the_scale_that_is_given(tmp_path: Path) -> None:
    logs = [
        put(
            tmp_path / f"{rate}.txt",
            "\n".join(
                line
                for line in nccl_tests_log(["a"], times(rate), gpus=8).splitlines()
                if "Rank" not in line and "nThread" not in line
            ),
        )
        for rate in (240.0, 160.0)
    ]
    found = sides(*logs, nodes=2, ranks=8)
    assert found.tests[0].title == "all-reduce, 2 nodes, 8 ranks"
    assert found.has_finding
    found = sides(*logs)
    assert found.tests[0].title == "all-reduce, 8 ranks"
    assert found.has_finding


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", "no measurement to compare"),
        (nccl_tests_log(["a", "b"], {}), "no measurement to compare"),
        (
            nccl_tests_log(["a", "b"], times(100.0)),
            "no size was measured on both sides: 1 KiB - 256 KiB and 32 MiB - 4 GiB",
        ),
        (nccl_tests_log(["a"], times(100.0), gpus=8), "no size was measured on both sides"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        sides(FIELD / "nccl-2.28.txt", put(tmp_path / "b.txt", text))


HUNG = (
    "#  Rank  0 Group  0 Pid  7 on a device  0 [0x16] NVIDIA A100\n"
    "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
)
DEVICE_KERNEL = (
    "$ all_reduce_perf -D 3 -b 64K -e 64K -g 2\n"
    "# Using devices\n#  Rank  0 Group  0 Pid  7 on a device  0 [0x16] NVIDIA B200\n"
    "#  Rank  1 Group  0 Pid  7 on a device  1 [0x17] NVIDIA B200\n"
    "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"
    "  65536  16384  float  sum  52.01  1.26  1.26  0e+00  50.09  1.31  1.31  0e+00\n"
)
ROW = "  65536  2048  float  52.01  1.26  1.10  0e+00  50.09  1.31  1.14  0e+00\n"


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (HUNG, "header of nccl-tests (it lists 1 rank on 1 host)", "nccltune doctor"),
        (
            2 * "# Avg bus bandwidth : 3.9\n",
            "has 2 averages of nccl-tests (3.9, 3.9 GB/s) and no row",
            "whole",
        ),
        (ROW, "nothing names the collective", "‹collective›"),
        ("n1:7:7 [0] NCCL WARN Cuda failure 1 'invalid argument'\n", "", "nccltune doctor /"),
        (DEVICE_KERNEL, "-D 3 runs a kernel of nccl-tests", "nccltune compare"),
    ],
)
def test_compare_says_of_a_file_without_a_measurement_what_import_says(
    text: str, words: str, hint: str, tmp_path: Path
) -> None:
    file = put(tmp_path / "b.txt", text)
    for paths in ([file], [FIELD / "nccl-2.28.txt", file]):
        with pytest.raises(InputError) as caught:
            compare_paths(paths, assumed_noise=0.05)
        assert words in caught.value.message
        assert hint in (caught.value.hint or "")


def test_two_runs_in_one_file_are_before_and_after(tmp_path: Path) -> None:
    texts = [(FIELD / f"nccl-{name}.txt").read_text(encoding="utf-8") for name in ("2.28", "2.29")]
    found = compare_paths([put(tmp_path / "both.txt", "".join(texts))], assumed_noise=0.05)
    assert isinstance(found, SidesCompared)
    assert (found.first, found.second) == ("both.txt:16", "both.txt:47")
    assert found.has_finding


def test_one_measurement_is_placed_among_published_systems(tmp_path: Path) -> None:
    def placed(path: Path) -> ReferenceCompared:
        found = compare_paths([path], assumed_noise=0.05)
        assert isinstance(found, ReferenceCompared)
        return found

    assert [test.run for test in placed(FIELD / "nccl-2.28.txt").tests] == ["nccl-2.28.txt"]
    both = nccl_tests_log(["a"], times(9.0), gpus=8) + nccl_tests_log(
        ["a"], times(9.0), gpus=8, collective=Collective.ALLTOALL, pid=9000
    )
    # A further run of one rank puts no other in doubt.
    for text in (both, both + nccl_tests_log(["a"], times(9.0), gpus=1, pid=9900)):
        tests = placed(put(tmp_path / "both.txt", text)).tests
        assert [test.collective.value for test in tests] == ["allreduce", "alltoall"]
        assert not any("one rank" in doubt for test in tests for doubt in test.doubts)


@pytest.mark.parametrize(
    ("heading", "stated", "gpu"),
    [
        ("## 8x H100", None, "H100"),
        ("8 x NVIDIA H100", None, "H100"),
        ("### A100 80GB PCIe", None, "A100 PCIE"),
        ("## MI300X", None, "MI300X"),
        ("## 8x H100", "H200", "H200"),
        ("## H100 against H200", None, None),
        ("## p5.48xlarge", None, None),
        ("## p4de", None, None),
        ("## Results", None, None),
    ],
)
def test_a_heading_names_the_gpu(
    tmp_path: Path, heading: str, stated: str | None, gpu: str | None
) -> None:
    table = "\n| size (bytes) | time (us) |\n|--|--|\n| 1024 | 10.2 |\n| 1073741824 | 4500 |\n"
    found = compare_paths(
        [put(tmp_path / "a.md", heading + table)],
        assumed_noise=0.05,
        nodes=1,
        ranks=8,
        collective="all_reduce",
        reference=ReferenceRequest(gpu=stated),
    )
    assert isinstance(found, ReferenceCompared)
    [test] = found.tests
    assert test.system.gpu == gpu
    said = f"the GPU is {gpu} by a heading above the table"
    assert (said in test.doubts) is (gpu is not None and stated is None)


def test_several_runs_of_one_collective_are_no_single_measurement(tmp_path: Path) -> None:
    logs = [
        put(tmp_path / f"{i}", nccl_tests_log([f"n{i}"], times(9.0 + i), gpus=2**i)) for i in (1, 2)
    ]
    # Too few runs of one test to judge them: their peaks are shown.
    found = fleet(*logs, FIELD / "nccl-2.28.txt")
    assert (found.tests, found.has_finding) == ([], False)
    assert [(item.rows, item.sentences) for item in found.scaling] == [
        ([], ["not shown: no size is common to the scales"])
    ]
    assert {item.run: item.bytes for item in found.peaks}["nccl-2.28.txt"] == 256 << 10
    assert [item.run for item in found.peaks] == ["1", "2", "nccl-2.28.txt"]


def test_a_run_of_a_file_is_named_by_a_line(tmp_path: Path) -> None:
    texts = [(FIELD / f"nccl-{name}.txt").read_text(encoding="utf-8") for name in ("2.28", "2.29")]
    path = put(tmp_path / "many.txt", "".join([*texts, texts[0].replace("24.", "34.")]))
    found = sides(Path(f"{path}:16"), Path(f"{path}:50"))
    assert (found.first, found.second) == ("many.txt:16", "many.txt:50")
    assert found.different == [FactDifference("NCCL", "2.28.3", "2.29.7")]
    assert sides(Path(f"{path}:16"), FIELD / "nccl-2.29.txt").has_finding
    with pytest.raises(InputError, match="no such file"):
        sides(Path(f"{tmp_path}/none.txt:3"), path)
    rows = "\n".join(x for x in texts[0].split("\n") if "Rank" not in x and "65536" not in x)
    quoted = compare_paths([put(tmp_path / "quoted.txt", texts[0] + rows)], assumed_noise=0.05)
    assert isinstance(quoted, ReferenceCompared)


@pytest.mark.parametrize("title", ["### After", "mpirun -np 2 ./all_reduce_perf -b 8", ""])
def test_a_line_above_a_table_names_that_table(tmp_path: Path, title: str) -> None:
    """From its title to its last summary; a pair of one table is told where the tables are."""
    first, second = (nccl_tests_log(["a", "b"], times(rate)) for rate in (9.0, 5.0))
    path = put(tmp_path / "two.md", f"### Before\n{first}\n{title}\n{second}")
    lines = path.read_text(encoding="utf-8").split("\n")
    end = 1 + max(i for i, x in enumerate(lines[: len(lines) // 2]) if "concluded" in x)
    heads = [i for i, x in enumerate(lines, 1) if x.startswith("#       size")]
    for number in range(end + 1, len(lines), 4):
        found = sides(Path(f"{path}:1"), Path(f"{path}:{number}"))
        assert found.has_finding
    for number in range(end, 0, -4):
        with pytest.raises(InputError, match="same run") as caught:
            sides(Path(f"{path}:1"), Path(f"{path}:{number}"))
        assert caught.value.hint == f"the tables are at {path}:{heads[0]}, {path}:{heads[1]}"


def test_rows_that_cannot_be_read_are_a_result(tmp_path: Path) -> None:
    log = nccl_tests_log(["a", "b"], times(240.0))
    bad = put(tmp_path / "bad.txt", log.replace("   sum  ", " [0] [1] "))
    with pytest.raises(InputError) as caught:
        sides(FIELD / "nccl-2.28.txt", bad)
    assert "gave no result" not in caught.value.message


def test_wrong_results_are_left_out_and_counted(tmp_path: Path) -> None:
    text = (FIELD / "nccl-2.29.txt").read_text(encoding="utf-8")
    bad = put(tmp_path / "bad.txt", text.replace("0.05       0", "0.05       7", 1))
    found = sides(FIELD / "nccl-2.28.txt", bad)
    assert found.warnings == ["bad.txt: 1 timing left out: wrong results"]
    put(tmp_path / "one.txt", text.replace("0.05       0", "0.06       0", 1))
    put(tmp_path / "two.txt", (FIELD / "nccl-2.28.txt").read_text(encoding="utf-8"))
    warnings = compare_paths([tmp_path], assumed_noise=0.05).warnings
    assert f"1 timing left out: wrong results ({tmp_path.name}/bad.txt)" in warnings


def test_runs_of_one_forced_algorithm_are_compared(tmp_path: Path) -> None:
    hosts = ["node-a", "node-b"]
    logs = [nccl_tests_log(hosts, times(rate), pid=pid) for rate, pid in ((40, 100), (50, 200))]
    command = "mpirun -np 2 -x NCCL_ALGO={} all_reduce_perf -b 32M -e 4G -f 2\n"
    ring = put(tmp_path / "a.txt", command.format("Ring") + logs[0])
    tree = put(tmp_path / "b.txt", command.format("Tree") + logs[1])
    found = sides(ring, tree)
    assert found.different == [FactDifference("NCCL_ALGO", "Ring", "Tree")]
    assert [item.ratio for test in found.tests for item in test.ranges] == [
        pytest.approx(0.8, rel=0.02)
    ]
    nvls = put(tmp_path / "d.txt", command.format("NVLS") + logs[1])
    assert sides(ring, nvls).different == [
        FactDifference("choice", "NCCL_ALGO=Ring", "nvls/simple")
    ]
    p2p = (
        "NCCL_P2P_DISABLE=1",
        "NCCL_P2P_DISABLE=0 -x NCCL_P2P_LEVEL=SYS -x NCCL_P2P_LL_THRESHOLD=1",
    )
    texts = (
        command.replace("NCCL_ALGO={}", each) + log for each, log in zip(p2p, logs, strict=True)
    )
    levels = [put(tmp_path / f"{at}.txt", each) for at, each in enumerate(texts)]
    assert sides(*levels).different == [
        FactDifference("NCCL_P2P_DISABLE", "1", "0"),
        FactDifference("NCCL_P2P_LL_THRESHOLD", "not set", "1"),
    ]
    plain = put(tmp_path / "c.txt", logs[0])
    assert FactDifference("NCCL_ALGO", "not shown", "Tree") in sides(plain, tree).different
    both = put(tmp_path / "both.txt", ring.read_text() + tree.read_text())
    pasted = compare_paths([both], assumed_noise=0.05)
    assert isinstance(pasted, SidesCompared)
    assert pasted.different == found.different
    debugged = tree.read_text().replace("NCCL_ALGO=Tree", "NCCL_P2P_DISABLE=1")
    pasted = compare_paths([put(tmp_path / "one.txt", logs[0] + debugged)], assumed_noise=0.05)
    assert isinstance(pasted, SidesCompared)
    assert FactDifference("NCCL_P2P_DISABLE", "not shown", "1") in pasted.different


def test_runs_named_for_what_was_forced_are_no_slow_runs(tmp_path: Path) -> None:
    rates = {"a1": 41.0, "a2": 40.0, "a3": 40.5, "ring": 40.2, "tree": 20.0}
    for pid, (name, rate) in enumerate(rates.items()):
        log = nccl_tests_log(["node-a"], times(rate), gpus=2, pid=100 * (pid + 1))
        put(tmp_path / f"{name}.txt", log)
    found = compare_paths([tmp_path], assumed_noise=0.05)
    assert isinstance(found, FleetCompared)
    assert not found.has_finding


def test_a_profiler_plugin_is_a_difference(tmp_path: Path) -> None:
    logs = [nccl_tests_log(["n1", "n2"], times(rate), pid=pid) for rate, pid in ((40, 1), (36, 9))]
    command = "mpirun -np 2{} all_reduce_perf -b 32M -e 4G -f 2\n"
    plain = put(tmp_path / "a.txt", command.format("") + logs[0])
    other = command.format(" -x NCCL_PROFILER_PLUGIN=example")
    profiled = put(tmp_path / "b.txt", other + logs[1])
    assert sides(plain, profiled).different == [
        FactDifference("NCCL_PROFILER_PLUGIN", "not set", "example")
    ]
