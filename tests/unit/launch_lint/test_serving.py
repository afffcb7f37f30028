# SPDX-License-Identifier: Apache-2.0
"""Servers of models as launches, and the commands for the nodes of one job."""

import textwrap
from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, LintResult, lint
from nccltune.cli import run
from nccltune.launch_lint.peers import judge_copies, judge_ray
from nccltune.launch_lint.starts import starts
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity


def checked(text: str, tmp_path: Path, name: str = "job.txt", **asked: int) -> LintResult:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return lint(LintRequest([str(path)], **asked))


def started(linted: LintResult) -> list[str]:
    return [
        starts(one.predictions[0][0], one.gpus)
        for launch in linted.launches
        for one in launch.commands
    ]


def found(linted: LintResult, *, notes: bool = False) -> list[str]:
    launches = linted.launches
    findings = [held.finding for x in launches for one in x.commands for held in one.findings]
    findings += [finding for launch in launches for finding in launch.findings]
    return [one.id for one in findings if notes or one.severity is not Severity.NOTE]


ONE = "4 processes, all on one node, 1 GPU each = 4 ranks"
TWO = "16 processes, 8 on each of 2 nodes, 1 GPU each = 16 ranks"
RAY = "16 processes, 1 GPU each = 16 ranks; on which nodes is not known: Ray places them"
SGLANG = "python3 -m sglang.launch_server --model-path m --tp 16 --nnodes 2 --node-rank"
DOCKER = "docker run --gpus all --ipc=host"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm serve m --tensor-parallel-size 4 --port 8000", ONE),
        ("CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve m -tp=2 -pp 2 --gpu-memory-utilization 0.9", ONE),
        ("python -m vllm.entrypoints.openai.api_server --model m --tensor_parallel_size=4", ONE),
        ("python -m dynamo.vllm --model m --tensor-parallel 4 --endpoint a", ONE),
        (f"{DOCKER} vllm/vllm-openai:v0.11.0 org/m --tensor-parallel-size 4", ONE),
        (f"{DOCKER} --entrypoint bash vllm/vllm-openai -c 'vllm serve m -tp 4'", ONE),
        ("vllm serve m -dp 16 -dpl 8 --data-parallel-address 10.0.0.1", TWO),
        (f"{SGLANG} 0 --nccl-init 10.0.0.1:20000", TWO),
        (f"{SGLANG} $RANK --dist-init-addr $HEAD --enable-dp-attention --dp-size 16", TWO),
        ("sglang serve --model-path m --tp 2 --dp 2", ONE),
        ("vllm serve m -tp 8 -pp 2 --distributed-executor-backend ray", RAY),
        ("ray start --head\nvllm serve m -tp 8 -pp 2 --distributed-executor-backend=ray", RAY),
        ("vllm serve m -dp 2 -dpn 0", "2 processes, 1 GPU each = 2 ranks; on which nodes is not"),
        ("vllm serve m -tp 8 -dp 2", "16 processes, 1 GPU each = 16 ranks; on which nodes is not"),
        ("vllm serve m -tp $TP", "not known: the number of tensor parallel ranks is '$TP'"),
        ("vllm serve m $VLLM_ARGS", "not known: the options in $VLLM_ARGS are not known here"),
    ],
)
def test_what_a_server_starts(text: str, expected: str, tmp_path: Path) -> None:
    linted = checked(text, tmp_path)
    assert [one.startswith(expected) for one in started(linted)] == [True]
    assert not linted.is_bad


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{DOCKER} vllm/vllm-openai vllm serve m -tp 2", ["server-entrypoint"]),
        ("docker run --gpus '\"device=0,1\"' --ipc=host vllm/vllm-openai m -tp 4",
         ["container-gpus"]),
        ("docker run --gpus all vllm/vllm-openai m -tp 4", ["container-shm"]),
        (f"{DOCKER} vllm/vllm-openai --shm-size 9g --model m -tp 4", ["container-image"]),
        (f"{DOCKER} lmsysorg/sglang {SGLANG} 0 --dist-init-addr a:1", ["container-network"]),
        ("vllm serve m -tp 16 --nnodes 2", ["server-address", "server-rank"]),
        ("vllm serve m -tp 16 --nnodes 2 --node-rank 2 --master-addr a", ["server-rank"]),
        ("vllm serve m -tp 16 --nnodes 2 --node-rank 1 --master-addr ::1", ["server-address"]),
        (f"{SGLANG} 1 --dist-init-addr 10.0.0.1", ["server-address"]),
        (f"{SGLANG.replace('16', '15')} 0 --dist-init-addr a:1", ["launch-refused"]),
        (f"#SBATCH -N 2 --gres=gpu:4 --ntasks-per-node=1\nsrun {SGLANG} $R --dist-init-addr a:1",
         ["too-many-gpus"]),
    ],
)  # fmt: skip
def test_what_keeps_a_server_from_starting(text: str, expected: list[str], tmp_path: Path) -> None:
    assert found(checked(text, tmp_path)) == expected


