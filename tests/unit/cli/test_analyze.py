# SPDX-License-Identifier: Apache-2.0
"""`nccltune analyze`: what was compared, what NCCL ran, and a next step that leads on."""

import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nccltune.model.collective import Collective
from nccltune.model.sample import Sample
from tests.unit.builders import measure, sizes, study_of
from tests.unit.nccl_tests_logs import nccl_tests_log
from tests.unit.runs import Cli

DATA = Path(__file__).parents[2] / "data"
FIELD = DATA / "field"
SIZES = sizes(1 << 20, 1 << 25)


def one(size: int) -> dict[str, float]:
    return {"default": 10 + size / 1e5}


def two(size: int) -> dict[str, float]:
    return {**one(size), "ring/ll": 11 + size / 9e4}


def study_at(path: Path, samples: list[Sample], **platform: object) -> str:
    return str(study_of(path, samples, **platform).path)


def screen(cli: Cli, *arguments: str) -> tuple[str, str]:
    found = cli("analyze", *arguments)
    return found.out, found.err


def test_one_log_of_the_default_is_compared_with_nothing(tmp_path: Path, cli: Cli) -> None:
    study = str(tmp_path / "a")
    cli("import", FIELD / "log-01-default-only" / "run.txt", "-o", study)
    out, err = screen(cli, study)
    assert "nothing found" not in out
    assert "is right" not in out
    assert "curve      no clear dip, plateau or falling time; the noise is unknown, so" in out
    assert "default    what it ran is unknown: no line of NCCL's log states it" in out
    assert "compared   with nothing: only the default was measured, so no rule can be found" in out
    assert "nccltune tune" not in err
    assert (
        f"on the same machines: nccltune sweep --output {study}-again --collectives allreduce "
        "--sizes 1M-512M --launcher NAME --nodes 2 --gpus 8"
    ) in err
    assert "next: run again with NCCL_ALGO and NCCL_PROTO forced" in err


def test_the_report_of_the_default_alone_lists_what_was_not_compared(
    tmp_path: Path, cli: Cli
) -> None:
    study = study_at(tmp_path / "a", measure(SIZES, one))
    out = " ".join(cli("report", study, "--terminal").out.split())
    assert "compared with nothing: only the default was measured" in out
    assert "look as expected" not in out


def test_the_default_is_right_only_beside_other_choices(tmp_path: Path, cli: Cli) -> None:
    out, err = screen(cli, study_at(tmp_path / "a", measure(SIZES, two, noise=0.003)))
    assert "nothing found: the default is right at every size measured" in out
    assert "compared   with 1 choice at 6 sizes, 8 rounds or more: none is faster" in out
    assert "next: nccltune tune" in err


def test_one_forced_choice_alone_leads_to_no_search(tmp_path: Path, cli: Cli) -> None:
    samples = [item for item in measure(SIZES, two) if item.choice != "default"]
    out, err = screen(cli, study_at(tmp_path / "a", samples))
    assert "the default was not measured" in out
    assert "nccltune tune" not in err
    assert "next: run again without the forced choice, and nccltune import FILES" in err


def test_several_collectives_are_named(tmp_path: Path, cli: Cli) -> None:
    samples = measure(SIZES, two, noise=0.003)
    samples += measure(SIZES, one, noise=0.003, collective=Collective.ALLGATHER)
    out, err = screen(cli, study_at(tmp_path / "a", samples))
    assert "is right" not in out
    assert "compared   all-reduce, 4 nodes, 4 ranks: with 1 choice" in out
    assert "compared   all-gather, 4 nodes, 4 ranks: with nothing: only the default" in out
    assert "next: nccltune tune" in err


def test_one_timing_each_looks_right_and_shows_nothing(tmp_path: Path, cli: Cli) -> None:
    out, _ = screen(cli, study_at(tmp_path / "a", measure(SIZES, two, rounds=1, twice=False)))
    assert "nothing found" not in out
    assert "1 timing a point: the default looks right, but so few timings cannot show it" in out


def test_a_collective_without_a_tuner_needs_no_tune(tmp_path: Path, cli: Cli) -> None:
    samples = measure(SIZES, one, collective=Collective.ALLTOALL)
    out, err = screen(cli, study_at(tmp_path / "a", samples))
    assert "is right" not in out
    assert "compared   with nothing: NCCL asks no tuner about it" in out
    assert "next: nccltune report" in err
    assert "default    " not in out


def test_a_platform_below_its_limit_leads_to_the_doctor(tmp_path: Path, cli: Cli) -> None:
    large = sizes(1 << 30, 1 << 34)
    slow = measure(large, lambda size: {"default": size / 50e3}, nodes=1, ranks=8)
    study = study_at(tmp_path / "a", slow, gpu="NVIDIA H100 80GB HBM3", gpus=8, nodes=1)
    shutil.copy(DATA / "topologies" / "dgx.xml", Path(study) / "topology.xml")
    out, err = screen(cli, study)
    assert "below expected" in out
    assert "next: nccltune doctor" in err
    assert "nccltune tune" not in err


def falling(size: int) -> dict[str, float]:
    return {"default": 100 + size / 1e5 + (600 if size == 1 << 21 else 0)}


def test_a_time_that_falls_is_serious(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "a", measure(SIZES, falling, noise=0.01))
    out, _ = screen(cli, study)
    assert "falling time          all-reduce, 4 nodes, 4 ranks: 4 MiB takes" in out
    cli("analyze", study, "--check", code=1)


def test_the_smallest_size_is_only_a_bound(tmp_path: Path, cli: Cli) -> None:
    out, _ = screen(cli, study_at(tmp_path / "a", measure(sizes(1 << 30, 1 << 32), one)))
    assert "<= 1 GiB" in out


def test_the_cost_table_says_what_nccl_would_run(tmp_path: Path, cli: Cli) -> None:
    study = study_at(tmp_path / "a", measure(SIZES, one))
    line = {
        "schema_version": 1,
        "collective": "allreduce",
        "nodes": 4,
        "ranks": 4,
        "costs": {"ring/ll": 9.0, "tree/ll": 3.0},
    }
    lines = [msgspec.json.encode({**line, "bytes": size}).decode() for size in SIZES]
    (tmp_path / "a" / "tables.jsonl").write_text("\n".join(lines) + "\n")
    out, _ = screen(cli, study)
    assert "default    ran, by NCCL's cost table: tree/ll" in out


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
