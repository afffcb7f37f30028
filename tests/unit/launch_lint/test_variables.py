# SPDX-License-Identifier: Apache-2.0
"""The values that each kind of NCCL's variables takes, and the rules about them."""

import re
from pathlib import Path

import pytest

from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_text
from nccltune.launch_lint.variables import enabled, fault
from nccltune.model.finding import Severity
from nccltune.model.nccl_variables import is_foreign, nearest_variable, table
from tests.unit.launch_lint import test_commands, test_pods
from tests.unit.launch_lint.judged import only

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "lint-launch.md"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "allreduce:tree;broadcast:ring"),
        ("NCCL_ALGO", "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring"),
        ("NCCL_ALGO", "allreduce:^tree"),
        ("NCCL_ALGO", "^NVLS"),
        ("NCCL_ALGO", "RING"),
        ("NCCL_PROTO", "^LL128;allreduce:LL128"),
        ("NCCL_DEBUG", "Warn"),
        ("NCCL_DEBUG_SUBSYS", "init,^all".replace("^", "")),
        ("NCCL_NET_GDR_LEVEL", "3"),
        ("NCCL_NET_GDR_LEVEL", "PXN"),
        ("NCCL_NETDEVS_POLICY", "MAX:2"),
        ("NCCL_CTA_POLICY", "EFFICIENCY|ZERO"),
        ("NCCL_IB_GID_INDEX", "-1"),
        ("NCCL_NVLS_ENABLE", "2"),
        ("NCCL_CUMEM_ENABLE", "-2"),
        ("NCCL_BUFFSIZE", "0x400000"),
        ("NCCL_IB_HCA", "^=mlx5_1:1"),
        ("NCCL_MNNVL_CLIQUE_ID", "-1"),
        ("NCCL_IB_TIMEOUT", "$TIMEOUT"),
        ("NCCL_DEBUG", "${LEVEL:-INFO}"),
    ],
)
def test_right_values(name: str, value: str) -> None:
    assert fault(table()[name], value) is None


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("NCCL_ALGO", "tre", "Tree"),
        ("NCCL_ALGO", "ring;tree", "ring,tree"),
        ("NCCL_PROTO", "simpel", "Simple"),
        ("NCCL_DEBUG", "WARNING", "WARN"),
        ("NCCL_DEBUG", "VERBOSE", "INFO"),
        ("NCCL_P2P_LEVEL", "NVLINK", "NVL"),
        # Of several words the right ones are kept.
        ("NCCL_DEBUG_SUBSYS", "INIT,NET,IB", "INIT,NET"),
        ("NCCL_DEBUG_SUBSYS", "INIT,ib", "INIT,NET"),
        ("NCCL_DEBUG_SUBSYS", "INIT,XYZZY", "INIT"),
        ("NCCL_DEBUG_SUBSYS", "XYZZY", None),
        ("NCCL_IB_DISABLE", "True", None),
        ("NCCL_IB_DISABLE", "2", None),
        ("NCCL_IB_DISABLE", "1;", None),
        ("NCCL_CUMEM_ENABLE", "2", "1"),
        ("NCCL_NVLS_ENABLE", "off", "0"),
        ("NCCL_BUFFSIZE", "4MiB", "4194304"),
        ("NCCL_MAX_CTAS", "1000", "64"),
        ("NCCL_IB_RETRY_CNT", "10", "7"),
        ("NCCL_NETDEVS_POLICY", "MAX", None),
        ("NCCL_MIN_CTAS", "all", None),
    ],
)
def test_wrong_values_and_what_is_meant(name: str, value: str, right: str | None) -> None:
    found = fault(table()[name], value)
    assert found.right == right
    assert right is None or fault(table()[name], right) is None


