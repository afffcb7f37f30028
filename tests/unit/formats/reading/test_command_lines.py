# SPDX-License-Identifier: Apache-2.0
"""Settings and options in the command lines above a table."""

import pytest

from nccltune.formats.nccl_tests.conditions import conditions_of, numbers_of, replacements
from nccltune.formats.reading.command_lines import CommandFound, CommandLines
from nccltune.formats.reading.named_version import version_of_text
from nccltune.model.collective import Collective

PERF = "./build/all_reduce_perf -b 8 -e 8G -f 2"
P2P = {"NCCL_P2P_DISABLE": "1"}


def of_tables(lines: str) -> list[CommandFound | None]:
    commands, kept = CommandLines(), []
    for at, line in enumerate(lines.split("\n"), 1):
        if line == "TABLE":
            kept.append(commands.begin_run(again=bool(kept)))
        else:
            commands.observe(line, at)
    return kept


def found(*lines: str) -> CommandFound | None:
    return of_tables("\n".join([*lines, "TABLE"]))[0]


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (f"mpirun -np 8 -x NCCL_P2P_DISABLE=1 {PERF}", P2P),
        (f"+ mpirun -np 8 -x NCCL_P2P_DISABLE=1 {PERF}", P2P),
        (f"user@node:~$ NCCL_P2P_DISABLE=1 {PERF} -g 8", P2P),
        (f"[root@node ~]# NCCL_P2P_DISABLE=1 {PERF} -g 8", P2P),
        (f"# mpirun -x NCCL_P2P_DISABLE=1 {PERF}", P2P),
        (f"env NCCL_P2P_DISABLE=1 {PERF}", P2P),
        (f"mpiexec.hydra -genv NCCL_P2P_DISABLE 1 {PERF}", P2P),
        (
            f"srun --export=ALL,NCCL_P2P_DISABLE=1,NCCL_DEBUG=WARN {PERF}",
            P2P | {"NCCL_DEBUG": "WARN"},
        ),
        (f"mpirun \\\n  -np 8 \\\n  -x NCCL_P2P_DISABLE=1 \\\n  {PERF}", P2P),
        (f"export NCCL_P2P_DISABLE=1\nsrun {PERF}", P2P),
        (f"+ export NCCL_P2P_DISABLE=1\n+ NCCL_P2P_DISABLE=1\n+ srun {PERF}", P2P),
        (f"NCCL_P2P_DISABLE=1\nHOSTNAME=a\nmpirun {PERF}", P2P),
        (f"setenv NCCL_P2P_DISABLE 1\n{PERF}", P2P),
        (f"docker run --gpus all -e NCCL_P2P_DISABLE=1 image {PERF}", P2P),
        ("mpirun -np 16 -x NCCL_P2P_DISABLE=1 ./run_tests.sh", P2P),
        (f"mpirun -x NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 {PERF}", {"NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1"}),
        (f"mpirun -x RCCL_MSCCLPP_ENABLE=1 {PERF}", {"RCCL_MSCCLPP_ENABLE": "1"}),
        (f"export NCCL_P2P_DISABLE=1\nunset NCCL_P2P_DISABLE\n{PERF}", {}),
        (f"mpirun -np 8 {PERF}", {}),
        (f"mpirun -x NCCL_ALGO=Tree -x NCCL_PROTO=LL {PERF}", {}),
        (f"mpirun -x NCCL_P2P_DISABLE {PERF}", {}),
        (f"mpirun -x NCCL_P2P_DISABLE=$OFF {PERF}", {}),
        (f"Hint: NCCL_P2P_DISABLE=1 avoids the hang\nmpirun {PERF}", {}),
        (f"+ echo 'NCCL_P2P_DISABLE=1 is next'\nmpirun {PERF}", {}),
        (f"#export NCCL_P2P_DISABLE=1\nmpirun {PERF}", {}),
        (f"#mpirun -x NCCL_P2P_DISABLE=1 {PERF} -g 8\nmpirun {PERF}", {}),
        (f"mpirun -x NCCL_P2P_DISABLE=1 {PERF} -g 1\nmpirun {PERF} -g 2", None),
    ],
)
def test_settings(lines: str, settings: dict[str, str] | None) -> None:
    command = found(lines)
    assert command is not None
    assert command.settings == settings


def test_nothing_is_known_without_a_command() -> None:
    assert found("some words", "Hint: try NCCL_P2P_DISABLE=1") is None


