# SPDX-License-Identifier: Apache-2.0
"""Placement that the command leaves to a file, to the site, or to a number of GPUs."""

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.cli.lint import as_data
from nccltune.launch_lint.check import LaunchCheck, check_all
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.options import OPENMPI_4
from nccltune.launch_lint.source import from_text
from nccltune.launch_lint.starts import starts
from nccltune.model.finding import Severity
from tests.unit.launch_lint.judged import only

TEST = "all_reduce_perf -b 8 -e 1G -f 2 -g 1"


def severity(one: LaunchCheck, kind: str) -> Severity | None:
    return next((h.finding.severity for h in one.findings if h.finding.id == kind), None)


@pytest.mark.parametrize(
    ("options", "expected", "assumed"),
    [
        ("-np 16 -H a:8,b:8 --map-by ppr:4:socket", "16 processes, 8 on each of 2", "2 sockets on"),
        ("-H a:8,b:8 --map-by ppr:2:numa:PE=4", "16 processes, 8 on each of 2", "4 NUMA domains"),
        ("-H a:8,b:8 --map-by ppr:8:package", "16 processes, 8 on each of 2", "1 package on"),
        ("-np 16 -H a:8,b:8 -npersocket 4", "16 processes, 8 on each of 2", "2 sockets on"),
        ("-np 16 --map-by ppr:4:socket", "16 processes, 8 on each of 2", "2 sockets on"),
        ("-H a:8,b:8 --map-by ppr:3:socket", "not known: 3 on each socket", None),
        ("--map-by ppr:4:socket", "not known: 4 on every socket of every node", None),
        ("-N 8", "not known: 8 on every node", None),
        ("--map-by ppr:8:node", "not known: 8 on every node", None),
        ("--bind-to none", "not known: as many as slots on every node", None),
        ("-np 8 -N 8", "8 processes, all on one node", "1 node of 8 slots"),
    ],
)
def test_parts_of_nodes_and_nodes_that_nothing_shows(
    options: str, expected: str, assumed: str | None
) -> None:
    (prediction, _) = only(f"mpirun {options} {TEST}").predictions[0]
    assert starts(prediction, 1).startswith(expected)
    assert assumed is None or (prediction.assumed or "").startswith(assumed)


@pytest.mark.parametrize(
    ("options", "ranks", "why"),
    [
        ("--hostfile /none/hosts -np 8", 8, "the hosts are in /none/hosts, which is not here"),
        ("-np 2 -machinefile h", 2, "the hosts are in h, which is not here"),
        ("--rankfile ranks -np 16", 16, "--rankfile is given"),
        ("-np 16 -H $HOSTS", 16, "the list of hosts is '$HOSTS'"),
        ("-np 16 --map-by ppr:4:l3cache", 16, "ppr:4:l3cache depends on sockets"),
        ("-np $((2*8)) --rankfile $RANKS", 16, "--rankfile is given"),
    ],
)
def test_the_ranks_are_known_where_only_their_nodes_are_not(
    options: str, ranks: int, why: str
) -> None:
    one = only(f"mpirun {options} {TEST}")
    said = starts(one.predictions[0][0], one.gpus)
    assert said.startswith(f"{ranks} processes, 1 GPU each = {ranks} ranks; on which nodes is not")
    assert why in said
    assert one.predictions[0][0].assumed is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-np 24 -npernode 8 --hostfile h", "24 processes, 8 on each of 3 nodes"),
        ("-np 1 --hostfile h", "1 process, on one node"),
        ("-npernode 8 --hostfile h", "not known: the hosts are in h, which is not here"),
        ("--hostfile h", "not known: the hosts are in h, which is not here"),
    ],
)
def test_a_file_that_is_not_here_is_no_single_node(options: str, expected: str) -> None:
    one = only(f"mpirun {options} {TEST}")
    assert starts(one.predictions[0][0], one.gpus).startswith(expected)


def test_what_is_said_elsewhere_of_the_hosts_counts_first() -> None:
    command = f"mpirun -np 16 --hostfile h {TEST}"
    for site in (LaunchContext(nodes=2), LaunchContext(hosts=("a:8", "b:8"))):
        assert "8 on each of 2 nodes" in starts(only(command, site).predictions[0][0], 1)


