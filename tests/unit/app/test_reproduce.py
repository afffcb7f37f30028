# SPDX-License-Identifier: Apache-2.0
"""The commands that measure a study again and that prove its rules."""

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.app.reproduce import measure_again
from nccltune.app.tune import verify_command
from nccltune.measure.engine.record import Summary
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.rule import RuleState
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup, TuneOptions, Tuning
from tests.unit.builders import measure, rule, sizes, study_of

PLAIN = Platform(name="x", nodes=4)


def study_at(path: Path, platform: Platform, command: str | None = None) -> Study:
    """Return a study of all-reduce, 1 KiB to 64 KiB, 4 nodes, that `command` has swept."""
    study = study_of(path, measure(sizes(1 << 10, 1 << 16), {"default": 10.0}), platform)
    if command is not None:
        summary = Summary(
            reason="done",
            points=9,
            known=0,
            failed=0,
            seconds=1.0,
            gain_left=None,
            replay=None,
            command=command,
        )
        study.write_json(path / "sweep.json", summary)
    return study


def again(study: Study, *options: str, proven: bool = False) -> str:
    found = sort_samples(study.samples())
    return measure_again(study, found, options, proven=proven).command


def test_a_sweep_is_measured_again_by_its_own_command_into_a_new_study(tmp_path: Path) -> None:
    command = f"nccltune sweep --output {tmp_path}/x --sizes 1K-64K --emulate-nodes 4"
    study = study_at(tmp_path / "x", PLAIN, command)
    new = f"{tmp_path}/x-again"
    assert again(study) == (
        f"nccltune sweep --output {new} --sizes 1K-64K --emulate-nodes 4 && nccltune tune {new} && "
        f"nccltune report {new}"
    )
    assert f"nccltune tune {new} --min-gain 5% && nccltune verify {new} &&" in again(
        study, "--min-gain 5%", proven=True
    )


def test_auto_needs_no_further_command(tmp_path: Path) -> None:
    study = study_at(tmp_path / "my x", PLAIN, "nccltune auto --gpus 4")
    assert shlex.split(again(study, proven=True)) == [
        *("nccltune", "auto", "--output", f"{tmp_path}/my x-again", "--gpus", "4")
    ]


def test_a_program_keeps_its_own_options(tmp_path: Path) -> None:
    study = study_at(tmp_path / "x", PLAIN, "nccltune sweep --gpus 2 -- all_reduce_perf -o sum")
    assert again(study).startswith(
        f"nccltune sweep --output {tmp_path}/x-again --gpus 2 -- all_reduce_perf -o sum && "
    )


def test_an_existing_study_is_not_overwritten(tmp_path: Path) -> None:
    study = study_at(tmp_path / "x", PLAIN, "nccltune auto")
    (tmp_path / "x-again").mkdir()
    assert again(study) == f"nccltune auto --output {tmp_path}/x-again-2"


def test_settings_in_force_are_set_again(tmp_path: Path) -> None:
    platform = replace(PLAIN, settings={"NCCL_IB_HCA": "mlx5_0,mlx5_1;x"})
    study = study_at(tmp_path / "x", platform, "nccltune auto")
    assert (
        again(study) == f"NCCL_IB_HCA='mlx5_0,mlx5_1;x' nccltune auto --output {tmp_path}/x-again"
    )


@pytest.mark.parametrize(
    ("platform", "options"),
    [
        (PLAIN, "--launcher NAME --nodes 4 --gpus 1"),
        (replace(PLAIN, emulated_nodes=True), "--emulate-nodes 4"),
        (replace(PLAIN, emulated_nodes=True, ranks_per_gpu=4, mps=True), "--ranks-per-gpu 4 --mps"),
        (
            replace(PLAIN, emulated_nodes=True, replay="h200x4-as-4-nodes"),
            "--replay h200x4-as-4-nodes",
        ),
    ],
)
def test_imported_timings_are_measured_by_a_sweep_over_the_same_sizes(
    tmp_path: Path, platform: Platform, options: str
) -> None:
    study = study_at(tmp_path / "x", platform)
    command = (
        f"nccltune auto --output {tmp_path}/x-again --collectives allreduce --sizes 1K-64K "
        f"{options}"
    )
    assert again(study) == command
    assert again(study, "--min-gain 5%") == f"{command} --min-gain 5%"


