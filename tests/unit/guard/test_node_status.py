# SPDX-License-Identifier: Apache-2.0
import hashlib
from pathlib import Path

import msgspec
import pytest

import nccltune
from nccltune.cli.status import show
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.guard.audit import AuditedProcess
from nccltune.guard.jobs import read_job_log
from nccltune.guard.node_status import NodeStatus, joined, node_status
from nccltune.model.errors import InputError, PlatformError
from nccltune.prove.job import JobProof
from tests.unit.guard.process_trees import ProcessTree, nccl_library, plugin_library

LIBNCCL = "/usr/lib/libnccl.so.2.28.9"
TUNER = "/opt/nccltune/libnccl-tuner-nccltune.so"
RULES = (
    "allreduce,1024,65536,tree,ll,-1,2,16\n"
    "# sure: 1.3x\n"
    "allreduce,65537,1048576,ring,ll128,-1,2,16\n"
    "allreduce,0,65536,tree,simple,-1,4,32\n"
)
LOG = (
    "node:{pid}:{pid} [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"
    "node:{pid}:{pid} [0] NCCL INFO comm 0x5 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 x\n"
)
LOADED = (
    "node:{pid}:{pid} [0] NCCL INFO TUNER/nccltune: /etc/tuner.conf (content {content}): "
    "2 of 3 rules apply to 2 nodes, 16 ranks; dropped: 1 other scale\n"
)


@pytest.fixture
def tree(tmp_path: Path) -> ProcessTree:
    tree = ProcessTree(tmp_path)
    tree.write(LIBNCCL, nccl_library())
    tree.write(TUNER, plugin_library("ncclTunerPlugin_v5", "nccltune_tuner_version"))
    tree.write("/etc/tuner.conf", RULES)
    return tree


def status(tree: ProcessTree, *pids: int, log: str = "") -> NodeStatus:
    if not log:
        return node_status(pids, None, tree.proc, "node")
    path = tree.proc.parent / "job.log"
    path.write_text(log)
    return node_status(pids, read_job_log([path]), tree.proc, "node")


def processes(found: NodeStatus) -> list[AuditedProcess]:
    return [process for job in found.jobs for process in job.processes]


def texts(found: NodeStatus) -> list[str]:
    return [conflict.text for conflict in found.conflicts]


RUN = {"NCCL_TUNER_PLUGIN": TUNER, "NCCL_TUNER_CONFIG_FILE": "/etc/tuner.conf"}


def test_what_a_process_has_loaded(tree: ProcessTree) -> None:
    net = plugin_library("ncclNetPlugin_v10", "ncclTunerPlugin_v4")
    tree.write("/opt/site/libfabric_thing.so", net)
    names = {"NCCL_NET_PLUGIN": "/none,/opt/site/libfabric_thing.so"}
    tree.process(100, RUN | names, LIBNCCL, TUNER, "/opt/site/libfabric_thing.so")
    tree.process(101, {"NCCL_DEBUG": "INFO"})
    found = status(tree)
    (process,) = processes(found)
    assert (process.pid, process.own_pid, process.command) == (100, 0, "python train.py")
    assert process.version == "2.28.9"
    nccl, tuner, other = process.libraries
    assert (nccl.kinds, nccl.version) == (["nccl"], "2.28.9")
    assert (tuner.kinds, tuner.is_ours) == (["tuner"], True)
    # A plugin is recognised by its symbols, whatever its name, and may be two kinds at once.
    assert (other.kinds, other.is_ours) == (["net", "tuner"], False)
    assert other.sha256 == hashlib.sha256(net).hexdigest()
    assert (found.conflicts, found.hidden) == ([], 0)


def test_our_release_is_that_of_the_same_file_or_of_its_text(tree: ProcessTree) -> None:
    old = b"...\x000.1.7\x00..." + plugin_library("ncclTunerPlugin_v5", "nccltune_tuner_version")
    tree.write(TUNER, old[len(b"...\x000.1.7\x00...") :] + b"\x000.1.7\x00")
    tree.process(100, RUN, LIBNCCL, TUNER)
    assert processes(status(tree))[0].of_kind("tuner")[0].version == "0.1.7"
    assert nccltune.__version__ != "0.1.7"


