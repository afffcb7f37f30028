# SPDX-License-Identifier: Apache-2.0
"""Launchers other than MPI's and Slurm's: what they start, and what is wrong with it."""

from pathlib import Path

import pytest

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_text
from nccltune.model.errors import InputError
from tests.unit.launch_lint.judged import bad, checked, ids, only, said

TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"
TWO = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
OF_RANK = "torchrun --nnodes=2 --nproc-per-node=8 --master-addr=$A --node-rank "
SLOTS = "cat > h <<EOF\na slots=2\nb slots=2\nEOF\n"
TWO_NODES = 'srun bash -c "$L t.py'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flux run -N 2 -n 16 -g 1 ./a", "16 processes, 8 on each of 2 nodes, 1 GPU each"),
        ("flux run -N2 -n16 -g1 ./a", "16 processes, 8 on each of 2 nodes, 1 GPU each"),
        ("flux run -N 2 ./a", "2 processes, 1 on each of 2 nodes"),
        ("flux submit -N 2 --tasks-per-node=8 ./a", "16 processes, 8 on each of 2 nodes"),
        ("flux run -N 2 --tasks-per-node=8 --gpus-per-node=8 ./a", "1 GPU each = 16 ranks"),
        ("flux run -n 1 -g 4 ./a", "1 process, on one node, 4 GPUs each"),
        ("#FLUX: -N 1\nflux run -n 8 ./a", "8 processes, all on one node"),
        ("flux run -n 48 ./a", "not known: 48 processes; how many of them fit on a node"),
        ("flux run -N 4 -n 10 ./a", "3 on node 1, 3 on node 2, 3 on node 3, 1 on node 4"),
        ("flux run -n 8 --tasks-per-node=4 ./a", "nothing: Flux takes -n or --tasks-per-node"),
        ("flux run --tasks-per-node=4 ./a", "nothing: --tasks-per-node needs -N"),
        ("flux run -N $N ./a", "not known: the number of nodes is '$N'"),
        ("jsrun -n 12 -r 6 -a 1 -g 1 -c 7 ./a", "12 processes, 6 on each of 2 nodes, 1 GPU each"),
        ("jsrun -n2 -r1 -a6 -g6 -c42 ./a", "12 processes, 6 on each of 2 nodes, 1 GPU each"),
        ("jsrun --nrs=4 --rs_per_host=2 --tasks_per_rs=2 ./a", "8 processes, 4 on each of 2 nodes"),
        ("#BSUB -nnodes 1\njsrun -n 6 -g 1 ./a", "6 processes, all on one node"),
        ("jsrun -n 6 -a 1 -c 42 ./a", "not known: 6 processes in 6 resource sets"),
        ("jsrun -U steps.erf ./a", "not known: -U is given"),
        ("#BSUB -nnodes 2\njsrun -r6 -g1 -a1 ./a", "12 processes, 6 on each of 2 nodes"),
        ("jsrun -r6 -g1 -a1 ./a", "not known: the number of hosts: -n is not given"),
        ("echo 1 2 | jsrun -n 4 -r 2 ./a", "4 processes, 2 on each of 2 nodes"),
        ("aprun -n 16 -N 8 -d 4 ./a", "16 processes, 8 on each of 2 nodes"),
        ("aprun -n 16 ./a", "not known: 16 processes; how many of them fit on a node"),
        ("mpiexec -n 8 --ppn 4 --depth 8 ./a", "8 processes, 4 on each of 2 nodes"),
        ("#PBS -l select=1:ngpus=4\nmpiexec -n 8 --ppn 4 --depth 8 ./a", "need 2 nodes"),
        ("horovodrun -np 16 -H a:8,b:8 ./a", "16 processes, 8 on each of 2 nodes (a, b)"),
        ("horovodrun -np 4 ./a", "4 processes, all on one node"),
        ("torchpack dist-run -np 8 -H a:4,b:4 ./a", "8 processes, 4 on each of 2 nodes (a, b)"),
        ("tune run --nproc_per_node 4 --nnodes 2 r --config c", "8 processes, 4 on each of 2"),
        ("hostfile's content is:\n`a slots=2`\n`deepspeed --hostfile hostfile t.py`", "both on a"),
        ("horovodrun -p 22 --mpi-args='--mca x 1' -np 2 -H a:4,b:4 ./a", "both on a"),
        ("horovodrun -np 16 -H a:4,b:4 ./a", "nothing: there are not enough slots"),
        ("horovodrun -np 4 --host-discovery-script d.sh ./a", "not known: --host-discovery-script"),
        ("#BSUB -nnodes 2\nhorovodrun ./a", "not known: without -np one for each GPU"),
        (
            "#BSUB -nnodes 2\nN=$(cat ${LSB_DJOB_HOSTFILE} | sort | uniq | grep -v login"
            " | grep -v batch | wc -l)\njsrun -n $N -r1 -a6 -g6 ./a",
            "12 processes, 6 on each of 2 nodes",
        ),
        (
            "#BSUB -nnodes 2\nN=$(cat $LSB_DJOB_HOSTFILE | wc -l)\njsrun -n $N -r1 ./a",
            "not known: the number of resource sets is",
        ),
        ("deepspeed train.py", "8 processes, all on one node"),
        ("CUDA_VISIBLE_DEVICES=0,1 deepspeed train.py", "2 processes, both on one node"),
        ("deepspeed --num_gpus 4 train.py", "4 processes, all on one node"),
        ("deepspeed --num_gpus=$N train.py", "not known: the number of GPUs of a node is '$N'"),
        ("deepspeed --include localhost:1,3 t.py", "2 processes, both on localhost"),
        ("deepspeed -i a:0,1@b:2 t.py", "2 on a, 1 on b"),
        ("deepspeed --hostfile none.txt t.py", "not known: the hosts are in none.txt, which is"),
        (f"{SLOTS}deepspeed -H h -i a:1,2@b t.py", "a:1,2@b, and a has the slots 0 to 1 alone"),
        (f"{SLOTS}deepspeed -H h -i c t.py", "nothing: --include c, and c is no host in the host"),
        (f"{SLOTS}deepspeed -H h -i a:1@b t.py", "1 on a, 2 on b"),
        ("ray start --num-gpus 4\nvllm serve m -tp 8", "a node has 4 GPUs (the text)"),
        ("ray start --num-gpus 4\nray start --num-gpus=2\nvllm serve m -tp 8", "on one node"),
        ("deepspeed --num_nodes 2 t.py", "not known: --num_nodes 2 without --hostfile"),
        ("cat > h <<EOF\na slots=4\nb slots=4\nEOF\ndeepspeed -H h t.py", "4 on each of 2 nodes"),
        ("cat > h <<EOF\na slots=4\nb slots=4\nEOF\ndeepspeed -H h --num_nodes 1 t.py", "on a"),
        ("echo a slots=4 > h\necho b slots=4 >> h\ndeepspeed -H h t.py", "4 on each of 2 nodes"),
        ("eval NCCL_DEBUG=INFO $MORE deepspeed --num_gpus=2 t.py", "2 processes, both on one node"),
        ("python -m deepspeed.launcher.runner --num_gpus=2 t.py", "2 processes, both on one node"),
        ("accelerate launch --num_processes 4 t.py", "4 processes, all on one node"),
        ("accelerate launch --num-processes=4 t.py", "4 processes, all on one node"),
        ("accelerate launch t.py", "8 processes, all on one node"),
        ("accelerate launch --cpu --num_processes 4 t.py", "1 process, on one node"),
        ("deepspeed --launcher=openmpi t.py", "not known: without --hostfile this node alone"),
        ("accelerate launch --config_file none.yaml t.py", "the number of machines is in"),
        ("torchrun --nproc-per-node=gpu t.py", "8 processes, all on one node"),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=gpu t.py", "2 processes, both on"),
    ],
)
def test_what_is_started(text: str, expected: str) -> None:
    assert expected in said(only(text))


