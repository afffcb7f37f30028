# SPDX-License-Identifier: Apache-2.0
"""Scripts, pages and templates as people write them, no fix that harms, and NICs by rank."""

import re
from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.directives import unread_directives
from nccltune.launch_lint.output import judge_output
from nccltune.launch_lint.peers import nics_by_rank
from nccltune.launch_lint.source import from_text
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from tests.unit.launch_lint.judged import checked, ids, only, said

TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"
HEADER = (
    "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20"
    " agg iters: 1 validation: 1 graph: 0\n# Using devices\n"
)
EIGHT = "all_reduce_perf -b 8 -e 8G -f 2 -g 8"
LISTED = "L='a:8\nb:8'\nH=$(echo \"$L\" | tr '\\n' ,)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The number of workers of a job of Run:ai, over several lines.
        (
            "runai training mpi submit t -g 4 \\\n  --workers 3 \\\n  --slots-per-worker 4\n"
            f"mpirun -np 12 {TEST}",
            "12 processes, 4 on each of 3 nodes",
        ),
        # Numbers that fill no whole nodes show no nodes.
        (f"# 3 nodes\nmpirun -np 12 {TEST}", "12 processes, 1 GPU each = 12 ranks; on which nodes"),
        # Known numbers are not doubted.
        (f"# on 2 nodes\nmpirun -np 8 -N 8 {TEST}", "8 processes, all on one node"),
        # A host that a program prints, with its slots.
        (
            f"a=$(sed -n 1p h | cut -d, -f1); mpirun -np 16 -H $a:8,$(tail -1 h):8 {TEST}",
            "16 processes, 8 on each of 2 nodes",
        ),
        (f"mpirun -np 16 -H $(paste -sd, h) {TEST}", "16 processes, 1 GPU each = 16 ranks; on"),
        (f"{LISTED}mpirun -np 16 -H ${{H%,}} {TEST}", "16 processes, 8 on each of 2 nodes"),
        (f"{LISTED}mpirun -np 16 -H ${{H::-1}} {TEST}", "16 processes, 8 on each of 2 nodes"),
        # A comment ends with its line, whatever it ends with.
        (f"#  -x NCCL_DEBUG=INFO \\\nmpirun -np 16 -H a:8,b:8 {TEST}", "16 processes, 8 on each"),
        # `eval` reads its words again.
        (
            "M=\"mpirun -np 2 -H a:1,b:1 --mca plm_rsh_agent 'ssh -o X=no' -x A=$B\"\n"
            f"eval $M {TEST}",
            "2 processes, 1 on each of 2 nodes (a, b)",
        ),
        # A launcher that a program finds.
        (f"$(which mpirun) -np 16 -N 8 -H a:8,b:8 {TEST}", "16 processes, 8 on each of 2 nodes"),
        (f"M=`command -v mpirun`\n$M -np 2 -H a,b {TEST}", "2 processes, 1 on each of 2 nodes"),
        # A wrapper that gets the command as one word.
        (f"mpirun -np 8 ./per_rank.sh '{TEST}'", "8 processes, all on one node, 1 GPU each = 8"),
        # Another number of nodes than would be assumed.
        (f"# 18 nodes, 72 GPUs\nmpirun -np 72 {TEST}", "72 processes, 1 GPU each = 72 ranks; on"),
        # The words of a command that Run:ai gets, and a command that only names programs.
        (
            "runai submit-dist mpi t --workers 2 --gpu 8 --master-command mpirun"
            f" --master-args '-np 16 -x NCCL_ALGO {TEST}' -e NCCL_ALGO=RING",
            "16 processes, 8 on each of 2 nodes",
        ),
        (
            f"ssh b 'killall -9 mpirun all_reduce_perf || true'\nmpirun -np 2 -H a,b {TEST}",
            "2 processes, 1 on each of 2 nodes",
        ),
        # The path of a script, whose value has blanks.
        (
            'R="$( cd "$( dirname "${BASH_SOURCE[0]}" )/.." && pwd )"\nexport NCCL_DEBUG=INFO\n'
            f"$R/build/{EIGHT}",
            "1 process, on one node, 8 GPUs each",
        ),
        # One process that is a launcher, alone or behind a shell.
        (f"srun -N 1 -n 1 mpirun -np 8 {TEST}", "8 processes, all on one node, 1 GPU each = 8"),
        (
            f"srun --nodes=1 --gpus-per-node=8 bash -c 'cd /w && mpirun -np 8 ./{TEST}'",
            "8 processes, all on one node, 1 GPU each = 8 ranks",
        ),
        # GPUs of a job on named nodes.
        (
            "srun -w worker-0 --gpus=4 all_reduce_perf -b 8 -e 8G -f 2 -g 4",
            "1 process, on worker-0, 4 GPUs each = 4 ranks",
        ),
        # A script that a launcher starts.
        (
            f"case $OMPI_COMM_WORLD_LOCAL_RANK in\n0) numactl --cpunodebind=$1 {TEST};;\nesac",
            "not known: the script reads OMPI_COMM_WORLD_LOCAL_RANK",
        ),
        (
            "#SBATCH -p <<<PARTITION>>>\n#SBATCH -N 1\n#SBATCH --ntasks-per-node=8\n"
            f"read -r -d '' CMD <<EOF\ncd /w\n{TEST} -g 1\nEOF\nsrun bash -c \"$CMD\"",
            "8 processes, all on one node, 1 GPU each = 8 ranks",
        ),
        (f"A=(\n -np 8 # it's all\n)\nmpirun ${{A[@]}} {TEST}", "8 processes, all on one node"),
        ('"$PYTHON_BIN" -m torch.distributed.run --nproc-per-node=4 t.py', "4 processes, all on"),
        ('torchrun --nproc-per-node="${P:-${Q-4}}" t.py', "4 processes, all on one node"),
        ("torchrun --nnodes=${N:-$(a '{}')} t", 'not known: the number of nodes is "${N:-$(a'),
        ('D="<my dir>/o"\nsrun -n 4 -o $D/%j.log bash a.sh', "4 processes, all on one node"),
        # Prompts.
        (f"$> srun -N 2 --ntasks-per-node=8 {TEST}", "16 processes, 8 on each of 2 nodes"),
        (f"Singularity> mpirun -np 2 -H a,b {TEST}", "2 processes, 1 on each of 2 nodes"),
        (f"command:\n# mpirun -np 2 -H a,b {TEST}\n(hang here)", "2 processes, 1 on each"),
        # Without -n, mpirun fills slots, of which a job of Slurm without tasks shows none.
        (f"#SBATCH --nodes=1\n#SBATCH --gres=gpu:8\nmpirun {EIGHT}", "not known: -n is not given"),
        (
            f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nmpirun {EIGHT}",
            "2 processes, 1 on each of 2 nodes",
        ),
        # sbatch ends a directive at #, and a variable that has a value is set.
        (f"#SBATCH -N 2\n#SBATCH --ntasks-per-node 4# tasks\nsrun {TEST}", "8 processes, 4 on"),
        (f"N=4\nif [[ -z $N ]]; then N=1; fi\nmpirun -np $N {TEST}", "4 processes"),
        (f'N=4\nif [ -n "${{N}}" ]; then N=2; else N=3; fi\nmpirun -np $N {TEST}', "2 processes"),
        (
            f'#SBATCH -N 1\nN=4\nif [ -z "${{SLURM_JOB_ID-}}" ]; then N=1; fi\nsrun -n $N {TEST}',
            "4 processes",
        ),
        (f"N=$M\nif [ -z $N ]; then N=1; fi\nmpirun -np $N {TEST}", "not known"),
        (
            "read -r -d '' CMD <<EOF\ntorchrun_jsc --nnodes 2 --nproc-per-node 4"
            ' --rdzv-backend c10d --rdzv-endpoint a:1 t.py\nEOF\nsrun -N 2 bash -c "$CMD"',
            "2 processes, 1 on each of 2 nodes; torchrun starts 4 in each = 8 ranks",
        ),
    ],
)
def test_what_a_script_starts(text: str, expected: str) -> None:
    (one,) = checked(text)
    assert said(one).startswith(expected)
    assert "too-many-gpus" not in ids(one)


