# SPDX-License-Identifier: Apache-2.0
"""`nccltune import` as a command: output and exit codes."""

import io
import itertools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from nccltune.cli import run
from nccltune.study.files import Study
from tests.unit.formats.maker import Made, points, without_devices
from tests.unit.formats.measured import measured, with_log
from tests.unit.nccl_tests_logs import nccl_tests_log

SIZES = (1 << 12, 1 << 16, 1 << 20)
MADE = Made(points(*SIZES))
HEADER = "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,latency_us\n"


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]


@pytest.fixture
def nccltune(capsys: pytest.CaptureFixture[str]) -> Command:
    def call(*args: object) -> CommandResult:
        return CommandResult(run([str(arg) for arg in args]), *capsys.readouterr())

    return call


def put(path: Path, made: Made | str = MADE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made if isinstance(made, str) else made.text())
    return path


def test_an_import_without_a_measurement_leaves_no_study(tmp_path: Path, nccltune: Command) -> None:
    file = put(tmp_path / "a.txt", "box:7:9 [0] NCCL INFO Using network Socket\n")
    for study in (tmp_path / "new", tmp_path / "old"):
        if study.name == "old":
            nccltune("import", put(tmp_path / "b.txt"), "-o", study)
        result = nccltune("import", file, "-o", study, "--nodes", 2)
        assert (result.code, study.exists()) == (2, study.name == "old")
        assert "error: no measurement was read" in result.err
        assert result.err.replace("\n", " ").endswith(f"nccltune doctor {file} ")


def test_a_folder(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    for pid, name in enumerate(("nt_default.txt", "nt_Tree-LL.txt"), 7):
        put(runs / name, MADE.with_(pid=pid))
    (runs / "README.md").write_text("words")
    result = nccltune("import", runs, "-o", tmp_path / "a")
    assert result.code == 0
    out = result.out.splitlines()
    assert out[0] == "read        2 files, 2 tables, 6 rows, 12 samples (nccl-tests text)"
    assert "collectives allreduce 12" in out
    assert "sizes       4 KiB - 1 MiB" in out
    assert "choices     default 6, tree/ll 6" in out
    assert "scales      1 node, 4 ranks" in out
    assert "platform    4 x NVIDIA H200 · 1 node · NCCL 2.28.9" in out
    assert "left out    1 file that hold" in result.out
    assert out[-1] == f"Wrote 12 samples to {tmp_path / 'a'}."
    assert f"next: nccltune analyze {tmp_path / 'a'}" in result.err.replace("\n", "")
    again = nccltune("import", runs, "-o", tmp_path / "a")
    assert again.code == 0
    assert "skipped     2 files imported before" in again.out
    assert "Nothing new" in again.out


def test_doubtful_runs_exit_with_1(tmp_path: Path, nccltune: Command) -> None:
    table = put(tmp_path / "default.txt", MADE.with_(footer=False))
    result = nccltune("import", table, "-o", tmp_path / "a")
    assert result.code == 1
    assert f"doubtful    default.txt:{len(list(MADE.head())) + 2}: a table ends" in result.out


def test_unreadable_lines_are_shown(tmp_path: Path, nccltune: Command) -> None:
    row = MADE.row(MADE.points[0])
    table = tmp_path / "default.txt"
    bad = row.replace("20.04", "-2.04")
    table.write_text(MADE.text().replace(row, f"{row}\n{bad}\n{bad}\x07"))
    result = nccltune("import", table, "-o", tmp_path / "a")
    at = len([*MADE.head(), *MADE.columns()]) + 2
    assert "not read    2 lines" in result.out
    assert f"default.txt:{at}: a time of -2.04 us cannot be" in result.out
    assert "\x07" not in result.out
    assert result.code == 1


def test_a_file_that_gave_nothing_is_read_again_under_another_name(
    tmp_path: Path, nccltune: Command
) -> None:
    half = put(tmp_path / "Ring.txt")
    result = nccltune("import", half, "-o", tmp_path / "a")
    assert result.code == 2
    assert "the choice is unknown" in result.out
    result = nccltune("import", half.rename(tmp_path / "ring_ll.txt"), "-o", tmp_path / "a")
    assert result.code == 0
    assert "choices     ring/ll 6" in result.out


def test_rows_behind_unknown_words_are_counted(tmp_path: Path, nccltune: Command) -> None:
    row = MADE.row(MADE.points[1])
    table = tmp_path / "default.txt"
    table.write_text(MADE.text().replace(row, f"?? acme prints {row}"))
    result = nccltune("import", table, "-o", tmp_path / "a")
    assert result.code == 1
    assert "not read    1 line" in result.out
    assert "a result row behind words that are not known" in result.out


def test_a_cut_samples_file_is_reported(tmp_path: Path, nccltune: Command) -> None:
    nccltune("import", put(tmp_path / "default.txt"), "-o", tmp_path / "a")
    whole = (tmp_path / "a" / "samples.jsonl").read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(whole[:-30])
    result = nccltune("import", cut, "-o", tmp_path / "b")
    assert result.code == 1
    assert "the last line is cut" in result.out


def test_strict_csv_errors(tmp_path: Path, nccltune: Command) -> None:
    bad = tmp_path / "raw.csv"
    bad.write_text(HEADER + "allreduce,1 Kibi,NVLS,simple,-1,1,8,9.0\n")
    result = nccltune("import", bad, "-o", tmp_path / "a")
    assert result.code == 2
    assert result.err.splitlines() == [
        "error: raw.csv:2: column 2 (size_bytes): '1 Kibi' is not a size",
        "hint:  write bytes, or 64K, 1M, 2GiB",
    ]
    assert not (tmp_path / "a").exists()
    # Other files are imported.
    result = nccltune("import", bad, put(tmp_path / "default.txt"), "-o", tmp_path / "a")
    assert result.code == 2
    assert "Wrote 6 samples" in result.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing"], "missing: no such file or folder"),
        (["--choice", "tree", "x"], "'tree' is not a choice"),
        (["--choice", "tre/ll", "x"], "'tre' is not an algorithm"),
        (["--collective", "all_redice", "x"], "did you mean 'allreduce'"),
        (["--nodes", "0", "x"], "0 is not in the range"),
        ([], "Missing argument"),
    ],
)
def test_usage_errors_exit_with_2(
    tmp_path: Path, nccltune: Command, args: list[str], message: str
) -> None:
    result = nccltune("import", *args, "-o", tmp_path / "a")
    assert result.code == 2
    assert message in result.err
    assert "hint:" in result.err
    assert result.out == ""


