# SPDX-License-Identifier: Apache-2.0
"""The test cluster itself (kubernetes/cluster.py): what our Kubernetes client is tried against."""

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.render import RenderContext
from nccltune.launch.render.kubernetes import MANIFEST, render_kubernetes

from .bench_runs import eventually
from .kubernetes.cluster import Cluster

# What a program of the image sees: where it runs, which rank it is, and what GPUs it asked for.
WHO = '#!/bin/sh\necho "$(hostname) $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE"\n'
STAY = "#!/bin/sh\necho here $OMPI_COMM_WORLD_RANK\nexec sleep 1000\n"
FAIL = "#!/bin/sh\nexit 3\n"

needs_mpirun = pytest.mark.skipif(
    shutil.which("mpirun.openmpi") is None, reason="no Open MPI (Debian: openmpi-bin)"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        images(made)
        yield made


def wait(holds: Callable[[], bool]) -> None:
    for _ in eventually(180):
        if holds():
            return


def images(cluster: Cluster) -> None:
    programs: dict[str, str | Path] = {"who": WHO, "stay": STAY, "fail": FAIL}
    if found := shutil.which("mpirun.openmpi"):
        programs["mpirun"] = Path(found)
    cluster.add_image("nccl-tests", programs)


def rendered(name: str, program: str, kind: str = "MPIJob", gpus: int = 2) -> str:
    """The manifest of a job on two pods."""
    options = KubernetesOptions(image="registry/nccl-tests:1", kind=kind)  # type: ignore[arg-type]
    job = Job(name=name, program=[program], nodes=2, gpus_per_node=gpus, kubernetes=options)
    return render_kubernetes(job, Flavor(Launcher.KUBERNETES), RenderContext()).files[MANIFEST]


def create(cluster: Cluster, name: str, program: str, **options: Any) -> None:
    cluster.kubectl("create", "-f", "-", text=rendered(name, program, **options))


def conditions(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """Reasons of the conditions that hold."""
    found = json.loads(cluster.kubectl("get", kind, name, "-o", "json"))
    listed = found.get("status", {}).get("conditions", [])
    return {each["type"]: each.get("reason", "") for each in listed if each["status"] == "True"}


def job_pods(cluster: Cluster, name: str) -> dict[str, dict[str, Any]]:
    """Pods of a job by host name."""
    return {
        pod["spec"]["hostname"]: pod
        for pod in cluster.pods()
        if pod["metadata"]["name"].startswith(f"{name}-")
    }


def status(cluster: Cluster, pod: str) -> dict[str, Any]:
    """The status of a pod, empty while there is none."""
    found = [each for each in cluster.pods() if each["metadata"]["name"] == pod]
    said: dict[str, Any] = found[0]["status"] if found else {}
    return said


def said_by_ranks(text: str) -> list[str]:
    """The lines of a launcher's log that its ranks have written, and not itself."""
    return re.findall(r"^\[1,\d+\]<stdout>:(.+)$", text, re.M)


def log(cluster: Cluster, name: str) -> str:
    selector = f"training.kubeflow.org/job-name={name},training.kubeflow.org/job-role=launcher"
    return cluster.kubectl("logs", "-l", selector, "--tail=-1")


def all_run(cluster: Cluster, name: str) -> bool:
    return "Running" in conditions(cluster, "mpijob", name)


@needs_mpirun
def test_mpirun_of_an_mpijob_starts_ranks_in_both_pods(cluster: Cluster) -> None:
    create(cluster, "whole", "who")
    wait(lambda: "Succeeded" in conditions(cluster, "mpijob", "whole"))
    said = [words.split() for words in said_by_ranks(log(cluster, "whole"))]
    assert Counter(words[0] for words in said) == {"whole-worker-0": 2, "whole-worker-1": 2}
    assert sorted(words[1] for words in said) == ["0", "1", "2", "3"]
    assert {words[2] for words in said} == {"4"}
    # cleanPodPolicy Running: the workers go, the launcher stays for its log.
    wait(lambda: list(job_pods(cluster, "whole")) == ["whole-launcher"])
    cluster.kubectl("delete", "mpijob", "whole")


@needs_mpirun
def test_a_failed_program_fails_the_job(cluster: Cluster) -> None:
    create(cluster, "bad", "fail")
    wait(lambda: "Failed" in conditions(cluster, "mpijob", "bad"))
    assert conditions(cluster, "mpijob", "bad")["Failed"].startswith("BackoffLimitExceeded")
    (state,) = job_pods(cluster, "bad")["bad-launcher"]["status"]["containerStatuses"]
    assert state["state"]["terminated"]["exitCode"] == 3
    cluster.kubectl("delete", "mpijob", "bad")


@needs_mpirun
def test_a_log_is_followed_and_a_deleted_job_leaves_nothing(cluster: Cluster) -> None:
    create(cluster, "long", "stay")
    wait(lambda: all_run(cluster, "long"))
    name = job_pods(cluster, "long")["long-launcher"]["metadata"]["name"]
    command = ["kubectl", "logs", "-f", name]
    with subprocess.Popen(command, env=cluster.environment, stdout=subprocess.PIPE) as follow:
        assert follow.stdout is not None
        try:
            said: list[str] = []
            while len(said) < 4 and (line := follow.stdout.readline()):
                said += said_by_ranks(line.decode())
            assert sorted(words.split()[-1] for words in said) == ["0", "1", "2", "3"]
            assert cluster.processes()
            cluster.kubectl("delete", "mpijob", "long", "--wait=false")
            assert follow.wait(60) == 0
        finally:
            follow.kill()
    # The garbage collector takes pods, job, service, secret and config map.
    wait(lambda: not job_pods(cluster, "long"))
    assert cluster.processes() == []
    kinds = "jobs,services,secrets,configmaps"
    wait(lambda: "long" not in cluster.kubectl("get", kinds, "-o", "name"))


def test_exec_is_a_conversation(cluster: Cluster) -> None:
    create(cluster, "talk", "stay")
    wait(lambda: "talk-worker-0" in job_pods(cluster, "talk"))
    cluster.kubectl("wait", "pod/talk-worker-0", "--for=condition=Ready", "--timeout=30s")
    script = 'while read line; do echo "got $line on $(hostname)"; done; exit 5'
    with subprocess.Popen(
        ["kubectl", "exec", "-i", "talk-worker-0", "--", "sh", "-c", script],
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    ) as talk:
        assert talk.stdin is not None
        assert talk.stdout is not None
        for word in ("one", "two"):
            talk.stdin.write(f"{word}\n")
            assert talk.stdout.readline() == f"got {word} on talk-worker-0\n"
        talk.stdin.close()
        assert talk.wait(30) == 5
    cluster.kubectl("delete", "mpijob", "talk")
    wait(lambda: not job_pods(cluster, "talk"))


def test_pods_that_fit_nowhere_say_so(cluster: Cluster) -> None:
    create(cluster, "big", "who", gpus=9)
    wait(lambda: "conditions" in status(cluster, "big-worker-0"))
    (told,) = status(cluster, "big-worker-0")["conditions"]
    assert (told["status"], told["reason"]) == ("False", "Unschedulable")
    assert told["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    cluster.kubectl("delete", "mpijob", "big")


def test_an_image_that_is_nowhere_is_asked_for_again(cluster: Cluster) -> None:
    text = rendered("lost", "who").replace("registry/nccl-tests:1", "registry/other:1")
    cluster.kubectl("create", "-f", "-", text=text)

    def reason() -> str:
        (state,) = status(cluster, "lost-worker-0").get("containerStatuses", [{}])
        why: str = state.get("state", {}).get("waiting", {}).get("reason", "")
        return why

    wait(lambda: reason() == "ErrImagePull")
    wait(lambda: reason() == "ImagePullBackOff")
    cluster.kubectl("delete", "mpijob", "lost")


@needs_mpirun
def test_a_jobset_runs_over_ssh(cluster: Cluster) -> None:
    files = [f"--from-literal={name}=x" for name in ("id", "id.pub")]
    cluster.kubectl("create", "secret", "generic", "nccl-test-ssh", *files)
    cluster.kubectl("create", "-f", "-", text=rendered("set", "who", kind="JobSet"))
    wait(lambda: "Completed" in conditions(cluster, "jobset", "set"))
    assert conditions(cluster, "jobset", "set")["Completed"] == "AllJobsCompleted"
    log_text = cluster.kubectl("logs", "job/set-launcher-0")
    hosts = Counter(words.split()[0] for words in said_by_ranks(log_text))
    assert hosts == {"set-worker-0-0": 2, "set-worker-0-1": 2}
    # The workers would wait for ever: the set's end ends them.
    wait(lambda: list(job_pods(cluster, "set")) == ["set-launcher-0-0"])
    assert cluster.processes() == []
    cluster.kubectl("delete", "jobset", "set")


def test_what_pods_write_stays_in_them(cluster: Cluster) -> None:
    command = "mkdir -p /root/.ssh; echo x > /root/.ssh/nccltune-test; echo x > /etc/nccltune-test"
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "writer"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "writer",
                        "image": "registry/nccl-tests:1",
                        "command": ["sh", "-c", f"{command}; cat /etc/nccltune-test"],
                    }
                ],
            },
        }
    )
    cluster.kubectl("create", "-f", "-", text=text)
    wait(lambda: status(cluster, "writer").get("phase") == "Succeeded")
    assert cluster.kubectl("logs", "writer") == "x\n"
    assert not Path("/root/.ssh/nccltune-test").exists()
    assert not Path("/etc/nccltune-test").exists()
    cluster.kubectl("delete", "pod", "writer")