def test_one_launcher_of_a_text_is_one_program() -> None:
    first, second = checked(
        f"mpirun -hosts a,b -np 2 {EIGHT}\nit hangs, and so does\nmpirun -np 1 {EIGHT}"
    )
    assert [flavor.words for flavor in first.flavors] == ["hydra"]
    assert second.flavors == first.flavors
    # Commands for two launchers stay what they are.
    first, second = checked(f"mpirun -hosts a,b -np 2 {EIGHT}\nmpirun -x A -H a,b -np 2 {EIGHT}")
    assert set(first.flavors).isdisjoint(second.flavors)


def test_a_device_that_lacks_a_digit() -> None:
    (one,) = checked(f"mpirun -np 16 -H a:8,b:8 -x NCCL_IB_HCA=mlx5_6,mlx_8 {TEST}")
    assert ids(one) == {"hca"}
    assert one.fixed is not None
    assert "NCCL_IB_HCA=mlx5_6,mlx5_8" in one.fixed


@pytest.mark.parametrize(
    ("options", "has_gpus"),
    [
        ("--device=/dev/kfd --device=/dev/dri", True),
        ("--device nvidia.com/gpu=all", True),
        ("--privileged", True),
        ("--device=/dev/infiniband", False),
    ],
)
def test_the_gpus_of_a_container(options: str, has_gpus: bool) -> None:
    (one,) = checked(f"docker run --rm --ipc=host {options} i ./{EIGHT}")
    assert ("container-without-gpus" not in ids(one)) == has_gpus


