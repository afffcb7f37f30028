# SPDX-License-Identifier: Apache-2.0
"""Inputs that name other files, and files of other programs: Compose, Volcano, host files."""

from pathlib import Path

import pytest

from nccltune.cli import run

COMPOSE = """services:
  worker:
    image: nvcr.io/nvidia/pytorch:24.07-py3
    environment: {NCCL_ALGO: Ring}
    command: ["torchrun", "--nproc-per-node=${N:-4}", "t.py"]
"""
SHELL = """services:
  test:
    image: i
    gpus: all
    shm_size: 8gb
    entrypoint: ["bash", "-c"]
    command: ["N=4; mpirun -np $${N} --allow-run-as-root all_reduce_perf -b 8 -e 8G -f 2"]
"""
VOLCANO = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j}
spec:
  plugins: {svc: [], mpi: ["--worker=gpu-node"]}
  tasks:
  - name: master
    replicas: 1
    template:
      spec:
        containers:
        - name: m
          image: i
          command: [sh, -c, "mpirun -np 2 --host $HOSTS all_reduce_perf -b 8 -e 8G -f 2"]
  - name: gpu-node
    replicas: 2
    template:
      spec:
        containers:
        - {name: w, image: i, resources: {limits: {nvidia.com/gpu: 1}}}
"""
TASKS = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j}
spec:
  plugins: {env: [], svc: []}
  tasks:
  - name: worker
    replicas: 4
    template:
      spec:
        containers:
        - name: w
          image: i
          command: [torchrun, --nnodes=$(VC_WORKER_NUM), --nproc-per-node=1, --node-rank=RANK,
                    --master-addr=a, t.py]
          resources: {limits: {nvidia.com/gpu: 1}}
"""
DSTACK = """type: task
name: t
nodes: 2
env: [NCCL_DEBUG=INFO]
commands:
  - cd build
  - |
    if [ $DSTACK_NODE_RANK -eq 0 ]; then
      mpirun --allow-run-as-root --hostfile $DSTACK_MPI_HOSTFILE -n $DSTACK_GPUS_NUM \\
        -x NCCL_DEBUG -N $DSTACK_GPUS_PER_NODE --bind-to none ./all_reduce_perf -b 8 -e 8G -f 2 -g 1
    fi
resources: {gpu: "nvidia:4:16GB", shm_size: 16GB}
"""
SKYPILOT = """resources: {accelerators: "H100:4"}
num_nodes: 3
envs: {PORT: 29500, NCCL_DEBUG: INOF}
setup: N=$(echo "$SKYPILOT_NODE_IPS" | wc -l)
run: |
  HEAD=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  hosts=""
  for ip in $SKYPILOT_NODE_IPS; do hosts="$hosts$ip:4,"; done
  COMMAND
"""
OF_TORCH = "torchrun --nnodes=$N --nproc-per-node=$SKYPILOT_NUM_GPUS_PER_NODE --master-addr=$HEAD"
AZURE = """$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
command: >-
  echo $NODE_RANK && COMMAND
inputs: {nodes: 2}
environment: azureml:pt@latest
compute: azureml:gpu
distribution: {type: pytorch, process_count_per_instance: 8}
resources: {instance_count: 2}
environment_variables: {NCCL_DEBUG: INOF}
services: {lab: {type: jupyter_lab}}
"""
BATCH = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
source env.sh
which python
export MASTER_ADDR=$(scontrol show hostnames | head -n 1)
python t.py --epochs 2
"""
CONFIG = "main_process_ip: a\nmachine_rank: 0\nnum_machines: 2\nnum_processes: 4\n"
CONFIG += "rdzv_backend: static\nmain_process_port: 29500"
BY_CONFIG = "\naccelerate launch --config_file x/gpu.yaml t.py\n"
C10D = "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d"
OF_TASKS = "#SBATCH -N 1 -n 1 --ntasks-per-node=2\nsrun python t.py\n"
OF_NODES = "accelerate launch --num_machines ${{inputs.nodes}} --num_processes 32 --machine_rank"
KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
patches:
- target: {kind: MPIJob}
  patch: |-
    - {op: replace, path: /spec/mpiReplicaSpecs/Worker/replicas, value: 4}
    - {op: add, path: /spec/containers/0/args, value: ["mpirun -np 16 -N 8 all_gather_perf -b 1G"]}
"""
LWS = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: t}
spec:
  leaderWorkerTemplate:
    size: 4
    workerTemplate:
      spec:
        containers:
        - name: t
          image: $IMAGE
          command: [torchrun, --nnodes=4, --nproc_per_node=8, --rdzv_backend=c10d, t.py]
          args: [--rdzv_endpoint=$(LWS_LEADER_ADDRESS):1]
          resources: {limits: {nvidia.com/gpu: 8}}
