# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch --launcher kubernetes` with a real API server. The tests play the operator."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from nccltune.launch.kubernetes import run
from nccltune.launch.state import RunState
from nccltune.model.errors import InputError
from tests.waiting import wait_until

from .kubernetes.cluster import RUNS, Cluster
from .kubernetes.launching import (
    ROWS,
    command_words,
    end,
    job_of,
    nothing_left,
    render,
    rows,
    run_to_its_end,
    start,
)
from .launched import PROGRAM

pytestmark = pytest.mark.usefixtures("none_runs_on")
LAUNCHER = "nccl-test-launcher"
WORKERS = ("nccl-test-worker-0", "nccl-test-worker-1")
RESOURCES = {"MPIJob": "mpijob", "JobSet": "jobset"}
# Each question starts kubectl, which takes a tenth of a second of a core.
ASKS_S = 0.5


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as found:
        yield found


@contextmanager
def played(cluster: Cluster, *steps: Callable[[], object], kind: str = "MPIJob") -> Iterator[None]:
    """Once there is a job, take the steps. Once it is gone, its pods go, too."""

    def has(wanted: bool) -> bool:
        names = cluster.kubectl("get", RESOURCES[kind], "-o", "name", check=False)
        ready = cluster.kubectl("get", "--raw", "/readyz", check=False) == "ok"
        return ready and bool(names) is wanted

    def play() -> None:
        wait_until(lambda: has(True), "a job", every_s=ASKS_S)
        for step in steps:
            step()
        wait_until(lambda: has(False), "the job goes", every_s=ASKS_S)
        cluster.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")

    cluster.forget_logs()
    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        yield
        playing.result(60)


def all_run(cluster: Cluster, kind: str = "MPIJob") -> None:
    for name in (*WORKERS, LAUNCHER):
        cluster.add_pod("nccl-test", name, "launcher" if name == LAUNCHER else "worker", kind)
        cluster.set_state(name, RUNS, phase="Running")


def ends(cluster: Cluster, status: int, condition: str, kind: str = "MPIJob") -> None:
    cluster.end_log(LAUNCHER)
    over = {"terminated": {"exitCode": status, "reason": "Error" if status else "Completed"}}
    cluster.set_state(LAUNCHER, over, phase="Failed" if status else "Succeeded")
    cluster.set_condition(f"{RESOURCES[kind]}/nccl-test", condition)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What two processes on each of two hosts print."""
    places = str(tmp_path_factory.mktemp("places"))
    ranks = []
    for rank in range(4):
        environment = {
            **os.environ,
            "PLACES": places,
            "FAKE_HOST": WORKERS[rank // 2],
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2),
        }
        command = [sys.executable, str(PROGRAM), "-g", "1"]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    printed = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert printed[1:] == [""] * 3
    return printed[0]


def first_rows(table: str, count: int) -> str:
    lines = table.splitlines()
    (*_, last) = [at for at, line in enumerate(lines) if " float " in line][:count]
    return "\n".join(lines[: last + 1])


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--set", "kubernetes.mpi=Intel"),
        ("--set", "kubernetes.mpi=MPICH", "--env", "NCCL_DEBUG=INFO"),
        ("--set", "kubernetes.ssh_path=/home/user/.ssh", "--set", "hosts=a,b"),
        ("--set", "kubernetes.kind=JobSet"),
        ("--set", "kubernetes.kind=JobSet", "--set", "hosts=a,b"),
    ],
)
def test_the_api_server_takes_what_is_rendered(cluster: Cluster, more: tuple[str, ...]) -> None:
    text = render(cluster, *more)
    strict = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
    cluster.kubectl(*strict, text=text)
    # The kinds of jobs do not check pods; the server itself does.
    spec = yaml.safe_load(text)["spec"]
    if "mpiReplicaSpecs" in spec:
        templates = [each["template"] for each in spec["mpiReplicaSpecs"].values()]
    else:
        templates = [each["template"]["spec"]["template"] for each in spec["replicatedJobs"]]
    assert len(templates) == 2
    for template in templates:
        template["spec"].setdefault("restartPolicy", "Never")
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}
        pod["metadata"] = {**template.get("metadata", {}), "name": "pod"}
        cluster.kubectl(*strict, text=json.dumps(pod))


def test_a_field_that_does_not_exist(cluster: Cluster, tmp_path: Path) -> None:
    """The cluster's own schema is asked, however old ours is."""
    text = render(cluster).replace("slotsPerWorker", "slotsPerWorkers")
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(InputError, match="slotsPerWorkers"):
        job_of(cluster, tmp_path).run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
    assert cluster.items("mpijobs") == []