def test_a_configuration_of_accelerate_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("num_machines: 2\nnum_processes: 16\nmachine_rank: 0\nmain_process_ip: a\n")
    (one,) = checked(f"accelerate launch --config_file {file} t.py")
    assert said(one).startswith("16 processes, 8 on each of 2 nodes")
    assert not one.is_wrong
    (one,) = checked(f"accelerate launch --config_file {file} --num_processes 12 t.py")
    assert said(one).startswith("12 processes, 6 on each of 2 nodes")
    assert "inner-rank" in ids(only(f"srun -N 2 -n 2 accelerate launch --config_file {file} t.py"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("flux run -N 2 -n 4 -g 4", "flux run has 4 GPUs for each process, of which it uses 1"),
        ("flux run -N 2 -n 4 -g 1", ""),
        ("jsrun -n 2 -a 2 -g 6 -r 1", "6 GPUs for 2 processes of a resource set, which use 2"),
        ("jsrun -n 2 -a 6 -g 6 -r 1", ""),
    ],
)
def test_gpus_of_a_process_that_a_test_leaves_idle(options: str, expected: str) -> None:
    held = only(f"{options} all_reduce_perf -b 8 -e 8G -f 2 -g 1").findings
    assert [expected in one.finding.message for one in held] == [True] * bool(expected)


