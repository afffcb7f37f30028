# SPDX-License-Identifier: Apache-2.0
"""Any input gives a clear error or a counted line, and takes memory for a few chunks."""

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nccltune.formats.importing.detect import HEAD_BYTES, kind_of
from nccltune.formats.importing.inputs import READERS, find_inputs
from nccltune.formats.reading.file_report import FileKind
from nccltune.model.errors import InputError
from tests.unit.formats.maker import Made, points
from tests.unit.formats.reading_tools import files, one, run, text

MADE = Made(points(1 << 12, 1 << 20))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (bytes(range(256)) * 8, "binary"),
        (b"\x1f\x8b" + b"x" * 50, "gzip"),
        (MADE.text().encode("utf-16-le"), "UTF-16"),
        (b"hello\nworld\n", "nothing in it is known"),
        (b"{}\n", "nothing in it is known"),
        (b'{"a": 1}\n{"b": 2}\n', "is JSON, with objects of the keys a: none has the size"),
        (b"a,b,c\n1,2,3\n", "has a table with the columns a, b, c: none is named a size"),
        (b"allreduce,0,65536,tree,ll,-1,4,32\n", "tuner configuration"),
        (b'# nccltune: schema=1 gpu="H"\n', "tuner configuration"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    read = one(tmp_path, data)
    assert message in (read.report.error or "")
    assert read.samples == []


def test_a_stray_nul_is_not_a_binary_file(tmp_path: Path) -> None:
    read = one(tmp_path, MADE.text().encode() + b"\x00\x00junk\n" + MADE.text().encode())
    assert len(read.samples) == 8


def test_utf_16_with_its_mark_is_read(tmp_path: Path) -> None:
    assert len(one(tmp_path, MADE.text().encode("utf-16")).samples) == 4


def test_missing_files_are_an_error_and_empty_folders_are_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_inputs([tmp_path / "missing"])
    assert find_inputs([tmp_path]) == []


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.txt").write_text(MADE.text())
    (tmp_path / "a.txt").write_text(MADE.text())
    (tmp_path / ".hidden").write_text(MADE.text())
    (tmp_path / "notes.md").write_text("words")
    found = find_inputs([tmp_path, tmp_path / "a.txt"])
    names = [item.name.removeprefix(tmp_path.name + "/") for item in found]
    assert names == ["a.txt", "notes.md", "b/2.txt"]
    assert not any(item.asked for item in found)
    reads = files(tmp_path)
    assert [len(read.samples) for read in reads] == [4, 0, 4]
    assert {sample.round for sample in reads[2].samples} == {0}


def test_the_study_that_is_written_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "samples.jsonl").write_text("")
    (tmp_path / "a.txt").write_text(MADE.text())
    found = find_inputs([tmp_path], leave_out=tmp_path / "study")
    assert [item.name.rpartition("/")[2] for item in found] == ["a.txt"]


def test_the_name_of_a_folder_gives_the_choice(tmp_path: Path) -> None:
    folder = tmp_path / "Tree-LL"
    folder.mkdir()
    (folder / "out.txt").write_text(MADE.text())
    assert files(folder)[0].labels == {"tree/ll"}
    assert files(tmp_path)[0].labels == {"tree/ll"}
    assert files(folder / "out.txt")[0].labels == {"default"}


def test_devices_are_not_read() -> None:
    (read,) = files(Path("/dev/zero"))
    assert "device" in (read.report.error or "")


def test_pipes_are_read(tmp_path: Path) -> None:
    import os
    import threading

    path = tmp_path / "tree_ll"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(MADE.text()))
    writer.start()
    (read,) = files(path)
    writer.join()
    assert len(read.samples) == 4
    assert read.labels == {"tree/ll"}


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (MADE.text(), FileKind.NCCL_TESTS_TEXT),
        (
            "0:  1024  256  float  sum  -1  1.0  1.0  1.0  0  1.0  1.0  1.0  0\n",
            FileKind.NCCL_TESTS_TEXT,
        ),
        ("# made by\n" + '{"version":3,"args":["/x"]', FileKind.NCCL_TESTS_JSON),
        ('{\n  "version": 1,\n  "start_time": "x",\n', FileKind.NCCL_TESTS_JSON),
        ("latency_us,collective,size_bytes,algorithm\n", FileKind.RAW_CSV),
        ("a:1:2 [0] NCCL INFO Using network IB\n", FileKind.NCCL_LOG),
        ('{"schema_version":1,"study":"a","collective":"allre', FileKind.SAMPLES),
    ],
)
def test_kinds_by_content(data: str, kind: FileKind) -> None:
    assert kind_of(data.encode()) is kind


def test_a_table_behind_a_long_log(tmp_path: Path) -> None:
    log = "alpha:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1]\n" * 4000
    assert len(log) > 1 << 16
    assert len(one(tmp_path, (log + MADE.text()).encode()).samples) == 4


def test_lines_of_more_than_a_mebibyte_are_counted() -> None:
    lines = MADE.lines()
    lines[-8:-8] = ["z" * (3 << 20)]
    read = text("\n".join(lines))
    assert len(read.samples) == 4
    assert read.report.unreadable == 1
    assert read.report.first_unreadable[0].line == len(MADE.lines()) - 7
    assert "1 MiB" in read.reasons[0]


_PROBE = """
import sys
from pathlib import Path
from nccltune.formats.importing.inputs import ReadOptions, find_inputs, read_inputs
count = 0
for reading in read_inputs(find_inputs([sys.argv[1]]), ReadOptions(study="x")):
    count += sum(len(batch.samples) for batch in reading.batches())
    report = reading.report
# Not ru_maxrss: a child inherits the peak of the process that forked it.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(count, report.unreadable, int(peak.split()[1]) // 1024)
"""


