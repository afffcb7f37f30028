# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes cluster on this machine: a real control plane, and nodes whose pods are processes.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real ones. The program
`nodes` (beside this file, in Go) stands in for what needs containers: kubelets of the nodes `a` and
`b`, the MPI Operator and the JobSet controller. `build.sh` builds what Debian does not have.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "nodes")
START_S = 60.0
STOP_S = 20.0
# What jobs, their pods and their ends need; the others only cost time.
CONTROLLERS = (
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
# A node is declared gone 4 s after its last sign of life (40 s by default).
CONTROLLER_OPTIONS = (
    "--leader-elect=false",
    "--node-monitor-period=500ms",
    "--node-monitor-grace-period=4s",
)
API_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--authorization-mode=RBAC",
    "--endpoint-reconciler-type=none",
    "--service-cluster-ip-range=10.96.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--profiling=false",
)


class Cluster:
    """Two nodes of 8 GPUs and everything that a cluster's user talks to. A context manager.

    `operator` is who looks after MPIJobs: "ours", "none" (the operator is missing, its CRD is
    there), or the path of a real mpi-operator. `crd` replaces our CRD of MPIJob. `jobset` False
    leaves JobSets to nobody. Tests are skipped where the cluster cannot run.
    """

    kubeconfig: Path
    environment: dict[str, str]
    folder: Path

    def __init__(
        self,
        operator: str | Path = "ours",
        crd: Path | None = None,
        jobset: bool = True,
        gpus: int = 8,
        nodes: tuple[str, ...] = ("a", "b"),
    ) -> None:
        self._operator = operator
        self._crds = (crd or HERE / "crds/mpijobs.yaml", HERE / "crds/jobsets.yaml")
        self._jobset = jobset
        self._gpus = gpus
        self._nodes = nodes
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(16)

    def __enter__(self) -> Self:
        self._programs = programs_folder()
        # Short: a socket's path has 108 bytes at most.
        self.folder = Path(tempfile.mkdtemp(prefix="nccltune-k8s-", dir="/tmp"))
        self.images = self.folder / "images"
        self.images.mkdir()
        self.kubeconfig = self.folder / "kubeconfig"
        (self.folder / "bin").mkdir()
        if (self._programs / "kubectl").exists():
            (self.folder / "bin/kubectl").symlink_to(self._programs / "kubectl")
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.folder),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
        }
        self._etcd_port, peer_port, self._api_port = free_ports(3)
        try:
            self._start_all(peer_port)
        except BaseException:
            sys.stderr.write(self.logs())
            self._stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_all()

    def add_image(self, name: str, programs: Mapping[str, str | Path]) -> None:
        """An image REGISTRY/NAME:TAG whose programs are these, before those of this machine.

        Each is a path that it links to, or a script's text.
        """
        folder = self.images / name / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        for program, content in programs.items():
            path = folder / program
            path.unlink(missing_ok=True)
            if isinstance(content, Path) or "\n" not in content:
                path.symlink_to(content)
            else:
                path.write_text(content)
                path.chmod(0o755)

    def kubectl(self, *words: str, check: bool = True, text: str | None = None) -> str:
        """What kubectl prints."""
        done = subprocess.run(
            ["kubectl", *words],
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def pods(self, namespace: str = "default") -> list[dict[str, Any]]:
        """The pods as the API server has them."""
        return self.items("pods", namespace)

    def items(self, kind: str, namespace: str = "default") -> list[dict[str, Any]]:
        """Objects of a kind as the API server has them."""
        found = json.loads(self.kubectl("get", kind, "-n", namespace, "-o", "json"))
        items: list[dict[str, Any]] = found["items"]
        return items

    def kill_node(self, name: str, silent: bool = False) -> None:
        """A node loses its power: its processes and its kubelet are gone at once.

        What is connected to it (logs, exec) sees the end of the connection, or, where `silent`,
        never hears of it again.
        """
        self._ask({"kind": "kill", "node": name, "silent": silent})

    def processes(self) -> list[int]:
        """Ids of all processes that run in pods."""
        return [int(word) for word in self._ask({"kind": "processes"})["processes"] or ()]

    def stop_api(self) -> None:
        """The API server is gone."""
        self._stop("kube-apiserver", signal.SIGKILL)

    def start_api(self) -> None:
        """The API server is there (again)."""
        self._start(
            "kube-apiserver",
            self._programs / "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._api_port}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={self.folder / 'accounts.key'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            *API_OPTIONS,
        )
        self._until("the API server answers", lambda: self._says("ok", "get", "--raw", "/readyz"))

    def logs(self, lines: int = 15) -> str:
        """The ends of all daemons' logs."""
        ends = []
        for path in sorted(self.folder.glob("*.log")):
            last = path.read_text(errors="replace").splitlines()[-lines:]
            ends.append("\n".join([f"==> {path.name} <==", *last, ""]))
        return "\n".join(ends)

    def _start_all(self, peer_port: int) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, peer_port))
        self._start(
            "etcd",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--{what}-client-urls={client}" for what in ("listen", "advertise")),
            *(f"--{what}-peer-urls={peer}" for what in ("listen", "initial-advertise")),
            f"--initial-cluster=default={peer}",
        )
        subprocess.run([self._programs / "nodes", "key", self.folder / "accounts.key"], check=True)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(f"{self._token},admin,admin,system:masters\n")
        self._write_kubeconfig()
        self.start_api()
        # Before the controllers: the garbage collector looks for new kinds every 30 s only.
        for crd in self._crds:
            self.kubectl("create", "-f", str(crd))
        self._until("the kinds are known", self._kinds_known)
        self._start(
            "kube-controller-manager",
            self._programs / "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--root-ca-file={self.folder / 'certificates/apiserver.crt'}",
            "--secure-port=0",
            *CONTROLLER_OPTIONS,
        )
        self._start(
            "kube-scheduler",
            self._programs / "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._start(
            "nodes",
            self._programs / "nodes",
            "run",
            f"--kubeconfig={self.kubeconfig}",
            f"--state={self.folder}",
            f"--images={self.images}",
            f"--gpus={self._gpus}",
            f"--nodes={','.join(self._nodes)}",
            f"--mpi-operator={str(self._operator == 'ours').lower()}",
            f"--jobset={str(self._jobset).lower()}",
        )
        if self._operator not in ("ours", "none"):
            self._start_operator(Path(self._operator))
        self._until("the nodes are ready", self._nodes_ready)
        self._until(
            "there is a service account",
            lambda: self._says("default", "get", "serviceaccount", "default", "-o", "name"),
        )

    def _start_operator(self, program: Path) -> None:
        self.kubectl("create", "namespace", "mpi-operator")
        self._start(
            "mpi-operator",
            program,
            f"-kubeConfig={self.kubeconfig}",
            "-kube-api-qps=50",
            "-kube-api-burst=100",
            "-alsologtostderr",
        )

    def _write_kubeconfig(self) -> None:
        user = {"token": self._token}
        server = {
            "server": f"https://127.0.0.1:{self._api_port}",
            "certificate-authority": str(self.folder / "certificates/apiserver.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config))

    def _kinds_known(self) -> bool:
        wanted = "jsonpath={.items[*].status.conditions[?(@.type=='Established')].status}"
        told = self.kubectl("get", "crd", "-o", wanted, check=False).split()
        return told == ["True"] * len(self._crds)

    def _nodes_ready(self) -> bool:
        wanted = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        ready = self.kubectl("get", "nodes", "-o", wanted, check=False).split()
        # A node is tainted until the controllers have seen it.
        tainted = self.kubectl(
            "get", "nodes", "-o", "jsonpath={.items[*].spec.taints}", check=False
        )
        return ready == ["True"] * len(self._nodes) and not tainted

    def _says(self, wanted: str, *words: str) -> bool:
        return wanted in self.kubectl(*words, check=False)

    def _ask(self, question: dict[str, str | bool]) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(30)
            asked.connect(str(self.folder / "nodes.sock"))
            asked.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(asked.makefile().readline())
        if error := answer.get("error"):
            raise AssertionError(error)
        return answer

    def _start(self, name: str, *command: str | Path) -> None:
        # Daemons end when this process ends, however it does.
        with (self.folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "HOME": str(self.folder)},
                start_new_session=True,
            )

    def _stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        process = self._started.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _stop_all(self) -> None:
        # The nodes first, so that nobody starts what they end; the rest keeps nothing.
        self._stop("mpi-operator")
        self._stop("nodes")
        for name in list(self._started):
            self._stop(name, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + START_S
        while not holds():
            for name, process in self._started.items():
                if process.poll() is not None:
                    raise AssertionError(f"{name} ended with {process.returncode}, before {what}")
            if time.monotonic() > end:
                raise AssertionError(f"{START_S:.0f} s are over, before {what}")
            time.sleep(0.1)


def programs_folder() -> Path:
    """Where the built programs are; skips the test where something is missing."""
    folder = Path(os.environ.get("KUBERNETES_BIN") or CHECKOUT / ".kubernetes")
    if os.geteuid() != 0:
        pytest.skip("the cluster's pods are namespaces, which need root")
    if missing := [name for name in BUILT if not (folder / name).is_file()]:
        pytest.skip(f"no {missing[0]} in {folder}: tests/e2e/kubernetes/build.sh {folder}")
    has_kubectl = (folder / "kubectl").is_file() or shutil.which("kubectl") is not None
    missing = [name for name in ("etcd", "unshare", "nsenter", "setpriv") if not shutil.which(name)]
    if missing or not has_kubectl:
        pytest.skip(f"no {(missing or ['kubectl'])[0]} here")
    tried = ["unshare", "--mount", "--uts", "--pid", "--fork", "true"]
    if subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        pytest.skip("no new namespaces here (unshare)")
    return folder.resolve()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody has now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports
