# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch --launcher kubernetes` with a real API server, and pods that are processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from nccltune.cli import run as cli
from nccltune.launch.follow import Follower
from nccltune.launch.job import Job
from nccltune.launch.kubernetes import run
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.launch.state import State
from nccltune.model.errors import InputError
from nccltune.native import bench_path

from .kubernetes.cluster import Cluster

MAIN = "from nccltune.cli import main; main()"
PROGRAM = Path(__file__).parent / "launched_program.py"
ROWS = 4


def _cluster(operator: str | None = None) -> Cluster:
    """With two GPUs a node. A real MPI Operator takes the place of ours where one is named."""
    real = os.environ.get("MPI_OPERATOR")
    if operator is None and real:
        return Cluster(real, Path(os.environ["MPI_OPERATOR_CRD"]), gpus=2)
    return Cluster(operator or "ours", gpus=2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with _cluster() as found:
        # Debian's Open MPI 4 is the image's; the program is the one of the other launchers' tests.
        found.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        yield found


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "places").mkdir()
    return tmp_path / "places"


def _words(places: Path, study: Path, *more: str) -> list[str]:
    return [
        *("--launcher", "kubernetes", "--image", "nccl-tests", "--nodes", "2"),
        *("--gpus-per-node", "2", "-x", f"PLACES={places}", "-o", str(study), "--json", *more),
        *("--", "all_reduce_perf", "-b", "1K", "-e", "8K", "-f", "2"),
    ]


_started: list["subprocess.Popen[str]"] = []


@pytest.fixture(autouse=True)
def _none_runs_on() -> Iterator[None]:
    """What a failed test leaves running would disturb the next one; its words tell why."""
    yield
    while _started:
        process = _started.pop()
        if process.stdout and not process.stdout.closed:
            process.kill()
            sys.stderr.write("".join(process.communicate()))


def _start(cluster: Cluster, *words: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "launch", *words],
        env=cluster.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _started.append(process)
    return process


def _end(process: "subprocess.Popen[str]", limit_s: float = 120) -> tuple[int, Any, str]:
    out, errors = process.communicate(timeout=limit_s)
    return process.returncode, json.loads(out) if out.strip() else None, errors


def _run(cluster: Cluster, *words: str) -> tuple[int, Any, str]:
    return _end(_start(cluster, *words))


def _until(what: str, condition: Callable[[], bool], limit_s: float = 150) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def _nothing_left(cluster: Cluster) -> None:
    assert cluster.items("mpijobs") == []
    assert cluster.pods() == []
    assert cluster.processes() == []


def test_a_job_to_its_end(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    status, said, errors = _run(cluster, *_words(places, tmp_path / "study"))
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
    _nothing_left(cluster)


@pytest.mark.skipif(shutil.which("mpiexec.hydra") is None, reason="no hydra (Debian: mpich)")
def test_mpich(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    more = ("--set", "kubernetes.mpi=MPICH")
    status, said, errors = _run(cluster, *_words(places, tmp_path / "study", *more))
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
    # Pods that do not start are told of, and not waited for until the test's time is over.
    monkeypatch.setattr(ClusterJob, "hold", partialmethod(ClusterJob.hold, start_within_s=200))
    words = [
        *("try", "NCCL_X=1", "--rounds", "1", "-o", "s", "--launcher", "kubernetes"),
        *("--image", "tried", "--nodes", "2", "--gpus", "2", "--json"),
        *("--", "all_reduce_perf", "-b", "4096", "-e", "65536"),
    ]
    assert cli(words) == 1, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)
    assert (found["decision"], found["rounds"], found["read"]) == ("open", 1, ["NCCL_X"])
    (allreduce,) = found["collectives"]
    assert allreduce["scale"]["ranks"] == 4
    assert allreduce["overall"]["gain"] == pytest.approx(1.25, rel=0.05)
    _nothing_left(cluster)


def test_ctrl_c_keeps_rows_and_leaves_nothing(
    cluster: Cluster, tmp_path: Path, places: Path
) -> None:
    process = _start(cluster, *_words(places, tmp_path / "study", "-x", "LAUNCHED_SLOW=2"))
    _until("rows", lambda: len(_rows(tmp_path)) >= 2)
    os.kill(process.pid, signal.SIGINT)
    status, said, _ = _end(process)
    assert (status, said["state"]) == (130, "stopped")
    assert 2 * 2 <= len(said["samples"]) < 2 * ROWS
    _nothing_left(cluster)


def test_ctrl_c_while_it_waits(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    process = _start(cluster, *_words(places, tmp_path / "study", "--image", "other"))
    _until("a pod", lambda: cluster.pods() != [])
    os.kill(process.pid, signal.SIGTERM)
    status, said, _ = _end(process)
    assert (status, said["state"], said["samples"]) == (143, "stopped", [])
    _nothing_left(cluster)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--nodes", "3"), "Insufficient nvidia.com/gpu"),
        (("--image", "nccl-tests-2"), "ImagePull"),
    ],
)
def test_a_job_that_can_never_start(
    cluster: Cluster, tmp_path: Path, places: Path, more: tuple[str, str], reason: str
) -> None:
    words = _words(places, tmp_path / "study", *more, "--start-within", "4")
    status, said, errors = _run(cluster, *words)
    assert (status, said["state"]) == (4, "pending")
    assert reason in said["why"]
    assert f"{reason}" in errors
    _nothing_left(cluster)