def test_as_many_processes_as_gpus_of_each() -> None:
    (one,) = checked(f"mpirun -np 8 {EIGHT}")
    assert "as-many-as-gpus" in ids(one)
    assert not one.is_wrong
    assert not only(f"mpirun -np 8 -H a,b,c,d,e,f,g,h --bind-to none {EIGHT}").findings


def test_a_network_inside_one_node_is_no_left_over() -> None:
    off = "-x NCCL_P2P_DISABLE=1 -x NCCL_SHM_DISABLE=1"
    assert ids(only(f"mpirun -np 8 -H a:8 -x NCCL_NET=Socket {off} {TEST}")) == {"network-only"}
    assert ids(only(f"mpirun -np 8 -H a:8 -x NCCL_SHM_DISABLE=1 {TEST}")) == {"setting-left-over"}


@pytest.mark.parametrize(
    ("launcher", "fixed"),
    [
        ("mpirun -np 8 -H a:8 --bind-to core", "-x NCCL_ALGO=Tree all_reduce_perf"),
        ("srun -N 1 --ntasks-per-node=8", "--export=ALL,NCCL_ALGO=Tree all_reduce_perf"),
        ("mpiexec.hydra -n 8 -hosts a:8", "-genv NCCL_ALGO Tree all_reduce_perf"),
    ],
)
def test_a_setting_behind_the_program(launcher: str, fixed: str) -> None:
    (one,) = checked(f"{launcher} {TEST} NCCL_ALGO=Tree")
    assert ids(one) == {"argument-ignored"}
    assert one.fixed is not None
    assert fixed in one.fixed
    assert one.fixed.endswith("-g 1")


@pytest.mark.parametrize("launcher", ["mpirun -np 16 -H a:8,b:8", "srun -N 2 --ntasks-per-node=8"])
def test_an_assignment_is_no_program(launcher: str) -> None:
    (one,) = checked(f"{launcher} NCCL_IB_TC=104 NCCL_ALGO=Ring {TEST}")
    assert ids(one) == {"value-as-program"}
    assert one.fixed == f"{launcher} env NCCL_IB_TC=104 NCCL_ALGO=Ring {TEST}"
    assert not only(one.fixed).findings


