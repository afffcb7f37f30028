# SPDX-License-Identifier: Apache-2.0
"""Variables of a line that hold options or arguments which the text does not show."""

import pytest

from nccltune.launch_lint.check import LaunchCheck, check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.words import split

TEST = "all_reduce_perf -b 8 -e 8G -f 2"


def checked(text: str) -> LaunchCheck:
    (line,) = split(text)
    return check(line, LaunchContext(nodes=2))


@pytest.mark.parametrize(
    "text",
    [
        "torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS",
        'torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py',
        "torchrun ${TORCHRUN_OPTS} --nnodes=2 train.py",
        "torchrun $X --nproc-per-node=8 train.py",
        "python -m torch.distributed.run $LAUNCH_PARAMS train.py",
        "deepspeed $DS_ARGS train.py",
        "deepspeed $HOSTS train.py --deepspeed",
        "accelerate launch $ACCELERATE_FLAGS train.py",
        "srun $SRUN_ARGS python train.py",
        "srun $A $B bash run.sh",
        f"srun $OPTIONS {TEST}",
        f"mpirun $(cat options) {TEST}",
        f"mpirun `options` --bind-to none {TEST}",
        f"flux run $OPTS {TEST}",
        f"jsrun $JSRUN_OPTS {TEST}",
        f"aprun $OPTS {TEST}",
    ],
)
def test_hidden_options_are_not_counted_as_missing(text: str) -> None:
    found = checked(text)
    ((prediction, _), *_) = found.predictions
    assert prediction.placement is None
    assert "are not known here" in (prediction.unknown or "")
    assert not found.is_wrong
    assert found.fixed is None


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nnodes=2 --nproc-per-node=8 $RDZV_ARGS train.py",
        "torchrun --nnodes=2 --nproc-per-node=8 --master-addr=a $MORE train.py",
        "srun -N 2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=8 $RDZV_ARGS train.py",
        f"sudo mpirun $OPTS -np 16 -N 8 {TEST}",
        f"NCCL_DEBUG=INFO mpirun $OPTS -np 16 -N 8 {TEST}",
        f"mpirun $OPTS -np 2 -N 1 {TEST} -g 8",
        f"mpirun -np 16 -N 8 $(sed 's/^/-x /' my.env) {TEST}",
        "mpirun -np 16 -N 8 all_reduce_perf $ARGS",
        "mpirun -np 16 -N 8 all_reduce_perf -b 8 ${ARGS}",
        'mpirun -np 16 -N 8 all_reduce_perf -b 8 -e 8G "${ARGS[@]}"',
        "mpirun -np 16 -N 8 all_reduce_perf -D 1 -b 8 -e 8G -f 2 $ARGS",
        "mpirun -np 16 -N 8 -x NCCL_CTA_POLICY=ZERO all_gather_perf -b 8 -e 8G -f 2 $ARGS",
        "all_reduce_perf $ARGS",
    ],
)
def test_what_a_variable_may_hold_is_a_note_and_no_fault(text: str) -> None:
    found = checked(text)
    assert not found.is_wrong
    assert found.fixed is None
    assert "options-hidden" in [one.finding.id for one in found.findings]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torchrun $ARGS --nproc-per-node=16 train.py", "too-many-gpus"),
        (f"mpirun $OPTS -x NCCL_ALG=Ring {TEST}", "variable-unknown"),
        ("mpirun -np 16 -N 8 all_reduce_perf -b 8 -e 10G -f 2 $ARGS", "end-not-reached"),
        (f"NCCL_DEBUG=INFO mpirun -np 16 -N 8 {TEST} $ARGS", "env-not-exported"),
    ],
)
def test_what_the_line_shows_is_still_checked(text: str, found: str) -> None:
    judged = checked(text)
    assert found in [one.finding.id for one in judged.findings]
    assert judged.is_wrong


@pytest.mark.parametrize("text", ["torchrun --nproc_per_node 8 $SCRIPT --lr 1", "srun $EXE in.dat"])
def test_a_variable_in_place_of_the_program_is_no_options(text: str) -> None:
    (prediction, _) = checked(text).predictions[0]
    assert prediction.placement is not None