def test_processes_of_a_resource_set_share_its_gpus() -> None:
    held = only("jsrun -n 1 -a 6 -g 6 all_reduce_perf -b 8 -e 8G -f 2 -g 6").findings
    (one,) = [one.finding.message for one in held if one.finding.id == "task-gpus"]
    assert "jsrun has 6 GPUs for 6 processes of a resource set, which are to use 36" in one


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flux run -N 1 -n 8 -g 1 all_reduce_perf -b 8 -e 8G -f 2 -g 8", "task-gpus"),
        ("flux run --bogus 2 ./a", "option-unknown"),
        ("flux run -n 8 --cores=4 ./a", "launch-refused"),
        ("accelerate launch --num_machines 2 --num_processes 16 t.py", "accelerate-address"),
        (
            "accelerate launch --num_machines 2 --num_processes 16 --machine_rank 0"
            " --main_process_ip 127.0.0.1 t.py",
            "accelerate-address",
        ),
        ("accelerate launch --num_machines 2 --num_processes 16 --main_process_ip a t.py",
         "accelerate-rank"),
        (
            "#SBATCH --gres=gpu:8\naccelerate launch --num_machines 2 --num_processes 8"
            " --machine_rank 0 --main_process_ip a t.py",
            "accelerate-total",
        ),
        (
            "accelerate launch --num_machines 3 --num_processes 8 --machine_rank 0"
            " --main_process_ip a t.py",
            "accelerate-total",
        ),
        ("#SBATCH --gres=gpu:8\naccelerate launch --num_processes 16 t.py", "too-many-gpus"),
        ("accelerate launch --gpu_ids 0,1 --num_processes 4 t.py", "visible-devices"),
        ("accelerate launch python t.py", "torchrun-python"),
        ("deepspeed --include localhost:0 --num_gpus 1 t.py", "deepspeed-resources"),
        ("#SBATCH --gres=gpu:8\ndeepspeed --num_gpus 16 t.py", "too-many-gpus"),
        ("deepspeed --num-gpus 4 t.py", "option-unknown"),
        ("CUDA_VISIBLE_DEVICES=0 deepspeed --num_gpus 4 t.py", "deepspeed-visible"),
        (f"{TWO}srun torchrun --nproc-per-node=8 t.py", "inner-alone"),
        (f"{TWO}srun accelerate launch --num_processes 8 t.py", "inner-alone"),
        (f"{TWO}srun deepspeed --num_gpus 8 t.py", "inner-alone"),
        (
            f"{TWO}srun torchrun --nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d"
            " --rdzv-endpoint=a:29500 t.py",
            "inner-nodes",
        ),
        (
            f"{TWO}srun torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID"
            " --master-addr=a t.py",
            "inner-rank",
        ),
        (
            f'{TWO}srun bash -c "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID'
            ' --master-addr=a t.py"',
            "inner-rank",
        ),
        (f"{TWO}srun torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=a t.py",
         "inner-rank"),
        *(
            (f'{TWO}{line}\n{TWO_NODES}"', "inner-rank")
            for line in (
                f'L="{OF_RANK}$SLURM_NODEID"',
                f'M="--master-addr $A"\nL="{OF_RANK}${{SLURM_NODEID}}\\$MORE $M"',
                f'R="--node-rank $SLURM_PROCID"\nL="{OF_RANK}9 "\nL+=$R',
            )
        ),
        (
            "python3 -u /opt/python3.8/torch/distributed/launch.py --nnode=2 --node_rank=1"
            " --nproc_per_node=1 t.py",
            "torchrun-endpoint",
        ),
        ("python torch/distributed/run.py --nproc-per-node=8x t.py", "torchrun-processes"),
        (f"{TWO}srun python accelerate/commands/launch.py --num_processes 8 t.py", "inner-alone"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(text: str, expected: str) -> None:
    assert expected in bad(only(text))


def test_a_shell_on_each_node_gets_the_variables_of_the_script() -> None:
    head = f"{TWO}A=$(hostname)\nsrun "
    options = "--nnodes=2 --nproc-per-node=8 --master-addr=$A t.py"
    (held,) = only(f"{head}torchrun --node-rank=0 {options}").findings
    advised = held.finding.fix.partition(": srun ")[2].replace("... ", "", 1)
    assert only(f"{head}{advised.replace('...', options)}").findings == ()
    # In '...' no shell knows A.
    quoted = advised.replace('"', "'").replace("\\", "").replace("...", options)
    assert bad(only(f"{head}{quoted}")) == {"not-exported"}


@pytest.mark.parametrize(
    "text",
    [
        f"{TWO}srun bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8"
        " --node-rank=$SLURM_NODEID --master-addr=$A t.py'",
        f"{TWO}srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --rdzv-backend=c10d"
        " --rdzv-endpoint=$A:29500 t.py",
        "srun -N 2 --ntasks-per-node=1 --gpus-per-node=8 singularity exec --nv a.sif bash -c"
        " 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --rdzv-backend=c10d"
        " --rdzv-endpoint=$A:29500 t.py'",
        "mpirun -np 2 -H a:1,b:1 torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d"
        " --rdzv-endpoint=a:29500 t.py",
        "flux run -N 2 -n 2 -g 8 torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d"
        " --rdzv-endpoint=a:29500 t.py",
        f"{TWO}srun bash -c 'accelerate launch --num_machines 2 --num_processes 16"
        " --machine_rank $SLURM_NODEID --main_process_ip $A t.py'",
        f"{TWO}srun bash -c 'deepspeed --no_ssh --node_rank $SLURM_NODEID -H h --num_nodes 2"
        " --num_gpus 8 t.py'",
        f'{TWO}A=$(hostname)\nL="{OF_RANK}\\$SLURM_NODEID"\n{TWO_NODES}"',
        f'{TWO}echo $SLURM_NODEID\nL="{OF_RANK}"\'$SLURM_NODEID\'\n{TWO_NODES}"',
        f'{TWO}L="{OF_RANK}"\n{TWO_NODES}"'.replace("$L ", "$L\\$SLURM_NODEID "),
        f"{TWO}L='{OF_RANK}$SLURM_NODEID'\n{TWO_NODES}; echo $SLURM_NODEID\"",
    ],
)
def test_ranks_below_another_launcher_are_counted(text: str) -> None:
    (one,) = checked(text)
    assert said(one).startswith("2 processes, 1 on each of 2 nodes")
    assert said(one).endswith("starts 8 in each = 16 ranks")
    assert bad(one) == set()


def test_the_number_of_nodes_of_torchrun_is_that_of_a_job_that_does_not_say() -> None:
    script = "srun bash -c 'torchrun --nnodes=4 --nproc-per-node=8 --node-rank=$SLURM_NODEID"
    (one,) = checked(f"{script} --master-addr=a t.py'")
    assert said(one).endswith("torchrun starts 8 in each = 32 ranks")


def test_a_path_in_a_variable_is_a_launcher() -> None:
    script = "MPIRUN=/opt/intel/oneapi/mpi/bin/mpirun\n$MPIRUN -n 8 -ppn 4 ./a"
    (one,) = checked(script)
    assert one.flavors[0].words == "Intel MPI 2021"
    assert said(one).startswith("8 processes, 4 on each of 2 nodes")
    (one,) = checked("export I_MPI_PERHOST=4\nmpirun -n 8 ./a")
    assert said(one).startswith("8 processes, 4 on each of 2 nodes")


def test_devices_are_not_judged_for_hosts_that_are_not_known() -> None:
    script = "mpirun -np 8 --hostfile $FILE -x CUDA_VISIBLE_DEVICES=0,1,2,3 python t.py"
    assert bad(only(script)) == set()


def test_one_torchrun_for_each_task_is_a_job_of_its_own_size() -> None:
    script = "srun -N 1 -n 4 torchrun --nnodes=4 --nproc-per-node=1 --rdzv-backend=c10d"
    (one,) = checked(f"{script} --rdzv-endpoint=a:1 t.py")
    assert said(one).endswith("torchrun starts 1 in each = 4 ranks")
    assert "nested-launcher" not in bad(one)


def test_an_inner_launcher_that_is_not_known_is_not_right() -> None:
    (one,) = checked(f"{TWO}srun torchrun --nnodes=$N --nproc-per-node=$G t.py")
    assert "is not known: the number of nodes is '$N'" in said(one)


def test_variables_reach_torchrun_on_each_node() -> None:
    script = "export NCCL_DEBUG=INFO\ntorchrun --nnodes=2 --nproc-per-node=8 --node-rank=0"
    assert bad(only(f"{script} --master-addr=a t.py")) == set()


SET = "export NCCL_ALGO=Ring; ssh b"


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        (f"{SET} 'torchrun t.py'", True),
        (f"{SET} torchrun t.py", True),
        ("export NCCL_ALGO=Ring\nssh b <<E\ntorchrun t.py\nE\n", True),
        ("export NCCL_ALGO=Ring; pdsh -w a,b torchrun t.py", True),
        (f"{SET} 'NCCL_ALGO=Tree torchrun t.py'", False),
        (f'{SET} "export NCCL_ALGO=$NCCL_ALGO; torchrun t.py"', False),
        (f"{SET} -o SendEnv=NCCL_ALGO torchrun t.py", False),
        (f"{SET} '. ./env; torchrun t.py'", False),
        ("export NCCL_ALGO=Ring; bash -c 'torchrun t.py'", False),
        ("export CUDA_HOME=/c; ssh b 'torchrun t.py'", False),
        ("NCCL_ALGO=Ring; ssh b 'torchrun t.py'", False),
    ],
)
def test_ssh_passes_no_variable_of_the_script(text: str, is_lost: bool) -> None:
    assert bad(only(text)) == ({"env-not-exported"} if is_lost else set())


