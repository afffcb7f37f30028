# SPDX-License-Identifier: Apache-2.0
"""Tools: deadlines, hangs, bounded output; and the redaction of what leaves a node."""

import os
import threading
from pathlib import Path

import pytest

from nccltune.doctor.evidence import tools
from nccltune.doctor.evidence.catalogue import ToolCommand
from nccltune.doctor.evidence.gather import gather, plain
from nccltune.doctor.evidence.redacting import (
    kept_value,
    plain_cmdline,
    plain_conf,
    plain_environment,
    plain_text,
)
from nccltune.doctor.evidence.tools import run_all
from tests.programs import alive
from tests.unit.doctor.evidence import texts
from tests.waiting import wait_until


def sh(name: str, script: str, deadline_s: float = 30.0) -> ToolCommand:
    return ToolCommand(name, ("/bin/sh", "-c", script), deadline_s)


def await_end(pid: Path) -> None:
    wait_until(lambda: not alive(int(pid.read_text())))


def test_tools_run_concurrently(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Each waits for the other: run one after the other, neither would end.
    found = run_all([sh("a", f"echo x >{fifo}; echo a"), sh("b", f"cat {fifo}; echo b >&2")])
    assert (found["a"].data, found["b"].data) == (b"a\n", b"x\n")
    assert (found["a"].problem, found["b"].problem) == (None, None)


def test_failures_are_reported_with_their_reason() -> None:
    found = run_all(
        [
            sh("bad", "echo partly; echo the reason >&2; echo more >&2; exit 3"),
            sh("quiet", "echo on stdout; exit 4"),
            ToolCommand("fine", ("/bin/sh", "-c", "exit 1"), fine=(0, 1)),
            ToolCommand("absent", ("no-such-tool-anywhere", "-v")),
            ToolCommand("folder", ("/",)),
        ]
    )
    assert found["bad"].data == b"partly\n"
    assert found["bad"].problem == (
        "/bin/sh -c echo partly; echo the reason >&2; echo more >&2; : exit code 3: the reason"
    )
    assert (found["quiet"].problem or "").endswith("exit code 4: on stdout")
    assert found["fine"].problem is None
    assert found["absent"].problem == "no-such-tool-anywhere: is not installed"
    assert (found["folder"].problem or "").startswith("/: cannot be started")


def test_a_tool_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' TERM INT; sleep 1000 & echo $! >{pid}; echo begun; wait"
    found = run_all([sh("hangs", script, 3.0), sh("other", "echo done")])
    assert found["hangs"].problem is not None
    assert "did not end within 3 s and was stopped" in found["hangs"].problem
    assert found["hangs"].data == b"begun\n"
    assert found["other"].data == b"done\n"
    await_end(pid)


def test_a_stop_kills_running_tools_and_starts_no_more(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    stop = threading.Event()
    killed: dict[str, tools.Output] = {}
    both = [
        sh("quick", "echo done"),
        sh("hangs", f"echo $$ >{pid}.new; mv {pid}.new {pid}; sleep 1000"),
    ]
    thread = threading.Thread(target=lambda: killed.update(run_all(both, stop=stop)))
    thread.start()
    wait_until(pid.exists)
    stop.set()
    thread.join()
    assert (killed["hangs"].problem or "").endswith("was stopped: no time was left")
    await_end(pid)
    late = run_all([sh("late", f"touch {tmp_path}/late")], stop=stop)
    assert late["late"].problem == "/bin/sh: no time was left"
    assert not (tmp_path / "late").exists()


def test_a_stop_ends_the_wait_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nccltune.doctor.evidence import gather as module

    stop = threading.Event()
    stop.set()
    monkeypatch.setattr(module, "QUICK_S", 600.0)
    monkeypatch.setattr(module, "libraries_text", lambda *_: threading.Event().wait())
    found = gather(tmp_path, environment={}, stop=stop)
    assert "library path: no time was left" in found.problems


def test_a_child_that_outlives_its_tool_is_killed(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    found = run_all([sh("parent", f"sleep 1000 & echo $! >{pid}; echo out", 100.0)])
    assert found["parent"].data == b"out\n"
    assert found["parent"].problem is None
    assert found["parent"].seconds < 100
    await_end(pid)


def test_output_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "MOST_BYTES", 1 << 20)
    found = run_all([sh("loud", "yes", 60.0)])
    assert len(found["loud"].data) < 2 << 20
    assert "printed more than 1 MiB" in (found["loud"].problem or "")


def test_tools_run_in_the_c_locale() -> None:
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"}
    assert run_all([sh("env", "echo $LC_ALL")], environment)["env"].data == b"C\n"


def test_a_file_that_never_answers_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nccltune.doctor.evidence import gather as module

    monkeypatch.setattr(module, "QUICK_S", 0.2)
    monkeypatch.setattr(module, "libraries_text", lambda *_: threading.Event().wait())
    found = gather(tmp_path, environment={"NCCL_ALGO": "Ring"})
    assert "library path: did not answer within 0.2 s" in found.problems
    raw = found.get("env")
    assert raw is not None
    assert raw.data == b"NCCL_ALGO=Ring\n"


def test_hardware_identifiers_are_redacted() -> None:
    xml = plain_text(texts.SMI_XML + "<processes><pid>7</pid></processes>")
    assert "1234567890123" not in xml
    assert "GPU-00000000" not in xml
    assert "<pid>" not in xml
    assert "<product_name>NVIDIA H100 80GB HBM3</product_name>" in xml
    shown = plain_text("    Serial Number      : 123\n    link/ether 02:fc:00:00:00:01 brd x\n")
    assert shown == "    Serial Number      : (redacted)\n    link/ether (redacted) brd x\n"
    lspci = "\t\t[SN] Serial number: MT1234X\n\tDevice Serial Number 00-02-c9\n"
    assert "MT1234X" not in plain_text(lspci)
    assert "c9" not in plain_text(lspci)
    # Bus ids, GIDs and IP addresses stay: rules ask for them.
    for text in (texts.GIDS, texts.ADDRESSES, texts.LSPCI):
        assert plain_text(text) == text


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("NCCL_IB_HCA", "mlx5_0,mlx5_1", True),
        ("NCCL_AUTH_TOKEN", "x", False),
        ("NCCL_NET", "https://user:pw@host/", False),
        ("NCCL_NET", "A1b2" * 12, False),
        ("LD_LIBRARY_PATH", "/opt/" + "long" * 30, True),
        ("NCCL_TOPO_FILE", "/home/" + "x" * 60 + "/topo.xml", True),
        ("LD_LIBRARY_PATH", "-----BEGIN KEY", False),
    ],
)
def test_secret_values_of_settings_are_redacted(name: str, value: str, kept: bool) -> None:
    assert kept_value(name, value) == (value if kept else "(redacted)")


def test_only_known_content_of_small_files_is_kept() -> None:
    assert plain_cmdline("iommu=pt a.b=c quiet -- --token x") == "iommu=pt a.b=(redacted) quiet\n"
    conf = "# who\nNCCL_ALGO=Tree\nKEY=abc\nnonsense\n"
    assert plain_conf(conf) == "#\nNCCL_ALGO=Tree\nKEY=(redacted)\n\n"
    assert plain_environment([("NCCL_B", "x\ny"), ("NCCL_A", "1"), ("HOME", "/")]) == (
        "NCCL_A=1\nNCCL_B=x y\n"
    )
    assert plain("dmesg", b"[ 1.0] user logged in\n[ 2.0] pcie up\n") == b"[ 2.0] pcie up\n"
    assert plain("cpuinfo", b"processor : 0\nflags : a\n\nprocessor : 1\nphysical id : 1\n") == (
        b"processor : 0\nflags : a\nphysical id : 1\n"
    )
