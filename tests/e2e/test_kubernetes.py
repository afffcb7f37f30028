# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch --launcher kubernetes` with a real API server, and pods that are processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partialmethod
from pathlib import Path

import pytest

from nccltune.cli import run as cli
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.model.errors import InputError
from nccltune.native import bench_path

from .kubernetes.cluster import Cluster
from .kubernetes.launching import (
    MAIN,
    PROGRAM,
    ROWS,
    command_words,
    end,
    job_of,
    new_cluster,
    nothing_left,
    render,
    rows,
    run_to_its_end,
    start,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("none_runs_on")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with new_cluster() as found:
        # Debian's Open MPI 4 is the image's; the program is the one of the other launchers' tests.
        found.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        yield found


def test_a_job_to_its_end(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    status, said, errors = run_to_its_end(cluster, *command_words(places, tmp_path / "study"))
    assert status == 0, errors
    assert said["state"] == "done"
    assert len(said["samples"]) == 2 * ROWS
    hosts = [json.loads((places / str(rank)).read_text())["host"] for rank in range(4)]
    assert hosts == ["nccl-test-worker-0"] * 2 + ["nccl-test-worker-1"] * 2
    (run,) = (tmp_path / "study" / "launch").iterdir()
    assert {"job.json", "job.yaml", "command.txt", "output.txt"} <= {
        file.name for file in run.iterdir()
    }
    assert "MPIJob nccl-test is created in namespace default" in errors
    nothing_left(cluster)


@pytest.mark.skipif(shutil.which("mpiexec.hydra") is None, reason="no hydra (Debian: mpich)")
def test_mpich(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    more = ("--set", "kubernetes.mpi=MPICH")
    status, said, errors = run_to_its_end(
        cluster, *command_words(places, tmp_path / "study", *more)
    )
    assert (status, said["state"]) == (0, "done"), errors
    hosts = [json.loads((places / str(rank)).read_text())["host"] for rank in range(4)]
    assert hosts == ["nccl-test-worker-0"] * 2 + ["nccl-test-worker-1"] * 2


def test_a_setting_is_tried_in_pods(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In two pods of an image whose program NCCL_X=1 makes faster."""
    (tmp_path / "all_reduce_perf").symlink_to(Path(__file__).with_name("fake_nccl_tests.py"))
    program = (
        "#!/bin/sh\nexport FAKE_READS=NCCL_X FAKE_EFFECT=NCCL_X=1:0.8:0\n"
        f'exec {tmp_path}/all_reduce_perf "$@"\n'
    )
    cluster.add_image("tried", {"all_reduce_perf": program})
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "HOME", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    # Pods that do not start are reported, and not waited for until the test's time is over.
    monkeypatch.setattr(ClusterJob, "hold", partialmethod(ClusterJob.hold, start_within_s=200))
    words = [
        *("ab", "NCCL_X=1", "--rounds", "1", "-o", "s", "--launcher", "kubernetes"),
        *("--set", "image=tried", "--nodes", "2", "--gpus", "2", "--json"),
        *("--", "all_reduce_perf", "-b", "4096", "-e", "65536"),
    ]
    assert cli(words) == 1, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert (found["decision"], found["rounds"], found["read"]) == ("open", 1, ["NCCL_X"])
    (allreduce,) = found["collectives"]
    assert allreduce["scale"]["ranks"] == 4
    assert allreduce["overall"]["gain"] == pytest.approx(1.25, rel=0.05)
    nothing_left(cluster)


def test_ctrl_c_keeps_rows_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, places: Path
) -> None:
    process = start(cluster, *command_words(places, tmp_path / "study", "--env", "LAUNCHED_SLOW=2"))
    wait_until("rows", lambda: len(rows(tmp_path)) >= 2)
    os.kill(process.pid, signal.SIGINT)
    status, said, _ = end(process)
    assert (status, said["state"]) == (130, "stopped")
    assert 2 * 2 <= len(said["samples"]) < 2 * ROWS
    nothing_left(cluster)


def test_ctrl_c_while_it_waits(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    process = start(cluster, *command_words(places, tmp_path / "study", "--set", "image=other"))
    wait_until("a pod", lambda: cluster.pods() != [])
    os.kill(process.pid, signal.SIGTERM)
    status, said, _ = end(process)
    assert (status, said["state"], said["samples"]) == (143, "stopped", [])
    nothing_left(cluster)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--nodes", "3"), "Insufficient nvidia.com/gpu"),
        (("--set", "image=nccl-tests-2"), "ImagePull"),
    ],
)
def test_a_job_that_can_never_start(
    cluster: Cluster, tmp_path: Path, places: Path, more: tuple[str, str], reason: str
) -> None:
    words = command_words(places, tmp_path / "study", *more, "--start-within", "4")
    status, said, errors = run_to_its_end(cluster, *words)
    assert (status, said["state"]) == (4, "pending")
    assert reason in said["why"]
    assert f"{reason}" in errors
    nothing_left(cluster)


def test_a_program_that_fails(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    status, said, _ = run_to_its_end(
        cluster, *command_words(places, tmp_path / "study", "--env", "LAUNCHED_CRASH=1")
    )
    assert (status, said["state"]) == (4, "failed")
    assert "ended with status" in said["why"]
    assert any("out of memory" in line for line in said["last_words"])
    (run,) = (tmp_path / "study" / "launch").iterdir()
    assert json.loads((run / "pods.json").read_text())["items"]
    assert "nccl-test-launcher" in (run / "events.txt").read_text()
    nothing_left(cluster)


def test_one_of_that_name_is_there(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    rendered = render(cluster, places, "--nodes", "3")
    cluster.kubectl("create", "-f", "-", text=rendered)
    try:
        status, _, errors = run_to_its_end(cluster, *command_words(places, tmp_path / "study"))
        assert status == 4
        assert "already" in errors
        assert "--set name=NAME" in errors
        assert [item["metadata"]["name"] for item in cluster.items("mpijobs")] == ["nccl-test"]
    finally:
        cluster.kubectl("delete", "mpijob", "nccl-test")
        wait_until("its pods go", lambda: cluster.pods() == [])


def test_the_api_server_is_away_for_a_while(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    more = ("--env", "LAUNCHED_SLOW=1.5", "--env", "LAUNCHED_ENDS=1")
    process = start(cluster, *command_words(places, tmp_path / "study", *more))
    wait_until("a row", lambda: len(rows(tmp_path)) >= 1)
    cluster.stop_api()
    time.sleep(3)
    cluster.start_api()
    status, said, errors = end(process)
    assert (status, said["state"]) == (0, "done"), errors
    assert len(said["samples"]) == 2 * ROWS
    nothing_left(cluster)


def test_a_job_set(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    words = command_words(places, tmp_path / "study", "--set", "kubernetes.kind=JobSet")
    status, _, errors = run_to_its_end(cluster, *words)
    assert status == 3
    assert "kubectl create secret generic nccl-test-ssh" in errors
    for name in ("id", "id.pub"):
        (tmp_path / name).write_text("key\n")
    files = [f"--from-file={tmp_path / name}" for name in ("id", "id.pub")]
    cluster.kubectl("create", "secret", "generic", "nccl-test-ssh", *files)
    status, said, errors = run_to_its_end(cluster, *words)
    assert (status, said["state"]) == (0, "done"), errors
    hosts = [json.loads((places / str(rank)).read_text())["host"] for rank in range(4)]
    assert hosts == ["nccl-test-worker-0-0"] * 2 + ["nccl-test-worker-0-1"] * 2
    assert cluster.items("jobsets") == []
    assert cluster.processes() == []


def test_a_field_that_does_not_exist(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    """The cluster's own schema is asked, however old ours is."""
    text = render(cluster, places).replace("slotsPerWorker", "slotsPerWorkers")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InputError, match="slotsPerWorkers"):
        job_of(cluster, tmp_path).run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
    assert cluster.items("mpijobs") == []


def test_the_whole_loop_in_pods(cluster: Cluster, tmp_path: Path) -> None:
    """Sweep, rules and proof. Pods see the files of this machine: a recording can be replayed."""
    cluster.add_image("nccltune", {"nccltune-bench": bench_path()})
    study = tmp_path / "study"
    done = subprocess.run(
        [
            *(sys.executable, "-c", MAIN, "auto", "-o", str(study), "--launcher", "kubernetes"),
            *(
                "--set",
                "image=nccltune",
                "--nodes",
                "2",
                "--gpus",
                "2",
                "--collectives",
                "allreduce",
            ),
            *("--replay", "h200x4-as-4-nodes", "--json"),
        ],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["proof"]["rules"]
    assert (study / "tuner.conf").is_file()
    nothing_left(cluster)
