# SPDX-License-Identifier: Apache-2.0
"""Inputs of people, and what is right about each."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintedLaunch, LintRequest, lint
from nccltune.cli import run

FIELD = Path(__file__).parents[2] / "data" / "field"


def linted(name: str) -> LintedLaunch:
    (launch,) = lint(LintRequest([str(FIELD / name)])).launches
    return launch


def ranks(launch: LintedLaunch) -> int:
    (judged,) = launch.commands
    ((prediction, _),) = judged.predictions
    assert prediction.placement is not None
    return prediction.placement.ranks


def test_options_of_pyxis_are_right() -> None:
    launch = linted("log-14-pyxis-options/job.sbatch")
    assert not launch.is_bad
    assert launch.commands[0].findings == ()
    assert ranks(launch) == 16


def test_a_fixed_line_does_not_quote_a_substitution() -> None:
    (judged,) = linted("log-15-fixed-line-quotes-a-substitution/job.sbatch").commands
    assert [held.finding.id for held in judged.findings] == ["end-not-reached"]
    assert judged.fixed == (
        'srun --mpi=pmix --container-image="$IMG" /opt/nccl_tests/build/all_reduce_perf'
        " -b 1G -e 8G -f 2 -g 1"
    )


def test_nics_are_no_gpus() -> None:
    launch = linted("log-16-nic-resource-counted-as-gpu/mpijob.yaml")
    assert not launch.is_bad
    assert launch.findings == []
    assert ranks(launch) == 16


def test_the_number_of_ranks_from_the_operators_hostfile() -> None:
    launch = linted("log-24-number-of-ranks-in-the-shell/mpijob.yaml")
    assert not launch.is_bad
    assert ranks(launch) == 16
    (prediction, _) = launch.commands[0].predictions[0]
    assert prediction.assumed == "/etc/mpi/hostfile has a line for each of 2 workers"


def test_signs_within_a_list_of_devices_and_a_slash_before_a_port() -> None:
    folder = FIELD / "log-18-hca-list-with-two-carets"
    for name, right in (
        ("command.txt", "NCCL_IB_HCA='^=mlx5_8,mlx5_14' srun"),
        ("command2.txt", "-x NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 all_reduce_perf"),
    ):
        (launch,) = lint(LintRequest([(folder / name).read_text()])).launches
        (judged,) = launch.commands
        assert [held.finding.id for held in judged.findings] == ["hca"]
        assert judged.fixed is not None
        assert right in judged.fixed


def test_a_tuner_file_of_a_spreadsheet(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIELD / "log-23-excel-tuner-file" / "tuner.conf")
    (configuration,) = lint(LintRequest([path])).configurations
    (issue,) = configuration.issues
    assert "columns are separated by semicolons; commas are needed" in issue.message
    assert run(["lint", path]) == 1
    assert run(["explain", path, "--nodes", "2", "--ranks", "16"]) == 2
    assert "semicolons" in capsys.readouterr().err