def test_rounds_that_a_container_hides_are_one() -> None:
    text = (
        "for n in 1 2 3; do for a in x y; do docker run --gpus all --shm-size=8g"
        f' -e NCCL_DEBUG_FILE=/o/$a_%p --entrypoint=bash i -c "{EIGHT}"; done; done'
    )
    assert said(only(text)) == "1 process, on one node, 8 GPUs each = 8 ranks"


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        # The longer name means something else.
        (f"mpirun -np 16 -H a:8,b:8 -x NCCL_NET_DISABLE=0 {TEST}", "variable-unknown"),
        # What is off may be what is measured.
        (f"mpirun -np 16 -H a:8,b:8 -x NCCL_P2P_DISABLE=1 {TEST}", "setting-left-over"),
        # Of the slots and the number of processes, either may be right.
        (f"mpirun -np 16 -H a:2,b:2 {TEST}", "too-few-slots"),
        # How many GPUs the node has is not known.
        (TEST, "one-rank"),
    ],
)
def test_a_fault_without_a_right_edit_has_no_fixed_line(command: str, kind: str) -> None:
    (one,) = checked(command)
    assert kind in ids(one)
    assert one.fixed is None


@pytest.mark.parametrize(
    ("arguments", "is_bad"),
    [
        ("all_reduce_perf -b 4", False),
        ("all_reduce_perf -b 2", True),
        ("all_reduce_perf -b 4 -d double", True),
        ("sendrecv_perf -b 1 -d int8", False),
        ("broadcast_perf -b 2 -d half", False),
        ("all_gather_perf -b 4", True),
        ("all_reduce_perf -b 4 -d all", True),
    ],
)
def test_sizes_that_are_no_whole_element(arguments: str, is_bad: bool) -> None:
    (one,) = checked(f"mpirun -np 16 -H a:8,b:8 {arguments} -e 8G -f 2 -g 1")
    assert ("size-below-8" in ids(one)) == is_bad


def test_a_size_that_each_rank_has_a_share_of() -> None:
    (one,) = checked("mpirun -np 16 -H a:8,b:8 all_gather_perf -b 4 -e 8G -f 2 -g 1")
    assert one.fixed is not None
    assert "-b 256 " in one.fixed


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        ("-x NCCL_DEBUG_SUBSYS=INIT -x NCCL_DEBUG_SUBSYS=NET", "-x NCCL_DEBUG_SUBSYS=INIT,NET"),
        ("-x NCCL_DEBUG=noinfo", "-x NCCL_DEBUG=NONE"),
    ],
)
def test_a_fix_keeps_what_was_meant(command: str, fixed: str) -> None:
    (one,) = checked(f"mpirun -np 16 -H a:8,b:8 {command} {TEST}")
    assert one.fixed == f"mpirun -np 16 -H a:8,b:8 {fixed} {TEST}"
    # A job runs without its log, and not with two values.
    severity = Severity.WARNING if "noinfo" in command else Severity.ERROR
    assert [held.finding.severity for held in one.findings][:1] == [severity]


@pytest.mark.parametrize(
    ("outer", "expected"),
    [
        ("srun -N 1 --ntasks-per-node=4", {"shared-gpus"}),
        ("srun -N 1 --ntasks-per-node=4 --gpus-per-task=1", set()),
        ("mpirun -np 4 -H a:4", {"shared-gpus", "default-binding"}),
        ("srun -N 4 --ntasks-per-node=1", set()),
    ],
)
def test_several_torchrun_on_a_node(outer: str, expected: set[str]) -> None:
    inner = "torchrun --nnodes 4 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint a:1 t.py"
    (one,) = checked(f"{outer} {inner}")
    assert {h.finding.id for h in one.findings if h.finding.severity != "note"} <= expected
    assert ("shared-gpus" in ids(one)) == ("shared-gpus" in expected)