def probe(path: Path) -> tuple[int, int, int]:
    """Read `path` in its own process; return samples, unreadable lines and peak memory in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, str(path)], capture_output=True, text=True, check=True
    )
    samples, unreadable, peak = map(int, done.stdout.split())
    return samples, unreadable, peak


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    small, large = tmp_path / "small.txt", tmp_path / "large.txt"
    small.write_text(MADE.text())
    block = Made(points(*(1 << bits for bits in range(3, 30))) * 20).text()
    with large.open("w") as file:
        for _ in range(400):
            file.write(block)
    assert large.stat().st_size > 20 << 20
    samples, _, peak = probe(large)
    assert samples == 400 * 20 * 27 * 2
    assert peak - probe(small)[2] < 24


@pytest.mark.parametrize(
    ("what", "size"),
    [("text", 1 << 29), ("json", 200 << 20), ("csv", 200 << 20), ("samples", 200 << 20)],
)
def test_a_file_without_a_line_end_takes_bounded_memory(
    tmp_path: Path, what: str, size: int
) -> None:
    heads = {
        "text": b"\n".join(line.encode() for line in MADE.lines()[:14]),
        "json": b'{"version":3,"start_time":"',
        "csv": b"collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n",
        "samples": b'{"schema_version":1,"study":"',
    }
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(heads[what])
        file.truncate(size)  # a hole: reads as zeros, takes no room
    samples, _, peak = probe(path)
    assert samples == 0
    assert peak < 160


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=600), st.sampled_from(sorted(READERS)))
def test_any_bytes_give_samples_or_our_error(data: bytes, kind: FileKind) -> None:
    with contextlib.suppress(InputError):
        run(READERS[kind], data)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_table_gives_only_times_of_the_original(data: st.DataObject) -> None:
    lines = MADE.lines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(lines) - 1))
        what = data.draw(st.sampled_from(["drop", "cut", "twice", "noise", "join"]))
        if what == "drop":
            lines[at] = ""
        elif what == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, 90))]
        elif what == "twice":
            lines[at:at] = [lines[at]]
        elif what == "noise":
            lines[at:at] = [data.draw(st.text(max_size=30)).replace("\n", " ")]
        else:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
    read = text("\n".join(lines))
    assert set(read.times) <= set(text(MADE.text()).times)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=200))
@example(b'\x08\r";')
def test_detection_raises_only_our_error(data: bytes) -> None:
    with contextlib.suppress(InputError):
        assert kind_of(data) in FileKind


def test_readers_stop_where_the_disk_fails() -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    from nccltune.formats.importing.inputs import Reading
    from nccltune.formats.nccl_tests.text import read_text
    from nccltune.formats.reading.context import Context, ReadOptions
    from nccltune.formats.reading.file_report import FileReport

    report = FileReport(name="x")
    context = Context(name="x", options=ReadOptions(study="s"), report=report)
    assert list(Reading(report, read_text, Broken(), context).batches()) == []
    assert "Input/output error" in (report.error or "")


@pytest.mark.parametrize("prefix", ["", "17: "])
def test_a_table_after_much_other_text_is_found(tmp_path: Path, prefix: str) -> None:
    binding = "".join(
        f"cpu-bind=MASK - nid{task:06d}, task {task} 0 [77]: mask 0xffff set\n"
        for task in range(4000)
    )
    assert len(binding) > 2 * HEAD_BYTES
    path = tmp_path / "job.out"
    path.write_text(binding + "".join(f"{prefix}{line}\n" for line in MADE.lines()))
    (read,) = files(path)
    assert read.report.error is None
    assert len(read.samples) == len(text(MADE.text()).samples)
    path.write_text(binding)
    (read,) = files(path)
    assert read.report.error == "nothing in it is known"


def test_a_table_beyond_the_limit_is_not_called_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.out"
    for lines, error in (
        (20_000, None),
        (120_000, "in its first 1 MiB, and the rest was not read"),
    ):
        path.write_text("step 17: loss 0.25, all good\n" * lines + MADE.text())
        monkeypatch.setattr("nccltune.formats.importing.detect._MOST_BYTES", 1 << 20)
        (read,) = files(path)
        assert (read.report.error or "").endswith(error or "")
        assert bool(read.samples) is (error is None)
        assert error is None or "tail -n 10000 job.out" in (read.report.hint or "")


def test_a_run_that_failed_before_its_first_row_is_refused_with_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    failure = "alpha: Test CUDA failure common.cu:294 'CUDA-capable device(s) is/are busy'"
    for lines in ([*MADE.head(), failure], [*MADE.head(), *MADE.columns(), failure], [failure]):
        path.write_text("\n".join(lines) + "\n")
        (read,) = files(path)
        assert read.report.error == (
            "nccl-tests failed before its first row: Test CUDA failure"
            " (CUDA-capable device(s) is/are busy)"
        )
        assert read.report.error_line == len(lines)
        assert read.report.hint == "look for the cause: nccltune doctor job.out"


def test_a_header_without_a_row_is_a_run_that_hung(tmp_path: Path) -> None:
    path = tmp_path / "hung.txt"
    path.write_text(MADE.with_(points=(), footer=False).text())
    (read,) = files(path)
    assert read.samples == []
    assert "no row: the run hung or ended at its first size" in (read.report.error or "")
    assert "nccltune doctor" in (read.report.hint or "")