def test_gpus_of_a_pod_and_of_a_service(tmp_path: Path) -> None:
    deployment = """
        apiVersion: apps/v1
        kind: Deployment
        spec:
          template:
            spec:
              containers:
              - image: vllm/vllm-openai:v0.10.0
                args: [--model, m, --tensor-parallel-size, "4"]
                resources: {limits: {nvidia.com/gpu: GPUS}}
                volumeMounts: [{mountPath: /dev/shm, name: shm}]
              volumes: [{name: shm, emptyDir: {medium: Memory}}]
        """
    assert found(checked(deployment.replace("GPUS", "4"), tmp_path, "a.yaml")) == []
    assert found(checked(deployment.replace("GPUS", "2"), tmp_path, "b.yaml")) == ["server-nodes"]
    service = """
        services:
          a:
            image: vllm/vllm-openai:v0.9.2
            runtime: nvidia
            ipc: host
            environment: ["NVIDIA_VISIBLE_DEVICES=SHOWN"]
            command: --model m --tensor-parallel-size 4
        """
    right = checked(service.replace("SHOWN", "0,1,2,3"), tmp_path, "c.yaml")
    assert (started(right), found(right)) == ([ONE], [])
    assert found(checked(service.replace("SHOWN", "0,1"), tmp_path)) == ["container-gpus"]


TORCHRUN = "torchrun --nnodes=2 --nproc_per_node=8 --master_addr={} --node_rank={} t.py"


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ([TORCHRUN.format("10.0.0.1", 0), TORCHRUN.format("10.0.0.1", 1)], []),
        ([TORCHRUN.format("localhost", 0), TORCHRUN.format("10.0.0.1", 1)], []),
        ([TORCHRUN.format("10.0.0.1", 0), TORCHRUN.format("head", 1)], []),
        ([TORCHRUN.format("head", 0), TORCHRUN.format("head.cluster", 1)], []),
        ([TORCHRUN.format("10.0.0.1", 0), TORCHRUN.format("10.0.0.2", 1)], ["peers-address"]),
        ([TORCHRUN.format("10.0.0.1", 0), TORCHRUN.format("10.0.0.2", 0)], ["peers-rank"]),
        ([f"{SGLANG} 0 --dist-init-addr a:1", f"{SGLANG} 0 --dist-init-addr b:1 --port 2"], []),
        ([f"{SGLANG} 0 --dist-init-addr a:1", f"{SGLANG} 0 --dist-init-addr b:1"], ["peers-rank"]),
        # Another attempt, with a port.
        ([TORCHRUN.format("a", 0), TORCHRUN.format("a --master_port 12", 0)], []),
        # One example of two jobs, each with its first node.
        ([TORCHRUN.format("a", 0), TORCHRUN.format("a", 0).replace("t.py", "u.py")], []),
        ([f"{SGLANG} 0 --dist-init-addr a:5000", f"{SGLANG} 1 --dist-init-addr a:5000"], []),
        (
            [f"{SGLANG} 0 --dist-init-addr a:5000", f"{SGLANG} 1 --dist-init-addr a:5001"],
            ["peers-address"],
        ),
        (
            [
                f"vllm serve m --nnodes 2 --node-rank {n} --master-addr a -tp {8 * n + 8}"
                for n in (0, 1)
            ],
            ["peers-sizes"],
        ),
        (["./run_cluster.sh image a --worker /hf -e VLLM_HOST_IP=a"], ["peers-host-ip"]),
        ([f"# node {n}\n{TORCHRUN.format('a', r)}" for n, r in ((1, 0), (2, 0))], ["peers-rank"]),
        ([f"# node {n}\n{TORCHRUN.format('a', r)}" for n, r in ((1, 0), (2, 1))], []),
        ([f"# node {n}\n{TORCHRUN.format('a', r)}" for n, r in ((1, 0), (1, 0))], []),
        (["./run_cluster.sh image 10.0.0.1 --worker /hf -e VLLM_HOST_IP=10.0.0.2"], []),
    ],
)
def test_the_commands_of_a_job_fit_together(
    commands: list[str], expected: list[str], tmp_path: Path
) -> None:
    text = "\n".join([*commands, "vllm serve m -tp 8 -pp 2 --distributed-executor-backend ray"])
    assert found(checked(text, tmp_path)) == expected


