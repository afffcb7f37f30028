# SPDX-License-Identifier: Apache-2.0
"""`analyze` and `tune` of a file, a folder of files and standard input, without a study."""

import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

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


def test_runs_under_titles_are_shown_one_by_one_and_compared(
    cli: Cli, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"## Before\n{log(1.5)}\n## After\n{log()}\n"
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
        ("doctor", False, "not read\nhint:  save it in a file: nccltune doctor FILE\n"),
        ("lint", False, "not read\nhint:  save it in a file: nccltune lint FILE\n"),
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
