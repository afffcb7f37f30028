# SPDX-License-Identifier: Apache-2.0
"""Real processes that have mapped a small library with the name and the version of NCCL."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nccltune.cli import run
from nccltune.guard.jobs import read_job_log
from nccltune.guard.node_status import node_status
from nccltune.native.locate import tuner_path
from tests.unit.guard.process_trees import PASSWD, nccl_library, plugin_library

HOLD = """
import ctypes, os, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
os.environ["NCCL_NTHREADS"] = "256"
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(environment: dict[str, str], *libraries: Path, program: str = HOLD) -> Iterator[int]:
    """Start a process that keeps the libraries open; it changes NCCL_NTHREADS itself."""
    words = [sys.executable, "-c", program, *map(str, libraries)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, cwd="/") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.kill()


def with_root(pid: int, folder: Path, files: dict[str, str], *libraries: Path) -> Path:
    """Return a folder like /proc where the process has the root `folder`/root, with `files`."""
    for path, text in files.items():
        place = folder / "root" / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for library in libraries:
        place = folder / "root" / str(library).lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(library, place)
    process = folder / "proc" / str(pid)
    process.mkdir(parents=True)
    (folder / "proc" / "stat").symlink_to("/proc/stat")
    for name in ("maps", "environ", "status", "cmdline", "stat", "uid_map", "cwd"):
        (process / name).symlink_to(f"/proc/{pid}/{name}")
    (process / "root").symlink_to(folder / "root")
    return folder / "proc"


def library(folder: Path, name: str, data: bytes) -> Path:
    path = folder.resolve() / name
    path.write_bytes(data)
    return path


ENVIRONMENT = {
    "NCCL_CONF_FILE": "/site/nccl.conf",
    "NCCL_IB_TIMEOUT": "18",
    "NCCL_MAX_CTAS": "16",
    "NCCL_IB_TC": "106",
    "NCCL_NTHREADS": "512",
}
FILES = {
    "/etc/passwd": PASSWD,
    "/root/.nccl.conf": "NCCL_IB_SL=9\nNCCL_IB_TIMEOUT=9\n",
    "/site/nccl.conf": "NCCL_IB_TIMEOUT=21\nNCCL_IB_SL=3\n",
    "/etc/nccl.conf": "NCCL_BUFFSIZE=1\nNCCL_IB_TIMEOUT=22\nNCCL_IB_SL=4\nNCCL_BUFFSIZE=2\n",
}
LOG = """\
node:{pid}:1 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 18.
node:{pid}:1 [0] NCCL INFO NCCL_NTHREADS set by environment to 256.
node:{pid}:1 [0] NCCL INFO Comm config Min CTAs set to 8
node:{pid}:1 [0] NCCL INFO Comm config Max CTAs set to 32
node:{pid}:1 [0] NCCL INFO Comm config Traffic class set to 41
"""


def test_the_audit_of_a_process_with_five_conflicting_sources_names_each_winner(
    tmp_path: Path,
) -> None:
    """The environment, the file of NCCL_CONF_FILE, /etc/nccl.conf, a communicator, the program."""
    nccl = library(tmp_path, "libnccl.so.2", nccl_library("2.28.9"))
    with holding(ENVIRONMENT, nccl) as pid:
        proc = with_root(pid, tmp_path, FILES, nccl)
        log = tmp_path / "job.log"
        log.write_text(LOG.format(pid=pid))
        found = node_status([pid], read_job_log([log]), proc, "node")
    (process,) = found.jobs[0].processes
    assert process.version == "2.28.9"
    assert {
        one.name: (one.value, one.wins, [(each.source, each.value) for each in one.overrides])
        for one in process.settings
    } == {
        "NCCL_CONF_FILE": ("/site/nccl.conf", "environment", []),
        "NCCL_IB_TIMEOUT": (
            "18",
            "environment",
            [("/site/nccl.conf:1", "21"), ("/etc/nccl.conf:2", "22")],
        ),
        "NCCL_IB_SL": ("3", "/site/nccl.conf:2", [("/etc/nccl.conf:3", "4")]),
        "NCCL_BUFFSIZE": ("1", "/etc/nccl.conf:1", [("/etc/nccl.conf:4", "2")]),
        "NCCL_MIN_CTAS": ("8", "communicator", []),
        "NCCL_MAX_CTAS": ("16", "environment", [("communicator", "32")]),
        "NCCL_IB_TC": ("41", "communicator", [("environment", "106")]),
        "NCCL_NTHREADS": ("256", "a source not seen", [("environment", "512")]),
    }
    assert {one.kind for one in found.conflicts} == {"overridden"}
    assert len(found.conflicts) == 6


def test_an_env_plugin_decides_and_only_the_log_has_its_answer(tmp_path: Path) -> None:
    nccl = library(tmp_path, "libnccl.so.2", nccl_library("2.28.9"))
    plugin = library(tmp_path, "libnccl-env-site.so", plugin_library("ncclEnvPlugin_v1"))
    with holding(ENVIRONMENT, nccl, plugin) as pid:
        proc = with_root(pid, tmp_path, FILES, nccl, plugin)
        log = tmp_path / "job.log"
        log.write_text(f"node:{pid}:1 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 14.\n")
        alone = node_status([pid], None, proc, "node").jobs[0].processes[0]
        logged = node_status([pid], read_job_log([log]), proc, "node").jobs[0].processes[0]
    for process, value in ((alone, None), (logged, "14")):
        timeout = next(one for one in process.settings if one.name == "NCCL_IB_TIMEOUT")
        assert (timeout.value, timeout.wins) == (value, f"env plugin {plugin}")
        assert [each.value for each in timeout.overrides] == ["18", "21", "22"]
    assert any("only its log shows the answers" in note for note in alone.notes)