def test_variables_that_other_hosts_do_not_get_are_told_where_hosts_are_in_a_file() -> None:
    text = f"NCCL_DEBUG=INFO mpirun -np 2 {{}} {TEST}"
    assert severity(only(text.format("--hostfile h")), "env-not-exported") is Severity.WARNING
    assert severity(only(text.format("")), "env-not-exported") is None


@pytest.mark.parametrize(
    ("line", "option", "expected"),
    [
        ("#SBATCH -N 2", "", None),
        ("#SBATCH -N 2", "--mca plm rsh", Severity.WARNING),
        ("#SBATCH -N 2", "--mca plm ^slurm", Severity.WARNING),
        ("#SBATCH -N 2", "--mca plm slurm", None),
        ("#SBATCH -N 2\nexport OMPI_MCA_plm=rsh", "", Severity.WARNING),
        ("#SBATCH -N 2\nexport PRTE_MCA_plm=ssh", "", Severity.WARNING),
        ("#SBATCH -N 2\nOMPI_MCA_plm=rsh", "", None),
        ("#SBATCH -N 2\nexport OMPI_MCA_plm=^rsh", "", None),
        ("#SBATCH -N 2\nexport OMPI_MCA_plm=$PLM", "", None),
        ("#SBATCH -N 2\nssh a $A", "", None),
        ("#SBATCH -N 2\nexport OMPI_MCA_plm=rsh", "--mca plm slurm", None),
        ("#SBATCH -N 2 --export=NONE", "", Severity.WARNING),
        ("#PBS -l select=2:ngpus=8:mpiprocs=8", "", Severity.WARNING),
    ],
)
def test_srun_passes_variables_on_to_open_mpi_s_daemons(
    line: str, option: str, expected: Severity | None
) -> None:
    text = f"#!/bin/bash\n{line}\nexport NCCL_DEBUG=INFO\nmpirun -np 16 -N 8 {option} {TEST}\n"
    assert severity(only(text), "env-not-exported") is expected


@pytest.mark.parametrize(
    ("hosts", "options", "expected"),
    [
        ("a\nb", "-n 16 -N 8", True),
        ("a slots=8\nb", "-n 16 -N 8", True),
        ("a\nb", "--map-by ppr:8:node", True),
        ("a slots=8\nb slots=8", "-n 16 -N 8", False),
        ("a\nb", "-n 2 -N 1", False),
        ("a\nb", "-n 16 -N 8 --oversubscribe", False),
        ("a\nb", "-n 16", False),
        ("a\nb", "-n 16 -N 8 -H a:8,b:8", False),
    ],
)
def test_hosts_without_slots_have_their_cores(hosts: str, options: str, expected: bool) -> None:
    text = f"cat > h <<E\n{hosts}\nE\nmpirun --hostfile h {options} {TEST}\n"
    one = only(text)
    held = [h.finding for h in one.findings if h.finding.id == "slots-of-cores"]
    assert [finding.fix for finding in held] == ["write slots=8 behind each host"] * expected
    assert "slots-of-cores" not in str(only(f"#SBATCH -N 2\n{text}").findings)


def test_a_file_of_programs_needs_no_program() -> None:
    for command in ("mpirun --app f", "mpiexec.hydra -configfile f"):
        assert severity(only(command), "no-program") is None


@pytest.mark.parametrize(
    "options", ["-n 256 -npernode 16 -hostfile h", "-np 16 -H a:16", "-N 16 -np 32 -H a:16,b:16"]
)
def test_as_many_gpus_are_taken_for_there_as_the_command_uses(options: str) -> None:
    one = only(f"mpirun {options} {TEST}")
    assert one.predictions[0][0].fails is None
    assert severity(one, "too-many-gpus") is Severity.NOTE
    eight = only(f"mpirun {options} {TEST}", LaunchContext(gpus=8))
    assert severity(eight, "too-many-gpus") is not Severity.NOTE
    assert eight.is_wrong