def test_srun_without_numbers_may_be_in_a_job() -> None:
    assert not only(f"srun --mpi=pmix {TEST}").is_wrong
    for asked in ("-n 1", "--gpus=8"):
        (one,) = checked(f"srun {asked} --mpi=pmix {TEST}")
        assert one.is_wrong


def test_the_gpus_that_a_text_gives_each_node() -> None:
    for text in ("Two hosts, each with 6 A100 GPUs", "On nodes with 6 GPUs each"):
        (one,) = checked(f"{text}:\n```\nmpirun -np 1 {EIGHT}\n```\n")
        assert "too-many-gpus" in ids(one)
    said = "It runs 8 operations, each with 1 GPU per node.\nIf run on hosts, each with 6 GPUs,"
    (one,) = checked(f"{said} it fails.\n```\n{EIGHT}\n```\n")
    assert not one.is_wrong


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#!/bin/sh\n#SBATCH -N 2\nset -e\n#SBATCH -n 4\nsrun a\n", ["directive-late"]),
        ("#!/bin/sh\n\n# x\n#PBS -l select=2\n #PBS -q a\ncd\n#PBS -q a # b\n", ["directive-late"]),
        ("#!/bin/sh\n#SBATCH -N 2 --container-image=r.io:5#a/b\nsrun a\n", ["directive-cut"]),
        ("#!/bin/sh \u2013l\n#SBATCH -n 2 \u2013N 1\nsrun a\n", ["dash", "dash"]),
        ("#!/bin/sh\n#SBATCH --container-image=r.io\\#a/b -N 2 #x\nsrun a\n", []),
        ("#!/bin/sh\n#SBATCH --container-image='r.io#a/b'\nsrun a#b\n", []),
        ("#!/bin/sh\n# SBATCH --ntasks-per-node=1\nsrun a\n", ["directive-comment"]),
        ("#!/bin/sh\n#SBATCH -N 2\n# SBATCH -n 1\nsrun a\n", []),
        # The text of another script, and a page with several.
        ("#!/bin/sh\ncat > job <<E\n#SBATCH -N 2\nE\n", []),
        ("#!/bin/sh\nsrun a\n#!/bin/sh\n#SBATCH -N 2\nsrun a\n", []),
    ],
)
def test_directives_that_no_scheduler_reads(text: str, found: list[str]) -> None:
    assert [one.id for one in unread_directives(text)] == found


def test_a_long_directive_is_shown_in_part() -> None:
    for line in ("#SBATCH -x{}y", "# SBATCH -x {}y", "#PBS -l a={}"):
        text = line.format(" " * 20_000 + "n" * 1000)
        (one,) = unread_directives(f"#!/bin/sh\n{text}\n" + f"cd\n{text}\n" * (text[1] != " "))
        assert re.search(r"-\w (a= )?n{70,80} \.\.\.", one.message) is not None


def test_a_launcher_that_another_program_is_given_starts_nothing() -> None:
    with pytest.raises(InputError, match="no launch command"):
        from_text("solver -mpiexe mpirun -mpiext '-np 8' case.k", LaunchContext())
    # What is longer than any option names none.
    assert from_text(f"solver -{'mpi' * 20_000}. mpirun -np 8 ./a", LaunchContext())
    assert from_text(f"solver -{'mpi' * 100} mpirun -np 8 ./a", LaunchContext())


def test_a_comment_behind_a_backslash_ends_the_command() -> None:
    text = f"mpirun -np 8 \\ # all GPUs\n  {TEST}\n"
    (one,) = checked(text)
    assert "line-continuation" in ids(one)
    assert one.fixed == f"mpirun -np 8 {TEST}"


@pytest.mark.parametrize(
    ("command", "kind", "is_known"),
    [
        (f"mpirun -np 8 -H xxxx,xxxx,... {TEST}", None, False),
        (
            f"mpirun -np 2 -H a,b -x LD_LIBRARY_PATH=LD_LIBRARY_PATH:/n {TEST}",
            "path-without-dollar",
            1,
        ),
        ("mpirun -np 8 --mca btl tcp,self ./a.out", None, True),
    ],
)
def test_lists_and_paths(command: str, kind: str | None, is_known: bool) -> None:
    (one,) = checked(command)
    assert {k.finding.id for k in one.findings if k.finding.severity != "note"} == {kind} - {None}
    assert (one.predictions[0][0].placement is not None) == is_known
    assert "mca-no-effect" not in ids(one)