def test_nodes_of_one_rank_that_meet_at_several_addresses_are_shown_both(tmp_path: Path) -> None:
    text = "\n".join(TORCHRUN.format(master, 0) for master in ("localhost", "10.0.0.2"))
    (finding,) = checked(text, tmp_path).launches[0].findings
    assert finding.message.endswith("--node_rank=0, and meet at localhost and 10.0.0.2")


def test_a_configuration_of_accelerate_is_a_launch(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nmachine_rank: RANK\nmain_process_ip: 10.0.0.1\n"
    text += "num_machines: 2\nnum_processes: 16\n"
    right = checked(text.replace("RANK", "1"), tmp_path, "default_config.yaml")
    assert (started(right), found(right)) == ([TWO], [])
    assert found(checked(text.replace("RANK", "2"), tmp_path, "x.yaml")) == ["accelerate-rank"]


@pytest.mark.parametrize(
    "text",
    [
        "num_processes: 300000\n",
        "dataset:\n  num_processes: 8\nnum_machines: 1\n",
        "num_machines: 2\nmachine_rank: 0\ndist_url: tcp://a:1\n",
        "num_processes: 8\nmixed_precision: bf16\ndebug: no\n",
    ],
)
def test_numbers_of_other_programs_are_no_configuration(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match="is of no known kind"):
        lint(LintRequest([str(tmp_path / "c.yaml")]))


def test_another_launcher_does_not_read_a_configuration(tmp_path: Path) -> None:
    rows = "num_machines: 2\nnum_processes: 16\nmain_process_ip: a\n"
    assert len(started(checked(f"srun -N 2 -n 16 python t.py\n\n{rows}", tmp_path, "a.md"))) == 1


def test_one_of_several_files_need_not_have_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("srun -n 2 all_reduce_perf -b 8 -e 8M -f 2\n")
    (tmp_path / "b.sh").write_text("#!/bin/sh\necho done\n")
    linted = lint(LintRequest([str(tmp_path / "a.txt"), str(tmp_path / "b.sh")]))
    assert [bool(launch.commands) for launch in linted.launches] == [True, False]
    assert linted.launches[1].findings[0].message.startswith("not checked: ")
    (tmp_path / "c.yaml").write_text("kind: Pod\napiVersion: v1\nspec: {a: [1\n")
    with pytest.raises(InputError, match="YAML"):
        lint(LintRequest([str(tmp_path / "a.txt"), str(tmp_path / "c.yaml")]))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("FI_EFA_MTU_SIZE=8192", "efa-refused"),
        ("FI_EFA_TX_MIN_CREDITS=0", "efa-refused"),
        ("FI_OFI_RXR_RX_COPY_OOO=1", "efa-not-needed"),
        ("VLLM_HOST_IP=0.0.0.0", "server-host-ip"),
        ("FI_EFA_TX_MIN_CREDITS=64 VLLM_HOST_IP=10.0.0.4", None),
    ],
)
def test_variables_of_libfabric_and_vllm(
    variables: str, expected: str | None, tmp_path: Path
) -> None:
    options = " ".join(f"-x {one}" for one in variables.split())
    text = f"mpirun -np 2 -H a:1,b:1 -x NCCL_DEBUG=INFO {options} all_reduce_perf -b 8 -e 8M -f 2"
    assert found(checked(text, tmp_path), notes=True) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--tres-per-task=gres/gpu:a100:1 --tres-bind=gres/gpu:per_task:1", ["task-gpus-bound"]),
        ("--tres-per-task=gres/gpu:a100:1 --tres-bind=gres/gpu:none", []),
        ("--tres-per-task=cpu=4", []),
        ("--gpus-per-task=4", ["idle-gpus"]),
        ("--gpus-per-task=4 --gpu-bind=none", []),
    ],
)
def test_gpus_that_slurm_binds_by_tres(options: str, expected: list[str], tmp_path: Path) -> None:
    text = f"srun -N 1 -n 2 {options} all_reduce_perf -b 8 -e 8M -f 2 -g 1"
    assert found(checked(text, tmp_path), notes=True) == expected