def test_a_job_to_its_end(cluster: Cluster, tmp_path: Path, table: str) -> None:
    with played(
        cluster,
        lambda: all_run(cluster),
        lambda: cluster.say(LAUNCHER, first_rows(table, 2)),
        lambda: wait_until(lambda: len(rows(tmp_path)) == 2, "rows"),
        lambda: cluster.say(LAUNCHER, table.removeprefix(first_rows(table, 2)).lstrip("\n")),
        lambda: ends(cluster, 0, "Succeeded"),
    ):
        status, said, errors = run_to_its_end(cluster, *command_words(tmp_path / "study"))
    assert (status, said["findings"]) == (0, []), errors
    assert said["state"] == "done"
    assert len(said["samples"]) == 2 * ROWS
    (folder,) = (tmp_path / "study" / "launch").iterdir()
    assert {"job.json", "job.yaml", "command.txt", "output.txt"} <= {
        file.name for file in folder.iterdir()
    }
    assert (folder / "output.txt").read_text() == table
    assert "MPIJob nccl-test is created in namespace default" in errors
    nothing_left(cluster)


def test_ctrl_c_keeps_rows_and_leaves_nothing(cluster: Cluster, tmp_path: Path, table: str) -> None:
    def said() -> None:
        cluster.say(LAUNCHER, first_rows(table, 2))

    with played(cluster, lambda: all_run(cluster), said):
        process = start(cluster, *command_words(tmp_path / "study"))
        wait_until(lambda: len(rows(tmp_path)) >= 2, "rows")
        os.kill(process.pid, signal.SIGINT)
        status, result, _ = end(process)
    assert (status, result["state"], len(result["samples"])) == (130, "stopped", 2 * 2)
    nothing_left(cluster)


def test_a_stop_while_it_waits(cluster: Cluster, tmp_path: Path) -> None:
    with played(cluster, lambda: cluster.add_pod("nccl-test", WORKERS[0])):
        process = start(cluster, *command_words(tmp_path / "study"))
        wait_until(lambda: cluster.items("pods") != [], "a pod", every_s=ASKS_S)
        os.kill(process.pid, signal.SIGTERM)
        status, said, _ = end(process)
    assert (status, said["state"], said["samples"]) == (143, "stopped", [])
    nothing_left(cluster)


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("state", "status", "reason"),
    [
        ({}, {"conditions": [UNSCHEDULABLE]}, "Insufficient nvidia.com/gpu"),
        ({"waiting": {"reason": "ImagePullBackOff"}}, {}, "ImagePullBackOff"),
    ],
)
def test_a_job_that_can_never_start(
    cluster: Cluster, tmp_path: Path, state: Any, status: Any, reason: str
) -> None:
    def waits() -> None:
        cluster.add_pod("nccl-test", WORKERS[0])
        cluster.set_state(WORKERS[0], state, **status)

    with played(cluster, waits):
        words = command_words(tmp_path / "study", "--start-within", "30")
        code, said, errors = run_to_its_end(cluster, *words)
    assert (code, said["state"]) == (4, "pending")
    assert reason in said["why"]
    assert reason in errors
    nothing_left(cluster)


def test_a_program_that_fails(cluster: Cluster, tmp_path: Path) -> None:
    with played(
        cluster,
        lambda: all_run(cluster),
        lambda: cluster.say(LAUNCHER, "vm: Test CUDA failure common.cu:1 'out of memory'"),
        lambda: cluster.say(WORKERS[0], "of the worker"),
        lambda: ends(cluster, 3, "Failed"),
    ):
        status, said, _ = run_to_its_end(cluster, *command_words(tmp_path / "study"))
    assert (status, said["state"]) == (4, "failed")
    assert "ended with status 3" in said["why"]
    assert any("out of memory" in line for line in said["last_words"])
    (folder,) = (tmp_path / "study" / "launch").iterdir()
    assert len(json.loads((folder / "pods.json").read_text())["items"]) == 3
    assert "of the worker" in (folder / f"{WORKERS[0]}.txt").read_text()
    nothing_left(cluster)