def test_what_this_shell_expands_reaches_the_text_of_ssh() -> None:
    (one,) = checked("N=4\nssh b <<E\ntorchrun --nproc-per-node=$N t.py\nE\n")
    assert one.predictions[0][0].placement is not None
    (one,) = checked("N=4\nssh b 'torchrun --nproc-per-node=$N t.py'")
    assert one.predictions[0][0].placement is None


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("-g 1 -t 8", "leave out -t 8"),
        ("-t 8", "leave out -t 8"),
        ("-g 8", "write -g 1"),
        ("-g 2 -t 4", "write -g 1 and leave out -t 4"),
    ],
)
@pytest.mark.parametrize("task", ["", "--gpus-per-task=1 "])
def test_threads_that_need_too_many_gpus_are_named(given: str, fix: str, task: str) -> None:
    (one,) = checked(f"srun -N 2 --ntasks-per-node=8 {task}all_reduce_perf -b 8 -e 8G -f 2 {given}")
    found = [held.finding.fix for held in one.findings if held.finding.id.endswith("-gpus")]
    assert {text.partition(", or")[0] for text in found} == {fix}


def test_a_preload_does_not_reach_the_hosts_of_deepspeed() -> None:
    script = "cat > h <<EOF\na slots=8\nb slots=8\nEOF\nexport NCCL_DEBUG=INFO LD_PRELOAD=l.so\n"
    (found,) = (h.finding for h in only(f"{script}deepspeed --hostfile h t.py").findings)
    assert (found.id, found.fix) == (
        "env-not-exported",
        "write LD_PRELOAD=l.so into ~/.deepspeed_env",
    )