def test_a_program_that_fails(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    status, said, _ = _run(cluster, *_words(places, tmp_path / "study", "-x", "LAUNCHED_CRASH=1"))
    assert (status, said["state"]) == (4, "failed")
    assert "ended with status" in said["why"]
    assert any("out of memory" in line for line in said["last_words"])
    (run,) = (tmp_path / "study" / "launch").iterdir()
    assert json.loads((run / "pods.json").read_text())["items"]
    assert "nccl-test-launcher" in (run / "events.txt").read_text()
    _nothing_left(cluster)


def test_one_of_that_name_is_there(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    rendered = _render(cluster, places, "--nodes", "3")
    cluster.kubectl("create", "-f", "-", text=rendered)
    try:
        status, _, errors = _run(cluster, *_words(places, tmp_path / "study"))
        assert status == 4
        assert "already" in errors
        assert "--set name=NAME" in errors
        assert [item["metadata"]["name"] for item in cluster.items("mpijobs")] == ["nccl-test"]
    finally:
        cluster.kubectl("delete", "mpijob", "nccl-test")
        _until("its pods go", lambda: cluster.pods() == [])


def test_the_api_server_is_away_for_a_while(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    more = ("-x", "LAUNCHED_SLOW=1.5", "-x", "LAUNCHED_ENDS=1")
    process = _start(cluster, *_words(places, tmp_path / "study", *more))
    _until("a row", lambda: len(_rows(tmp_path)) >= 1)
    cluster.stop_api()
    time.sleep(3)
    cluster.start_api()
    status, said, errors = _end(process)
    assert (status, said["state"]) == (0, "done"), errors
    assert len(said["samples"]) == 2 * ROWS
    _nothing_left(cluster)


def test_a_job_set(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    words = _words(places, tmp_path / "study", "--set", "kubernetes.kind=JobSet")
    status, _, errors = _run(cluster, *words)
    assert status == 3
    assert "kubectl create secret generic nccl-test-ssh" in errors
    for name in ("id", "id.pub"):
        (tmp_path / name).write_text("key\n")
    files = [f"--from-file={tmp_path / name}" for name in ("id", "id.pub")]
    cluster.kubectl("create", "secret", "generic", "nccl-test-ssh", *files)
    status, said, errors = _run(cluster, *words)
    assert (status, said["state"]) == (0, "done"), errors
    hosts = [json.loads((places / str(rank)).read_text())["host"] for rank in range(4)]
    assert hosts == ["nccl-test-worker-0-0"] * 2 + ["nccl-test-worker-0-1"] * 2
    assert cluster.items("jobsets") == []
    assert cluster.processes() == []


def test_a_field_that_does_not_exist(cluster: Cluster, tmp_path: Path, places: Path) -> None:
    """The cluster's own schema is asked, however old ours is."""
    text = _render(cluster, places).replace("slotsPerWorker", "slotsPerWorkers")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InputError, match="slotsPerWorkers"):
        _job(cluster, tmp_path).run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
    assert cluster.items("mpijobs") == []


def test_nobody_looks_after_mpi_jobs(tmp_path: Path, places: Path) -> None:
    with _cluster("none") as cluster:
        words = _words(places, tmp_path / "study", "--start-within", "3")
        status, said, _ = _run(cluster, *words)
        assert (status, said["state"]) == (4, "pending")
        assert "the MPI Operator has not taken it up" in said["why"]
        _nothing_left(cluster)
        cluster.kubectl("delete", "crd", "mpijobs.kubeflow.org")
        status, _, errors = _run(cluster, *words)
        assert status == 3
        assert "the cluster knows no MPIJob" in errors


def test_a_node_that_disappears(tmp_path: Path, places: Path) -> None:
    with _cluster() as cluster:
        cluster.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        process = _start(cluster, *_words(places, tmp_path / "study", "-x", "LAUNCHED_SLOW=2"))
        _until("a row", lambda: len(_rows(tmp_path)) >= 1)
        (node,) = [
            pod["spec"]["nodeName"]
            for pod in cluster.pods()
            if pod["metadata"]["name"] == "nccl-test-worker-1"
        ]
        cluster.kill_node(node)
        status, said, _ = _end(process, 200)
        assert (status, said["state"]) == (4, "failed")
        assert said["samples"]
        assert len(said["samples"]) < 2 * ROWS
        assert cluster.items("mpijobs") == []
        assert cluster.processes() == []


def test_a_launcher_that_does_not_see_that_a_node_is_gone(tmp_path: Path, places: Path) -> None:
    """mpirun need not hear of a node that says nothing any more; the cluster does."""
    with _cluster() as cluster:
        cluster.add_image("nccl-tests", {"mpirun": "#!/bin/sh\nexec sleep 600\n"})
        (tmp_path / "job.yaml").write_text(_render(cluster, places))
        told: list[str] = []
        job = _job(cluster, tmp_path, told, lost_limit_s=2.0)
        threading.Timer(0, _kill_when_it_runs, [cluster]).start()
        end = job.run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
        assert end.state is State.FAILED
        assert "did not end by itself" in end.why
        assert "nccl-test-worker-1" in end.why
        assert any("its node may be gone" in line for line in told)
        assert cluster.processes() == []


def _kill_when_it_runs(cluster: Cluster) -> None:
    def nodes() -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in cluster.pods()
            if pod["status"]["phase"] == "Running"
        }

    _until("all three run", lambda: len(nodes()) == 3)
    cluster.kill_node(nodes()["nccl-test-worker-1"])


def test_a_cluster_that_is_gone_for_good(
    tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DELETE_LIMIT_S", 1.0)
    with _cluster() as cluster:
        cluster.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        (tmp_path / "job.yaml").write_text(_render(cluster, places, "-x", "LAUNCHED_SLOW=60"))
        job = _job(cluster, tmp_path)

        def stop_when_there_is_a_row() -> None:
            _until("a row", lambda: b" float " in (tmp_path / "output.txt").read_bytes())
            cluster.stop_api()

        threading.Timer(1, stop_when_there_is_a_row).start()
        end = job.run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
        assert end.state is State.LOST
        assert "may still run" in end.why
        assert "kubectl delete mpijobs.kubeflow.org nccl-test -n default" in end.why
        assert b" float " in (tmp_path / "output.txt").read_bytes()


def _rows(tmp_path: Path) -> list[str]:
    outputs = (tmp_path / "study").glob("launch/*/output.txt")
    return [line for path in outputs for line in path.read_text().splitlines() if " float " in line]


def _render(cluster: Cluster, places: Path, *more: str) -> str:
    words = _words(places, places / "unused", "--render", *more)
    words.remove("--json")
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "launch", *words],
        env=cluster.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _job(
    cluster: Cluster, folder: Path, told: list[str] | None = None, **more: float
) -> ClusterJob:
    job = Job(program=["all_reduce_perf"], nodes=2, gpus_per_node=2)
    said = told if told is not None else []
    output = folder / "output.txt"
    environment = cluster.environment
    return ClusterJob(job, output, Follower(), said.append, environment, poll_s=0.2, **more)


def test_the_whole_loop_in_pods(cluster: Cluster, tmp_path: Path) -> None:
    """Sweep, rules and proof. Pods see the files of this machine: a recording can be replayed."""
    cluster.add_image("nccltune", {"nccltune-bench": bench_path()})
    study = tmp_path / "study"
    done = subprocess.run(
        [
            *(sys.executable, "-c", MAIN, "auto", "-o", str(study), "--launcher", "kubernetes"),
            *("--image", "nccltune", "--nodes", "2", "--gpus", "2", "--collectives", "allreduce"),
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
    _nothing_left(cluster)