"""
TRAINJOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    command: [bash, -c, torchrun t.py]
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}}
"""
RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
spec:
  mlPolicy: {numNodes: 2, torch: {numProcPerNode: 4}}
  template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
    containers: [{command: [torchrun, t.py], resources: {limits: {nvidia.com/gpu: 8}}}]}}}}}]}}
"""
GLOO = """apiVersion: batch/v1
kind: Job
metadata: {name: t}
spec:
  parallelism: 4
  template:
    spec:
      containers:
      - name: t
        image: i
        command: [bash, -c, torchrun --nproc-per-node=1 --master_addr=a t.py --backend=gloo]
"""
MPIRUN = "mpirun -np $NP -N 8 all_reduce_perf -b 8 -e 8G -f 2\n"
UNSET = "NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n"
DEFAULT = "$ cat /job/hostfile\na slots=2\nb slots=2\n$ deepspeed --num_nodes 2 t.py\n"
BY_NODE = "".join(f"# node {n}\nexport NCCL_SOCKET_IFNAME=e{n}\n" for n in (1, 2))
BY_NODE += "mpirun -np 2 -H a,b all_reduce_perf -b 8 -e 1G -f 2\n"
VERTEX = """workerPoolSpecs:
- &pool
  machineSpec: {machineType: a3, acceleratorCount: 8}
  containerSpec:
    imageUri: i
    command: [bash, -c]
    args: [torchrun --nnodes=2 --nproc_per_node=8 --master_addr=$HEAD t.py]
- *pool
"""
SHOWN = "mpirun -np 4 --hostfile ./hosts all_reduce_perf -b 8 -e 8G -f 2\n"
DOCKER = (
    "docker run --gpus all --ipc=host --env-file a.env img all_reduce_perf -b 8 -e 8G -f 2 -g 8\n"
)
TORCHRUN = (
    "srun torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint a:1 --nproc-per-node 4 t.py\n"
)
RANKED = "torchrun --nnodes=3 --nproc-per-node=4 --master-addr=$HEAD --node-rank=0 t.py"
OF_ENV = "services:\n  a:\n    environment: ['%s']\n"
SERVING = """services:
  a:
    image: i
    gpus: 4
    environment: [NCCL_IB_HCA=mlx5_0]
    command: serve model --tensor-parallel-size 4
"""
DOCKERFILE = """ARG V=1
FROM base AS build
ENV NCCL_ALGO=Tree
RUN mpirun -np 16 ./test
FROM base
ENV NCCL_DEBUG INFO
ENV A=1 \\
  NCCL_ALGO=Ring
CMD ["torchrun", "--nproc-per-node=8", "t.py"]
"""
BUILT = """FROM base
RUN echo 'export NCCL_ALGO=Ring' >> /etc/rc
RUN export CUDA_HOME=/c && \\
    export NCCL_PROTO=Simple && make