@pytest.mark.parametrize("text", ["pip install deepspeed", "cd deepspeed", "which deepspeed"])
def test_a_name_alone_starts_nothing(text: str) -> None:
    with pytest.raises(InputError, match="no launch command"):
        from_text(text, LaunchContext())


def test_ray_is_named() -> None:
    with pytest.raises(InputError, match="ray starts its processes from Python"):
        from_text("ray start --head --num-gpus 8\npython train.py", LaunchContext())


BOX = "all_reduce_perf -b 8 -e 8G -f 2"
BY_MPI = "mpirun -np 16 -H a:8,b:8"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{BY_MPI} docker run --gpus all img {BOX}", {"container-alone", "container-network"}),
        (
            f"{BY_MPI} docker run --network host img {BOX}",
            {"container-alone", "container-without-gpus"},
        ),
        (f"{BY_MPI} apptainer exec --nv --cleanenv a.sif {BOX}", {"container-alone"}),
        (f"{BY_MPI} apptainer exec a.sif {BOX}", {"container-without-gpus"}),
        (f"{BY_MPI} apptainer exec $OPTIONS $IMAGE {BOX}", set()),
        (f"{BY_MPI} apptainer exec --nv a.sif {BOX}", set()),
        (f"{BY_MPI} podman run --net=host --env-host --device nvidia.com/gpu=all img {BOX}", set()),
        (f"NCCL_ALGO=Ring srun -N 2 -n 16 enroot start img {BOX}", {"env-not-passed"}),
        (f"NCCL_ALGO=Ring docker exec c {BOX} -g 8", {"env-not-passed"}),
        (f"NCCL_ALGO=Ring docker exec c bash -c '{BOX} -g 8'", {"env-not-passed"}),
        (f"export NCCL_ALGO=Ring\ndocker exec c {BOX} -g 8\n", {"env-not-passed"}),
        (
            "export NCCL_ALGO=Ring\ndocker run -d --name c \\\n  -e NCCL_ALGO=$NCCL_ALGO i sleep 9"
            f"\ndocker exec c {BOX} -g 8\n",
            set(),
        ),
        (f"docker exec -e NCCL_ALGO=Ring c bash -c '{BOX} -g 8'", set()),
        (f"NCCL_ALGO=Ring kubectl exec p -- {BOX} -g 8", {"env-not-passed"}),
        (f"kubectl exec p -- env NCCL_ALGO=Ring {BOX} -g 8", set()),
        (f"NCCL_ALGO=Ring sudo {BOX} -g 8", {"env-not-passed"}),
        (f"NCCL_ALGO=Ring sudo -E {BOX} -g 8", set()),
        (f"sudo NCCL_ALGO=Ring {BOX} -g 8", set()),
    ],
)
def test_what_does_not_reach_the_program_is_found(text: str, expected: set[str]) -> None:
    assert bad(only(text)) == expected


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        (f"NCCL_ALGO=Ring docker exec c {BOX}", f"NCCL_ALGO=Ring docker exec -e NCCL_ALGO c {BOX}"),
        (f"NCCL_ALGO=Ring sudo {BOX}", f"sudo NCCL_ALGO=Ring {BOX}"),
        (
            f"{BY_MPI} apptainer exec --nv --cleanenv a.sif {BOX}",
            f"{BY_MPI} apptainer exec --nv a.sif {BOX}",
        ),
        (f"{BY_MPI} apptainer exec a.sif {BOX}", f"{BY_MPI} apptainer exec --nv a.sif {BOX}"),
    ],
)
def test_what_does_not_reach_the_program_is_fixed(text: str, fixed: str) -> None:
    more = "" if text.startswith("mpirun") else " -g 8"
    assert only(text + more).fixed == fixed + more