def test_nothing_readable_exits_with_2(tmp_path: Path, nccltune: Command) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "folder").mkdir()
    assert "empty.txt: is empty" in nccltune("import", tmp_path / "empty.txt", "-o", "a").err
    assert nccltune("import", tmp_path / "folder", "-o", tmp_path / "a").code == 2
    (tmp_path / "tuner.conf").write_text("allreduce,0,1,ring,ll,-1,-1,-1\n")
    result = nccltune("import", tmp_path / "tuner.conf", "-o", tmp_path / "a")
    assert result.code == 2
    assert "nccltune lint" in result.err


def test_options_reach_the_samples(tmp_path: Path, nccltune: Command) -> None:
    table = put(tmp_path / "out.txt", without_devices(MADE.with_(era="2.13").text()))
    args = ["--choice", "Ring/LL128", "--nodes", 2, "--ranks", 4, "--platform-name", "lab"]
    result = nccltune("import", table, "-o", tmp_path / "a", *args)
    assert result.code == 0
    sample = next(Study(tmp_path / "a").samples())
    assert (sample.nodes, sample.ranks) == (2, 4)
    assert Study(tmp_path / "a").platform().name == "lab"
    assert "choices     ring/ll128 6" in result.out


def test_standard_input(tmp_path: Path, nccltune: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(MADE.text().encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    result = nccltune("import", "-", "-o", tmp_path / "a", "--choice", "default")
    assert result.code == 0
    assert len(list(Study(tmp_path / "a").samples())) == 6


def test_json(tmp_path: Path, nccltune: Command) -> None:
    table = put(tmp_path / "out.txt", MADE.with_(ranks=1))
    result = nccltune("import", table, "-o", tmp_path / "a", "--json")
    assert result.code == 1
    value = json.loads(result.out)
    assert value["samples"] == 6
    assert value["files"][0]["outcome"] == "imported"
    flags = {flag["kind"]: flag["doubtful"] for flag in value["files"][0]["report"]["flags"]}
    assert flags["one_rank"] is True


def test_a_remark_with_other_values_is_not_the_same_remark(
    tmp_path: Path, nccltune: Command
) -> None:
    made = [without_devices(MADE.with_(ranks=ranks).text()) for ranks in (4, 4, 8)]
    (tmp_path / "out.txt").write_text("\n".join(made))
    result = nccltune("import", tmp_path / "out.txt", "-o", tmp_path / "a")
    assert "4 ranks by size, time and busbw (2 times) (1 more, with other values)" in result.out


def test_an_interruption_leaves_nothing_behind(
    tmp_path: Path, nccltune: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nccltune.formats.importing.writer.StudyWriter.finish", interrupted)
    table = put(tmp_path / "my out.txt")
    result = nccltune("import", table, "-o", tmp_path / "new" / "a")
    assert result.code == 130
    assert "nothing was imported; the same command starts again" in result.err
    assert not (tmp_path / "new").exists()


def test_two_platforms_are_refused_with_the_way_out(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    put(runs / "default.txt", measured(1, gpu="NVIDIA A100"))
    put(runs / "tree_ll.txt", measured(2, gpu="NVIDIA H100"))
    result = nccltune("import", runs, "-o", tmp_path / "a")
    assert result.code == 2
    assert result.err.splitlines() == [
        f"error: {tmp_path / 'a'}: the files are of different platforms, and a study is of one;"
        " nothing was written",
        "  GPU: NVIDIA A100 in runs/default.txt; NVIDIA H100 in runs/tree_ll.txt",
        f"hint:  compare them: nccltune compare {runs}/default.txt {runs}/tree_ll.txt;"
        " or --split writes one study for each platform; or name only the files of one",
    ]
    assert result.out == ""
    assert not (tmp_path / "a").exists()
    result = nccltune("import", runs, "-o", tmp_path / "a", "--split")
    assert result.code == 0
    titles = [Study(tmp_path / name).platform().title for name in ("a", "a-2")]
    assert titles[0] != titles[1]
    assert f"platform    {tmp_path / 'a'} ({titles[0]}): runs/default.txt\n" in result.out
    assert f"platform    {tmp_path / 'a-2'} ({titles[1]}): runs/tree_ll.txt\n" in result.out
    assert f"Wrote 48 samples to {tmp_path / 'a'} and {tmp_path / 'a-2'}." in result.out


def test_many_platforms_are_refused_in_few_lines(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    for first, second in itertools.combinations("abcdefgh", 2):
        times = {1 << 20: (100.0, 101.0), 1 << 21: (180.0, 181.0)}
        log = nccl_tests_log([f"node-{first}", f"node-{second}"], times)
        put(runs / f"{first}-{second}.log", log)
    result = nccltune("import", runs, "-o", tmp_path / "a")
    assert result.code == 2
    lines = result.err.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("  hosts: 2 hosts (hash ")
    assert lines[1].endswith("; and 26 more such differences")
    assert lines[2].startswith(f"hint:  compare them: nccltune compare {runs}; or --split")


def test_of_three_files_two_are_named_to_compare(tmp_path: Path, nccltune: Command) -> None:
    times = {1 << 20: (100.0, 101.0), 1 << 21: (180.0, 181.0)}
    files = [
        put(tmp_path / name, nccl_tests_log(["a", "b"], times, nccl=nccl, pid=pid))
        for name, nccl, pid in (
            ("1.txt", "22803", 1),
            ("2.txt", "22803", 9),
            ("3.txt", "22907", 20),
        )
    ]
    result = nccltune("import", *files, "-o", tmp_path / "a")
    words = f"hint:  compare two of them: nccltune compare {files[0]} {files[2]}; or --split"
    assert result.err.splitlines()[-1].startswith(words)


def test_a_copy_is_reported_as_a_duplicate(tmp_path: Path, nccltune: Command) -> None:
    table, copy = put(tmp_path / "default.txt", measured(1)), tmp_path / "default-copy.txt"
    copy.write_text(table.read_text() + "\n")
    result = nccltune("import", table, copy, "-o", tmp_path / "a")
    assert result.code == 0
    assert "duplicate   1 file that holds only runs imported before: default-copy.txt" in result.out
    assert (
        "note        default-copy.txt: the same run as in default.txt: not imported" in result.out
    )
    assert nccltune("import", copy, "-o", tmp_path / "a").code == 0
    # The copy is recognised although its name is unclear, and in either order.
    assert nccltune("import", copy, table, "-o", tmp_path / "b").code == 0
    # One run cannot be of two choices.
    other = tmp_path / "tree_ll.txt"
    other.write_text(copy.read_text() + "\n")
    result = nccltune("import", other, "-o", tmp_path / "a")
    assert result.code == 1
    assert (
        "doubtful    tree_ll.txt: the same run as in default.txt, where it is default" in result.out
    )


def test_a_doubt_about_the_platform_is_shown(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    setting = "NCCL_MAX_NCHANNELS set by environment to 2."
    put(runs / "default.txt", with_log(measured(1), setting))
    put(runs / "tree_ll.txt", measured(2))
    result = nccltune("import", runs, "-o", tmp_path / "a")
    assert result.code == 0
    assert "not sure    NCCL settings are known of default.txt only" in result.out


def test_rounds_that_the_user_states(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    for number in range(2):
        put(runs / f"default-{number}.txt", measured(number))
        put(runs / f"tree_ll-{number}.txt", measured(20 + number))
    assert nccltune("import", runs, "-o", tmp_path / "a", "--in-rounds").code == 0
    found = {
        (sample.choice == "default", sample.round, sample.source.in_rounds)
        for sample in Study(tmp_path / "a").samples()
    }
    assert found == {(side, number, True) for side in (False, True) for number in range(2)}


def test_the_study_is_an_existing_file(tmp_path: Path, nccltune: Command) -> None:
    occupied = put(tmp_path / "a", "words")
    result = nccltune("import", put(tmp_path / "out.txt"), "-o", occupied)
    assert result.code == 2
    assert "the folder cannot be made" in result.err
    assert occupied.read_text() == "words"


def test_one_size_and_one_other_file(tmp_path: Path, nccltune: Command) -> None:
    runs = tmp_path / "runs"
    put(runs / "out.txt", Made(points(1 << 20)))
    put(runs / "README.md", "words")
    out = nccltune("import", runs, "-o", tmp_path / "a").out
    assert "\nsizes       1 MiB\n" in out
    assert "left out    1 file that holds no measurements" in out


def test_rounds_of_raw_csv_files(tmp_path: Path, nccltune: Command) -> None:
    """Each file is a round, also in a second import."""

    def write(number: int) -> Path:
        rows = [
            f"allreduce,{size},{choice},-1,4,32,{20 + number + repeat / 10}"
            for size in SIZES
            for choice in ("default,default", "tree,ll", "ring,simple")
            for repeat in range(2)
        ]
        return put(tmp_path / f"run-{number}.csv", HEADER + "\n".join(rows) + "\n")

    study = tmp_path / "a"
    assert nccltune("import", write(0), write(1), "-o", study, "--in-rounds").code == 0
    assert nccltune("import", write(2), "-o", study, "--in-rounds").code == 0
    samples = list(Study(study).samples())
    assert all(sample.source.in_rounds for sample in samples)
    assert {(sample.round, sample.repeat) for sample in samples} == {
        (number, repeat) for number in range(3) for repeat in range(2)
    }
    for sample in samples:
        assert sample.time_us == 20 + sample.round + sample.repeat / 10
    assert len({sample.source.process for sample in samples}) == 9
    plain = tmp_path / "b"
    assert nccltune("import", write(3), "-o", plain).code == 0
    assert not any(sample.source.in_rounds for sample in Study(plain).samples())


def test_a_study_keeps_its_origin(tmp_path: Path, nccltune: Command) -> None:
    recording = Path(__file__).parents[4] / "examples" / "h200x4-1-node"
    source, study = tmp_path / "source", tmp_path / "a"
    shutil.copytree(recording, source)
    for name in ("findings.json", "imports.jsonl", "report.html", "tuner.conf"):
        (source / name).write_text("{}\n")
    result = nccltune("import", source, "-o", study)
    assert result.code == 0
    assert "not read" not in result.out
    assert "left out" not in result.out
    assert Study(study).platform() == Study(recording).platform()
    assert (study / "tables.jsonl").read_bytes() == (recording / "tables.jsonl").read_bytes()
    assert "replay" not in nccltune("analyze", study).out
    assert "2 rules" in nccltune("tune", study).out
    # Another import does not change the platform.
    assert "Nothing new" in nccltune("import", source / "samples.jsonl", "-o", study).out
    named = tmp_path / "b"
    assert nccltune("import", source, "-o", named, "--platform-name", "mine").code == 0
    assert Study(named).platform().name == "mine"


def test_an_unknown_number_of_nodes_is_added_by_a_second_import(
    tmp_path: Path, nccltune: Command
) -> None:
    path, study = put(tmp_path / "my run.txt", without_devices(MADE.text())), tmp_path / "a"
    result = nccltune("import", path, "-o", study)
    assert result.code == 0
    assert "scales      ? nodes, 4 ranks" in result.out
    command = f"nccltune import '{path}' -o {study} --nodes N"
    assert f"next: nccltune analyze {study}\n" in result.err
    assert f"next: for rules, add what is unknown: {command}\n" in result.err
    curves = nccltune("analyze", study)
    assert curves.code == 0
    assert "? nodes, 4 ranks" in curves.out
    assert "with nothing: the number of nodes is unknown" in curves.out
    again = f"nccltune import FILES -o {study} --collective allreduce --nodes N"
    assert f"next: {again}\n" in curves.err
    refused = nccltune("tune", study)
    assert refused.code == 2
    assert "import the files again with their scale" in refused.err
    again = nccltune("import", path, "-o", study, "--nodes", 2)
    assert again.code == 0
    assert f"next: nccltune analyze {study}\n" in again.err
    shown = nccltune("analyze", study)
    assert shown.code == 0
    assert "left out" not in shown.out


def test_a_platform_of_which_nothing_is_known(tmp_path: Path, nccltune: Command) -> None:
    bare = "\n".join([*MADE.columns(), *map(MADE.row, MADE.points)])
    path, study = put(tmp_path / "out.txt", bare), tmp_path / "a"
    assert "\nplatform    unknown\n" in nccltune("import", path, "-o", study).out
    assert "\nplatform    2 nodes" in nccltune("import", path, "-o", study, "--nodes", 2).out