def test_the_api_server_comes_back(cluster: Cluster) -> None:
    create(cluster, "outage", "stay")
    wait(lambda: "outage-worker-0" in job_pods(cluster, "outage"))
    cluster.stop_api()
    assert (
        "refused"
        in subprocess.run(
            ["kubectl", "get", "pods"],
            env=cluster.environment,
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    )
    cluster.start_api()
    assert "outage-worker-0" in job_pods(cluster, "outage")
    cluster.kubectl("delete", "mpijob", "outage")
    wait(lambda: not job_pods(cluster, "outage"))


@needs_mpirun
def test_a_node_that_dies_and_an_end_that_leaves_nothing() -> None:
    with Cluster() as cluster:
        images(cluster)
        create(cluster, "torn", "stay", gpus=8)
        wait(lambda: all_run(cluster, "torn"))
        lost = job_pods(cluster, "torn")["torn-worker-0"]["spec"]["nodeName"]
        before = cluster.processes()
        cluster.kill_node(lost)

        def ready(kind: str, name: str) -> str:
            wanted = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
            return cluster.kubectl("get", kind, name, "-o", wanted)

        wait(lambda: ready("node", lost) == "Unknown")
        wait(lambda: ready("pod", "torn-worker-0") == "False")
        assert len(cluster.processes()) < len(before)
        folder = cluster.folder
    assert not folder.exists()
    assert [pid for pid in before if Path(f"/proc/{pid}").exists()] == []
    assert str(folder) not in Path("/proc/mounts").read_text()


def test_without_an_operator_nothing_happens_to_an_mpijob() -> None:
    with Cluster(operator="none") as cluster:
        images(cluster)
        create(cluster, "orphan", "who")
        assert conditions(cluster, "mpijob", "orphan") == {}
        assert cluster.pods() == []