def test_a_replaced_library_is_named_and_not_read(tree: ProcessTree) -> None:
    tree.process(100, RUN, LIBNCCL, gone=TUNER)
    (process,) = processes(status(tree))
    (tuner,) = process.of_kind("tuner")
    assert (tuner.is_ours, tuner.sha256) == (True, None)
    assert tuner.problem == "its file was replaced or removed since it was loaded"


def test_a_path_may_be_that_of_this_machine(tree: ProcessTree) -> None:
    """The kernel shows the files of a process after chroot below our root."""
    here = tree.write("/srv/libnccl.so.2", nccl_library())
    folder = tree.process(100, {}, "/srv/libnccl.so.2")
    maps = (folder / "maps").read_text().replace("/srv/libnccl", f"{tree.root}/srv/libnccl")
    (folder / "maps").write_text(maps)
    assert processes(status(tree))[0].of_kind("nccl")[0].version == "2.28.9"
    assert here.is_file()


@pytest.mark.parametrize(
    ("version", "environment", "home"),
    [
        # NCCL up to 2.29 asks the password file, from 2.30 on $HOME.
        ("2.28.9", {"HOME": "/home/elsewhere"}, "ann"),
        ("2.30.7", {"HOME": "/home/elsewhere"}, "elsewhere"),
        ("2.28.9", {"NCCL_CONF_FILE": "/etc/site.conf"}, "site"),
        ("2.22.3", {"NCCL_CONF_FILE": "/etc/site.conf"}, "ann"),
    ],
)
def test_the_files_are_those_of_its_nccl(
    tree: ProcessTree, version: str, environment: dict[str, str], home: str
) -> None:
    for name in ("ann", "elsewhere"):
        tree.write(f"/home/{name}/.nccl.conf", f"NCCL_PROXY_CPUSET={name}\n")
    tree.write("/etc/site.conf", "NCCL_PROXY_CPUSET=site\n")
    tree.write("/usr/lib/libnccl.so.2", nccl_library(version))
    tree.process(100, environment, "/usr/lib/libnccl.so.2")
    (process,) = processes(status(tree))
    values = {one.name: one.value for one in process.settings}
    assert values["NCCL_PROXY_CPUSET"] == home


@pytest.mark.parametrize(
    ("name", "value", "since", "trial"),
    [
        ("NCCL_IB_TIMEOUT", "18", "NCCL's default is 20 since 2.23, 18 before", True),
        (
            "NCCL_IB_TIMEOUT",
            "20",
            "NCCL's default is 20 since 2.23, 18 before: it changes nothing",
            True,
        ),
        ("NCCL_LL_THRESHOLD", "1", "NCCL reads it up to 2.4: NCCL_PROTO", True),
        ("NCCL_SYM_TMA_ENABLE", "1", "NCCL reads it since 2.30", True),
        ("NCCL_IFNAME_SOCKET", "lo", "unknown to NCCL 2.3 to 2.32: NCCL_SOCKET_IFNAME was meant?",
         False),
        ("NCCL_BUFFSIZE", "8388608", None, True),
        ("NCCL_DEBUG", "INFO", None, False),
    ],
)  # fmt: skip
def test_facts_of_a_setting(
    tree: ProcessTree, name: str, value: str, since: str | None, trial: bool
) -> None:
    tree.process(100, {name: value}, LIBNCCL)
    (setting,) = processes(status(tree))[0].settings
    assert setting.since == since
    expected = f"{name}={value} nccltune ab --unset {name} -- PROGRAM"
    assert setting.trial == (expected if trial else None)


