# SPDX-License-Identifier: Apache-2.0
"""The command that proves the rules of a tuning."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nccltune.app.tune import verify_command
from nccltune.model.collective import Collective
from nccltune.model.rule import RuleState
from nccltune.model.scale import Scale
from nccltune.study.files import Study
from nccltune.tune.result import Decision, RuleEvidence, TunedGroup, TuneOptions, Tuning
from tests.unit.builders import rule

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
            [f"mpirun -n 16 {X} all_reduce_perf -b 8 -e 16 -f 2 -g 1"],
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
