# SPDX-License-Identifier: Apache-2.0
"""Tests of the output of `env` beside outputs of tests."""

from pathlib import Path

import pytest

from nccltune.formats.importing.detect import kind_of
from nccltune.formats.importing.environments import environment_of
from nccltune.formats.reading.file_report import FileKind
from tests.unit.formats.maker import Made, points
from tests.unit.formats.reading_tools import files

WHOLE = "HOME=/root\nBASH_FUNC_ml%%=() {\n  x\n}\nNCCL_NET=AWS Libfabric\nPATH=/bin\nA=1\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (WHOLE, FileKind.ENVIRONMENT),
        ("NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n", FileKind.ENVIRONMENT),
        ("export NCCL_DEBUG=INFO\n", FileKind.ENVIRONMENT),
        ("A=1\nB=2\n", FileKind.UNKNOWN),
        ("a\nb\nc\nd\nHOME=/root\n", FileKind.UNKNOWN),
        ("NCCL_ALGO=Ring\nsrun x\n", FileKind.UNKNOWN),
    ],
)
def test_an_environment_is_known_by_its_lines(text: str, kind: FileKind) -> None:
    assert kind_of(text.encode()) is kind


@pytest.mark.parametrize(
    ("name", "others", "found"),
    [
        ("all_reduce_output.dat.2", ["env.dat.1", "env.dat.2"], "env.dat.2"),
        ("out/run.log", ["out/env.txt"], "out/env.txt"),
        ("out/run.log", ["other/env.txt"], None),
        ("run_3.log", ["env_1.txt", "env_2.txt"], None),
        ("gdr_off.log", ["gdr_on_env.txt", "gdr_off_env.txt"], "gdr_off_env.txt"),
        ("run.log", ["env.txt", "environment.log"], None),
    ],
)
def test_the_environment_of_an_output_has_its_number(
    name: str, others: list[str], found: str | None
) -> None:
    environments = {other: {"NCCL_NET": other} for other in others}
    settings = environment_of(name, environments)
    assert (settings and settings["NCCL_NET"]) == found


def test_settings_of_the_environment_are_those_of_the_run(tmp_path: Path) -> None:
    made = Made(points(1 << 20, 1 << 22)).text()
    for number, network in enumerate(("Socket", "AWS Libfabric"), 1):
        (tmp_path / f"out.dat.{number}").write_text(made)
        (tmp_path / f"env.dat.{number}").write_text(WHOLE.replace("AWS Libfabric", network))
    (tmp_path / "env.dat.3").write_text("NCCL_ALGO=Ring\nNCCL_PROTO=LL\n")
    (tmp_path / "out.dat.3").write_text(made)
    names = [f"{name}.dat.{number}" for number in (1, 2, 3) for name in ("out", "env")]
    reads = dict(zip(names, files(*(tmp_path / name for name in names)), strict=True))
    assert reads["out.dat.3"].labels == {"ring/ll"}
    assert reads["out.dat.1"].labels == {"default"}
    assert reads["env.dat.1"].report.error is None
    assert "output of env" in reads["env.dat.1"].sentence("note")