@pytest.mark.parametrize(
    "line", ["=== broadcast_perf ===", "Results of all_reduce_perf:", "protocol: FI_PROTO_EFA"]
)
def test_a_title_is_no_command(line: str) -> None:
    command = found(line)
    assert command is None or (command.arguments, command.settings) == ((), None)


@pytest.mark.parametrize(
    ("line", "ranks"), [("NCCL_CROSS_NIC=1", 8), ("NCCL_IB_HCA=mlx5_0", None), ("a note", 8)]
)
def test_a_line_between_runs_that_changes_a_setting_of_their_command(
    line: str, ranks: int | None
) -> None:
    lines = f"mpirun -np 8 -x NCCL_P2P_DISABLE=1 {PERF}\nNCCL_CROSS_NIC=0\nTABLE\n{line}\nTABLE"
    second = of_tables(lines)[1]
    assert second is not None
    known = {"NCCL_CROSS_NIC=1": P2P | {"NCCL_CROSS_NIC": "1"}, "a note": None}
    assert second.settings == known.get(line, {"NCCL_IB_HCA": "mlx5_0"})
    assert (second.ranks or second.earlier) == ranks


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (
            f"mpirun -x LD_PRELOAD=/opt/mscclpp/lib/libmscclpp_nccl.so {PERF}",
            ("libmscclpp_nccl.so",),
        ),
        (f"LD_PRELOAD=/a/libfoo.so:/b/libasan.so.8 {PERF}", ("libfoo.so",)),
        (f'LD_PRELOAD="/a/libnccl.so.2.30.7 /b/libjemalloc.so.2" {PERF}', ()),
        (f"mpirun -x LD_PRELOAD {PERF}", ()),
        (f"export LD_PRELOAD=/opt/x/libnccltune-sendrecv.so\n{PERF}", ("libnccltune-sendrecv.so",)),
    ],
)
def test_preloaded_libraries(line: str, names: tuple[str, ...]) -> None:
    command = found(line)
    assert command is not None
    assert replacements(command.preloaded) == names


def test_the_arguments_of_the_program() -> None:
    command = found("srun bash -c './all_gather_perf_mpi -b 8 -R 2 -D3 --unalign=1' 2>&1 | tee log")
    assert command is not None
    assert command.collective is Collective.ALLGATHER
    assert numbers_of(command.arguments) == {"b": 8, "R": 2, "D": 3, "u": 1}
    assert numbers_of(["--device_implementation", "4", "-x", "out.json", "-J", "8.json"]) == {
        "D": 4
    }


def test_the_conditions_of_options() -> None:
    assert conditions_of({"a": 1, "x": 0, "n": 5}, 0, 0, 1) == ()
    assert conditions_of({"a": 2, "x": 2}, 3, 0, 4) == (
        "-z 3: wait and barrier after each set of calls",
        "-m 4: 4 calls in a group",
        "-a 2: the time of the fastest rank",
        "-x 2: CTA policy zero",
    )


def test_a_choice_that_is_commented_out_was_not_made() -> None:
    command = found(f"#export NCCL_ALGO=Ring\nsrun {PERF}")
    assert command is not None
    assert command.algorithms is None


@pytest.mark.parametrize("text", ["A=b " * 16000, "env   " * 10000, "+$> " * 15000, "A= " * 20000])
def test_long_lines_take_no_long_time(text: str) -> None:
    assert found(f"{text}NCCL_!") is None


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [
        ("mpirun -np 16 -H a:8,b:8", 2),
        ("mpirun --np 16 --host 10.0.0.1:8,10.0.0.2:8", 2),
        ("mpirun -np 40 -H a:8,b:8,c:8,d:8,e:8 -x NCCL_ALGO=Ring", 5),
        ("mpirun --host a:4,b:4", 2),
        ("mpirun -np 2 -host a,b", 2),
        ("mpirun -np 16 -H a,b --map-by ppr:8:node", 2),
        ("mpirun -np 16 -npernode 8 --hostfile hosts", 2),
        ("mpirun -np 64 -N 8", 8),
        ("flux run -N 2 -n 16", None),
        ("mpiexec.hydra -n 16 -ppn 8 -hosts a,b", 2),
        ("srun -N 2 -n 16", 2),
        ("srun -N2 --ntasks-per-node=8", 2),
        ("srun --nodes=4", 4),
        ("srun --nodes 4 --mpi=pmix", 4),
        # The first host has room for all processes.
        ("mpirun -np 8 -H a:8,b:8", None),
        ("mpirun -np 16 --hostfile hosts", None),
        ("mpirun -np 16 -H $HOSTS", None),
        (f"mpirun -np 1 -H a {PERF} : -np 1 -H b", None),
        ("srun -n 16", None),
        ("NCCL_DEBUG=INFO", 1),
        ("${MPIRUN} -n 16", None),
        ("srun --nodes=2-4 -n 16", None),
    ],
)
def test_the_nodes_of_a_command(launcher: str, nodes: int | None) -> None:
    command = found(f"{launcher} {PERF}")
    assert command is not None
    assert command.nodes == nodes


