# SPDX-License-Identifier: Apache-2.0
"""`nccltune predict`: the screen, the document and its errors."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from nccltune.cli import run
from tests.unit.topology.samples import FOLDER

ROOT = Path(__file__).parents[3]
DGX = str(FOLDER / "dgx.xml")
H200 = str(ROOT / "examples" / "h200x4-1-node")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["predict", *words]) == 0
    return capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed(capsys, *words, "--json"))["predictions"]
    return found


def test_a_choice_by_size_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, DGX, "--nodes", "4", "--nccl-version", "2.28.9")
    assert "dgx.xml · 4 nodes x 8 GPUs · NCCL 2.28.9 · all-reduce" in out
    assert re.search(r"^ +8 B  tree/ll +35\.2 us +<0\.01 +1 x 640  latency 35\.2 us", out, re.M)
    assert re.search(r"^ +\d GiB  ring/simple .*nvls_tree/simple is limited by", out, re.M)
    assert re.search(r"^  tree/ll .*LL's cap for Intel and other CPUs, 20\.4 GB/s", out, re.M)
    assert "not here   nvls/simple: needs CollNet on several nodes" in out
    assert out.rstrip().endswith("NCCL's own cost model, not measurements")


def test_a_study_gives_settings_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = document(capsys, H200)
    assert found["nccl"] == "2.28.9"
    assert "NCCL_NVLS_ENABLE=0" in found["settings"]
    assert "nvls/simple" in found["excluded"]
    (asked,) = document(capsys, H200, "NCCL_NVLS_ENABLE=1", "--nccl-version", "2.27")
    assert asked["nccl"] == "2.27"
    assert "nvls/simple" in asked["model"]


def test_a_library_names_its_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(b"\x7fELF\0NCCL version 2.27.7+cuda12.9\0")
    for words in (["--nccl", str(library)], ["--nccl", "2.27.7"], ["--nccl-version", "2.27.7"]):
        assert document(capsys, DGX, *words)[0]["nccl"] == "2.27.7"
    for content in (b"\x7fELF\0", b""):
        library.write_bytes(content)
        assert run(["predict", DGX, "--nccl", str(library)]) == 2
        assert "names no NCCL version" in capsys.readouterr().err
    assert run(["predict", DGX, "--nccl", "2.28", "--nccl-version", "2.27"]) == 2
    assert "both name a version" in capsys.readouterr().err


def test_two_versions(capsys: pytest.CaptureFixture[str]) -> None:
    words = [DGX, "--nodes", "4", "--nccl-version", "2.27.7", "--against"]
    out = printed(capsys, *words, "2.28.9")
    assert "against    from NCCL 2.27.7 to 2.28.9: another choice at 4 of 31 sizes" in out
    assert re.search(r"2 MiB - 4 MiB: nvls_tree/simple -> tree/ll128, model's time \+7 %", out)
    same = printed(capsys, *words, "2.27.7")
    assert "2.27.7: the same choice and the same time at all 31 sizes" in same


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = [DGX, "--nodes", "2", "--collectives", "all", "--sizes", "1K-4K", "--against", "2.27.7"]
    found = document(capsys, *words, "--nccl-version", "2.31.2")
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
    changes = reduce["against"]["changes"]
    assert [one["bytes"] for one in changes] == [1024, 2048, 4096]
    assert {one["after"] for one in changes} == {
        one["choice"] for one in reduce["against"]["sizes"]
    }


def test_times_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    words = [DGX, "--nodes", "2", "--collectives", "allreduce,allgather", "--sizes", "1M-2M"]
    rows = list(csv.DictReader(printed(capsys, *words, "--export", "csv").splitlines()))
    found = document(capsys, *words)
    assert len(rows) == sum(len(size["times_us"]) - list(size["times_us"].values()).count(None)
                            for one in found for size in one["sizes"])  # fmt: skip
    assert sum(row["default"] == "1" for row in rows) == 4
    for row in rows:
        (one,) = (one for one in found if one["collective"] == row["collective"])
        (size,) = (size for size in one["sizes"] if str(size["bytes"]) == row["bytes"])
        label = f"{row['algorithm']}/{row['protocol']}"
        assert float(row["time_us"]) == size["times_us"][label]
        assert row["default"] == str(int(size["choice"] == label))


def test_bandwidths_for_simai(capsys: pytest.CaptureFixture[str]) -> None:
    words = [DGX, "--nodes", "2", "--nccl-version", "2.28.9", "--export", "simai"]
    lines = printed(capsys, *words).splitlines()
    assert lines[:2] == ["nccltune", "TP:"]
    assert lines[2] == "  allreduce,: 475.6"
    assert lines[lines.index("DP:") + 1] == lines[lines.index("EP:") + 1] != lines[2]
    assert lines.count("  alltoall,: null") == 3
    lonely = printed(capsys, *words, "--gpus", "1").splitlines()
    assert lonely[2] == "  allreduce,: null"
    assert run(["predict", *words, "--json"]) == 2
    assert "excludes --json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--nccl-version", "new"], "--nccl-version: 'new' is not an NCCL version"),
        (["--nccl", "missing.so"], "--nccl: 'missing.so' is not an NCCL version"),
        (["--against", "2.18.1"], "older than the oldest known model"),
        (["NCCL_NTHREADS=64"], "NCCL_NTHREADS is not modelled"),
        (["NCCL_NVLS_ENABLE"], "is not NAME=VALUE"),
        (["--collectives", "alltoall"], "is not a collective that NCCL tunes"),
        (["--gpus", "9"], "names 8 GPUs, not 9"),
    ],
)
def test_what_cannot_be_predicted(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", DGX, *words]) == 2
    assert message in capsys.readouterr().err


def test_the_page_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "reference" / "predict.md").read_text(encoding="utf-8")
    shown = re.search(r"^\$ nccltune predict (.*)\n((?:.*\n)*?)```", page, re.M)
    assert shown is not None
    lines = printed(capsys, *shown[1].split()).splitlines()
    assert lines == shown[2].splitlines()