@pytest.mark.parametrize("options", ["-np 16 -H a:8,b:8 all_reduce_perf -b 8 -e 1G -f 2 -g 8"])
def test_more_gpus_than_a_node_has_are_an_error(options: str) -> None:
    assert severity(only(f"mpirun {options}"), "too-many-gpus") is Severity.ERROR
    few = only(f"mpirun {options}", LaunchContext(gpus=4))
    (fix,) = [h.finding.fix for h in few.findings if h.finding.id == "too-many-gpus"]
    assert fix == "write -g 4 and start one process on each node"


def test_an_elastic_job_has_no_single_number_of_nodes() -> None:
    one = only("torchrun --nnodes=1:2 --nproc-per-node=4 --rdzv-endpoint=localhost:6000 t.py")
    said = starts(one.predictions[0][0], one.gpus)
    assert said == "not known: 1 to 2 nodes (an elastic job), 4 on each"
    assert severity(one, "torchrun-endpoint") is None
    fixed = only("torchrun --nnodes=2:2 --nproc-per-node=4 --rdzv-endpoint=a:1 t.py")
    assert starts(fixed.predictions[0][0], 1).startswith("8 processes")


def test_the_node_that_is_the_address_may_call_itself_localhost() -> None:
    text = "torchrun --nnodes=2 --nproc-per-node=1 --master-addr=localhost --node-rank={} t.py"
    assert severity(only(text.format(0)), "torchrun-endpoint") is Severity.NOTE
    assert severity(only(text.format(1)), "torchrun-endpoint") is Severity.ERROR
    typed = only("torchrun --nnodes=2 --nproc-per-node=8 --rdzv-endpoint=$(hostname):29 t.py")
    assert severity(typed, "torchrun-endpoint") is Severity.NOTE
    idle = only("CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc-per-node=1 t.py")
    assert severity(idle, "torchrun-one-process") is Severity.NOTE
    tasks = only("srun -N 2 --gres=gpu:a:1 --ntasks-per-node=2 python t.py")
    assert severity(tasks, "shared-gpus") is Severity.NOTE


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ("--master-addr=me@h1 --node-rank=1", "--master-addr h1"),
        ("--master-addr tcp://h1 --node-rank=1", "--master-addr h1"),
        ("--master-addr=h1:29500 --node-rank=1", "--master-addr h1"),
        ("--master-addr=fe80::1 --node-rank=1", None),
        ("--master-addr=$HOST:1 --node-rank=1", None),
        ("--rdzv-backend=c10d --rdzv-endpoint=me@h1:29500", "--rdzv-endpoint h1:29500"),
        ("--rdzv-backend=c10d --rdzv-endpoint=h1:29500", None),
    ],
)
def test_an_address_is_the_name_of_a_host(options: str, right: str | None) -> None:
    one = only(f"torchrun --nnodes=2 --nproc-per-node=8 {options} t.py")
    fixes = [held.finding.fix for held in one.findings if held.finding.id == "trainer-host"]
    assert fixes == ([] if right is None else [f"write {right}"])


def test_an_option_that_takes_the_program_leaves_nothing_to_predict() -> None:
    one = only("mpirun -np 2 -x ./all_reduce_perf -b 8 -e 8G -f 2 -g 1 -n 20")
    assert starts(one.predictions[0][0], one.gpus) == (
        "not known: -x takes ./all_reduce_perf for its value"
    )
    assert one.fixed == "mpirun -np 2 ./all_reduce_perf -b 8 -e 8G -f 2 -g 1 -n 20"


@pytest.mark.parametrize("python", ["python -m", "python3 -u -m", "/opt/bin/python3.11 -u -O -m"])
def test_options_of_python_precede_a_module(python: str) -> None:
    one = only(
        f"srun -N 2 --ntasks-per-node=1 {python} torch.distributed.run --nnodes=2 "
        "--nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=a:1 t.py"
    )
    assert starts(one.predictions[0][0], one.gpus).endswith("torchrun starts 8 in each = 16 ranks")


def test_a_variable_in_a_script_that_a_variable_holds_is_read_on_the_node() -> None:
    script = (
        'L="accelerate launch --num_processes 16 --num_machines 2 --main_process_ip a'
        ' --main_process_port 1 --machine_rank \\$SLURM_PROCID"\n'
        'srun -N 2 --ntasks-per-node=1 --gpus-per-node=8 bash -c "{}"'
    )
    assert severity(only(script.format("$L t.py")), "inner-rank") is None
    direct = script.partition("\n")[2].format(
        "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID --master-addr=a t.py"
    )
    assert severity(only(direct), "inner-rank") is Severity.ERROR