def test_each_of_several_tasks_starts_no_job() -> None:
    (one,) = checked(f"srun -N 1 --ntasks-per-node=8 bash -c 'mpirun -np 8 {TEST}'")
    assert "nested-launcher" in ids(one)


def test_the_number_of_nodes_of_a_variable_is_said() -> None:
    text = f"#SBATCH -N 8\nsrun -N ${{NUM}} --ntasks-per-node=8 {TEST}"
    (prediction, _) = only(text).predictions[0]
    assert prediction.assumed == "8 nodes assumed, as -N ${NUM} is not known here: --nodes"


def test_tables_of_other_parameters_are_other_runs() -> None:
    one, eight = (HEADER.replace("nGpus 1", f"nGpus {number}") for number in (1, 8))
    assert judge_output(one + eight) == []
    (found,) = judge_output(eight + eight)
    assert found.id == "no-mpi-build"


def test_a_page_with_a_table_below_its_commands(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"```\n$> cd a\n$> srun -n 8 --ntasks-per-node=4 {TEST}\n```\n{HEADER}")
    (launch,) = lint(LintRequest([str(path)])).launches
    (one,) = launch.commands
    assert said(one).startswith("8 processes, 4 on each of 2 nodes")


MPI = f"mpirun -np 16 -N 8 -H a:8,b:8 {{}}{TEST}"


@pytest.mark.parametrize(
    "script",
    [
        f"NCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_ALGO=Ring; {MPI.format('')}",
        f"NCCL_ALGO='Ring'\nsrun -N 2 --ntasks-per-node=8 {TEST}",
        "declare NCCL_ALGO=Ring\ntorchrun --nproc-per-node=8 t.py",
        f"A=Ring\nNCCL_ALGO=$A\n{MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_ALGO=$(cat a)\n{MPI.format('-x NCCL_ALGO ')}",
        f"for NCCL_ALGO in Ring Tree; do {MPI.format('-x NCCL_ALGO ')}; done",
        f"run() {{ local NCCL_ALGO=$1; {MPI.format('-x NCCL_ALGO ')}; }}\nrun Ring\nrun Tree",
        f"NCCL_ALGO=Ring\nNCCL_ALGO=Tree {TEST} -g 8\n{MPI.format('')}",
        f"NCCL_ALGO=Ring\nmpiexec.hydra -n 16 -ppn 8 -hosts a,b {TEST}",
    ],
)
def test_a_variable_without_export_reaches_no_program(script: str) -> None:
    assert "not-exported" in ids(checked(script)[-1])
    assert checked(script)[-1].fixed is None


@pytest.mark.parametrize(
    "script",
    [
        f"export NCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_ALGO=Ring\nexport NCCL_ALGO\n{MPI.format('-x NCCL_ALGO ')}",
        f"export NCCL_ALGO\nNCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"set -a\nNCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"set -o allexport\nNCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"declare -x NCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_ALGO=Ring\n{MPI.format('-x NCCL_ALGO=$NCCL_ALGO ')}",
        f"NCCL_ALGO=Ring\n{MPI.format('-x NCCL_PROTO=LL -x NCCL_ALGO=${{NCCL_ALGO}} ')}",
        f'NCCL_ALGO=Ring\nO="-x NCCL_ALGO=$NCCL_ALGO"\n{MPI.format("$O ")}',
        f"NCCL_ALGO=Ring {MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_ALGO=Ring \\\n{MPI.format('-x NCCL_ALGO ')}",
        f"NCCL_HOME=/usr\nNCCL_TESTS=/opt\n{MPI.format('')}",
        f"{MPI.format('-x NCCL_ALGO ')}",
    ],
)
def test_what_is_exported_or_read_by_the_line_is_no_fault(script: str) -> None:
    assert not any("not-exported" in ids(one) for one in checked(script))


