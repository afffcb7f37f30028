# SPDX-License-Identifier: Apache-2.0
"""Options of srun and sbatch, and those that plugins add."""

import pytest

from nccltune.launch_lint.options import SLURM, TABLES
from nccltune.model.finding import Severity
from tests.unit.launch_lint.judged import only

REST = "all_reduce_perf -b 1G -e 8G -f 2 -g 1"
SRUN = "srun -N 2 --ntasks-per-node=8 --gpus-per-node=8"


@pytest.mark.parametrize(
    "option",
    [
        "--container-save=x",
        "--container-readonly",
        "--container-entrypoint",
        "--no-container-entrypoint",
        "--no-container-remap-root",
        "--container-image nvcr.io#nvidia/pytorch:26.01-py3",
        "--tres-bind=gres/gpu:none",
        "--segment=16",
        "--resv-ports",
        "--resv-ports=4",
        "--exclusive=user",
        "-K1",
        "-I30",
        "-K",
        "--kill-on-bad-exit=1",
        "--wait-for-children",
        "--tasks-per-node 8",
        "--cpu-bin=none",
        "--het-group=0",
        "-pgpu",
    ],
)
def test_options_of_slurm_and_pyxis_have_no_finding(option: str) -> None:
    judged = only(f"{SRUN} {option} {REST}")
    assert judged.findings == ()
    ((prediction, _),) = judged.predictions
    assert prediction.placement is not None
    assert prediction.placement.processes == 16
    name = option.split()[0].partition("=")[0]
    if name.startswith("--"):
        assert only(f"#SBATCH {option}\n{SRUN} {REST}").findings == ()


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("--made-up", None),
        ("--made-up=3", None),
        ("--made-up 3", None),
        ("--no-cpu-bind", None),
        ("--ntask-per-node=8", "--ntasks-per-node"),
    ],
)
@pytest.mark.parametrize("where", ["srun", "sbatch"])
def test_an_unknown_long_option_is_a_note_without_a_fix(
    option: str, near: str | None, where: str
) -> None:
    text = f"{SRUN} {option} {REST}" if where == "srun" else f"#SBATCH {option}\n{SRUN} {REST}"
    judged = only(text)
    (held,) = judged.findings
    assert held.finding.severity is Severity.NOTE
    assert held.finding.id == "option-unlisted"
    assert "a SPANK plugin may add it" in held.finding.message
    assert held.finding.fix == ""
    assert judged.fixed is None
    assert ("The nearest known name" in held.finding.message) == (near is not None)
    assert judged.predictions[0][0].placement is not None


@pytest.mark.parametrize(
    "option", ["-ppn 8", "--map-by ppr:8:node", "-Y", "--allow-run-as-root", "-genv A b"]
)
def test_an_option_of_another_launcher_is_an_error(option: str) -> None:
    judged = only(f"{SRUN} {option} {REST}")
    assert "option-unknown" in {held.finding.id for held in judged.findings}


def test_every_name_is_written_once_and_with_its_words() -> None:
    for table in TABLES.values():
        assert all(name and not name.startswith("-") for name in table)
    assert TABLES[SLURM]["container-mounts"].words == 1
    assert TABLES[SLURM]["exclusive"].is_optional
    assert TABLES[SLURM]["tasks-per-node"].meaning == "per_node"


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("srun -N 1 -n 8 --mpi=pmix --gpus-per-task=1", 8),
        ("srun -N 2 --ntasks-per-node=4 --gpus-per-task=a100:1", 4),
        ("srun -N 2 --ntasks-per-node=8 --gpus-per-node=8 --gpu-bind=single:1", 8),
        ("#SBATCH --gpus-per-task=1\nsrun -N 2 --ntasks-per-node=8", 8),
    ],
)
def test_a_process_that_sees_its_own_gpu_only_is_noted(command: str, gpus: int) -> None:
    judged = only(f"{command} {REST}")
    (held,) = [one for one in judged.findings if one.finding.id == "task-gpus-bound"]
    assert held.finding.severity is Severity.NOTE
    assert f"--gpus-per-node={gpus} --gpu-bind=none" in held.finding.fix
    assert not only(f"{command} --gpu-bind=none {REST}").findings


@pytest.mark.parametrize("where", ["srun", "sbatch"])
def test_an_image_has_its_own_paths(where: str) -> None:
    image = "--container-image=a#b"
    head, own = ("", image) if where == "srun" else (f"#SBATCH {image}\n", "")
    judged = only(f"{head}{SRUN} --export=NCCL_DEBUG=INFO {own} {REST}")
    (held,) = [one for one in judged.findings if one.finding.id == "export-drops"]
    assert held.finding.severity is Severity.NOTE
    assert "PATH" not in held.finding.message
    assert not judged.is_wrong


@pytest.mark.parametrize("value", ["^=mlx5_0,^=mlx5_1", "mlx5_0,mlx5_1", "=mlx5_0,=mlx5_1"])
def test_a_comma_ends_a_value_of_export(value: str) -> None:
    judged = only(f"{SRUN} --export=ALL,NCCL_IB_HCA={value} {REST}")
    assert "export-comma" in {held.finding.id for held in judged.findings}
    if judged.fixed is not None:
        assert not only(judged.fixed).is_wrong