def test_what_a_list_leaves() -> None:
    algorithms = table()["NCCL_ALGO"]
    assert enabled(algorithms, "tree;broadcast:ring", "all_reduce") == {"tree"}
    assert enabled(algorithms, "tree;broadcast:ring", "broadcast") == {"ring"}
    assert "ring" not in enabled(algorithms, "^ring", "reduce")
    assert "tree" in enabled(algorithms, "broadcast:ring", "all_reduce")


def test_every_rule_of_the_tables_is_documented() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    found = {expected for _, expected in test_commands.WRONG}
    found |= {case[3] for case in test_pods.WRONG}
    assert sorted(name for name in found if f"`{name}`" not in text) == []


MISSPELT = {"NCCL_NVLS_DISABLE", "NCCL_ALG", "NCCL_SOCKET_IFNAMES", "NCCL_EXCLUDE_IB_HCA"}
"""Names that the documentation shows as mistakes."""
NOT_VARIABLES = {"NCCL_PROFILER_NET_TYPE_SOCK", "NCCL_INSPECTOR", "NCCL_PROFILE"}
VCCL = re.compile(r"NCCL_PASS_SM|NCCL_PSM_\w+")


def test_every_variable_that_documents_and_rules_name_is_known() -> None:
    root = Path(__file__).parents[3]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    pages += (root / "src" / "nccltune" / "doctor" / "rules").glob("*.toml")
    named = {
        name
        for page in pages
        for name in re.findall(r"\bNCCL_[A-Z0-9_]*[A-Z0-9]\b(?!_)", page.read_text())
    }
    assert len(named) > 50
    known = {name for name in named if name in table() or is_foreign(name) or VCCL.match(name)}
    assert named - known - MISSPELT - NOT_VARIABLES == set()


@pytest.mark.parametrize("value", ["true", "Yes", "on", "enabled", "disable", "no", "'\"1\"'"])
def test_what_a_word_does_not_switch_off_stays_on(value: str) -> None:
    names = [
        name for name, one in table().items() if name.endswith("_DISABLE") and one.kind != "text"
    ]
    for name in names:
        judged = only(f"mpirun -np 16 -N 8 -x {name}={value} all_reduce_perf -b 8 -e 1G -f 2")
        (found,) = [
            one.finding for one in judged.findings if one.finding.id == "setting-not-a-number"
        ]
        assert "has no effect now" in found.message
        assert f"leave out {name}; {name}=1 would switch" in str(found.fix)
        assert name not in str(judged.fixed or name)


@pytest.mark.parametrize("name", ["NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"])
def test_a_number_that_may_switch_off_or_not_is_not_repaired(name: str) -> None:
    judged = only(f"mpirun -np 16 -N 8 -x {name}=2 all_reduce_perf -b 8 -e 1G -f 2 -g 1")
    (found,) = [one.finding for one in judged.findings if one.finding.id == "variable-value"]
    assert found.fix == f"leave out {name}, or write {name}=1 to switch it off"
    assert found.edits == ()


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("^mlx5_1,mlxl5_6", "^mlx5_1,mlx5_6"),
        ("=mlx5_1,mxl5_6:1", "=mlx5_1,mlx5_6:1"),
        ("mlx5-6,mlx5_2", "mlx5_6,mlx5_2"),
        ("^=mlx_0,MLX5_1", "^=mlx5_0,mlx5_1"),
        ("mlx5_1,mlxl5_6", "mlx5_1,mlx5_6"),
        *((right, None) for right in ("mlx4_0,mlx5_0", "mlx5_bond_0", "^mlx5_ib0,mlx5_an1")),
        *((right, None) for right in ("mlx5", "^mlx", "bnxt_re0,bnxt_re_1", "hfi1_0", "irdma_0")),
    ],
)
def test_names_of_devices_are_spelt_right(value: str, right: str | None) -> None:
    judged = only(f"mpirun -n 16 -H a:8,b:8 -x NCCL_IB_HCA={value} all_reduce_perf")
    found = [one.finding for one in judged.findings if one.finding.id in ("hca", "hca-prefix")]
    assert [one.fix for one in found] == ([] if right is None else [f"write NCCL_IB_HCA={right}"])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("NCCL_EXCLUDE_IB_HCA", "NCCL_IB_HCA=^=LIST"),
        ("NCCL_IB_HCA_EXCL", "NCCL_IB_HCA=^=LIST"),
        ("NCCL_IB_EXCLUDED_HCAS", "NCCL_IB_HCA=^=LIST"),
        ("NCCL_SOCKET_IFNAME_EXCLUDE", "NCCL_SOCKET_IFNAME=^lo,LIST"),
        *((name, None) for name in ("NCCL_EXCLUDE", "NCCL_EXCLUDE_GPUS", "NCCL_EXCLUSIVE_THING")),
    ],
)
def test_what_is_to_be_left_out_has_a_list(name: str, own: str | None) -> None:
    judged = only(f"mpirun -n 16 -H a:8,b:8 -x {name}=mlx5_1 all_reduce_perf")
    (held,) = judged.findings
    assert (held.finding.id, held.finding.edits) == ("variable-unlisted", ())
    fix = held.finding.fix
    assert fix == (f"for NCCL to leave devices out write {own}" if own else "")
    assert nearest_variable(name) == own
    assert nearest_variable(f"GLOO_{name[5:]}") is None