@pytest.mark.parametrize("command", ["", "make sweep", "nccltune 'auto"])
def test_a_command_that_is_none_of_ours_is_not_offered(tmp_path: Path, command: str) -> None:
    study = study_at(tmp_path / "x", PLAIN, command)
    assert again(study).startswith(f"nccltune auto --output {tmp_path}/x-again --collectives")


def test_every_command_is_accepted_by_the_command_line(tmp_path: Path) -> None:
    from nccltune.cli.auto import command as auto

    for platform in (PLAIN, replace(PLAIN, emulated_nodes=True)):
        study = study_at(tmp_path / str(platform.emulated_nodes), platform)
        words = shlex.split(again(study))
        assert auto.make_context("auto", words[2:]).params["path"] is not None


X = (
    "-x NCCL_TUNER_PLUGIN -x NCCL_TUNER_CONFIG_FILE -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS "
    "-x NCCL_DEBUG_FILE"
)


def filled(kind: type[Any], **known: Any) -> Any:
    """A struct whose other required fields have a value that nobody reads."""
    needed = {field.name for field in msgspec.structs.fields(kind) if field.required}
    return kind(**dict.fromkeys(needed, None) | known)


def group(
    sizes: list[int],
    collective: Collective = Collective.ALLREDUCE,
    scale: Scale = Scale(1, 8),  # noqa: B008 - immutable
    *,
    state: RuleState = RuleState.CANDIDATE,
    registered: bool | None = None,
) -> TunedGroup:
    more = {"collective": collective, "nodes": scale.nodes, "ranks": scale.ranks}
    covering = rule(sizes[0], sizes[-1], **more)
    found: TunedGroup = filled(
        TunedGroup,
        collective=collective,
        scale=scale,
        registered=registered,
        rules=[filled(RuleEvidence, rule=covering, state=state)],
        decisions=[filled(Decision, bytes=size) for size in sizes],
        left_alone=[],
    )
    return found


GATHER = Collective.ALLGATHER


@pytest.mark.parametrize(
    ("groups", "programs"),
    [
        ([group([1024, 2048, 4096])], ["mpirun -n 8 all_reduce_perf -b 1K -e 4K -f 2 -g 1"]),
        ([group([1024, 16384])], ["mpirun -n 8 all_reduce_perf -b 1K -e 16K -f 16 -g 1"]),
        # No factor gives all of these: the nearest steps do.
        ([group([1000, 1500, 9000])], ["mpirun -n 8 all_reduce_perf -b 1000 -e 9000 -f 2 -g 1"]),
        ([group([1 << 30])], ["mpirun -n 8 all_reduce_perf -b 1G -e 1G -f 2 -g 1"]),
        (
            [group([8, 16], scale=Scale(2, 16))],
            [f"mpirun -n 16 -H HOSTS {X} all_reduce_perf -b 8 -e 16 -f 2 -g 1"],
        ),
        (
            [group([8, 16], registered=True)],
            ["mpirun -n 8 all_reduce_perf -b 8 -e 16 -f 2 -g 1 -R 1"],
        ),
        (
            [group([8, 16]), group([8, 16]), group([8, 16], GATHER)],
            [
                "mpirun -n 8 all_reduce_perf -b 8 -e 16 -f 2 -g 1",
                "mpirun -n 8 all_gather_perf -b 8 -e 16 -f 2 -g 1",
            ],
        ),
        (
            [group([8, 16], state=RuleState.PROVEN), group([8, 16], GATHER)],
            ["mpirun -n 8 all_gather_perf -b 8 -e 16 -f 2 -g 1"],
        ),
    ],
)
def test_imported_rules_are_proven_by_nccl_tests(
    tmp_path: Path, groups: list[TunedGroup], programs: list[str]
) -> None:
    study = Study.create(tmp_path / "s")
    tuning = filled(Tuning, groups=groups, options=TuneOptions(workload=("my traces", "b")))
    command = f"nccltune verify {study.path}"
    assert verify_command(study, tuning) == f"{command} --workload 'my traces' --workload b"
    study.imports_path.touch()
    assert verify_command(study, tuning) == " && ".join(f"{command} -- {one}" for one in programs)
    settings = {"NCCL_IB_HCA": "mlx5", "NCCL_ALGO": "Ring"}
    study.write_json(study.platform_path, Platform(name="s", settings=settings))
    under = verify_command(study, tuning)
    assert under.count(" -x NCCL_IB_HCA=mlx5 all_") == len(programs)
    assert "NCCL_ALGO" not in under