@pytest.mark.parametrize(
    ("lines", "titled"),
    [
        ("### Single Node", (1, 1)),
        ("### Two Nodes\n#### all-reduce", (2, 1)),
        ("## Results on 4 nodes (H100)", (4, 1)),
        ("=== 16-node run ===", (16, 1)),
        ("**2 nodes**", (2, 1)),
        ("2 nodes allreduce test, 1 H100 each node, using 4 nics", (2, 1)),
        ("### Single Node\n### Two Nodes", (2, 2)),
        ("### Two Nodes\n# nThread 1 nGpus 1\n# Using devices", (2, 1)),
        ("```\n# Single-node test\nrun\n```\n### Across nodes", None),
        ("### Two Nodes\n### Other", None),
        ("### Two Nodes\n## Other", None),
        ("## 1 node against 2 nodes", None),
        ("We have a cluster of 4 nodes and ran this on two", None),
        ("We run `nccl-tests` on two big instances, and see", (2, 1)),
        ("1. the test between 2 hosts with 8 GPUs each", (2, 1)),
        ("The bandwidth for a 4 nodes all-reduce test fell", (4, 1)),
        ("Results on a single node", (1, 1)),
        ("Same result, we test it in 8nodes with 8v100", (8, 1)),
        ("Test in 2 nodes, 16 H20 GPUs, 16 NICs", (2, 1)),
        ("All-reduce on 8 x H100 (one node):", (1, 1)),
        ("8 GPUs (2 nodes and 4 nodes):", None),
        ("We ran it on 2 nodes and then on 4 nodes", None),
        ("Results for 1, 2 and 4 large instances", None),
        ("A test on a 8 GPU node", None),
        ("A test on 8 H800 server", None),
        ("Here is the all-gather result of 2 nodes on a range of sizes:", (2, 1)),
        ("The output of 4 servers, all_reduce_perf", (4, 1)),
        ("We ran the test of each of 2 nodes by itself", None),
        ("A test for one of 4 nodes", None),
        ("Tests with 8 tasks a node", None),
        ("Tests with 2 ranks on the same machine", None),
        ("A test on 1 H100 node", (1, 1)),
        ("A test on two H100  servers, each machine with 8 NICs", (2, 1)),
        ("It runs well on one host but not on more", None),
        ("The test uses 2 NICs, with 2 ranks on each of the hosts", None),
        ("```\necho run the test on 2 nodes", None),
        ("torchrun --nproc-per-node 2 --nnodes=3 a.py", (3, 1)),
        ("torchrun --nproc-per-node 2 --nnodes 1:4 a.py", None),
        ("### 0 nodes", None),
        ("### Node 2", None),
        ("### nodes", None),
    ],
)
def test_the_nodes_of_a_heading_or_a_sentence(lines: str, titled: tuple[int, int] | None) -> None:
    command = found(lines)
    assert (None if command is None or not command.titled else command.titled[:2]) == titled
    assert command is None or command.settings is None


@pytest.mark.parametrize(
    ("lines", "collective"),
    [
        ("## Allreduce", Collective.ALLREDUCE),
        ("### Reduce Scatter (bf16)", Collective.REDUCESCATTER),
        ("=== all_gather ===", Collective.ALLGATHER),
        ("# All-to-All\n## 8 GPUs", Collective.ALLTOALL),
        ("## Allreduce\n## Broadcast", Collective.BROADCAST),
        ("## Allreduce\n## Other", None),
        ("## Allreduce and Broadcast", None),
        ("alltoall result", Collective.ALLTOALL),
        ("results of all_gather", Collective.ALLGATHER),
        ("The all-reduce was slow", None),
        ("## Allreduce\nmpirun ./all_gather_perf -g 1", Collective.ALLGATHER),
    ],
)
def test_the_collective_of_a_heading(lines: str, collective: Collective | None) -> None:
    command = found(lines)
    assert (None if command is None else command.collective) is collective