@pytest.mark.parametrize(
    ("setting", "right"),
    [
        ("NCCL_IB_HCA=^=mlx5_8,^=mlx5_14", "NCCL_IB_HCA=^=mlx5_8,mlx5_14"),
        ("NCCL_IB_HCA=^mlx5_8,^mlx5_14", "NCCL_IB_HCA=^mlx5_8,mlx5_14"),
        ("NCCL_IB_HCA==mlx5_0,=mlx5_3", "NCCL_IB_HCA==mlx5_0,mlx5_3"),
        ("NCCL_IB_HCA==^mlx5_0", "NCCL_IB_HCA=^=mlx5_0"),
        ("NCCL_IB_HCA=mlx5_0,^mlx5_3", None),
        ("NCCL_IB_HCA=^mlx5_0,^=mlx5_3", None),
        ("NCCL_IB_HCA=mlx5_0/1,mlx5_3:1", "NCCL_IB_HCA=mlx5_0:1,mlx5_3:1"),
        ("NCCL_IB_HCA=^mlx5_0/1", "NCCL_IB_HCA=^mlx5_0:1"),
        ("NCCL_IB_HCA=/dev/infiniband/uverbs0", None),
        ("NCCL_IB_HCA=mlx5_0:one", None),
        ("NCCL_SOCKET_IFNAME=^lo,^docker0", "NCCL_SOCKET_IFNAME=^lo,docker0"),
        ("NCCL_SOCKET_IFNAME==eth0,=eth1", "NCCL_SOCKET_IFNAME==eth0,eth1"),
        ("NCCL_OOB_NET_IFNAME=eth0,^lo", None),
    ],
)
def test_lists_are_read_as_nccl_reads_them(setting: str, right: str | None) -> None:
    judged = only(f"mpirun -n 16 -H a:8,b:8 -x '{setting}' all_reduce_perf")
    (held,) = judged.findings
    assert held.finding.severity is Severity.ERROR
    assert held.finding.id in ("hca", "interface")
    fixed = None if right is None else f"mpirun -n 16 -H a:8,b:8 -x {right} all_reduce_perf"
    assert (judged.fixed or "").replace("'", "") == (fixed or "")