def test_the_name_of_a_pod_is_no_program() -> None:
    with pytest.raises(InputError):
        checked("kubectl logs all-reduce-perf")


def test_deepspeed_takes_minus_one_as_not_given() -> None:
    (one,) = checked("deepspeed --num_nodes -1 --num_gpus 4 train.py")
    assert said(one).startswith("4 processes, all on one node")
    assert bad(one) == set()


ALONE = "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=$A:29500 t.py"
PROCESS = "accelerate launch --num_machines 2 --num_processes 16 --main_process_ip a"


@pytest.mark.parametrize(
    "text",
    [
        f"{TWO}{ALONE}",
        f"{TWO}srun nvidia-smi\nA=$(srun -N 1 -w $HEAD hostname -i)\n{ALONE}",
        f"{TWO}{ALONE.replace('=2', '=$SLURM_NNODES')}",
        f"{TWO}NCCL_DEBUG=INFO time python -m torch.distributed.run {ALONE[9:]}",
        f"{TWO}apptainer exec --nv a.sif bash -c '{ALONE}'",
        f"{TWO}{PROCESS} --machine_rank 0 t.py",
        f"sbatch -N 2 --gpus-per-node=8 --wrap '{ALONE}'",
        f"sbatch <<EOF\n#!/bin/bash\n{TWO}{ALONE}\nEOF",
    ],
)
def test_a_batch_script_starts_its_launcher_on_the_first_node_only(text: str) -> None:
    one = checked(text)[-1]
    assert said(one).startswith("8 processes, all on one node")
    (found,) = [held.finding for held in one.findings if held.finding.id == "batch-alone"]
    assert "waits there for 2 nodes" in found.message
    assert "srun --nodes=2 --ntasks-per-node=1" in found.fix
    assert ("bash -c" in found.fix) is ("machine_rank" in text)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        (ALONE.replace("node=8", "node=$PER_NODE"), 2),
        ("accelerate launch --num_machines 2 --num_processes $N --main_process_ip a t.py", 2),
        (ALONE.replace("node=8", "node=$SLURM_TASKS_PER_NODE"), 2),
        (ALONE.replace("node=8", "node=$N").replace("nodes=2", "nodes=1"), 0),
        ("torchrun $ARGS --nnodes=2 --nproc-per-node=$N t.py", 0),
        ("deepspeed --num_nodes 2 --num_gpus $N t.py", 0),
        (f"srun {ALONE.replace('node=8', 'node=$N')}", 0),
    ],
)
def test_the_nodes_that_wait_are_known_without_their_processes(text: str, nodes: int) -> None:
    one = checked(f"{TWO}#SBATCH --ntasks-per-node=4\n{text}")[-1]
    found = [held.finding for held in one.findings if held.finding.id == "batch-alone"]
    assert [f"waits there for {nodes} nodes" in one.message for one in found] == [True] * (
        nodes > 0
    )
    assert ("torchrun-processes" in bad(one)) == ("TASKS_PER_NODE" in text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("export MASTER_ADDR=localhost\nsrun python -u t.py", "localhost"),
        ("MASTER_ADDR=127.0.0.1 srun python -m pkg.train", "127.0.0.1"),
        ("srun --export=ALL,MASTER_ADDR=localhost python t.py", "localhost"),
        ('srun bash -c "MASTER_ADDR=127.0.0.1 python t.py"', "127.0.0.1"),
        ("srun env MASTER_ADDR=localhost python3 t.py", "localhost"),
        ("mpirun -np 2 -H a:1,b:1 -x MASTER_ADDR=localhost python t.py", "localhost"),
        ("export MASTER_ADDR=localhost\nmpirun -np 2 -H a:1,b:1 -x MASTER_ADDR python t.py",
         "localhost"),
        # The program on other nodes does not get it, sets its own, or is none that reads it.
        ("MASTER_ADDR=localhost mpirun -np 2 -H a:1,b:1 python t.py", None),
        ("MASTER_ADDR=localhost srun --export=NCCL_DEBUG python t.py", None),
        ('MASTER_ADDR=localhost srun bash -c "MASTER_ADDR=$A python t.py"', None),
        ("MASTER_ADDR=localhost srun ./run.sh", None),
        ("MASTER_ADDR=localhost srun hostname", None),
        (f"MASTER_ADDR=localhost srun {ALONE}", None),
        ("MASTER_ADDR=localhost srun -N 1 -n 1 python t.py", None),
        ("MASTER_ADDR=$(hostname)\nexport MASTER_ADDR\nsrun python t.py", None),
    ],
)  # fmt: skip
def test_an_address_that_each_node_takes_for_its_own(text: str, address: str | None) -> None:
    one = checked(f"{TWO}{text}")[-1]
    found = [held.finding for held in one.findings if held.finding.id == "master-address"]
    assert len(found) == (address is not None)
    assert all(f"MASTER_ADDR={address} on 2 nodes" in finding.message for finding in found)