def test_json_has_the_processes_of_a_command_whose_nodes_are_unknown() -> None:
    linted = lint(LintRequest([f"mpirun -np 8 --hostfile /none/hosts {TEST}"]))
    (start,) = as_data(linted)["launches"][0]["commands"][0]["starts"]
    assert (start["processes"], start["ranks"], start["nodes"]) == (8, 8, [])
    assert start["unknown"].startswith("the hosts are in /none/hosts")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("-np 10 all_reduce_perf -b 8 -e 1G -f 2 -g 4", "10 processes, 4 GPUs each = 40 ranks; on"),
        ("-np 2 all_reduce_perf -b 8 -e 1G -f 2 -g 8", "2 processes, 8 GPUs each = 16 ranks; on"),
        ("-np 2 all_reduce_perf -b 8 -e 1G -f 2 -g 4", "2 processes, both on one node"),
        ("-np 16 all_reduce_perf -b 8 -e 1G -f 2 -g 1", "16 processes, 8 on each of 2 nodes"),
    ],
)
def test_nodes_that_nothing_names_are_not_known_if_one_has_too_few_gpus(
    arguments: str, expected: str
) -> None:
    one = only(f"mpirun {arguments}")
    assert starts(one.predictions[0][0], one.gpus).startswith(expected)


@pytest.mark.parametrize("site", [LaunchContext(on_first="PBS"), LaunchContext(ran=True)])
def test_nodes_of_a_job_have_as_many_processes_as_their_gpus_allow(site: LaunchContext) -> None:
    one = only("mpirun -np 10 all_reduce_perf -b 8 -e 1G -f 2 -g 4", site)
    said = "10 processes, 2 on each of 5 nodes"
    assert starts(one.predictions[0][0], one.gpus).startswith(said)
    assert severity(one, "too-many-gpus") is None
    assert "assumed" in (one.predictions[0][0].assumed or "")


def test_a_program_without_gpus_is_not_limited_by_their_number() -> None:
    one = only("mpirun -np 40 flow CASE", LaunchContext(nodes=1))
    assert all(prediction.fails is None for prediction, _ in one.predictions)
    assert not one.is_wrong
    assert only(f"mpirun -np 40 {TEST}", LaunchContext(nodes=1)).is_wrong


def test_hosts_whose_names_are_computed_are_hosts_of_their_own() -> None:
    text = (
        "B=$(hostname | cut -d. -f1)\n"
        "for i in 0 1; do echo $B-$i slots=4 | tee -a /none/h; done\n"
        f"mpirun --hostfile /none/h {TEST}\n"
    )
    placement = only(text).predictions[0][0].placement
    assert [node.processes for node in placement.nodes] == [4, 4]


def test_c10d_numbers_the_machines_of_accelerate() -> None:
    text = "accelerate launch --num_machines 2 --num_processes 16 --main_process_ip a {} t.py"
    assert severity(only(text.format("--rdzv_backend c10d")), "accelerate-rank") is None
    assert severity(only(text.format("")), "accelerate-rank") is Severity.ERROR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"runai mpi exec job -- mpirun {TEST}", "not known: the words around"),
        (f"runai training mpi submit t --workers 2 -- mpirun -np 8 {TEST}", "8 processes, 1 GPU"),
        (f"# on 4 nodes\nsrun --ntasks-per-node=8 {TEST}", "not known: the words around"),
        (f"A=$(scontrol show hostnames)\nsrun -n 8 {TEST}", "8 processes, 1 GPU each = 8 ranks; "),
        (f"NNODES=4\nsrun --ntasks-per-node=8 {TEST}", "not known: the words around"),
        (f"srun -w $HOSTS {TEST}", "not known: the list of hosts is '$HOSTS'"),
        (f"# on 4 nodes\nsrun -N 2 --ntasks-per-node=8 {TEST}", "16 processes, 8 on each of 2"),
        (f"# on 2 nodes\nmpirun -np 16 -N 8 {TEST}", "16 processes, 8 on each of 2 nodes"),
        (f"# on 1 node\nsrun --ntasks-per-node=8 {TEST}", "8 processes, all on one node"),
    ],
)
def test_one_node_is_not_assumed_where_the_text_speaks_of_several(text: str, expected: str) -> None:
    one = only(text)
    assert starts(one.predictions[0][0], one.gpus).startswith(expected)