def test_a_line_of_etc_cannot_be_unset_by_a_command(tree: ProcessTree) -> None:
    tree.write("/etc/nccl.conf", "NCCL_BUFFSIZE=1\nNCCL_IB_TIMEOUT=18\n")
    tree.write("/home/ann/.nccl.conf", "NCCL_IB_SL=3\n")
    tree.process(100, {"NCCL_IB_TIMEOUT": "22"}, LIBNCCL)
    trials = {one.name: one.trial for one in processes(status(tree))[0].settings}
    assert trials == {
        "NCCL_BUFFSIZE": None,
        "NCCL_IB_TIMEOUT": None,
        "NCCL_IB_SL": "NCCL_CONF_FILE=/dev/null NCCL_IB_SL=3 nccltune ab --unset NCCL_IB_SL -- "
        "PROGRAM",
    }


def test_secrets_are_not_printed(tree: ProcessTree) -> None:
    tree.write("/etc/nccl.conf", "NCCL_SITE_TOKEN=other\n")
    tree.process(100, {"NCCL_SITE_TOKEN": "hush"}, LIBNCCL)
    found = status(tree)
    assert "hush" not in repr(found)
    assert "other" not in repr(found)
    assert len(found.conflicts) == 1


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ({"NCCL_BUFFSIZE": "1"}, {"NCCL_BUFFSIZE": "2"}, "NCCL_BUFFSIZE differs: 1 (pid 100), 2 "
         "(pid 101)"),
        ({"NCCL_ALGO": "Ring"}, {}, "NCCL_ALGO differs: Ring (pid 100), not set (pid 101)"),
        ({"NCCL_IB_HCA": "mlx5_0"}, {"NCCL_IB_HCA": "mlx5_1"}, None),
        ({"SLURM_JOB_ID": "1", "NCCL_ALGO": "Ring"}, {"SLURM_JOB_ID": "2"}, None),
    ],
)  # fmt: skip
def test_ranks_of_a_job_are_compared(
    tree: ProcessTree, first: dict[str, str], second: dict[str, str], text: str | None
) -> None:
    tree.process(100, {"SLURM_STEP_ID": "0"} | first, LIBNCCL)
    tree.process(101, {"SLURM_STEP_ID": "0"} | second, LIBNCCL)
    assert texts(status(tree)) == ([text] if text else [])


def test_ranks_with_other_libraries_conflict(tree: ProcessTree) -> None:
    tree.write("/opt/new/libnccl.so.2", nccl_library("2.30.7"))
    tree.process(100, {}, LIBNCCL, TUNER)
    tree.process(101, {}, "/opt/new/libnccl.so.2", gone=TUNER)
    tree.process(102, {}, LIBNCCL, "/opt/new/libnccl.so.2")
    nccl, tuner, two = sorted(texts(status(tree)))
    assert nccl == "NCCL differs: 2.28.9 (pid 100), 2.30.7 (pid 101)"
    assert tuner.startswith("the tuner library differs: ")
    assert two.startswith("two NCCLs are loaded in one process: ")


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, None),
        ({"NCCL_ALGO": "Ring"}, "filtered"),
        ({"NCCLTUNE_CONFIG": "/etc/other.conf"}, "overridden"),
        ({"NCCLTUNE_CONFIG_HASH": "0123456789abcdef"}, "hash"),
        ({"NCCLTUNE_CONFIG_HASH": config_hash(RULES.encode())}, None),
    ],
)
def test_what_makes_rules_useless(
    tree: ProcessTree, more: dict[str, str], kind: str | None
) -> None:
    tree.process(100, RUN | more, LIBNCCL, TUNER)
    assert [conflict.kind for conflict in status(tree).conflicts] == ([kind] if kind else [])


def test_rules_by_the_scale_of_the_environment(tree: ProcessTree) -> None:
    scale = {"SLURM_NTASKS": "16", "SLURM_NNODES": "2"}
    tree.process(100, RUN | scale, LIBNCCL, TUNER)
    tree.process(101, RUN, LIBNCCL, TUNER)
    # NCCL counts these as nodes, whatever the launcher does.
    tree.process(102, RUN | scale | {"NCCL_HOSTID": "a"}, LIBNCCL, TUNER)
    known, unknown, emulated = (process.configuration for process in processes(status(tree)))
    assert known is not None
    assert unknown is not None
    assert emulated is not None
    # Groups of the job may have the scale of the third.
    assert [rule.applies for rule in known.rules] == [True, True, None]
    assert [rule.applies for rule in emulated.rules] == [None, None, None]
    assert known.rules[1].state == "sure"
    assert [rule.applies for rule in unknown.rules] == [None, None, None]
    assert (known.content, known.scale_source) == (config_hash(RULES.encode()), "the environment")
    assert {rule.sizes for rule in known.rules} == {None}