HEAD = "#SBATCH -N 2 --gres=gpu:8 --ntasks-per-node=1\nh=$(scontrol show hostnames | head -n1)\n"
VLLM = "srun -N1 -n1 -w $n vllm serve m -tp 16 --nnodes 2 --master-addr $h --node-rank"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{HEAD}{VLLM} 1 --headless &\n{VLLM} 0", []),
        (f"{HEAD}for i in 0 1; do {VLLM} $i & done; wait", []),
        (f"{HEAD}{VLLM} 0", ["inner-nodes"]),
        (f"{HEAD}srun vllm serve m -tp 8", []),
    ],
)
def test_lines_for_the_nodes_of_a_job_of_slurm(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert found(checked(text, tmp_path)) == expected


def test_commands_that_operators_write(tmp_path: Path) -> None:
    """An operator of Ray writes the command of its containers; others set numbers of nodes."""
    ray = """
        apiVersion: ray.io/v1
        kind: RayCluster
        spec:
          headGroupSpec:
            template:
              spec:
                containers:
                - image: vllm/vllm-openai:v0.10.0
        """
    assert found(checked(ray, tmp_path, "a.yaml"), notes=True) == ["pods-alone"]
    group = """
        apiVersion: leaderworkerset.x-k8s.io/v1
        kind: LeaderWorkerSet
        spec:
          leaderWorkerTemplate:
            size: 2
            workerTemplate:
              spec:
                containers:
                - image: i
                  command: [python3, -m, sglang.launch_server, --tp, "16", --nnodes,
                    $(LWS_GROUP_SIZE), --node-rank, $(LWS_WORKER_INDEX), --dist-init-addr,
                    "$(LWS_LEADER_ADDRESS):20000"]
        """
    assert started(checked(group, tmp_path, "b.yaml")) == [TWO]
    job = """
        apiVersion: kubeflow.org/v1
        kind: PyTorchJob
        spec:
          nprocPerNode: auto
          pytorchReplicaSpecs:
            Worker:
              replicas: 2
              template:
                spec:
                  containers:
                  - name: pytorch
                    command: [bash, -c, "torchrun --nnodes=$WORLD_SIZE --nproc-per-node=8 t.py"]
        """
    assert started(checked(job, tmp_path, "c.yaml")) == [TWO]
    # Newer operators count processes where their number is given.
    given = checked(job.replace("auto", '"8"'), tmp_path, "d.yaml")
    assert started(given) == ["not known: the number of nodes is '$WORLD_SIZE'"]


COPY = (
    "docker run --net host -e NCCL_IB_HCA={} --entrypoint bash vllm-openai:v0.{} -c 'ray start'\n"
)


@pytest.mark.parametrize(
    ("devices", "release", "then", "found"),
    [
        (("rocep1s0f1", "roceP2p1s0f0"), 17, "vllm serve m -tp 2", True),
        (("rocep1s0f1", "rocep1s0f1"), 17, "vllm serve m -tp 2", False),
        (("rocep1s0f1", "roceP2p1s0f0"), 11, "vllm serve m -tp 2", False),
        (("rocep1s0f1", "roceP2p1s0f0"), 17, "python train.py", False),
    ],
)
def test_variables_that_vllm_copies(
    devices: tuple[str, str], release: int, then: str, found: bool
) -> None:
    text = "".join(COPY.format(one, release) for one in devices) + then
    assert ["NCCL_IB_HCA differs" in one.message for one in judge_copies(text)] == [True] * found


RAY_NODE = "ray start --address=a:1 --node-ip-address=h\n"
LATE, JOB = "export NCCL_A=1", "ray job submit -- python t.py\n"
PASSED = """--runtime-env-json='{"env_vars": {"NCCL_A": "1"}}'"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{RAY_NODE}{LATE} NCCL_B=1\nNCCL_C=1\n{JOB}", "NCCL_A, NCCL_C are set behind"),
        (f"srun -N 1 {RAY_NODE}{LATE}\npython3 -m verl.main \\\n a=b", "NCCL_A is set behind"),
        (f"{LATE}\n{RAY_NODE}{LATE}\n{JOB}", ""),
        (f"{RAY_NODE}{LATE}\ntorchrun --nproc-per-node=8 t.py", ""),
        (
            f"{RAY_NODE}{LATE}\nvllm serve m -tp 16 --distributed-executor-backend ray",
            "NCCL_A is set behind `ray start`",
        ),
        (f"{RAY_NODE}{LATE}\nvllm serve m -tp 8", ""),
        (f"{RAY_NODE}{LATE}\nray stop\n{JOB}", ""),
        (f'echo "do not run {RAY_NODE.strip()} here"\n{LATE}\n{JOB}', ""),
        (f"{RAY_NODE}{LATE}\necho 'ray job submit -- a'\npython t.py", ""),
        (f"{RAY_NODE}{LATE}\n{JOB.replace('--', f'{PASSED} --')}", ""),
        (f"ray stop\n{LATE}\n{RAY_NODE}{JOB}", ""),
        (RAY_NODE.replace("h", "'1.2:3'"), "1.2:3: ray start takes an address"),
    ],
)
def test_what_a_script_around_ray_sets_too_late(text: str, expected: str) -> None:
    found = [one.message for one in judge_ray(text)]
    assert [expected in one for one in found] == [True] * bool(expected)


CONFIG = "main_process_ip: a\nmachine_rank: 0\nnum_machines: 2\nnum_processes: 4\n"
CONFIG += "rdzv_backend: static\nmain_process_port: 29500"
NODES = f"node0.yaml:\n{CONFIG}\n\nnode1.yaml:\n{CONFIG[:-1]}1\n"
OWN = "num_machines: 2\nnum_processes: 8\nmachine_rank: 0\n"


@pytest.mark.parametrize(
    ("text", "expected", "absent"),
    [
        (NODES, "the configurations for 2 nodes all have --machine_rank=0.", "config a"),
        (NODES.replace("node1", "new"), "config new.yaml starts", "all have"),
        (NODES.replace("k: 0", "k: 1", 1), "wait for each other at a:29500", "ok"),
        (f"one:\n{CONFIG}\n\ntwo:\n{CONFIG}\n", "config number 2 starts", "a.md"),
        (f"{OWN}of our scheduler, not of accelerate\n", "no launch command", "main_"),
        (f"compute_environment: AMAZON_SAGEMAKER\n{OWN}", "a job of Amazon SageMaker", "error"),
        (f"{CONFIG}\ngpu_ids: 0", "gpu_ids 0 shows 1 GPU, and 2 processes use 2", "ok"),
        (f"{CONFIG}\ngpu_ids: 0,1,2,3".replace("s: 4", "s: 8"), "nothing wrong", "assumed"),
        (CONFIG.replace("ip: a", "ip: 2333"), "ip 2333: a number is not", "ok"),
        (CONFIG.replace("ip: a", "ip: 10.0.0.1"), "nothing wrong", "number is"),
        ("vllm serve m --port 80000", "80000 is no port, of which 65535 is the last", "ok"),
        ("deepspeed --master_port 99999 t.py", "99999 is no port", "ok"),
        ("vllm serve m --port 8000 --max-model-len 99999", "nothing wrong", "no port"),
    ],
)
def test_configurations_and_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str, absent: str
) -> None:
    (tmp_path / "a.md").write_text(text)
    run(["lint", str(tmp_path / "a.md")])
    shown = " ".join("".join(capsys.readouterr()).replace(str(tmp_path), "").split())
    assert expected in shown
    assert absent not in shown.replace("/a.md:", "")
