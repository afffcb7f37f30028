# SPDX-License-Identifier: Apache-2.0
"""Output of rccl-tests: text with its own header and columns, and results files."""

import json
from pathlib import Path

import pytest

from nccltune.formats.reading.file_report import FileKind
from nccltune.model.choice import Algorithm, Choice, Protocol
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, bandwidths, points
from tests.unit.formats.reading_tools import Read, files, text

SIZES = (1 << 16, 1 << 20, 1 << 24)
HEADER = "numCycle,collective,ranks,rankspernode,gpusperrank,size,type,redop,inplace,time,algbw"


def record(
    size: int,
    in_place: int,
    *,
    processes: int = 8,
    group: int | None = None,
    each: int = 1,
    name: str = "AllReduce",
    wrong: str = "0",
) -> dict[str, object]:
    time_us = 20 + size / 1e5 + in_place
    ranks = (group or processes) * each
    algbw, busbw = bandwidths(Collective(name.lower()), size, time_us, ranks)
    return {
        "numCycle": 0,
        "name": name,
        "nodes": processes // (group or processes),
        "ranks": processes,
        "ranksPerNode": group or processes,
        "gpusPerRank": each,
        "size": size,
        "type": "float",
        "redop": "sum" if "educe" in name else "none",
        "inPlace": in_place,
        "time": round(time_us, 6),
        "algBw": round(algbw, 6),
        "busBw": round(busbw, 6),
        "wrong": wrong,
    }


def records(**changes: object) -> list[dict[str, object]]:
    return [record(size, place, **changes) for size in SIZES for place in (0, 1)]  # type: ignore[arg-type]


def as_json(found: list[dict[str, object]]) -> str:
    return "[\n" + ",\n".join(json.dumps(item) for item in found) + "\n]\n"


def as_csv(found: list[dict[str, object]], *, lacking: bool = True) -> str:
    """Return the CSV of a build with MPI: its header lacks the number of nodes."""
    header = HEADER if lacking else HEADER.replace("ranks,", "nodes,ranks,", 1)
    rows = [
        ",".join(f'"{value}"' if isinstance(value, str) else str(value) for value in item.values())
        for item in found
    ]
    return "\n".join([f"{header},busbw,#wrong", *rows]) + "\n"


def read(path: Path, content: str, **options: object) -> Read:
    path.write_text(content)
    (found,) = files(path, **options)
    return found


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_a_results_file(tmp_path: Path, suffix: str) -> None:
    content = as_json(records()) if suffix == "json" else as_csv(records())
    found = read(tmp_path / f"out.{suffix}", content)
    assert found.report.kind is FileKind.RCCL_RESULTS
    assert found.report.scales == {"1x8": 6}
    assert found.times == [
        (size, bool(place), 20 + size / 1e5 + place) for size in SIZES for place in (0, 1)
    ]
    assert found.doubtful == set()
    assert found.labels == {"default"}
    assert "give --nodes" in found.sentence("note")
    assert {sample.redop for sample in found.samples} == {"sum"}


def test_means_of_several_runs(tmp_path: Path) -> None:
    def mean(item: dict[str, object], *left: str) -> dict[str, object]:
        names = {name: f"{name}_mean" for name in ("time", "algBw", "busBw")}
        kept = {names.get(name, name): each for name, each in item.items() if name not in left}
        return kept | {"time_std": 0.1, "busBw_std": 0.1, "num_runs": 3}

    plain = records()
    whole = read(tmp_path / "out.json", as_json(plain))
    found = read(
        tmp_path / "a.json", as_json([mean(x, "numCycle", "redop", "wrong") for x in plain])
    )
    assert found.report.kind is FileKind.RCCL_RESULTS
    assert (found.report.scales, found.times) == (whole.report.scales, whole.times)
    assert "means of 3 runs, each read as one timing" in found.sentence("note")
    lacking = read(tmp_path / "b.json", as_json([{**mean(x), "time_mean": 0} for x in plain]))
    assert lacking.samples == []


def test_a_csv_whose_header_has_the_nodes(tmp_path: Path) -> None:
    found = read(tmp_path / "out.csv", as_csv(records(), lacking=False))
    assert found.report.scales == {"1x8": 6}