"""
HOST_NET = SERVING.replace("    environment: [NCCL_IB_HCA=mlx5_0]\n", "    network_mode: host\n")
EIGHT = "torchrun --nproc-per-node=8 t.py"
PAGE = f"```\n{EIGHT}\n```\n"
OF_HYDRA = "mpirun -f h -n 8 -ppn 4 ./a"
RESERVED = "{resources: {reservations: {devices: [{%s, capabilities: [gpu]}]}}}"
SWARM, ONE = "deploy: {endpoint_mode: vip}\n", "device_ids: ['0']"


def _second(text: str) -> str:
    """Return the task of a Volcano job under another name."""
    return (
        text.partition("  tasks:\n")[2]
        .replace("worker", "more")
        .replace("RANK", "$(VC_TASK_INDEX)")
    )


HOSTS = "cat > h <<E\na slots=4\nb slots=4\nE\n"


@pytest.mark.parametrize(
    ("files", "expected", "absent"),
    [
        ({"a.md": f"gpu.yaml:\n\n{CONFIG}\n{BY_CONFIG}"}, "4 processes, 2 on each of 2", "here"),
        ({"a.md": f"machine 1:\n{CONFIG}\ntwo\n{CONFIG}9"}, "295009 is no port, of which", "here"),
        ({"a.sh": f"{C10D} --master-addr=a t.py"}, "and c10d reads no other address: each", "ok"),
        ({"a.sh": f"{C10D} --rdzv-endpoint=a --node-rank=0 t.py"}, "=0: without effect", "error"),
        ({"a.sh": "srun -N 1 -n 2 --accel-bind=gn python t.py"}, "GPUs near its CPUs only", "ok"),
        ({"a.sh": "srun -N 1 -n 2 --gpus-per-task=1 ./a"}, "its own 1 GPU only: one", "near"),
        ({"a.sh": "srun -N 1 -n 2 --gpus-per-task=1 --gpu-bind=none ./a"}, "2 processes", "own"),
        ({"a.sh": "srun -n 2 --gpus-per-task=1 --gres-flags=allow-task-sharing ./a"}, "2", "own"),
        ({"a.sh": "srun -n 8 apptainer exec $I bash -c 'A=1 python t.py'"}, "t.py was not", "exec"),
        ({"a.sh": "srun uv run python $SCRIPT"}, "what uv runs is not known", "nccl-tests"),
        ({"a.sh": "#!/bin/sh\n# srun -n 8 ./a\n./b.sh\n"}, "what ./b.sh starts was not", "./a"),
        ({"a.sh": OF_TASKS}, "1 start, not 2. Leave out -n 1", "ok"),
        ({"c.yaml": COMPOSE}, "4 processes, all on one node", "--gpus"),
        ({"c.yaml": COMPOSE}, "nvidia is Docker's default runtime. Add deploy:", "ok"),
        ({"c.yaml": SERVING}, "service a: the container has 64 MiB of /dev/shm", "ok"),
        ({"c.yaml": SERVING}, "does not get /dev/infiniband", "ok"),
        (
            {"c.yaml": f"{SERVING}    ipc: host\n    devices: [/dev/infiniband]\n"},
            "no launch command",
            "/dev/",
        ),
        ({"c.yaml": SERVING.replace("4", "1")}, "does not get /dev/infiniband", "64 MiB"),
        ({"s.yaml": SKYPILOT.replace("COMMAND", RANKED)}, "each gets --node-rank=0", "ok"),
        (
            {"s.yaml": SKYPILOT.replace("COMMAND", RANKED.replace("0", "$SKYPILOT_NODE_RANK"))},
            "12 processes, 4 on each of 3 nodes",
            "each gets",
        ),
        ({"R.md": f"<!-- (c) -->\n\n{PAGE}"}, "8 processes", "XML"),
        ({"R.md": f"{PAGE}```\nsrun --ntasks=8\n```\n"}, "8 processes", "no program"),
        ({"R.md": f"{PAGE}row, 1, 2, 3, 4\n"}, "8 processes", "rows"),
        ({"R.md": PAGE.replace("torch", "[login-1]$ torch")}, "8 processes", "placeholder"),
        ({"R.md": f"{PAGE}```\naccelerate launch\n```\n"}, "8 processes", "accelerate"),
        ({"R.md": f"```\nml openmpi\n```\n```\n{OF_HYDRA}\n```\n"}, "4 on each of 2", "Open MPI"),
        ({"Dockerfile": DOCKERFILE}, "8 processes, all on one node", "16"),
        ({"Dockerfile": DOCKERFILE.replace("Ring", "Rang")}, "NCCL_ALGO=Rang: ", "16"),
        ({"Dockerfile": f"{BUILT}CMD {EIGHT}\n"}, "NCCL_PROTO: RUN exports", "NCCL_ALGO: "),
        ({"Dockerfile": f"{BUILT}CMD {EIGHT}\n"}, "rite ENV NCCL_PROTO=VALUE", "CUDA_HOME"),
        ({"Dockerfile": f"{BUILT}ENV NCCL_PROTO=LL\nCMD {EIGHT}\n"}, "8 processes", "RUN"),
        (
            {"Dockerfile": 'FROM a\nENV N=8\nCMD ["torchrun", "--nproc-per-node=${N}", "t.py"]\n'},
            '["sh", "-c", "torchrun --nproc-per-node=${N} t.py"]',
            "$(",
        ),
        (
            {"Dockerfile": 'FROM a\nENV N=8\nCMD ["sh", "-c", "torchrun --nproc-per-node=$N t"]\n'},
            "8 processes",
            "no shell",
        ),
        ({"Dockerfile": f"FROM a\nENV N=8\nCMD {EIGHT.replace('8', '$N')}\n"}, "8 proc", "shell"),
        ({"Dockerfile": f"{DOCKERFILE}ENTRYPOINT torchrun t.py\n"}, "1 process", "per-node=8"),
        ({"Dockerfile": f"FROM a\nCMD {'[' * 100_000}\n"}, "of no known kind", "bug"),
        ({"a.txt": f"From the wiki, this fails:\n\n{OF_HYDRA}\n"}, "4 on each of 2", "no launch"),
        ({"a.txt": f"From Ann\n\n{OF_HYDRA}\n"}, "4 on each of 2", "no launch"),
        ({"c.yaml": f"{SERVING}    shm_size: 32m\n"}, "has 32 MiB of /dev/shm", "ok"),
        ({"a": f"export NCCL_NET=Socket NCCL_NET_PLUGIN=none\n{C10D} t"}, "data by TCP", "ok"),
        ({"c.yaml": f"{COMPOSE}    ipc: host\n    {SWARM}"}, "type: tmpfs, target: ", "ipc: h"),
        ({"c.yaml": f"{COMPOSE}    {SWARM}"}, '"default-runtime": "nvidia" in dae', "reservations"),
        ({"c.yaml": f"{COMPOSE}    deploy: {{replicas: 2}}\n"}, "Add deploy: {", "daemon.json"),
        ({"c.yaml": f"{SERVING}    ipc: private\n"}, "has 64 MiB of /dev/shm", "ok"),
        ({"c.yaml": f"{SERVING}    shm_size: 1gb\n"}, "does not get /dev/inf", "/dev/shm"),
        ({"c.yaml": f"{HOST_NET}    environment: [NCCL_DEBUG=INFO]\n"}, "memlock: -1", "--ulimit"),
        ({"c.yaml": f"{HOST_NET}    environment: [A=NCCL_ALGO=Rng]\n"}, "64 MiB", "memlock"),
        ({"c.yaml": COMPOSE}, "Add ipc: host (or shm_size: 8gb)", "after run"),
        ({"c.yaml": COMPOSE.replace("Ring", "Rng")}, "NCCL_ALGO=Rng: 'Rng' is not an", "passed"),
        ({"c.yaml": COMPOSE + "    env_file: [a.env]\n"}, "what a.env sets is not known", "passed"),
        ({"c.yaml": OF_ENV % 'NCCL_DEBUG="INFO"'}, 'NCCL_DEBUG="INFO": NCCL takes', "ok"),
        (
            {"c.yaml": OF_ENV % 'NCCL_SOCKET_IFNAME="e0"'},
            "the quotes are a part of the value",
            "ok",
        ),
        (
            {"c.yaml": COMPOSE + "    env_file: a.env\n", "a.env": 'NCCL_PROTO="LX"\n'},
            "NCCL_PROTO=LX: 'LX' is not a protocol",
            "a.env",
        ),
        ({"c.yaml": SHELL}, "4 processes, all on one node", "container"),
        ({"c.yaml": SHELL}, "service  test\n", "container"),
        ({"c.yaml": OF_ENV % "NCCL_ALGO=Rng"}, "service a: NCCL_ALGO=Rng", "ok"),
        *(
            ({"c.yaml": SHELL.replace("gpus: all", given)}, said, absent)
            for given, said, absent in (
                ("gpus: 2", "the container has 2 GPUs, and 4 processes use 4: invalid", "ok "),
                ("gpus: 4", "4 processes", "error"),
                ("gpus: [{count: 1}, {device_ids: ['2']}]", "has 2 GPUs, and 4 processes", "ok "),
                ("gpus: [{count: all}]", "4 processes", "error"),
                (f"deploy: {RESERVED % 'count: 3'}", "has 3 GPUs, and 4 processes use 4", "ok "),
                (f"deploy: {RESERVED % ONE}", "has 1 GPU, and 4 processes use 4", "ok "),
                ("environment: {NVIDIA_VISIBLE_DEVICES: '0,1'}", "has 2 GPUs, and 4", "ok "),
                ("environment: {NVIDIA_VISIBLE_DEVICES: all}", "4 processes", "error"),
            )
        ),
        *(
            ({"a.sh": f"docker run {given} --ipc=host i {program}\n"}, said, absent)
            for given, program, said, absent in (
                ("--gpus 4", EIGHT, "has 4 GPUs, and 8 processes use 8: invalid", "ok "),
                ("--gpus=8", EIGHT, "8 processes", "error"),
                ("--gpus all", EIGHT, "8 processes", "error"),
                ("--gpus device=$D,1", EIGHT, "8 processes", "error"),
                ("--gpus 4", f"{EIGHT[:-6]}gpu t.py", "4 processes", "error"),
                (
                    """--gpus '"device=0,1","capabilities=utility"'""",
                    "all_reduce_perf -b 8 -e 8G -f 2 -g 8",
                    "has 2 GPUs, and a process uses 8",
                    "ok ",
                ),
                ("--runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=0,1", EIGHT, "has 2 GPUs", "ok "),
                ("--device nvidia.com/gpu=0", EIGHT, "has 1 GPU, and 8 processes", "ok "),
            )
        ),
        ({"page.md": f"Start it:\n```yaml\n{SHELL}```\n"}, "4 processes", "container"),
        (
            {"c.yaml": SHELL.replace("mpirun", "./go.sh").replace("all_red", "env A=NCCL_ALGO=")},
            "./go.sh",
            "starts   ",
        ),
        ({"a.sh": "docker compose run worker all_reduce_perf -g 8\n"}, "8 GPUs each", "container"),
        # Files that a script reads.
        ({"a.sh": f"source ./env.sh\n{MPIRUN}"}, "what ./env.sh sets is not known here", "16"),
        ({"a.sh": f"source ~/.bashrc\n{MPIRUN}"}, "'$NP'", ".bashrc"),
        ({"a.sh": f". ./env.sh\n{MPIRUN}", "env.sh": "NP=16\n"}, "16 processes, 8 on", "env.sh"),
        (
            {
                "a.sh": f'. "$(dirname "$0")/lib.sh"\n{MPIRUN}',
                "lib.sh": ". ./lib.sh\ncat > h <<E\na\nE\nexport NP=16 NCCL_ALGO=Rng\n",
            },
            "'Rng' is not an algorithm",
            "lib.sh",
        ),
        (
            {"a.sh": "source run.sh\n", "run.sh": "mpirun -np 8 all_reduce_perf -b 8 -e 8G -f 2"},
            "8 processes, all on one node",
            "run.sh",
        ),
        # Variables of a container.
        ({"a.sh": DOCKER}, "what a.env holds is not known here", "a.env sets"),
        ({"a.sh": DOCKER, "a.env": "# x\nNCCL_ALG=Ring\n"}, "no variable NCCL_ALG", "holds"),
        ({"a.sh": DOCKER, "a.env": "NCCL_IB_HCA='mlx5_0'\n"}, "quotes are a part of", "holds"),
        (
            {"a.sh": f"export NCCL_PROTO=LL\n{DOCKER}", "a.env": "NCCL_ALGO=Ring\n"},
            "NCCL_PROTO is set outside docker run",
            "NCCL_ALGO is set",
        ),
        # Host files that a text shows, or that a script writes.
        ({"a.md": f"{SHOWN}**hosts**\na slots=2\nb slots=2\n"}, "2 on each of 2 nodes", "error"),
        ({"a.md": f"{SHOWN}hosts contains:\n```\na:2\nb:2\n```\n"}, "2 on each of 2", "error"),
        ({"a.md": f"{SHOWN}$ cat hosts\na slot=2\nb slot=2\n"}, "slot=2 is a parse error", "fixed"),
        ({"a.md": f"{SHOWN}the hosts\nhello\nagain\n"}, "on which nodes is not known", "hello"),
        ({"a.md": f"{SHOWN.replace('./hosts', 'ip')}$ cat ip\na\nb\n"}, "nodes (a, b)", "not here"),
        ({"a.sh": f"{UNSET}torchrun -m t\n"}, "ALGO, NCCL_DEBUG are set without", "ALGO is set"),
        ({"a.md": f"$ cat /etc/nccl.conf\n{UNSET}$ {EIGHT}\n"}, "8 processes", "export"),
        (
            {"a.md": f"$ cat .deepspeed_env\n{UNSET}{DEFAULT}"},
            "2 on each of 2 nodes (a, b)",
            "without",
        ),
        ({"a.sh": f"cat > t.csv <<E\nallreduce,0,9,tree,ll,4,2,16\nE\n{SHOWN}"}, "4 proc", "rows"),
        ({"a.md": "We ran `A_B=/a/b mpirun -np 4 ./a` here.\n"}, "4 processes", "no launch"),
        ({"a.md": f"My nccl.conf:\nNCCL_DEBUG = INFO\n\n{EIGHT}\n"}, "'NCCL_DEBUG ' sets", "ok "),
        ({"a.md": BY_NODE}, "value of each node into its /etc/nccl.conf", "fixed"),
        ({"a.md": BY_NODE.replace("e2", "e1")}, "Add -x NCCL_SOCKET_IFNAME", "conf"),
        ({"v.yaml": VERTEX.replace("8}", "4}")}, "the node has 4 (the text)", "ok "),
        ({"v.yaml": VERTEX.replace("t.py", "--node-rank=0 t")}, "Vertex AI runs this line", "ok "),
        ({"v.yaml": VERTEX.replace("[bash, -c]", "5")}, "no launch command", "bug"),
        ({"v.yaml": f"workerPoolSpecs: []\n# {EIGHT}\n"}, "8 processes", "bug"),
        ({"a.sh": f"{HOSTS}deepspeed t.py\n"}, "hosts to h, which deepspeed does not read", "ok"),
        ({"a.sh": f"{HOSTS}deepspeed t.py\n"}, "fixed    deepspeed --hostfile=h t.py", "ok"),
        ({"a.sh": f"{HOSTS}deepspeed --hostfile h t.py\n"}, "4 on each of 2 nodes", "warning"),
        ({"a.md": "On 2 nodes:\n```\ndeepspeed t.py\n```\n"}, "unless /job/hostfile", "one node"),
        ({"a.sh": f"{EIGHT}\n<<<<<<< a\n=======\n>>>>>>> b\n"}, "error    line 2: <", "ok"),
        # The launcher of PyTorch knows the number of nodes.
        ({"a.sh": f"# 2 nodes\n{TORCHRUN}"}, "torchrun starts 4 in each = 8", "not known"),
        # Volcano gives its pods the names of the others.
        ({"v.yaml": VOLCANO.replace("$HOSTS", "$MPI_HOST")}, "(j-gpu-node-0.j, j-gpu", "error"),
        ({"v.yaml": VOLCANO.replace("$HOSTS", "$VC_GPU_NODE_HOSTS")}, "1 on each of 2", "error"),
        *(
            ({"v.yaml": VOLCANO.replace("-np 2", number).replace("$HOSTS", hosts)}, said, absent)
            for hosts in (
                "`cat /etc/volcano/gpu-node.host | tr '\\\\n' ','`",
                "$(paste -sd, /etc/volcano/gpu-node.host)",
            )
            for number, said, absent in (
                ("-np 2", "1 on each of 2", "error"),
                ("-np 16", "these hosts have 2 GPUs. Write --host j-gpu-node-0.j:1,j-", ".j:8"),
            )
        ),
        (
            {"v.yaml": VOLCANO.replace("--host $HOSTS", "--hostfile /etc/volcano/gpu-node.host")},
            "(j-gpu-node-0.j, j-gpu",
            "not here",
        ),
        (
            {
                "v.yaml": VOLCANO.replace("$HOSTS", "$VC_GPU_NODE_HOSTS").replace(
                    "svc: [], mpi", "x"
                )
            },
            "Volcano's plugin svc only, and the job does not have it",
            "ok",
        ),
        ({"v.yaml": TASKS.replace("RANK", "$(VC_TASK_INDEX)")}, "1 on each of 4 nodes", "error"),
        ({"v.yaml": TASKS.replace("RANK", "$VC_TASK_INDEX")}, "no shell reads $VC_TASK", "ok"),
        (
            {
                "v.yaml": VOLCANO.replace("-np 2", "-np 2 -x R=$VC_TASK_INDEX").replace(
                    "$HOSTS", "$MPI_HOST"
                )
            },
            "Volcano's plugin env only, and the job does not have it",
            "ok",
        ),
        # The indices of each task begin with 0.
        (
            {"v.yaml": TASKS.replace("RANK", "$(VC_TASK_INDEX)") + _second(TASKS)},
            "VC_TASK_INDEX counts from 0 in each of worker, more",
            "ok",
        ),
        ({"t.yml": DSTACK}, "4 on each of 2 nodes (node0, node1)", "not known"),
        ({"t.yml": DSTACK.replace("4:16", "1..8:16")}, "number of processes is '$DSTACK_", "error"),
        ({"t.yml": DSTACK.replace("-n $DSTACK_GPUS_NUM", "-n 9")}, "9 wanted, 8 there", "ok"),
        (
            {"s.yaml": SKYPILOT.replace("COMMAND", "mpirun -H ${hosts%,} all_reduce_perf -b 1G")},
            "12 processes, 4 on each of 3 nodes (node0, node1, node2)",
            "ok",
        ),
        ({"s.yaml": SKYPILOT.replace("COMMAND", f"{OF_TORCH} t.py")}, "4 on each", "not known"),
        (
            {"a.yml": AZURE.replace("COMMAND", "python t.py ${{inputs.nodes}}")},
            "16 processes, 8 on each of 2 nodes  (Azure ML)",
            "nested-launcher",
        ),
        (
            {"a.yml": AZURE.replace("COMMAND", "accelerate launch --num_processes 8 t.py")},
            "Write process_count_per_instance: 1",
            "ok",
        ),
        (
            {
                "a.yml": AZURE.replace("instance: 8", "instance: 1").replace(
                    "COMMAND", f"{OF_NODES} $NODE_RANK --main_process_ip $MASTER_ADDR t.py"
                )
            },
            "1 on each of 2 nodes; accelerate starts 16 in each = 32 ranks",
            "inner",
        ),
        ({"a.yml": AZURE.replace("COMMAND", "python t.py")}, "Write NCCL_DEBUG=INFO", "fixed"),
        (
            {"j.sh": BATCH},
            "on the first of 2 nodes only: 1 node of the job stays idle, unless t.py starts proc",
            "warning",
        ),
        ({"j.sh": BATCH.replace("=2", "=1")}, "if t.py waits for 4 tasks of the job", "warning"),
        (
            {"j.sh": "#!/bin/sh\n#PBS -l select=2:ngpus=4\npython t.py\n"},
            "PBS runs the batch script on the first of 2 nodes only: 1 node",
            "srun",
        ),
        ({"j.sh": f"{BATCH}srun python t.py\n"}, "8 processes, 4 on each of 2", "batch script"),
        ({"j.sh": f"{BATCH}$RUN python t.py\n"}, "no launch command", "batch script"),
        *(
            ({"j.sh": f"{BATCH}{line}\n"}, "no launch command", "batch script")
            for line in (
                "ibrun python t.py",
                "ccc_other python t.py",
                "run() { rsh b python t.py; }",
                "ccc_other python -m t",
                "python t.py --nodes $SLURM_JOB_NODELIST",
                "NODES=$(scontrol show hostnames)\npython t.py --on $NODES",
                "python t.py --hostfile h",
            )
        ),
        ({"j.sh": f"{BATCH}python u.py\n"}, "unless t.py or u.py starts processes", "warning"),
        ({"j.sh": f"{BATCH}bash run.sh\n"}, "no launch command", "batch script"),
        ({"j.sh": BATCH.replace("=2", "=1").replace("=4", "=2", 1)}, "no launch", "batch script"),
        ({"j.sh": "#SBATCH -N 1\npython t.py\n"}, "no launcher: Slurm starts t.py as one", "error"),
        ({"s.yaml": SKYPILOT.replace("COMMAND", OF_TORCH)}, "Write NCCL_DEBUG=INFO", "ok"),
        ({"k.yaml": KUSTOMIZATION}, "2 nodes of 4 get no process. For 4 nodes: -n 32", "ok"),
        (
            {
                "k.yaml": "kind: Kustomization\napiVersion: v1\npatches: [{path: p.yaml}]\n",
                "p.yaml": LWS,
            },
            "8 on each of 4 nodes",
            "ok ",
        ),
        (
            {"l.yaml": LWS.replace("- name: t", "- name: u\n          name: t")},
            "name is also in",
            "c:",
        ),
        ({"l.yaml": LWS}, "worker: the pod has 64 MiB of /dev/shm", "no shell reads"),
        ({"l.yaml": LWS.replace("$I", "i") + "  c: |\n    A: $A\n"}, "of 4 nodes", "not filled"),
        ({"l.yaml": LWS}, "$IMAGE is not filled in: its fields were not checked", "ok "),
        # What a template leaves open may hold the variable of a command, too.
        ({"l.yaml": LWS.replace("_node=8", "_node=$GPUS")}, "$IMAGE is not", "no shell reads"),
        (
            {"l.yaml": LWS.replace("_node=8", "_node=$GPUS").replace("$IMAGE", "i")},
            "no shell reads $GPUS",
            "not filled in",
        ),
        ({"l.yaml": LWS.replace("size: 4", "size: __SIZE__")}, "__SIZE__ is not", "expected"),
        ({"t.yaml": TRAINJOB}, "8 processes, 4 on each of 2 nodes", "warning"),
        (
            {"t.yaml": TRAINJOB.replace("torchrun", "mpirun python")},
            "8 processes, 4 on each of 2",
            "not shown",
        ),
        ({"t.yaml": RUNTIME}, "8 processes, 4 on each of 2 nodes", "per-node"),
        ({"g.yaml": GLOO}, "torchrun runs in 4 pods, and without --nnodes each is", "nvidia.com"),
        ({"g.yaml": GLOO.replace("--master_addr=a", "")}, "note Job: torchrun runs in", "nvi"),
        ({"g.yaml": GLOO.replace("--master_addr=a", "$MORE")}, "starts", "in 4 pods"),
        ({"g.yaml": GLOO.replace("t.py", "--nnodes=4 t.py")}, "1 on each of 4 nodes", "in 4 pods"),
        ({"g.yaml": GLOO.replace("gloo", "nccl")}, "no container has a limit of nvidia.com/", "ok"),
        (
            {
                "l.yaml": LWS.replace("torchrun", "serve")
                .replace("$IMAGE", "i")
                .replace("gpu: 8", "gpu: 1")
            },
            "the fields of 4 pods with GPUs were checked alone",
            "ok",
        ),
        # The beginning of a command, which a line elsewhere completes.
        (
            {"a.md": 'We use\n```\nRUN="torchrun --nnodes=2 --nproc-per-node=8"\n```\n'},
            "what may follow it is not known",
            "error",
        ),
        ({"a.sh": "#!/bin/sh\n#$ -pe mpi 16\nmpirun -np $NSLOTS all_reduce_perf\n"}, "16", "'"),
        ({"a.md": "`poetry run torchrun --nproc_per_node 4 t.py`\n"}, "4 processes", "warning"),
        # Settings around a command that does not get them.
        (
            {"a.md": f"```\n{EIGHT}\n```\nOn both:\n```\nexport NCCL_P2P_DISABLE=1\n```\n"},
            "NCCL_P2P_DISABLE=1: GPUs of a node exchange data through host memory",
            "ok",
        ),
        ({"a.sh": f"docker build -t deepspeed -f d .\n{SHOWN}"}, "4 processes", "deepspeed"),
        ({"a.sh": "enroot import -o a docker://x#deepspeed\n"}, "kind", "starts"),
        ({"l.yaml": LWS.replace("nvidia.com/gpu", '"${KIND}"')}, "8 on each of 4", "no container"),
        (
            {"a.md": "**NCCL_P2P_DISABLE=1** ./all_reduce_perf -b 8 -e 2G -f 2 -g 2\n"},
            "NCCL_P2P_DISABLE=1: GPUs of a node exchange",
            "ok",
        ),
        ({"a.sh": "rocprof --timestamp on ./all_reduce_perf -g 8\n"}, "8 GPUs each", "not known"),
        # The version of a launcher is no command.
        ({"a.md": f"mpirun version 4.1.7a1\n{SHOWN}"}, "4 processes", "version"),
        ({"a.md": "mpirun (Open MPI) 5.0.3\nmpirun -np 2 ./a.out\n"}, "2 processes", "Open is"),
    ],
)
def test_what_other_files_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    files: dict[str, str],
    expected: str,
    absent: str,
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run(["lint", str(tmp_path / next(iter(files)))])
    shown = " ".join("".join(capsys.readouterr()).replace(str(tmp_path), "").split())
    assert " ".join(expected.split()) in shown
    assert absent not in shown