@pytest.mark.parametrize(
    ("line", "collective"),
    [
        ("kubectl exec pod-1 -- /scripts/allgather.sh host-1 host-2", "allgather"),
        (
            "root@pod:/# /usr/local/gib/run_nccl_tests.sh -t all_gather -b 1K -e 8G pod-1",
            "allgather",
        ),
        ("sbatch reduce_scatter.sbatch", "reducescatter"),
        ("`all_reduce_perf -b 8 -e 128M -f 2 -g 1` gets stuck", "allreduce"),
        ("see all_reduce.sh and all_gather.sh", None),
        ("we reduce.all", None),
    ],
)
def test_scripts_and_quoted_commands_name_the_collective(line: str, collective: str | None) -> None:
    lines = CommandLines()
    lines.observe(line, 1)
    found = lines.begin_run(again=False)
    assert (found and found.collective) == collective
    assert found is None or found.ranks is None


def test_a_value_ends_at_a_closing_backtick_and_an_option_forces_it() -> None:
    lines = CommandLines()
    lines.observe("In the test, with `-x NCCL_ALGO=RING` we have", 1)
    found = lines.begin_run(again=False)
    assert found is not None
    assert (found.algorithms, found.forced) == ("RING", True)


@pytest.mark.parametrize("line", ["- **World Size:** 3", "world_size: 3", "Number of GPUs = 3"])
def test_words_state_the_ranks(line: str) -> None:
    lines = CommandLines()
    lines.observe(line, 1)
    found = lines.begin_run(again=False)
    assert found is not None
    assert found.worded == 3


@pytest.mark.parametrize(
    ("options", "ranks"),
    [
        ("--nproc_per_node 8 --nnodes 2", 16),
        ("--nproc-per-node=4", 4),
        (
            "--nnodes=2 --nproc_per_node=4 --master_addr localhost --master_port 6000"
            + 9 * " -q x",
            8,
        ),
        ("--nproc_per_node gpu", None),
    ],
)
def test_torchrun_states_the_ranks_and_its_script_the_collective(
    options: str, ranks: int | None
) -> None:
    command = found(f"torchrun {options} ./some-allreduce.py --size 1G")
    assert command is not None
    assert (command.worded, command.collective) == (ranks, Collective.ALLREDUCE)


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("./all_reduce_perf -b 8 -g 1", 1),
        ("root@pod:/# NCCL_DEBUG=INFO ./build/all_reduce_perf -b 8 -g 1", 1),
        ("(base) me@v100:~/x$ ./all_reduce_perf -b 8", 1),
        ("${MPIRUN} -n ${GPUS} -N 8 ./all_gather_perf -b 8M -e 8G -g 1", None),
        ("docker run --gpus all image ./all_reduce_perf -b 8 -g 8", 8),
        ("srun --nodes=4 --ntasks-per-node=8 -- all_gather_perf -b 64K -g 1", 32),
        ("srun -N2 --ntasks-per-node 4 ./all_gather_perf -g 2", 16),
        ("srun -N2 ./all_gather_perf -g 1", None),
        ("docker run image ./all_reduce_perf -b 8 -g 1", None),
        ("EXEC_CMD=/opt/nccl-tests/bin/all_reduce_perf", None),
        ("`./all_reduce_perf -b 1G -e 8G -f 2 -g 2`", 2),
        ("./all_reduce_perf -b 1G -e 8G -f 2 -g $GPU_COUNT", None),
        ("`all_reduce_perf -b 8 -g 1` hangs", None),
    ],
)
def test_a_single_rank_needs_a_whole_command(line: str, ranks: int | None) -> None:
    lines = CommandLines()
    lines.observe(line, 1)
    found = lines.begin_run(again=False)
    assert (found and found.ranks) == ranks