def test_the_screen_of_a_job_with_a_log(
    tree: ProcessTree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.write("/etc/nccl.conf", "NCCL_IB_TIMEOUT=22\nNCCL_IB_TIMEOUT=23\n")
    for pid in (100, 200):
        tree.process(pid, RUN, LIBNCCL, TUNER)
    content = config_hash(RULES.encode())
    log = (LOG + LOADED).format(pid=0, content=content)
    log += "node:0:9 [0] NCCL INFO AllReduce: 2048 Bytes -> Algo TREE proto LL x\n"
    log += (LOG + LOADED).format(pid=5, content=content).replace("node:", "other:")
    show(status(tree, log=log))
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "verdict 1 conflict in 3 processes; looked at node",
        "pid 100, 200 python train.py nccl 2.28.9 /usr/lib/libnccl.so.2.28.9 tuner nccltune",
        f"rules /etc/tuner.conf loaded content {content} 2 of 3 rules fit 2 nodes, 16 ranks (by "
        "NCCL's log); 1 of other scales cannot apply",
        "hits line 1, allreduce 1 KiB - 64 KiB tree/ll: 1 size of the log, NCCL ran it at 1",
        "NCCL_IB_TIMEOUT 22 /etc/nccl.conf:1 /etc/nccl.conf:2 (23) /proc",
        "since NCCL_IB_TIMEOUT: NCCL's default is 20 since 2.23, 18 before",
        "pid other: 5 not read nccl 2.28.9",
        "conflict NCCL_IB_TIMEOUT=22 of /etc/nccl.conf:1 wins over /etc/nccl.conf:2 (23)",
    ):
        assert words in shown, shown


@pytest.mark.parametrize(
    ("hash_of", "words"), [(RULES, "job a job gains less than 0.5 % by these rules: ./run"),
                           (RULES + "#", None), (None, None)]
)  # fmt: skip
def test_the_proof_of_a_job_with_the_rules_of_a_process(
    tree: ProcessTree, capsys: pytest.CaptureFixture[str], hash_of: str | None, words: str | None
) -> None:
    content = config_hash((hash_of or "").encode())
    job = JobProof(study="s", config_hash=content, program=["./run"], verdict="no", why="")
    proof = msgspec.json.encode(job).decode() if hash_of else "{"
    tree.write("/etc/job-proof.json", proof)
    tree.process(100, RUN, LIBNCCL, TUNER)
    show(status(tree))
    shown = " ".join(capsys.readouterr().out.split())
    assert (words or "rules /etc/tuner.conf") in shown
    assert ("a job" in shown) == (words is not None)


