# SPDX-License-Identifier: Apache-2.0
"""`nccltune predict`: the screen, the document and its errors."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from nccltune.predict import predict
from nccltune.topology.files.load import load_topology
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.runs import Cli
from tests.unit.topology.samples import FOLDER

ROOT = Path(__file__).parents[3]
DGX = str(FOLDER / "dgx.xml")
H200 = str(ROOT / "examples" / "h200x4-1-node")


def printed(cli: Cli, *words: object) -> str:
    return cli("predict", *words).out


def document(cli: Cli, *words: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("predict", *words, "--json").document["predictions"]
    return found


def test_a_choice_by_size_with_its_reason(cli: Cli) -> None:
    out = printed(cli, DGX, "--nodes", "4", "--nccl-version", "2.28.9")
    assert "dgx.xml · 4 nodes x 8 GPUs · NCCL 2.28.9 · all-reduce" in out
    assert re.search(r"^ +8 B  tree/ll +35\.2 us +<0\.01 +1 x 640  latency 35\.2 us", out, re.M)
    assert re.search(r"^ +\d GiB  ring/simple .*nvls_tree/simple is limited by", out, re.M)
    assert re.search(r"^  tree/ll .*LL's cap for Intel and other CPUs, 20\.4 GB/s", out, re.M)
    assert "not here   nvls/simple: needs CollNet on several nodes" in out
    assert out.rstrip().endswith("NCCL's own cost model, not measurements")


def test_a_study_gives_settings_and_version(cli: Cli) -> None:
    (found,) = document(cli, H200)
    assert found["nccl"] == "2.28.9"
    assert "NCCL_NVLS_ENABLE=0" in found["settings"]
    assert "nvls/simple" in found["excluded"]
    (asked,) = document(cli, H200, "NCCL_NVLS_ENABLE=1", "--nccl-version", "2.27")
    assert asked["nccl"] == "2.27"
    assert "nvls/simple" in asked["model"]


def test_a_library_names_its_version(cli: Cli, tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(b"\x7fELF\0NCCL version 2.27.7+cuda12.9\0")
    for words in (["--nccl", str(library)], ["--nccl", "2.27.7"], ["--nccl-version", "2.27.7"]):
        assert document(cli, DGX, *words)[0]["nccl"] == "2.27.7"
    for content in (b"\x7fELF\0", b""):
        library.write_bytes(content)
        assert "names no NCCL version" in cli("predict", DGX, "--nccl", library, code=2).err
    err = cli("predict", DGX, "--nccl", "2.28", "--nccl-version", "2.27", code=2).err
    assert "both name a version" in err


def test_two_versions(cli: Cli) -> None:
    words = [DGX, "--nodes", "4", "--nccl-version", "2.27.7", "--against"]
    out = printed(cli, *words, "2.28.9")
    assert "against    from NCCL 2.27.7 to 2.28.9: another choice at 4 of 31 sizes" in out
    assert re.search(r"2 MiB - 4 MiB: nvls_tree/simple -> tree/ll128, model's time \+7 %", out)
    same = printed(cli, *words, "2.27.7")
    assert "2.27.7: the same choice and the same time at all 31 sizes" in same


def test_the_document(cli: Cli) -> None:
    words = [DGX, "--nodes", "2", "--collectives", "all", "--sizes", "1K-4K", "--against", "2.27.7"]
    found = document(cli, *words, "--nccl-version", "2.31.2")
    assert [one["collective"] for one in found] == [
        "allreduce", "reducescatter", "allgather", "reduce", "broadcast",
    ]  # fmt: skip
    reduce, scatter = found[0], found[1]
    assert [one["bytes"] for one in reduce["sizes"]] == [1024, 2048, 4096]
    assert (reduce["nodes"], reduce["ranks"], reduce["channels"]) == (2, 16, 16)
    one = reduce["sizes"][0]
    assert one["time_us"] == min(one["times_us"].values()) == one["times_us"][one["choice"]]
    assert scatter["model"]["pat/simple"]["by_hand"] is True
    assert scatter["sizes"][0]["times_us"]["pat/simple"] is None
    assert reduce["model"]["tree/ll"]["limit"] == "node cap"
    ring = reduce["model"]["ring/ll"]
    moved_us = 4096 * 2 * 15 / 16 / ring["busbw_gb_per_s"] / 1e3
    times_us = reduce["sizes"][2]["times_us"]
    assert times_us["ring/ll"] == pytest.approx(ring["latency_us"] + moved_us, rel=1e-5)
    changes = reduce["against"]["changes"]
    assert [one["bytes"] for one in changes] == [1024, 2048, 4096]
    assert {one["after"] for one in changes} == {
        one["choice"] for one in reduce["against"]["sizes"]
    }


def test_times_as_csv(cli: Cli) -> None:
    words = [DGX, "--nodes", "2", "--collectives", "allreduce,allgather", "--sizes", "1M-2M"]
    rows = list(csv.DictReader(printed(cli, *words, "--export", "csv").splitlines()))
    found = document(cli, *words)
    assert len(rows) == sum(len(size["times_us"]) - list(size["times_us"].values()).count(None)
                            for one in found for size in one["sizes"])  # fmt: skip
    assert sum(row["default"] == "1" for row in rows) == 4
    for row in rows:
        (one,) = (one for one in found if one["collective"] == row["collective"])
        (size,) = (size for size in one["sizes"] if str(size["bytes"]) == row["bytes"])
        label = f"{row['algorithm']}/{row['protocol']}"
        assert float(row["time_us"]) == size["times_us"][label]
        assert row["default"] == str(int(size["choice"] == label))


def test_bandwidths_for_simai(cli: Cli) -> None:
    words = [DGX, "--nodes", "2", "--nccl-version", "2.28.9", "--export", "simai"]
    lines = printed(cli, *words).splitlines()
    assert lines[:2] == ["nccltune", "TP:"]
    assert lines[2] == "  allreduce,: 475.6"
    assert lines[lines.index("DP:") + 1] == lines[lines.index("EP:") + 1] != lines[2]
    assert lines.count("  alltoall,: null") == 3
    lonely = printed(cli, *words, "--gpus", "1").splitlines()
    assert lonely[2] == "  allreduce,: null"
    assert "excludes --json" in cli("predict", *words, "--json", code=2).err


def test_the_page_shows_what_is_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "reference" / "predict.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ nccltune predict (.*)\n((?:.*\n)*?)```", page, re.M)
    assert shown is not None
    lines = printed(cli, *shown[1].split()).splitlines()
    assert lines == shown[2].splitlines()


def runs(path: Path, *, nodes: int, factor: float = 1.5) -> str:
    """Write a table of nccl-tests with `factor` times the model's times on `nodes` nodes."""
    found = predict(load_topology(Path(DGX)), nodes=nodes, version=(2, 28, 9))
    times = {one.size: (factor * one.time_us,) * 2 for one in found.sizes}
    log = nccl_tests_log([f"host{node}" for node in range(nodes)], times, gpus=8)
    # Without the line of the versions.
    path.write_text(log.partition("\n")[2])
    return str(path)