@pytest.mark.parametrize(
    "more",
    [
        "-x out.json -Z json -d fp8_e5m2",
        "-X out.csv -Z csv",
        "-Y fine -u 0xf,0xf",
        "-y managed -q 10",
        "-O 0 -F 1",
        "--memory_type host --cache_flush=2",
        "--output_format json",
        "-A 1 -E 2",
    ],
)
def test_rccl_tests_has_options_of_its_own(more: str) -> None:
    text = "{}/build/all_reduce_perf -b 8 -e 1G -f 2 -g 8 " + more
    for folder in ("./rccl-tests", "/opt/tests", "."):
        one = only(text.format(folder))
        assert not one.is_wrong
        noted = {held.finding.id for held in one.findings}
        assert noted == (set() if "rccl" in folder else {"rccl-tests"})
    assert only(text.format("./nccl-tests")).is_wrong


HOSTS = "cat > h <<E\na\nb\nE\nmpirun --hostfile h {} " + f"--bind-to none {TEST}"
EACH_ON_CORES = "on which nodes is not known: a host without slots= takes as many as it has cores"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # Run with Open MPI 4.1.4: a host without a number has as many slots as cores.
        ("-np 16 -N 8", "16 processes, 8 on each of 2 nodes (a, b)"),
        ("-N 8", "16 processes, 8 on each of 2 nodes (a, b)"),
        ("-N 1", "2 processes, 1 on each of 2 nodes (a, b)"),
        ("-np 16 --map-by node", "16 processes, 8 on each of 2 nodes (a, b)"),
        ("-np 16 --map-by ppr:8:node", "16 processes, 8 on each of 2 nodes (a, b)"),
        ("-np 2", "2 processes, both on a"),
        ("-np 8", "8 processes, all on a"),
        ("-np 16", f"16 processes, 1 GPU each = 16 ranks; {EACH_ON_CORES}"),
        ("", "not known: a host without slots= takes as many as it has cores"),
    ],
)
def test_hosts_of_a_file_without_slots(options: str, said: str) -> None:
    checks = check_all(from_text(HOSTS.format(options), LaunchContext()), (OPENMPI_4,))
    assert starts(checks[0].predictions[0][0], checks[0].gpus).startswith(said)
    assert "too-few-slots" not in [one.finding.id for one in checks[0].findings]


def test_max_slots_of_a_file_are_slots() -> None:
    text = HOSTS.format("-np 2").replace("\na\nb\n", "\na max-slots=1\nb max-slots=1\n")
    (one,) = check_all(from_text(text, LaunchContext()))
    assert not one.is_wrong
    assert starts(one.predictions[0][0], 1).startswith("2 processes, 1 on each of 2 nodes")


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("hosts", ["a:8,b:8", "a:8,b:8,c:8,d:8"])
def test_as_many_processes_as_hosts_are_meant_one_for_each(gpus: int, hosts: str) -> None:
    number = hosts.count(",") + 1
    text = f"mpirun -np {number} -H {hosts} --bind-to none {TEST[:-1]}{gpus}"
    (one,) = check_all(from_text(text, LaunchContext()))
    assert one.is_wrong
    assert one.fixed == text.replace(" all_reduce", " -N 1 all_reduce")


@pytest.mark.parametrize(
    ("gpus", "fix", "fixed"),
    [
        (1, "start more processes", None),
        (8, "write -g 8 for the GPUs of this node, or start more processes", f"{TEST[:-1]}8"),
        (None, "write -g N for the GPUs of this node, or start more processes", None),
    ],
)
def test_one_rank_uses_the_gpus_that_there_are(
    gpus: int | None, fix: str, fixed: str | None
) -> None:
    one = only(TEST, LaunchContext(gpus=gpus))
    assert [held.finding.fix for held in one.findings] == [fix]
    assert one.fixed == fixed
