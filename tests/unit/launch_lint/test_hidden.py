# SPDX-License-Identifier: Apache-2.0
"""What a line leaves open: variables that hold options, and several programs in one command."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.launch_lint.check import LaunchCheck, check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.words import split
from tests.unit.launch_lint.judged import checked, only, said

TEST = "all_reduce_perf -b 8 -e 8G -f 2"


def shown(text: str) -> LaunchCheck:
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
    found = shown(text)
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
        "mpirun -np 2 -H a,b all_reduce_perf @args@",
        f"docker run --gpus all --ipc=host --env-file nccl.env i {TEST} -g 8",
        f"docker run --env-file=nccl.env --gpus all --ipc=host i {TEST} -g 8",
    ],
)
def test_what_a_variable_may_hold_is_a_note_and_no_fault(text: str) -> None:
    found = shown(text)
    assert not found.is_wrong
    assert found.fixed is None
    assert "options-hidden" in [one.finding.id for one in found.findings]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torchrun $ARGS --nproc-per-node=0 train.py", "torchrun-processes"),
        (f"mpirun $OPTS -x NCCL_ALG=Ring {TEST}", "variable-unknown"),
        ("mpirun -np 16 -N 8 all_reduce_perf -b 8 -e 10G -f 2 $ARGS", "end-not-reached"),
        (f"NCCL_DEBUG=INFO mpirun -np 16 -N 8 {TEST} $ARGS", "env-not-exported"),
    ],
)
def test_what_the_line_shows_is_still_checked(text: str, found: str) -> None:
    judged = shown(text)
    assert found in [one.finding.id for one in judged.findings]
    assert judged.is_wrong


@pytest.mark.parametrize("text", ["torchrun --nproc_per_node 8 $SCRIPT --lr 1", "srun $EXE in.dat"])
def test_a_variable_in_place_of_the_program_is_no_options(text: str) -> None:
    (prediction, _) = shown(text).predictions[0]
    assert prediction.placement is not None


@pytest.mark.parametrize(
    ("text", "processes"),
    [
        (f"mpirun -np 8 -H a:8 {TEST} : -np 4 -H b:8 {TEST}", [8, 4]),
        (f"mpirun -np 1 {TEST} : -np 1 {TEST} : -np 1 {TEST}", [1, 1, 1]),
        (f"mpiexec.hydra -n 8 {TEST} : -n 8 {TEST}", [8, 8]),
        (f"srun -N 1 -n 8 {TEST} : -N 1 -n 4 {TEST}", [8, 4]),
        (f"NCCL_DEBUG=INFO mpirun -x NCCL_DEBUG -H a,b -n 1 {TEST} : -n 1 {TEST}", [1, 1]),
        (f"mpirun -n 1 numactl -N 0 {TEST} : -n 1 numactl -N 1 {TEST} > log", [1, 1]),
        (f"mpirun -n 2 ./a : -n 8 {TEST}", [2, 8]),
    ],
)
def test_each_program_of_a_command_is_checked(text: str, processes: list[int]) -> None:
    found = checked(text)
    predictions = [one.predictions[0][0] for one in found]
    assert [one.processes for one in predictions] == processes
    assert [one.unknown for one in predictions] == [
        f"this is program {number + 1} of {len(found)} of the command"
        for number in range(len(found))
    ]
    assert not any(one.is_wrong for one in found)


def test_faults_of_each_program_are_its_own() -> None:
    one, two = checked(
        f"mpirun -n 1 -x NCCL_ALG=Ring {TEST} : -n 1 all_reduce_perf -b 8 -e 10G -f 2"
    )
    assert [held.finding.id for held in one.findings] == ["variable-unknown"]
    assert [held.finding.id for held in two.findings] == ["end-not-reached"]
    assert one.fixed is two.fixed is None


@pytest.mark.parametrize("text", [f"mpirun -x A=a:b -n 2 {TEST}", f"echo a : b; srun -n 2 {TEST}"])
def test_other_colons_separate_no_programs(text: str) -> None:
    assert only(text).predictions[0][0].placement is not None


@pytest.mark.parametrize(
    "name", ["SLURM_NNODES", "SLURM_NTASKS", "PBS_NP", "OMPI_COMM_WORLD_SIZE", "FLUX_JOB_NNODES"]
)
def test_the_default_of_a_variable_that_a_job_has_is_not_assumed(name: str) -> None:
    assert only(f"srun -n ${{{name}:-8}} {TEST}").predictions[0][0].placement is None
    (one,) = checked(f"#SBATCH -N 4 -n 32\nsrun -n ${{SLURM_NTASKS:-8}} {TEST}")
    placement = one.predictions[0][0].placement
    assert placement.processes == 32
    assert one.predictions[0][0].assumed is None


@pytest.mark.parametrize(
    "script",
    [
        "echo '[rank] starts'\ntorchrun --nproc-per-node=8 t.py",
        'echo "[front-end] $RANK"; torchrun --nproc-per-node=8 t.py',
        "echo <usage>; torchrun --nproc-per-node=8 t.py",
    ],
)
def test_a_text_that_a_script_prints_is_no_placeholder(script: str) -> None:
    quote = '"' if "'" in script else "'"
    (one,) = checked(f"srun -N 1 -n 1 --gpus-per-node=8 bash -c {quote}{script}{quote}")
    assert "placeholder" not in [held.finding.id for held in one.findings]


SLURM = "#!/bin/bash\n#SBATCH -N {} --ntasks-per-node=8 --gres=gpu:8\n"
RDZV = "srun -n 2 torchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d"
POD = """apiVersion: v1
kind: Deployment
metadata: {name: p}
spec: {replicas: 2, template: {spec: {containers: [{name: c, image: i, command: [%s],
  resources: {limits: {nvidia.com/gpu: 2}}}]}}}