@pytest.mark.parametrize(
    "setting",
    [
        "NCCL_IB_HCA=^=mlx5_8,mlx5_14",
        "NCCL_IB_HCA=mlx5_0:1:2:3,mlx5_3::1",
        "NCCL_IB_HCA==mlx5_0:1,mlx5_3:1",
        "NCCL_IB_HCA=mlx5,",
        "NCCL_SOCKET_IFNAME=^lo,docker0",
        "NCCL_SOCKET_IFNAME==eth0",
        "NCCL_SOCKET_IFNAME=^=docker0,lo",
        "NCCL_CTA_POLICY=EFFICIENCY",
        "NCCL_RUN_DIAGNOSTICS=1",
        "NCCL_RUN_RAS_DIAGNOSTICS=1",
        "NCCL_DEBUG=ATTN",
        "NCCL_DEBUG_LEVELS=WARN,ATTN",
    ],
)
def test_right_settings_have_no_finding(setting: str) -> None:
    assert not only(f"mpirun -n 16 -H a:8,b:8 -x '{setting}' all_reduce_perf").findings


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        ("NCCL_CTA_POLICY=2 {} all_gather_perf", "NCCL_CTA_POLICY=2 {} all_gather_perf -R 2"),
        ("{} -x NCCL_CTA_POLICY=zero alltoall_perf",
         "{} -x NCCL_CTA_POLICY=zero alltoall_perf -R 2"),
        ("{} -x 'NCCL_CTA_POLICY=EFFICIENCY|ZERO' gather_perf -R 1",
         "{} -x 'NCCL_CTA_POLICY=EFFICIENCY|ZERO' gather_perf -R 2"),
        ("{} all_gather_perf -x 2", "{} all_gather_perf -x 2 -R 2"),
        ("{} -x NCCL_CTA_POLICY=ZERO all_reduce_perf -R 2", None),
    ],
)  # fmt: skip
def test_zero_cta_needs_symmetric_memory(command: str, fixed: str | None) -> None:
    mpirun = "mpirun -n 8 -H a:8"
    judged = only(command.format(mpirun))
    assert [held.finding.id for held in judged.findings] == ["zero-cta"]
    assert judged.fixed == (fixed.format(mpirun) if fixed is not None else None)
    assert not only(f"{mpirun} -x NCCL_CTA_POLICY=ZERO all_gather_perf -R 2").findings


TRAINER = "torchrun --nproc-per-node=8 t.py"
BOX = "docker run --gpus all --shm-size=8g"
JOB = "srun -N 2 --ntasks-per-node=8 {} all_reduce_perf -g 1"


@pytest.mark.parametrize(
    ("command", "fixed"),
    [
        (f"A_B=1 NCCL_DEBUG=WARN NCCL_DEBUG=INFO {TRAINER}", f"A_B=1 NCCL_DEBUG=INFO {TRAINER}"),
        (f"env NCCL_DEBUG=WARN NCCL_DEBUG=INFO {TRAINER}", f"env NCCL_DEBUG=INFO {TRAINER}"),
        (f"A_B=1 A_B=2 A_B=1 {TRAINER}", f"A_B=1 A_B=1 {TRAINER}"),
        (f"{BOX} -e A_B=1 -e A_B=2 img {TRAINER}", f"{BOX} -e A_B=2 img {TRAINER}"),
        (f"NCCL_DEBUG=info NCCL_DEBUG=WARN {TRAINER}", f"NCCL_DEBUG=WARN {TRAINER}"),
        (f"NCCL_IB_HCA=mlx5_0 NCCL_IB_HCA=mlx5_1 {TRAINER}",
         f"NCCL_IB_HCA=mlx5_1 {TRAINER}"),
        (JOB.format("--export=ALL,A_B=1,A_B=2"), JOB.format("--export=ALL,A_B=2")),
        # What else the first option gives would get lost.
        (JOB.format("--export=ALL,A_B=1,C_D=1 --export=ALL,A_B=2"), None),
        ("mpirun -n 8 -H a:8 -x A_B=1 -x A_B=2 -x A_B=1 all_reduce_perf -g 1",
         "mpirun -n 8 -H a:8 -x A_B=1 -x A_B=1 all_reduce_perf -g 1"),
        ("mpirun -n 8 -H a:8 --mca mca_base_env_list 'A_B=1;A_B=2' all_reduce_perf -g 1",
         "mpirun -n 8 -H a:8 --mca mca_base_env_list A_B=2 all_reduce_perf -g 1"),
    ],
)  # fmt: skip
def test_of_two_values_the_fixed_line_has_the_later(command: str, fixed: str | None) -> None:
    judged = only(command)
    is_option = command.startswith(("mpirun", "srun"))
    (held,) = judged.findings[:1]
    assert held.finding.id == "env-twice"
    assert held.finding.severity is (Severity.ERROR if is_option else Severity.WARNING)
    assert judged.fixed == fixed