def test_runs_at_fewer_nodes_give_the_time_to_expect(tmp_path: Path, cli: Cli) -> None:
    runs(tmp_path / "two.txt", nodes=2)
    runs(tmp_path / "four.txt", nodes=4)
    machine = [str(tmp_path), "--topology", DGX, "--nccl-version", "2.28.9", "--nodes"]
    (found,) = document(cli, *machine, "16")
    expected = found["expected"]
    assert (expected["state"], expected["measured_nodes"]) == ("predicted", [2, 4])
    for one, modelled in zip(expected["sizes"], found["sizes"], strict=True):
        assert one["choice"] == modelled["choice"]
        assert one["low_us"] < one["time_us"] < one["high_us"]
        if one["choice_was_measured"]:
            assert one["time_us"] == pytest.approx(1.5 * modelled["time_us"], rel=0.2)
    assert expected["factors"]["tree/ll"]["latency_between_nodes"] == pytest.approx(1.5, abs=0.1)
    out = printed(cli, *machine, "16")
    assert "expected   predicted from runs on 2 and 4 nodes; the interval holds 80 %" in out
    assert re.search(r"^measured   tree/ll by NCCL's model: latency in the node 1\.\d+x", out, re.M)
    assert "but for what is expected, all times are those of NCCL's own cost model" in out
    (none,) = document(cli, *machine, "2")
    assert none["expected"] is None
    only = "; only runs at fewer nodes than the 2 of the prediction are"
    reasons = [f"not used: measured at {count} nodes{only}" for count in (2, 4)]
    assert sorted(none["not_used"]) == reasons
    (most,) = document(cli, *machine[:-1])
    assert (most["nodes"], most["expected"]["measured_nodes"]) == (4, [2])


