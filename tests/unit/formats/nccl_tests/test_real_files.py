# SPDX-License-Identifier: Apache-2.0
"""Files of real runs, where they lie beside the repository; they are not part of it."""

from pathlib import Path

import pytest

from nccltune.formats.reading.file_report import FileKind
from tests.unit.formats.reading_tools import files

DATA = Path(__file__).parents[5] / "shared" / "data"
OWN = DATA / "h200x4" / "nccl-tests"
OTHERS = DATA / "nccl-tests"

own = pytest.mark.skipif(not OWN.is_dir(), reason=f"no recorded runs at {OWN}")
others = pytest.mark.skipif(not OTHERS.is_dir(), reason=f"no outputs of others at {OTHERS}")


@own
def test_a_sweep_by_file_names() -> None:
    reads = {read.report.name.rpartition("/")[2]: read for read in files(OWN)}
    assert len(reads) == 7
    for name, read in reads.items():
        assert len(read.samples) == 22
        assert read.doubtful == set()
        assert read.report.unreadable == 0
        assert read.report.scales == {"1x4": 22}
        label = name.removeprefix("nt_").removesuffix(".txt").lower().replace("-", "/")
        assert read.labels == {label}


@others
@pytest.mark.parametrize(
    ("name", "samples", "scale", "collective"),
    [
        ("v2.0-2.11_allreduce_8xA100.txt", 64, "1x8", "allreduce"),
        ("v2.0-2.11_broadcast_8xA100.txt", 64, "1x8", "broadcast"),
        ("v2.14-2.16_allreduce_8xH100_dgxc.txt", 64, "1x8", "allreduce"),
        ("v2.18.3_allgather_2xGB10.txt", 6, "2x2", "allgather"),
        ("v2.19.7_allreduce_2xT4_jsonv3.json.txt", 2, "1x2", "allreduce"),
    ],
)
def test_outputs_of_others(name: str, samples: int, scale: str, collective: str) -> None:
    (read,) = files(OTHERS / name)
    assert len(read.samples) == samples
    assert read.report.scales == {scale: samples}
    assert read.report.collectives == {collective: samples}
    assert read.report.unreadable == 0
    assert read.doubtful == set()


@others
def test_log_lines_of_nccl() -> None:
    (read,) = files(OTHERS / "nccl-2.30_log_lines_by_subsystem.txt")
    assert read.report.kind is FileKind.NCCL_LOG
    assert read.samples == []


@own
def test_a_log_gives_what_ran() -> None:
    from nccltune.formats.nccl_tests.process_logs import read_process_logs
    from nccltune.model.collective import Collective

    path = DATA / "h200x4" / "nccl-tuning-log-as-4-nodes.log"
    with path.open("rb") as file:
        logs = read_process_logs(file)
    first = next(log for log in logs.values() if log.has_choices)
    assert (first.nodes, first.ranks, first.version) == (4, 4, "2.28.9")
    assert first.ran(Collective.ALLREDUCE, 1024, 4) is not None