@pytest.mark.parametrize("name", ["NCCL_PASS_SM", "NCCL_PSM_BUFFER_SIZE"])
def test_variables_of_vccl_point_to_our_library(name: str) -> None:
    (held,) = only(f"mpirun -n 8 -H a:8 -x {name}=1 sendrecv_perf").findings
    assert held.finding.severity is Severity.NOTE
    assert "NCCLTUNE_SENDRECV=1" in held.finding.fix


def test_a_name_exchanged_with_its_value() -> None:
    found = only("mpirun -np 2 -x NCCL_INFO=DEBUG ./all_reduce_perf -b 8 -e 1M -f 2")
    (finding,) = [one.finding for one in found.findings if one.finding.id == "variable-unknown"]
    assert finding.fix == "write NCCL_DEBUG=INFO"
    assert "NCCL_DEBUG=INFO" in str(found.fixed)


@pytest.mark.parametrize(
    ("program", "expected"),
    [("alltoall_perf", True), ("sendrecv_perf", True), ("all_reduce_perf", False)],
)
def test_an_algorithm_for_sends(program: str, expected: bool) -> None:
    found = only(f"mpirun -np 2 -x NCCL_ALGO=Ring ./{program} -b 8 -e 1M -f 2")
    assert ("algorithm-of-sends" in {one.finding.id for one in found.findings}) is expected


@pytest.mark.parametrize(
    ("program", "limit", "expected"),
    [("alltoall_perf", 10, "alltoall takes the next power of two of it, 16 channels"),
     ("sendrecv_perf", 3, "of it, 4 channels"), ("sendrecv_perf", 8, ""),
     ("all_reduce_perf", 10, "")],
)  # fmt: skip
def test_channels_of_sends(program: str, limit: int, expected: str) -> None:
    found = only(f"mpirun -np 2 -x NCCL_MAX_NCHANNELS={limit} ./{program} -b 8 -e 1M -f 2")
    said = [one.finding.message for one in found.findings if one.finding.id == "channels-of-sends"]
    assert (expected in said[0]) if expected else not said


@pytest.mark.parametrize(
    ("command", "expected"),
    [("mpirun -n 16 -H a:8,b:8 -x NCCL_SOCKET_IFNAME=^docker0 all_reduce_perf",
      "mpirun -n 16 -H a:8,b:8 -x NCCL_SOCKET_IFNAME=^docker0,lo all_reduce_perf"),
     ("mpirun -n 8 -H a:8 -x NCCL_SOCKET_IFNAME=^docker0 all_reduce_perf", "")],
)  # fmt: skip
def test_a_list_that_lets_the_loopback_in(command: str, expected: str) -> None:
    judged = only(command)
    assert (judged.fixed or "").replace("'", "") == expected
    assert bool(judged.findings) is bool(expected)