"""
ELASTIC = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec: {nprocPerNode: '2', elasticPolicy: {rdzvBackend: c10d}, pytorchReplicaSpecs: {Worker: {
  replicas: 2, template: {spec: {containers: [{name: pytorch, image: i, command: [torchrun, t.py],
  resources: {limits: {nvidia.com/gpu: 2}}}]}}}}}
"""
DEVICE = "Rank 0 Group 0 Pid {} on n{} device 0 [0x1a] NVIDIA H100\n"
SLOTS = "There are not enough slots\nthat were requested by the application:\n  ./all_reduce_perf\n"


@pytest.mark.parametrize(
    ("text", "expected", "absent"),
    [
        (SLURM.format(2) + f"i=$(srun -N1 -n1 hostname -i)\n{RDZV} --rdzv_endpoint $i:1 t.py",
         "note torchrun-endpoint", "error"),
        (SLURM.format(2) + f"{RDZV} --rdzv_endpoint 127.0.1.1:1 t.py", "error torchrun", "note"),
        (f"{RDZV[10:]} --master_addr=h --master_port=9 t.py", "add --rdzv-endpoint=h:9", "HOST"),
        (SLURM.format(1) + "bash tool.sh", "Lightning does, and tool.sh has no srun of its", "2"),
        (SLURM.format(1) + "bash one.sh", "if one.sh or a.py waits for 8 tasks", "no srun"),
        (SLURM.format(2) + "N=3\nbash srun.sh 4", "4 processes, 2 on each of 2 nodes", "error"),
        (SLURM.format(2) + "srun python t.py --distributed-world-size 2", "note world-size", "err"),
        (SLURM.format(2) + "srun -n 4 python t.py --world-size 2", "4 processes", "world-size"),
        (SLURM.format(2) + "srun --accel-bind=gn python t.py", "leave out --accel-bind", "by node"),
        ("CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node=2 t.py", "note not-exp", "warning"),
        ("CUDA_VISIBLE_DEVICES=0 ./a\ntorchrun --nproc_per_node=2 t.py", "2 processes", "not-exp"),
        (f"```\nmpirun -H a:8 -np 8 {TEST}\n{SLOTS}```\n", "8 processes, all on a", "1 process"),
        (f"mpirun -n 2 -H a,b {TEST}\n{DEVICE.format(1, 1)}{DEVICE.format(2, 1)}", "2 starts of",
         "one-rank"),
        (POD % '"torchrun --nproc_per_node=2 t.py"', "error no-shell", "idle"),
        (POD % "vllm, serve, m", "note idle-gpus", "pod-shm"),
        (POD % "vllm, serve, m, -tp, '2'", "warning pod-shm", "idle"),
        (POD % "mpirun, -np, '2', gpu_burn", "2 processes", "pod-shm"),
        (POD % "mpirun, nvbandwidth, -t, multinode_a", "note pod-imex", "pod-shm"),
        (POD % "mpirun, -np, '2', ./unknown", "note pod-shm", "warning"),
        (ELASTIC, "write nProcPerNode: 2 into elasticPolicy", "error"),
        (ELASTIC.replace("c10d", "c10d, nProcPerNode: 2"), "warning pod-shm", "into elasticPolicy"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_file(text: str, expected: str, absent: str, tmp_path: Path) -> None:
    (tmp_path / "one.sh").write_text("python a.py\nbash one.sh\n")
    (tmp_path / "srun.sh").write_text("srun -n ${N:-$1} python t.py\nbash srun.sh 4\n")
    (tmp_path / "job").write_text(text)
    (launch,) = lint(LintRequest([str(tmp_path / "job")])).launches
    found = [*launch.findings, *(held.finding for one in launch.commands for held in one.findings)]
    shown = [f"{one.severity.value} {one.id} {one.message} {one.fix}" for one in found]
    text = "\n".join([*shown, *map(said, launch.commands)])
    assert expected in text
    assert absent not in text