def test_rules_of_other_scales_are_not_named_as_not_hit(
    tree: ProcessTree, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.process(100, RUN | {"SLURM_NTASKS": "16", "SLURM_NNODES": "2"}, LIBNCCL, TUNER)
    found = status(tree)
    (process,) = processes(found)
    assert process.configuration is not None
    rules = [
        msgspec.structs.replace(rule, calls=calls)
        for rule, calls in zip(process.configuration.rules, (7, 0, 0), strict=True)
    ]
    configuration = msgspec.structs.replace(process.configuration, rules=rules, undecided=0)
    process = msgspec.structs.replace(process, configuration=configuration)
    job = msgspec.structs.replace(found.jobs[0], processes=[process])
    show(msgspec.structs.replace(found, jobs=[job]))
    shown = [line for line in capsys.readouterr().out.splitlines() if "hit" in line]
    assert shown == [
        "hits       line 1, allreduce 1 KiB - 64 KiB tree/ll: 7 calls",
        "not hit    line 3, allreduce 64 KiB - 1 MiB ring/ll128",
        "hits       no rule: 0 calls",
    ]


def test_hits_are_those_of_the_log(tree: ProcessTree) -> None:
    tree.process(100, RUN, LIBNCCL, TUNER)
    content = config_hash(RULES.encode())
    ran = (
        "node:0:9 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..1}}"
    )
    calls = [
        (2048, "TREE", "LL"),
        (4096, "RING", "LL"),
        (131072, "RING", "LL128"),
        (4, "RING", "LL"),
    ]
    log = (LOG + LOADED).format(pid=0, content=content)
    log += "".join(ran.format(*call) + "\n" for call in calls)
    (process,) = processes(status(tree, log=log))
    rules = process.configuration
    assert rules is not None
    assert (rules.loaded, rules.scale_source) == ([content], "NCCL's log")
    assert [(rule.sizes, rule.followed) for rule in rules.rules] == [(2, 1), (1, 1), (0, 0)]


def test_a_job_that_has_ended_is_in_its_log(tree: ProcessTree) -> None:
    config = tree.write("/site/rules.conf", RULES)
    log = (LOG + LOADED).format(pid=7, content=config_hash(RULES.encode()))
    log = log.replace("/etc/tuner.conf", str(config))
    log += "node:7:9 [0] NCCL INFO AllReduce: 2048 Bytes -> Algo TREE proto LL x\n"
    (process,) = processes(status(tree, log=log))
    assert process.configuration is not None
    assert [rule.sizes for rule in process.configuration.rules] == [1, 0, 0]
    # A file with other rules says nothing about the job.
    config.write_text(RULES + "# more\n")
    (process,) = processes(status(tree, log=log))
    assert process.configuration is not None
    assert (process.configuration.content, process.configuration.rules) == (None, [])


def test_a_log_has_what_a_process_sets_itself(tree: ProcessTree) -> None:
    tree.process(100, {"NCCL_BUFFSIZE": "1"}, LIBNCCL)
    log = LOG + (
        "node:{pid}:{pid} [0] NCCL INFO NCCL_BUFFSIZE set by environment to 2.\n"
        "node:{pid}:{pid} [0] NCCL INFO NCCL_MIN_CTAS set by environment to 4.\n"
        "node:{pid}:{pid} [0] NCCL INFO Comm config Min CTAs set to 8\n"
        "other:{pid}:{pid} [0] NCCL INFO NCCL_BUFFSIZE set by environment to 3.\n"
    )
    found = status(tree, log=log.format(pid=0))
    assert texts(found) == [
        "NCCL_BUFFSIZE=2 in NCCL's log wins over environment (1): the program set it after its "
        "start, or a file has changed",
        "NCCL_MIN_CTAS=4 in NCCL's log wins over communicator (8)",
        "NCCL_BUFFSIZE differs: 2 (pid 100), 3 (other:0)",
    ]


def test_ranks_on_other_nodes_have_other_rules(tree: ProcessTree) -> None:
    log = "".join(
        (LOG + LOADED).format(pid=pid, content=f"{pid:016x}") for pid in (1, 2)
    ) + LOG.format(pid=3)
    (text,) = texts(status(tree, log=log))
    assert text == (
        "the content of the rules differs: 0000000000000001 (node:1), 0000000000000002 (node:2), "
        "no rules (node:3)"
    )


FAILED = "Plugin load returned 2 : x.so: cannot open shared object file : when loading x.so"
INTERNAL = "TUNER/Plugin: Using internal tuner plugin."


@pytest.mark.parametrize(
    ("asked", "lines", "why"),
    [
        ("by environment to x.so", [f"TUNER/Plugin: {FAILED}", INTERNAL], FAILED),
        ("to x.so", [INTERNAL], "NCCL uses its internal tuner"),
        ("to x.so", ["External tuner plugin x.so is unsupported"],
         "External tuner plugin x.so is unsupported"),
        ("to x.so", ["TUNER/Plugin: x.so: x.so: undefined symbol: y", INTERNAL],
         "x.so: x.so: undefined symbol: y"),
        ("to x.so", ["TUNER/Plugin: Could not find: x.so", "TUNER/Plugin: Using Example (v5)"],
         None),
        ("to none", [INTERNAL], None),
        ("to x.so", [], None),
    ],
)  # fmt: skip
def test_a_tuner_that_is_not_loaded(
    tree: ProcessTree,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    lines: list[str],
    why: str | None,
) -> None:
    start = "node:7:9 [0] NCCL INFO "
    words = [f"NCCL_TUNER_PLUGIN set {asked}", *lines, "comm 0x1 rank 0 nranks 16 Init COMPLETE"]
    log = "".join(f"{start}{word}\n" for word in words)
    found = status(tree, log=log)
    assert texts(found) == ([f"NCCL_TUNER_PLUGIN=x.so is not loaded: {why}"] if why else [])
    show(found)
    own = lines[-1:] == [INTERNAL] or why is not None
    assert ("tuner      none loaded: " in capsys.readouterr().out) == own
    # A rank elsewhere has the rules, and this one has not.
    loaded = LOADED.format(pid=8, content="0123456789abcdef")
    mixed = status(tree, log=log + loaded.replace("node:8", "other:8"))
    differs = [text for text in texts(mixed) if "no rules (node:7)" in text]
    assert bool(differs) == own
    show(mixed)
    shown = " ".join(capsys.readouterr().out.split())
    assert "note 2 of 3 rules fit 2 nodes, 16 ranks" in shown


def test_a_process_that_cannot_be_read_is_said(
    tree: ProcessTree, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree.process(100, {}, LIBNCCL)
    tree.process(101, {}, LIBNCCL)
    plain = Path.read_text

    def refused(self: Path, *args: str) -> str:
        if self == tree.proc / "101" / "maps":
            raise PermissionError
        return plain(self, *args)

    monkeypatch.setattr(Path, "read_text", refused)
    found = status(tree)
    assert ([process.pid for process in processes(found)], found.hidden) == ([100], 1)
    show(NodeStatus("node", [], 1))
    assert "no process with NCCL among those of node that this user may read" in (
        capsys.readouterr().out
    )
    with pytest.raises(PlatformError, match="process 101 may not be looked at"):
        status(tree, 101)
    with pytest.raises(InputError, match="there is no process 102"):
        status(tree, 102)


def test_an_overwritten_environment_says_nothing_about_settings(
    tree: ProcessTree, capsys: pytest.CaptureFixture[str]
) -> None:
    """setproctitle, as in workers of Ray: neither is a variable unset, nor does a file win."""
    tree.write("/etc/nccl.conf", "NCCL_BUFFSIZE=1\n")
    tree.process(100, {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}, LIBNCCL)
    tree.process(101, {}, LIBNCCL)
    for pid, place in ((101, b"\0" * 40), (100, b"ray::worker\0\0\0NCCL_BUFFSIZE=2\0")):
        (tree.proc / str(pid) / "environ").write_bytes(place)
    found = status(tree)
    assert [process.settings for process in processes(found)] == [[], []]
    assert all("overwrote its environment" in process.notes[0] for process in processes(found))
    show(found)
    assert "settings   unknown" in capsys.readouterr().out
    log = LOG + "node:0:0 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 7.\n"
    (setting, *_) = processes(status(tree, log=log.format(pid=0)))[0].settings
    assert (setting.value, setting.wins) == ("7", "a source not seen")


def test_a_process_without_a_library_is_shown_if_it_is_asked_for(tree: ProcessTree) -> None:
    tree.process(100, {"NCCL_BUFFSIZE": "1"})
    assert processes(status(tree)) == []
    (process,) = processes(status(tree, 100))
    assert [one.value for one in process.settings] == ["1"]
    assert any("version of NCCL is not known" in note for note in process.notes)


def test_a_file_without_a_line_of_nccl_is_no_log(tree: ProcessTree) -> None:
    with pytest.raises(InputError, match="has no line of NCCL's log"):
        status(tree, log="hello\n")


def node(folder: Path, name: str, environment: dict[str, str], rules: str = RULES) -> NodeStatus:
    """The status of a node with one process, as another node prints it."""
    folder = folder / name
    folder.mkdir()
    tree = ProcessTree(folder)
    tree.write(LIBNCCL, nccl_library())
    tree.write(TUNER, plugin_library("ncclTunerPlugin_v5", "nccltune_tuner_version"))
    tree.write("/etc/tuner.conf", rules)
    tree.process(100, RUN | environment, LIBNCCL, TUNER)
    found = node_status((), None, tree.proc, name)
    document = {**msgspec.structs.asdict(found), "conflicts": found.conflicts}
    return msgspec.json.decode(msgspec.json.encode(document), type=NodeStatus)


def test_a_job_is_compared_across_its_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = {"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0"}
    other = RULES.replace("simple", "ll128")
    one, two = node(tmp_path, "a", step), node(tmp_path, "b", step, other)
    assert one.conflicts == two.conflicts == []
    found = joined([one, two], ["c: no such file"])
    (job,) = found.jobs
    (conflict,) = found.conflicts
    assert (found.host, len(job.processes), conflict.kind) == ("a, b", 2, "differs")
    assert conflict.text == (
        f"the content of the rules differs: {config_hash(RULES.encode())} (a:100), "
        f"{config_hash(other.encode())} (b:100)"
    )
    show(found)
    out = " ".join(capsys.readouterr().out.split())
    assert "looked at a, b" in out
    assert "no answer c: no such file" in out
    assert "pid a: 100" in out
    assert "pid b: 100" in out


@pytest.mark.parametrize("environment", [{}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}])
def test_jobs_of_one_node_each_are_not_compared(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    nodes = [
        node(tmp_path, "a", environment | {"NCCL_BUFFSIZE": "1"}),
        node(tmp_path, "b", environment | {"NCCL_BUFFSIZE": "2"}),
    ]
    found = joined(nodes)
    assert [job.job.rpartition(", ")[2] for job in found.jobs] == ["on a", "on b"]
    assert found.conflicts == []


@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>:"])
def test_the_version_that_nccl_prints_as_a_line_of_its_own(tree: ProcessTree, tag: str) -> None:
    log = f"{tag}NCCL version 2.21.5+cuda12.4\n{LOG.splitlines()[1]}\n".format(pid=7)
    assert [process.version for process in processes(status(tree, log=log))] == ["2.21.5"]


def test_a_log_of_other_nodes_is_judged_alone(tree: ProcessTree) -> None:
    tree.process(100, {"NCCL_ALGO": "Tree", **RUN}, LIBNCCL, TUNER)
    log = LOG.format(pid=7).replace("node:", "other:")
    found = status(tree, log=log)
    assert [(process.host, process.pid) for process in processes(found)] == [("other", 7)]
    assert (found.conflicts, found.host) == ([], str(tree.proc.parent / "job.log"))
    # A process that is asked for is shown, and a log of this node is beside what runs here.
    assert len(processes(status(tree, 100, log=log))) == 2
    assert len(processes(status(tree, log=LOG.format(pid=7)))) == 2


def test_a_setting_that_did_not_reach_a_node_differs(tree: ProcessTree) -> None:
    """A rank that logs the lines around a setting, and not the setting, does not have it."""
    words = ["Bootstrap : Using eth0", "NCCL_ALGO set by environment to Ring.", "Using network IB"]
    end = "comm 0x{0} rank {0} nranks 2 cudaDev 0 busId 1000 commId 0xab - Init COMPLETE"
    logs = ["".join(f"n{0}:7:9 [0] NCCL INFO {one}\n" for one in (*words, end.format(0)))]
    for left_out, said in ((1, ["NCCL_ALGO differs: Ring (n0:7), not set (n1:8)"]), (2, [])):
        others = [one for one in (*words, end.format(1)) if one != words[left_out]]
        other = "".join(f"n1:8:9 [0] NCCL INFO {one}\n" for one in others)
        other = other if left_out == 1 else other.replace(f"n1:8:9 [0] NCCL INFO {words[1]}\n", "")
        found = status(tree, log=logs[0] + other)
        assert [one.text for one in found.conflicts] == said