_CASE = """APP="$@"
let place=$OMPI_COMM_WORLD_LOCAL_RANK%4
case ${place} in
[0])
  export NCCL_IB_HCA=mlx5_4:1
  numactl -N 0 $APP ;;
[1])
  export NCCL_IB_HCA=mlx5_5:1
  numactl -N 1 $APP ;;
esac
"""


@pytest.mark.parametrize(
    "text",
    [
        _CASE,
        "export NCCL_IB_HCA=mlx5_$OMPI_COMM_WORLD_LOCAL_RANK\nexec $@\n",
        "srun bash -c 'export NCCL_IB_HCA=mlx5_${SLURM_LOCALID}:1; python train.py'\n",
        "NICS=(mlx5_0 mlx5_1)\nexport NCCL_IB_HCA=${NICS[$SLURM_LOCALID]}\nexec $@\n",
        "lr=$SLURM_LOCALID\nif [ $lr -eq 0 ]; then\n  export NCCL_IB_HCA=mlx5_0\n"
        "elif [ $lr -eq 1 ]; then\n  export NCCL_IB_HCA=mlx5_1\nfi\n",
    ],
)
def test_a_nic_by_the_place_on_the_node_is_found(text: str) -> None:
    assert [one.id for one in nics_by_rank(text)] == ["hca-by-rank"]


@pytest.mark.parametrize(
    "text",
    [
        "# export NCCL_IB_HCA=mlx5_$SLURM_LOCALID\nexport NCCL_IB_HCA=$NICS\n",
        "export UCX_NET_DEVICES=mlx5_$SLURM_LOCALID:1\nexport NCCL_IB_HCA=mlx5_0,mlx5_1\n",
        "for nic in mlx5_0 mlx5_1; do mpirun -x NCCL_IB_HCA=$nic ./a; done\n",
        'if [ "$(hostname)" = n1 ]; then export NCCL_IB_HCA=mlx5_0; else\n'
        "export NCCL_IB_HCA=mlx5_2; fi\nexport LOCAL_RANK=$SLURM_LOCALID\n",
        "case $SLURM_JOB_PARTITION in\na) export NCCL_IB_HCA=mlx5_0 ;;\n"
        "b) export NCCL_IB_HCA=mlx5_4 ;;\nesac\nlocal_rank=$SLURM_LOCALID\n",
        "if [ $LOCAL_RANK = 0 ]; then\n  export NCCL_IB_HCA=mlx5_0\nfi\n",
        "case $SLURM_LOCALID in 0) A=1 ;; esac\n",
        'HCA=$(cat /etc/hca); echo "rank $SLURM_LOCALID"\nexport NCCL_IB_HCA=$HCA\n',
        "export HCA=mlx5 CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nexport NCCL_IB_HCA=$HCA\n",
        'if [ "$LOCAL_RANK" = 0 ]; then echo start; fi\nif [ "$CLUSTER" = a ]; then\n'
        "export NCCL_IB_HCA=mlx5_0\nelse\nexport NCCL_IB_HCA=mlx5_2\nfi\n",
        'case "$SLURM_LOCALID" in 0) echo first;; esac\n'
        "[ -d /a ] && export NCCL_IB_HCA=mlx5_0\n[ -d /b ] && export NCCL_IB_HCA=mlx5_1\n",
        "OUT=/out/$SLURM_LOCALID\nexport NCCL_IB_HCA=${OUT:+mlx5}\n",
    ],
)
def test_a_nic_that_is_chosen_otherwise_is_not(text: str) -> None:
    assert not list(nics_by_rank(text))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", [" " * 100_000, "case $LOCAL_RANK in\n" * 20_000, "a=$((" * 20_000]
)
def test_long_texts_take_seconds(text: str) -> None:
    assert not list(nics_by_rank(f"{text}\nNCCL_IB_HCA=mlx5_0"))