def test_a_build_without_mpi(tmp_path: Path) -> None:
    plain = [
        {("gpus" if name == "gpusPerRank" else name): value for name, value in item.items()
         if name not in ("nodes", "ranks", "ranksPerNode")}
        for item in records(processes=1, each=4)
    ]  # fmt: skip
    for name, content in (
        ("out.json", as_json(plain)),
        ("out.csv", as_csv(plain).replace("ranks,rankspernode,gpusperrank", "gpus", 1)),
    ):
        found = read(tmp_path / name, content)
        assert found.report.scales == {"1x4": 6}
        assert "note" not in found.flags


def test_many_ranks_in_one_group_may_be_on_several_nodes(tmp_path: Path) -> None:
    content = as_json(records(processes=16))
    assert read(tmp_path / "a.json", content).report.scales == {"?x16": 6}
    assert read(tmp_path / "a.json", content, nodes=2).report.scales == {"2x16": 6}


def test_groups_of_a_split(tmp_path: Path) -> None:
    """The bandwidths are those of a group, or of all ranks where the group is a node."""
    groups = read(tmp_path / "a.json", as_json(records(processes=16, group=8)))
    assert groups.report.scales == {"?x8": 6}
    nodes = [item | {"nodes": 2, "ranksPerNode": 8} for item in records(processes=16)]
    assert read(tmp_path / "b.json", as_json(nodes)).report.scales == {"2x16": 6}


def test_collectives_and_damaged_files(tmp_path: Path) -> None:
    both = records() + records(name="AllGather", wrong="N/A")
    found = read(tmp_path / "a.json", as_json(both))
    assert found.report.collectives == {"allreduce": 6, "allgather": 6}
    assert {sample.wrong for sample in found.samples} == {0, None}
    cut = read(tmp_path / "b.json", as_json(records())[:-120])
    assert len(cut.samples) == 5
    bad = [record(SIZES[0], 0), record(SIZES[0], 1) | {"time": 0.0}, {"numCycle": 0}]
    some = read(tmp_path / "c.json", as_json(bad))
    assert len(some.samples) == 1
    assert some.reasons == [
        "a size, a number of ranks or a time that cannot be",
        "'name' is missing",
    ]


def rccl_text(made: Made) -> str:
    lines = made.lines()
    lines[0] = "# rccl-tests version 2.17.9-1a2b3c4 rccl-headers=22703 rccl-library=22703"
    return "\n".join(lines) + "\n"


def test_the_header_of_rccl_tests(tmp_path: Path) -> None:
    found = text(rccl_text(Made(points(*SIZES), gpu="AMD Instinct MI300X")))
    assert found.samples[0].source.nccl_version == "2.27.3"
    assert found.samples[0].source.version == "2.17.9-1a2b3c4"
    # Some builds name no GPU.
    found = text(
        "RCCL version : 2.26.6-HEAD:a1b2\n" + Made(points(*SIZES), era="2.13", gpu="").text()
    )
    assert found.report.scales == {"1x4": 6}
    assert found.report.nccl_version == "2.26.6"


def test_the_choice_that_rccl_tests_names_in_a_row() -> None:
    lines = Made(points(*SIZES)).lines()
    at = next(number for number, line in enumerate(lines) if "#wrong" in line)
    lines[at] += "     algo      proto      nchannels "
    for number, choice in enumerate(("TREE  LL  8", "RING  LL128  64", "N/A  N/A  N/A"), at + 2):
        lines[number] += f"      {choice}"
    found = text("\n".join(lines))
    ran = {sample.bytes: sample.ran for sample in found.samples}
    assert ran == {
        SIZES[0]: Choice(Algorithm.TREE, Protocol.LL, 8),
        SIZES[1]: Choice(Algorithm.RING, Protocol.LL128, 64),
        SIZES[2]: None,
    }
    assert found.report.unreadable == 0
    assert found.labels == {"default"}


def test_output_without_comment_signs() -> None:
    made = Made(points(*SIZES), era="2.13", hosts=("a", "b"), one_process=False)
    lines = made.lines()
    lines.insert(1, "# Blocking Enabled: wait for completion and barrier after each collective ")
    found = text("\n".join(line.removeprefix("#") for line in lines))
    assert found.report.scales == {"2x4": 6}
    assert "-z 1" in found.sentence("condition")
    assert "aborted" not in found.flags