@pytest.mark.parametrize(
    ("lines", "headed", "machine"),
    [
        ("## 8x A100 (NVLink)", 8, "A100"),
        ("## \u4f7f\u7528 2 \u4e2aGPU", 2, None),
        ("\u5355\u673a8\u5361 A100\uff1a", 8, "A100"),
        ("## \u53cc\u5361 all-reduce", 2, None),
        ("## 4 \u5757\u663e\u5361", 4, None),
        ("## 2\u673a8\u5361", None, None),
        ("## \u6bcf\u53f0\u673a\u5668 8 \u5361", None, None),
        ("## 2\uff0c4\uff0c8\u5361", None, None),
        ("## All-reduce, 8 GPUs", 8, None),
        ("**16 ranks on H100**", 16, "H100"),
        ("### 4 x NVIDIA H200", 4, "H200"),
        ("## 8x A100\n## 4x L40S", 4, "L40S"),
        ("## All-reduce, 2 nodes x 8 H100", 16, "H100"),
        ("## 4 nodes \u00d7 4 GPUs", 16, None),
        ("## 8x A100\n### all-reduce", None, "A100"),
        ("Results on p5.48xlarge:", None, "P5.48XLARGE"),
        ('=== "A3 Mega"', None, "A3MEGA"),
        ("## RTX 4090", None, "RTX4090"),
        ("## A100 against H100", None, None),
        ("## 8 GPUs per node", None, None),
        ("## 4 GPUs and 8 GPUs", None, None),
        ("## Two nodes with 8 GPUs", None, None),
        ("With 1 H100 node, the result is:", None, "H100"),
        ("## 2 A100 servers", None, "A100"),
        ("H100 PCIe", None, "H100 PCIE"),
        ("## A100 80GB PCIe, 2 nodes", None, "A100 PCIE"),
        ("## H100 NVL", None, "H100 NVL"),
        ("## GB200 NVL72", None, "GB200"),
        ("## H100 behind PCIe switches", None, "H100"),
        ("NVIDIA A100 SXM4 80GB", None, "A100"),
        ("H100 is slow", None, None),
        ("We have 8 A100 here", None, None),
        ("## A 100 words", None, None),
    ],
)
def test_the_ranks_and_the_machine_of_a_heading(
    lines: str, headed: int | None, machine: str | None
) -> None:
    command = found(lines)
    assert (command and command.headed, command and command.machine) == (headed, machine)


@pytest.mark.parametrize(
    ("lines", "versions"),
    [
        ("2.19.3:\nTABLE\n2.20.3\n#    out-of-place\nTABLE", ["2.19.3", "2.20.3"]),
        ("## NCCL 2.27.5\nTABLE\n### all-reduce\nTABLE\n## More\nTABLE", ["2.27.5"] * 2 + [None]),
        ("with NCCL 2.19.3:\nTABLE\nAfter the upgrade:\nTABLE", ["2.19.3", None]),
        ("**RCCL v2.18.1**\nTABLE", ["2.18.1"]),
        ("## With NCCL-2.21.5 + cuda-12.3\nTABLE", ["2.21.5"]),
        ("NCCL 2.19.3 against 2.20.3:\nTABLE", [None]),
        ("CUDA 12.4.1:\nTABLE", [None]),
        ("We upgraded to NCCL 2.20.3\nTABLE", [None]),
    ],
)
def test_the_version_of_nccl_in_a_title(lines: str, versions: list[str | None]) -> None:
    assert [command and command.nccl for command in of_tables(lines)] == versions


OFF = "export NCCL_P2P_DISABLE=1"


@pytest.mark.parametrize(
    ("lines", "settings"),
    [
        (f"## A\n{OFF}\n{PERF}\nTABLE\n## B\n{PERF}\nTABLE", [P2P, {}]),
        (f"## A\n### Set\n{OFF}\n### Run\n{PERF}\nTABLE\n## B\n{PERF}\nTABLE", [P2P, {}]),
        (f"## Set\n{OFF}\n## A\n{PERF}\nTABLE\n## B\n{PERF}\nTABLE", [P2P, P2P]),
        (f"NCCL_P2P_DISABLE=1 {PERF}\nTABLE\nTABLE\n{PERF}\nTABLE", [P2P, None, {}]),
        (f"{OFF}\n## A\n{PERF}\nTABLE\n## B\n{PERF}\nTABLE", [P2P, P2P]),
        (f"## A\nNCCL_IB_HCA=a {PERF} -g 2\n## B\nNCCL_P2P_DISABLE=1 {PERF}\nTABLE", [None]),
    ],
)
def test_the_settings_of_a_section(lines: str, settings: list[dict[str, str]]) -> None:
    assert [command and command.settings for command in of_tables(lines)] == settings


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("We have NCCL 2.21.5 and CUDA 12.4.1\n", "2.21.5"),
        ("- nccl version 2.18.3+cuda12\n", "2.18.3"),
        ("NCCL \u7248\u672c\uff1a2.19.3\nwith nccl-2.19.3\n", "2.19.3"),
        ("NCCL 2.21.5\nNCCL 2.22.3\n", None),
        ("NCCL 2.21.5 was fine\nWe upgraded to NCCL 2.21.5\n", None),
        ("It needs NCCL 2.27.5 or later\n", None),
        ("## NCCL 2.21.5\n", None),
        ("nccl-tests version 2.13.9\nCUDA 12.4.1\n", None),
    ],
)
def test_the_version_of_nccl_in_prose(text: str, version: str | None) -> None:
    assert version_of_text(text) == version
