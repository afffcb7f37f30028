# SPDX-License-Identifier: Apache-2.0
"""Commands that only run torchrun, and what stands around commands."""

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.launch_lint.command import LaunchContext
from nccltune.model.errors import InputError
from tests.unit.launch_lint.judged import bad, checked, ids, only, processes

LF = "MASTER_ADDR=10.0.0.1 llamafactory-cli train a.yaml"
CAT = "$ cat hosts\nn1\nn2\nn3\n$ colossalai run --nproc_per_node 4 --hostfile hosts"
MPI = "mpirun -np 16 -H a:8,b:8"
TEST = "all_reduce_perf -b 8 -e 1G -f 2 -g 1"


@pytest.mark.parametrize(
    ("text", "started", "found"),
    [
        (f"NNODES=2 NODE_RANK=1 MASTER_PORT=1 {LF}", 16, set()),
        (f"export NNODES=2 NPROC_PER_NODE=4 MASTER_PORT=1\nRANK=0 {LF}", 8, {"frontend-rank"}),
        (f"NNODES=2 NODE_RANK=1 {LF}", 16, {"frontend-port"}),
        (f"NNODES=2 NODE_RANK=2 MASTER_PORT=1 {LF}", 16, {"torchrun-node-rank"}),
        (f"NNODES=2 RDZV_ID=1 {LF.replace('.1 ', '.1:1 ')}", 16, {"frontend-port"}),
        ("CUDA_VISIBLE_DEVICES=0,1 lmf train a.yaml", 2, set()),
        ("colossalai run --host a,b --master_addr a --nproc_per_node 4 t.py", 8, set()),
        ("colossalai run --host a,b --nproc_per_node 4 t.py", 8, set()),
        (f"{CAT} --master_addr n1 --include n1,n2 t.py", 8, set()),
        (f"{CAT} --master_addr n1 --exclude n1 --num_nodes 1 t.py", 4, set()),
        (f"{CAT} --master_addr n1 t.py", 12, set()),
    ],
)
def test_a_front_end_is_checked_as_the_torchrun_that_it_runs(
    text: str, started: int, found: set[str]
) -> None:
    one = only(text)
    assert (processes(one), bad(one), one.fixed) == (started, found, None)
    assert one.written == text.rpartition("\n")[2].removeprefix("$ ")


def test_one_gpu_needs_to_be_told_to_run_torchrun() -> None:
    text, site = f"NNODES=2 NODE_RANK=1 MASTER_PORT=1 {LF}", LaunchContext(gpus=1)
    assert bad(only(text, site)) == {"frontend-alone"}
    assert not bad(only(f"FORCE_TORCHRUN=1 {text}", site))


def test_lines_that_a_terminal_continues_are_of_one_job() -> None:
    text = "".join(
        f"[me@n{n} ~]$ NNODES=2 NODE_RANK={n} MASTER_ADDR=10.0.0.{n} MASTER_PORT=1 \\\n"
        "> llamafactory-cli train a.yaml\n"
        for n in (0, 1)
    )
    assert [one.id for one in lint(LintRequest([text])).launches[0].findings] == ["peers-address"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"if $A; then\n{MPI} {TEST}\nelse\nsrun -N 2 -n 2 {TEST}\nfi", [True, True]),
        (f"case $A in\na) {MPI} {TEST};;\nb) srun -N 2 -n 2 {TEST};;\nesac", [True, True]),
        (f"for i in 1 2; do if $A; then\n{MPI} {TEST}\nelse\nsrun -N 2 -n 2 {TEST}\nfi; done",
         [True, True]),
        (f"{MPI} {TEST}\nif $A; then\nsrun -N 2 -n 2 {TEST}\nelse\nexit\nfi", [False, False]),
        (f"if $A; then\n{MPI} {TEST}\nfi\nif $B; then\nsrun -N 2 -n 2 {TEST}\nfi",
         [False, False]),
    ],
)  # fmt: skip
def test_branches_are_alternatives(text: str, said: list[bool]) -> None:
    notes = [one.predictions[0][0].assumed or "" for one in checked(text)]
    assert ["one of 2 branches of the script" in note for note in notes] == said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("USE_RAY=1 llamafactory-cli train a.yaml", "USE_RAY: Ray starts the processes"),
        ("srun -N 2 bash -c 'USE_RAY=1 lmf train a.yaml'", "USE_RAY: Ray starts the processes"),
    ],
)
def test_a_command_that_cannot_be_checked_hides_no_other(text: str, why: str) -> None:
    (launch,) = lint(LintRequest([f"{MPI} {TEST}\n{text}\n{MPI} {TEST[:-1]}8"])).launches
    assert len(launch.commands) == 2
    assert [one.message.startswith(f"not checked: {text}: {why}") for one in launch.findings] == [1]
    with pytest.raises(InputError, match=why):
        lint(LintRequest([text]))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{MPI} -x NCCL_TUNER_PLUGIN=./a.so -x NCCL_TOPO_FILE=t.xml {TEST}", "relative-path"),
        (f"docker run --gpus all --ipc=host --net=host -p 1:1 img {TEST[:-1]}8", "container-ports"),
        (f"#SBATCH -N 1 --container-image=a\nsrun -n 8 {TEST}", "batch-container"),
    ],
)
def test_what_has_no_effect_or_another_one_is_noted(text: str, found: str) -> None:
    (one,) = checked(text)
    assert found in ids(one)
    assert not bad(one)
    for plain in ("./a.so", "t.xml"):
        text = text.replace(plain, f"/opt/{plain}")
    text = text.replace("-p 1:1 ", "").replace("#SBATCH -N 1 --container-image=a\n", "")
    assert found not in ids(only(text))


def test_the_memory_of_a_container_with_a_shell_is_checked_beside_a_command() -> None:
    shell, command = "docker run -it --gpus all i bash", "torchrun --nproc-per-node=8 t.py"
    (launch,) = lint(LintRequest([f"{shell}\n{command}"])).launches
    assert [one.id for one in launch.findings] == ["container-shm"]
    for text in (f"{shell}\n{command.replace('8', '1')}", f"docker run --ipc=host i sh\n{command}"):
        assert not lint(LintRequest([text])).launches[0].findings