def test_a_run_on_one_node_counts_beside_one_on_several(tmp_path: Path, cli: Cli) -> None:
    one = runs(tmp_path / "one.txt", nodes=1)
    (alone,) = document(cli, one, "--topology", DGX, "--nodes", "8")
    assert alone["expected"] is None
    assert "not used: measured on one node: nothing of the network" in alone["not_used"]
    runs(tmp_path / "two.txt", nodes=2)
    (both,) = document(cli, tmp_path, "--topology", DGX, "--nodes", "8")
    assert both["expected"]["measured_nodes"] == [1, 2]
    assert not any("one node" in words for words in both["not_used"])


def test_a_log_without_a_topology_needs_its_nics(tmp_path: Path, cli: Cli) -> None:
    log = runs(tmp_path / "log.txt", nodes=2)
    (found,) = document(cli, log, "--nics", "8x400", "--nodes", "4")
    assert found["topology"] == "the usual node of 8 x H100-SXM5 with 8 NICs of 400 Gbit/s"
    assert found["expected"]["measured_nodes"] == [2]
    assert found["not_used"] == ["the runs do not show NCCL's version: 2.32.3 is assumed"]
    (other,) = document(cli, log, "--nics", "4x400", "--gpus", "4", "--nodes", "4")
    assert other["expected"] is None
    assert other["not_used"][0] == "not used: measured with 16 ranks on 2 nodes, not 4 each"
    gather = document(cli, log, "--nics", "8x400", "--nodes", "4", "--collectives", "allgather")
    assert gather[0]["not_used"][0] == "log.txt has no runs of all-gather"
    (own,) = document(cli, runs(tmp_path / "one.txt", nodes=1), "--nics", "8x400")
    assert own["nodes"] == 1
    assert own["not_used"][0].startswith("not used: measured at 1 node; only runs at fewer nodes")
    table = Path(log).read_text()
    for name, found_in in (
        ("alltoall", "has all-to-all alone"),
        ("all_gather", "all-gather"),
    ):
        other_log = tmp_path / f"{name}.txt"
        other_log.write_text(table.replace("all_reduce_perf", f"{name}_perf"))
        shown = cli("predict", other_log, "--nics", "8x400", code=2 * (name == "alltoall"))
        assert found_in in shown.out + shown.err
    log_of_nothing = tmp_path / "nothing.txt"
    log_of_nothing.write_text("# nThread 1 nGpus 1\n")
    err = cli("predict", log_of_nothing, "--nics", "8x400", "--nodes", "4", code=2).err
    assert "no measurement with a known scale (nothing.txt: " in err
    for words, message in (
        (["--nodes", "4"], "runs need a machine: --topology topo.xml, or --nics 8x400"),
        (["--nics", "8x400", "--topology", DGX], "both name the NICs"),
        (["--nics", "eight"], "is not the NICs of a node"),
    ):
        assert message in cli("predict", log, *words, code=2).err