def test_one_of_that_name_is_there(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("create", "-f", "-", text=render(cluster))
    try:
        status, _, errors = run_to_its_end(cluster, *command_words(tmp_path / "study"))
        assert status == 4
        assert "already" in errors
        assert "--set name=NAME" in errors
        assert [item["metadata"]["name"] for item in cluster.items("mpijobs")] == ["nccl-test"]
    finally:
        cluster.kubectl("delete", "mpijob", "nccl-test")


def test_the_api_server_is_away_for_a_while(cluster: Cluster, tmp_path: Path, table: str) -> None:
    begun = first_rows(table, 1)
    with played(cluster, lambda: all_run(cluster), lambda: cluster.say(LAUNCHER, begun)):
        process = start(cluster, *command_words(tmp_path / "study"))
        wait_until(lambda: len(rows(tmp_path)) == 1, "a row")
        cluster.stop_api()
        time.sleep(3)
        cluster.start_api()
        cluster.say(LAUNCHER, table.removeprefix(begun).lstrip("\n"))
        ends(cluster, 0, "Succeeded")
        status, said, errors = end(process)
    assert (status, said["state"], said["findings"]) == (0, "done", []), errors
    assert len(said["samples"]) == 2 * ROWS
    nothing_left(cluster)


def test_a_job_set(cluster: Cluster, tmp_path: Path, table: str) -> None:
    words = command_words(tmp_path / "study", "--set", "kubernetes.kind=JobSet")
    status, _, errors = run_to_its_end(cluster, *words)
    assert status == 3
    assert "kubectl create secret generic nccl-test-ssh" in errors
    files = [f"--from-literal={name}=key" for name in ("id", "id.pub")]
    cluster.kubectl("create", "secret", "generic", "nccl-test-ssh", *files)
    with played(
        cluster,
        lambda: all_run(cluster, "JobSet"),
        lambda: cluster.say(LAUNCHER, table),
        lambda: ends(cluster, 0, "Completed", "JobSet"),
        kind="JobSet",
    ):
        status, said, errors = run_to_its_end(cluster, *words)
    assert (status, said["state"], said["findings"]) == (0, "done", []), errors
    assert cluster.items("jobsets") == []


def test_a_launcher_that_does_not_see_that_a_node_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    """mpirun need not hear of a node that is silent; the cluster does."""

    def falls_silent() -> None:
        ready = {"type": "Ready", "status": "False"}
        cluster.set_state(WORKERS[1], RUNS, phase="Running", conditions=[ready])

    (tmp_path / "job.yaml").write_text(render(cluster))
    told: list[str] = []
    job = job_of(cluster, tmp_path, told, lost_limit_s=2.0)
    with played(cluster, lambda: all_run(cluster), falls_silent):
        end = job.run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
    assert end.state is RunState.FAILED
    assert "did not end by itself" in end.why
    assert WORKERS[1] in end.why
    assert any("its node may be gone" in line for line in told)
    nothing_left(cluster)


def test_nobody_looks_after_mpi_jobs(tmp_path: Path) -> None:
    with Cluster() as cluster:
        words = command_words(tmp_path / "study", "--start-within", "3")
        status, said, _ = run_to_its_end(cluster, *words)
        assert (status, said["state"]) == (4, "pending")
        assert "the MPI Operator has not taken it up" in said["why"]
        nothing_left(cluster)
        cluster.kubectl("delete", "crd", "mpijobs.kubeflow.org")
        status, _, errors = run_to_its_end(cluster, *words)
        assert status == 3
        assert "the cluster knows no MPIJob" in errors


def test_a_cluster_that_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(run, "DELETE_LIMIT_S", 1.0)
    output = tmp_path / "output.txt"
    with Cluster() as cluster:

        def goes() -> None:
            wait_until(lambda: cluster.items("mpijobs") != [], "a job", every_s=ASKS_S)
            all_run(cluster)
            cluster.say(LAUNCHER, first_rows(table, 1))
            wait_until(lambda: b" float " in output.read_bytes(), "a row")
            cluster.stop_api()

        (tmp_path / "job.yaml").write_text(render(cluster))
        threading.Thread(target=goes).start()
        end = job_of(cluster, tmp_path).run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
        assert end.state is RunState.LOST
        assert "may still run" in end.why
        assert "kubectl delete mpijobs.kubeflow.org nccl-test -n default" in end.why
        assert b" float " in output.read_bytes()