SEVERAL = "mpirun -np 4 {} ./all_reduce_perf -b 8 -e 1G -f 2 -g 1"


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ("nccl_log_%h.txt", "nccl_log_%h.%p.txt"),
        ("/tmp/a.b/log", "/tmp/a.b/log.%p"),
        ("log.%r", "log.%p"),
        ("log.%h.%p", None),
        ("$HOME/log.$OMPI_COMM_WORLD_RANK", None),
        ("/dev/stderr", None),
        ("stdout", None),
    ],
)
def test_a_file_that_several_processes_overwrite(value: str, right: str | None) -> None:
    judged = only(SEVERAL.format(f"-x NCCL_DEBUG_FILE='{value}'"))
    found = [held.finding.fix for held in judged.findings if held.finding.id == "debug-file"]
    assert found == ([f"write NCCL_DEBUG_FILE={right}"] if right is not None else [])
    assert right is None or f"NCCL_DEBUG_FILE={right}" in (judged.fixed or "")


def test_a_file_of_one_process_is_left_alone() -> None:
    judged = only("NCCL_DEBUG_FILE=log ./all_reduce_perf -b 8 -e 1G -f 2 -g 8")
    assert [held.finding.id for held in judged.findings] == []


def test_a_limit_of_pytorch_is_no_variable_of_nccl() -> None:
    (held,) = only(SEVERAL.format("-x NCCL_TIMEOUT=12")).findings
    assert (held.finding.id, held.finding.severity) == ("variable-unlisted", Severity.NOTE)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("-x NCCL_ALGO=Ring -x NCCL_TUNER_PLUGIN=t.so", True),
        ("-x NCCL_PROTO=Simple -x NCCL_TUNER_PLUGIN=ofi", True),
        ("-x NCCL_ALGO=Ring -x NCCL_TUNER_PLUGIN=none", False),
        ("-x NCCL_ALGO=Ring,Tree -x NCCL_TUNER_PLUGIN=t.so", False),
        ("-x NCCL_PROTO=^LL -x NCCL_TUNER_PLUGIN=t.so", False),
    ],
)
def test_a_tuner_plugin_chooses_among_what_is_left(settings: str, expected: bool) -> None:
    found = {held.finding.id for held in only(SEVERAL.format(settings)).findings}
    assert ("settings-contradict" in found) is expected
    assert ("tuner-plugin" in found) is ("PLUGIN=none" not in settings)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("-b 8 -e 128M", "many-steps"),
        ("-b 8 -e 1M", "many-steps"),
        ("-b 8", "many-steps"),
        ("-b 2M -e 32M", None),
        ("-b 8 -e 128M -i 8M", "end-not-reached"),
    ],
)
def test_sizes_without_a_factor(arguments: str, expected: str | None) -> None:
    judged = only(f"mpirun -np 4 ./all_reduce_perf {arguments} -g 1")
    assert [held.finding.id for held in judged.findings] == ([expected] if expected else [])
    assert expected != "many-steps" or (judged.fixed or "").endswith("-f 2")


def test_the_last_of_two_values_counts() -> None:
    (held,) = only("mpirun -np 4 ./all_reduce_perf -b8 -e8G -f2 -b8 -e16G -f2 -g1").findings
    assert held.finding.message == "-e is given as 8G and 16G: 16G counts"