def test_the_command_reads_a_process_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """NCCL 2.30 and later look for ~/.nccl.conf below $HOME, so a test can set it."""
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_TIMEOUT=21\n")
    nccl = library(tmp_path, "libnccl.so.2", nccl_library("2.30.7"))
    environment = {"HOME": str(tmp_path), "NCCL_IB_TIMEOUT": "18"}
    with holding(environment, nccl) as pid:
        assert run(["status", str(pid), "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert run(["status", str(pid)]) == 1
        captured = capsys.readouterr()
        (tmp_path / ".nccl.conf").write_text("NCCL_IB_TIMEOUT=18\n")
        os.utime(tmp_path / ".nccl.conf", (2**32, 2**32))
        assert run(["status", str(pid)]) == 0
        agreed = capsys.readouterr().out
    assert [one["kind"] for one in document["conflicts"]] == ["overridden"]
    assert document["jobs"][0]["processes"][0]["version"] == "2.30.7"
    screen = captured.out
    source = f"{tmp_path}/.nccl.conf:1"
    assert "verdict    1 conflict in 1 process;" in screen
    assert f"NCCL_IB_TIMEOUT=18 of environment wins over {source} (21)" in screen
    assert "since      NCCL_IB_TIMEOUT: NCCL's default is 20 since 2.23, 18 before" in screen
    assert "nccltune ab --unset NCCL_IB_TIMEOUT -- PROGRAM" in screen
    assert "NCCL's log has both: --log FILE" in captured.err
    assert "no conflict in 1 process" in agreed
    assert ".nccl.conf has changed since the process started" in agreed.replace(
        "\n           ", " "
    )


CALLS = """
import ctypes, sys
address = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(sys.argv[1]), "ncclTunerPlugin_v4"))
words = ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
size, pointer = ctypes.c_size_t, ctypes.c_void_p
init = ctypes.CFUNCTYPE(ctypes.c_int, size, size, pointer, pointer)(words[1])
decide = ctypes.CFUNCTYPE(
    ctypes.c_int, pointer, ctypes.c_int, size, ctypes.c_int, pointer, ctypes.c_int, ctypes.c_int,
    ctypes.c_int, pointer,
)(words[2])
context, table, channels = pointer(), (ctypes.c_float * 21)(*[1.0] * 21), ctypes.c_int()
assert init(32, 4, None, ctypes.byref(context)) == 0
for bytes in (2048, 4096, 2048, 1 << 30):
    assert decide(context, 4, bytes, 1, table, 7, 3, 0, ctypes.byref(channels)) == 0
print("ready", flush=True)
sys.stdin.read()
"""
RULES = "# rules\nallreduce,0,2048,tree,ll,-1,4,32\nallreduce,2049,8192,tree,simple,-1,4,32\n"
RULES += "".join(f"reducescatter,{i},{i},ring,ll,-1,4,32\n" for i in range(14))


def test_the_calls_of_each_rule_are_counted_while_the_job_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tuner.conf"
    config.write_text(RULES)
    environment = {"NCCLTUNE_CONFIG": str(config), "NCCL_CONF_FILE": "/none"}
    with holding(environment, tuner_path(), program=CALLS) as pid:
        (job,) = node_status([pid]).jobs
        run(["status", str(pid), "--metrics", str(tmp_path / "nccltune.prom")])
        screen = capsys.readouterr().out
        # The process keeps what it has loaded.
        config.write_text(RULES.replace("simple", "ll128"))
        (changed,) = node_status([pid]).jobs[0].processes
    rules = job.processes[0].configuration
    assert rules is not None
    assert ([rule.calls for rule in rules.rules], rules.undecided) == ([2, 1] + 14 * [0], 1)
    assert rules.loaded == [rules.content]
    assert "hits       line 2, allreduce 0 B - 2 KiB tree/ll: 2 calls" in screen
    assert "hits       no rule: 1 call" in screen
    assert "not hit    line 4, reducescatter 0 B - 0 B ring/ll\n" in screen
    assert screen.count("not hit    line ") == 12
    assert "not hit    2 more rules\n" in screen
    metrics = (tmp_path / "nccltune.prom").read_text().splitlines()
    whose = f'slurm_job_id="unknown",node="{job.processes[0].host}",pid="{pid}",'
    whose += f'nccl_job="{job.job}",content="{rules.content}"'
    rule = 'collective="AllReduce",line="2",rule="allreduce 0 B - 2 KiB tree/ll"'
    assert f"nccltune_tuner_rule_calls_total{{{whose},{rule}}} 2" in metrics
    assert f"nccltune_tuner_default_calls_total{{{whose}}} 1" in metrics
    assert changed.configuration is not None
    assert changed.configuration.loaded == rules.loaded != [changed.configuration.content]
    assert changed.configuration.rules == []


def test_a_process_that_does_not_exist_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", str(2**22 + 1)]) == 2
    assert "there is no process" in capsys.readouterr().err