TRAIN = "torchrun --nproc-per-node=4 t.py"
PBS = "#PBS -l select=2:ngpus=4\n"


@pytest.mark.parametrize(
    ("text", "of", "fix"),
    [
        (f"{TWO}{TRAIN}", "Slurm", "srun --nodes=2 --ntasks-per-node=1"),
        (f"sbatch <<EOF\n#!/bin/bash\n{TWO}{TRAIN}\nEOF", "Slurm", "and give it the number"),
        (f"{TWO}accelerate launch --num_processes 8 t.py", "Slurm", "the address of one"),
        (f"{TWO}deepspeed --num_gpus 8 t.py", "Slurm", "--hostfile"),
        (f"{TWO}{TEST}", "Slurm", "start it on each node"),
        (f"{PBS}{TRAIN}", "PBS", "mpiexec, pbsdsh or ssh"),
        (f"#BSUB -nnodes 2\n{TRAIN}", "LSF", "jsrun, blaunch or ssh"),
    ],
)
def test_a_job_of_several_nodes_that_uses_the_first(text: str, of: str, fix: str) -> None:
    one = checked(text)[-1]
    (found,) = [held.finding for held in one.findings if held.finding.id == "batch-alone"]
    assert found.message.startswith(f"{of} runs the batch script on the first of 2 nodes only")
    assert fix in found.fix


def test_what_pbs_and_lsf_leave_waiting() -> None:
    for head in (PBS, "#BSUB -nnodes 2\n"):
        (one,) = checked(f"{head}{ALONE}")
        (found,) = [held.finding for held in one.findings if held.finding.id == "batch-alone"]
        assert "waits there for 2 nodes" in found.message
        assert "srun " not in found.fix