EIGHT = "mpirun -np 16 -H a:8,b:8 {} all_reduce_perf -b 8 -e 8G -f 2 -g 1"
PAIR = "mpirun -np 2 -H a:1,b:1 {} all_reduce_perf -b 8 -e 8G -f 2 -g 1"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (EIGHT.format("-x NCCL_IB_HCA=mlx5_0"), ["all 8 GPUs of a node share mlx5_0"]),
        (EIGHT.format("-x NCCL_IB_HCA==mlx5_3:1"), ["all 8 GPUs of a node share mlx5_3"]),
        (EIGHT.format("-x NCCL_IB_HCA=mlx5"), []),
        (EIGHT.format("-x NCCL_IB_HCA=mlx5_0,mlx5_2"), []),
        (EIGHT.format("-x NCCL_IB_HCA=^mlx5_0"), []),
        (PAIR.format("-x NCCL_IB_HCA=mlx5_0"), []),
        (PAIR.format("-x MPI=1"), ["MPI=1 has no effect at run time"]),
        ("NCCL_ALGO=TREE all_reduce_perf -g 8 -b 8 -e 8G -f 2", ["NCCL_ALGO=TREE: the result"]),
        (
            PAIR.format("-x NCCL_PROTO=Simple -x NCCL_MAX_NCHANNELS=2"),
            ["NCCL_PROTO=Simple, NCCL_MAX_NCHANNELS=2: the result is that of this choice"],
        ),
        ("NCCL_MIN_NCHANNELS=4 sendrecv_perf -g 8 -b 8 -e 8G -f 2", ["NCCL_MIN_NCHANNELS=4: the"]),
        ("NCCL_PROTO=LL sendrecv_perf -g 8 -b 8 -e 8G -f 2", []),
    ],
)
def test_notes_on_what_a_test_measures(command: str, expected: list[str]) -> None:
    (found,) = from_text(command, LaunchContext())
    messages = [held.finding.message for held in check(found.line, found.site).findings]
    assert len(messages) == len(expected)
    assert all(part in message for part, message in zip(expected, messages, strict=True)), messages


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("NCCLTUNE_RECRD", "NCCLTUNE_RECORD"),
        ("NCCLTUNE_SENDRECV_POLCY", "NCCLTUNE_SENDRECV_POLICY"),
        ("NCCLTUNE_RECORD_NEXT", None),
        ("NCCLTUNE_SOMETHING_ELSE", None),
        ("NCCL_IB_QPS", "NCCL_IB_QPS_PER_CONNECTION"),
        ("NCCL_IB_SPLIT", "NCCL_IB_SPLIT_DATA_ON_QPS"),
        ("NCCL_IB", None),  # Several variables begin so.
        ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE=0"),
        ("NCCL_ENABLE_P2P", "NCCL_P2P_DISABLE=0"),
        ("NCCL_RAZ_DISABLE", None),  # Nothing but its last word is that of NCCL_RMA_DISABLE.
        ("NCCL_COLNET_ENABLE", "NCCL_COLLNET_ENABLE"),
        ("NCCL_OFI_PROTOCOL", "OFI_NCCL_PROTOCOL"),
        ("GLOO_SOCKET_IF_NAME", "GLOO_SOCKET_IFNAME"),
        *((name, None) for name in ("OFI_NCCL_PROTOCOL", "NCCL_OFI_VERSION", "NCCL_OFI_HOME")),
        *((name, None) for name in ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT", "GLOO_HOME")),
    ],
)
def test_names_that_are_misspelt_or_cut(name: str, right: str | None) -> None:
    assert nearest_variable(name) == right


@pytest.mark.parametrize(
    ("given", "gpus", "said"),
    [
        (None, None, "16 processes on a node need 16 GPUs; --gpus 16 if it has them"),
        (4, 4, "the node has 4 (--gpus)"),
        (8, 2, "the node has 2 (the text)"),
    ],
)
def test_where_the_number_of_gpus_is_from(given: int | None, gpus: int | None, said: str) -> None:
    (found,) = from_text("torchrun --nproc-per-node=16 t.py", LaunchContext())
    site = found.site._replace(gpus=gpus, given_gpus=given)
    assert said in check(found.line, site).findings[0].finding.message


@pytest.mark.parametrize(
    ("hca", "index", "expected"),
    [("rocep1s0f1", 0, True), ("=roceP2p1s0f0,rocep1s0f0", 0, True), ("rocep1s0f1", 3, False),
     ("mlx5_0", 0, False)],
)  # fmt: skip
def test_the_first_gid_of_roce(hca: str, index: int, expected: bool) -> None:
    found = only(
        f"mpirun -n 2 -H a,b -x NCCL_IB_HCA={hca} -x NCCL_IB_GID_INDEX={index} all_reduce_perf"
    )
    assert ("gid-index" in {one.finding.id for one in found.findings}) is expected
