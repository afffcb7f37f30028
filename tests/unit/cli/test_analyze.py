# SPDX-License-Identifier: Apache-2.0
"""`nccltune analyze`: what was compared, what NCCL ran, and a next step that leads on."""

import shutil
from pathlib import Path

import msgspec

from nccltune.model.collective import Collective
from nccltune.model.sample import Sample
from tests.unit.builders import measure, sizes, study_of
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
    assert "default    what it ran is unknown: no line of NCCL's log is known to state it" in out
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
