# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch --launcher kubernetes` where something of the cluster is missing or goes."""

import threading
from pathlib import Path

import pytest

from nccltune.launch.kubernetes import run
from nccltune.launch.state import RunState

from .kubernetes.cluster import Cluster
from .kubernetes.launching import (
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


def test_nobody_looks_after_mpi_jobs(tmp_path: Path, places: Path) -> None:
    with new_cluster("none") as cluster:
        words = command_words(places, tmp_path / "study", "--start-within", "3")
        status, said, _ = run_to_its_end(cluster, *words)
        assert (status, said["state"]) == (4, "pending")
        assert "the MPI Operator has not taken it up" in said["why"]
        nothing_left(cluster)
        cluster.kubectl("delete", "crd", "mpijobs.kubeflow.org")
        status, _, errors = run_to_its_end(cluster, *words)
        assert status == 3
        assert "the cluster knows no MPIJob" in errors


def test_a_node_that_disappears(tmp_path: Path, places: Path) -> None:
    with new_cluster() as cluster:
        cluster.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        process = start(
            cluster, *command_words(places, tmp_path / "study", "--env", "LAUNCHED_SLOW=2")
        )
        wait_until("a row", lambda: len(rows(tmp_path)) >= 1)
        (node,) = [
            pod["spec"]["nodeName"]
            for pod in cluster.pods()
            if pod["metadata"]["name"] == "nccl-test-worker-1"
        ]
        cluster.kill_node(node)
        status, said, _ = end(process, 200)
        assert (status, said["state"]) == (4, "failed")
        assert said["samples"]
        assert len(said["samples"]) < 2 * ROWS
        assert cluster.items("mpijobs") == []
        assert cluster.processes() == []


def test_a_launcher_that_does_not_see_that_a_node_is_gone(tmp_path: Path, places: Path) -> None:
    """mpirun need not hear of a node that is silent; the cluster does."""
    with new_cluster() as cluster:
        cluster.add_image("nccl-tests", {"mpirun": "#!/bin/sh\nexec sleep 600\n"})
        (tmp_path / "job.yaml").write_text(render(cluster, places))
        told: list[str] = []
        job = job_of(cluster, tmp_path, told, lost_limit_s=2.0)
        threading.Timer(0, _kill_when_it_runs, [cluster]).start()
        end = job.run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
        assert end.state is RunState.FAILED
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

    wait_until("all three run", lambda: len(nodes()) == 3)
    cluster.kill_node(nodes()["nccl-test-worker-1"])


def test_a_cluster_that_is_gone_for_good(
    tmp_path: Path, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DELETE_LIMIT_S", 1.0)
    with new_cluster() as cluster:
        cluster.add_image("nccl-tests", {"all_reduce_perf": PROGRAM})
        (tmp_path / "job.yaml").write_text(render(cluster, places, "--env", "LAUNCHED_SLOW=60"))
        job = job_of(cluster, tmp_path)

        def stop_when_there_is_a_row() -> None:
            wait_until("a row", lambda: b" float " in (tmp_path / "output.txt").read_bytes())
            cluster.stop_api()

        threading.Timer(1, stop_when_there_is_a_row).start()
        end = job.run(["kubectl", "create", "-f", str(tmp_path / "job.yaml")])
        assert end.state is RunState.LOST
        assert "may still run" in end.why
        assert "kubectl delete mpijobs.kubeflow.org nccl-test -n default" in end.why
        assert b" float " in (tmp_path / "output.txt").read_bytes()