@pytest.mark.parametrize(
    ("text", "is_idle"),
    [
        ("#SBATCH --nodes=4 --ntasks=1\nsrun python t.py", True),
        ("#SBATCH -n 1\nsrun -N 4 --ntasks-per-node=8 python t.py", True),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun python t.py > log 2>&1", True),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun -N 3 -n 3 python a.py &\nsrun python t.py", False),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun python a.py &\nsrun python t.py", False),
        ("#SBATCH --nodes=4 --ntasks=1\nwhile next; do srun python t.py > log & done", False),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun -n 32 python t.py", False),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun -N 1 python t.py", False),
        ("#SBATCH --nodes=4 --ntasks=1\nsrun hostname", False),
        ("#SBATCH --nodes=4 --ntasks-per-node=1\nsrun python t.py", False),
    ],
)
def test_nodes_of_a_slurm_job_without_a_process(text: str, is_idle: bool) -> None:
    assert ("idle-nodes" in bad(checked(text)[-1])) is is_idle


def test_an_option_for_variables_that_a_launcher_lacks_is_written_before_it() -> None:
    for line in ("horovodrun -np 4 {}python t.py", "torchrun --nproc-per-node=4 {}t.py"):
        (one,) = checked(line.format("-x NCCL_DEBUG=INFO "))
        assert one.fixed == f"NCCL_DEBUG=INFO {line.format('')}"


@pytest.mark.parametrize(
    "text",
    [
        f"{TWO}python prepare.py\n{TRAIN}\nsrun python t.py",
        f"{TWO}for h in a b; do ssh $h {TRAIN} & done",
        f"#PBS -l select=4:ngpus=1\n{TRAIN}",
        f"{PBS}pbsdsh -- bash -c '{TRAIN}'",
        f"#SBATCH --nodes=1\n{TRAIN}",
        f"{TWO}srun {ALONE}",
        f"{TWO}pdsh -w a,b {ALONE}",
        f"{TWO}ibrun {ALONE}",
        f"{PBS}pbsdsh -- {ALONE}",
        f"#BSUB -nnodes 2\nblaunch -z a,b {ALONE}",
        f"{TWO}for h in a b; do rsh $h {TRAIN} & done",
        f"{TWO}echo {'srun ' * 20_000}\n{TRAIN}",
        f"{TWO}$RUN {ALONE}",
        f"{TWO}for h in a b; do\n  ssh $h '{ALONE}' &\ndone\nwait",
        f"{TWO}ssh b '{ALONE}' &\n{ALONE}",
        f"{TWO}if [ -z $SLURM_STEP_ID ]; then srun bash $0; exit; fi\n{ALONE}",
        f"{TWO}cat > run.sh <<EOF\n{ALONE}\nEOF\nsrun bash run.sh",
        f"{TWO}train() {{\n{ALONE}\n}}\nexport -f train\nsrun bash -c train",
        f"{TWO}{ALONE.replace('=2', '=1:2')}",
        f"{TWO}{PROCESS} --deepspeed_hostfile h t.py",
        ALONE,
    ],
)
def test_a_launcher_that_other_nodes_may_start_too_is_not_alone(text: str) -> None:
    assert all("batch-alone" not in bad(one) for one in checked(text))


@pytest.mark.parametrize(
    ("text", "used"),
    [
        (f"{TWO}srun {ALONE.replace('node=8', 'node=4')}", 4),
        ("#SBATCH --gres=gpu:h100:8\ntorchrun --nproc-per-node=2 t.py", 2),
        (f"{TWO}srun bash -c '{PROCESS} --machine_rank $SLURM_NODEID t.py'", None),
        ("#SBATCH --gpus-per-node=8\naccelerate launch --num_processes 6 t.py", 6),
        ("torchrun --nproc-per-node=4 t.py", None),
        ("#SBATCH --gpus-per-node=8\ntorchrun --nproc-per-node=4 t.py &\nwait", None),
        ("#SBATCH --gpus-per-node=8\nCUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=2 t", None),
        (
            f"{TWO}srun --ntasks-per-node=2 --gpus-per-task=4 torchrun --nnodes=4"
            " --nproc-per-node=4"
            " --rdzv-backend=c10d --rdzv-endpoint=a:1 t.py",
            None,
        ),
    ],
)
def test_gpus_that_no_process_of_a_trainer_uses(text: str, used: int | None) -> None:
    found = [held.finding for held in only(text).findings if held.finding.id == "idle-gpus"]
    assert [f"start 8, or ask for {used}"] * (used is not None) == [each.fix for each in found]
