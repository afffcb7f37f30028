# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes API server with etcd and the kinds of jobs. Tests play controllers and nodes.

No pod runs. A test creates pods, writes their status and gives their logs, as the MPI Operator and
kubelets would.
"""

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import pytest

from nccltune.launch.kubernetes.seen import KINDS
from tests.e2e.bench_runs import free_ports
from tests.programs import completed
from tests.waiting import wait_until

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[2]
API_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--authorization-mode=AlwaysAllow",
    # Its tokens would come from a controller.
    "--disable-admission-plugins=ServiceAccount",
    "--endpoint-reconciler-type=none",
    "--service-cluster-ip-range=10.96.0.0/24",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--profiling=false",
)
RUNS = {"running": {"startedAt": "2026-11-21T14:00:00Z"}}


class Cluster:
    """An API server with one node. A context manager; skips the test where it cannot run."""

    def __init__(self) -> None:
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._token = secrets.token_hex(16)
        self._logs: dict[str, list[str]] = {}
        self._over: set[str] = set()
        self._containers: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._server = server_program()
        self.folder = Path(tempfile.mkdtemp(prefix="nccltune-k8s-"))
        self.kubeconfig = self.folder / "kubeconfig"
        self.environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HOME": str(self.folder),
            # Where build.sh puts kubectl, if the machine has none.
            "PATH": f"{os.environ['PATH']}:{self._server.parent}",
        }
        self._etcd_port, self._peer_port, self._api_port = free_ports(3)
        try:
            self._start_all()
        except BaseException:
            for path in self.folder.glob("*.log"):
                sys.stderr.write(path.read_text(errors="replace")[-3000:])
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

    def kubectl(self, *words: str, check: bool = True, text: str | None = None) -> str:
        done = completed(["kubectl", *words], env=self.environment, input=text, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Objects of a kind as the API server has them."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, "-o", "json"))["items"]
        return items

    def add_pod(self, job: str, name: str, role: str = "worker", kind: str = "MPIJob") -> None:
        """Create a pod of a job on the node. Nothing runs in it yet."""
        labels = {KINDS[kind].job_label: job, KINDS[kind].role_label: role}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": "a",
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": role, "image": "image"}],
            },
        }
        self.kubectl("create", "-f", "-", text=json.dumps(pod))
        self._containers[name] = role

    def set_state(self, name: str, state: dict[str, Any], **status: Any) -> None:
        """The state of a pod's only container, and more of the pod's status."""
        told = {
            "name": self._containers[name],
            "image": "image",
            "imageID": "",
            "ready": "running" in state,
            "restartCount": 0,
            "state": state,
        }
        self._set_status(f"pod/{name}", {"containerStatuses": [told], **status})

    def set_condition(self, job: str, condition: str) -> None:
        """A condition of a job, such as `mpijob/NAME`, that holds from now on."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        told = {"type": condition, "status": "True", "reason": "Test", "message": "by the test"}
        self._set_status(job, {"conditions": [{**told, "lastTransitionTime": now}]})

    def _set_status(self, what: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.kubectl("patch", what, "--subresource=status", "--type=merge", "-p", patch)

    def say(self, pod: str, text: str) -> None:
        lines = self._logs.setdefault(pod, [])
        for line in text.splitlines():
            lines.append(f"2026-11-21T14:00:00.{len(lines) + 1:09d}Z {line}\n")

    def end_log(self, pod: str) -> None:
        """A pod's log is whole: what follows it comes to an end."""
        self._over.add(pod)

    def forget_logs(self) -> None:
        """Pods of the same names get new logs."""
        self._logs.clear()
        self._over.clear()

    def stop_api(self) -> None:
        self._stop("kube-apiserver")

    def start_api(self) -> None:
        self._start(
            "kube-apiserver",
            self._server,
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._api_port}",
            f"--tls-cert-file={self.folder / 'cert.pem'}",
            f"--tls-private-key-file={self.folder / 'key.pem'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={self.folder / 'key.pem'}",
            f"--service-account-signing-key-file={self.folder / 'key.pem'}",
            *API_OPTIONS,
        )
        self._until(
            "the API server answers",
            lambda: "ok" in self.kubectl("get", "--raw", "/readyz", check=False),
        )

    def _start_all(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._start(
            "etcd",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--{what}-client-urls={client}" for what in ("listen", "advertise")),
            *(f"--{what}-peer-urls={peer}" for what in ("listen", "initial-advertise")),
            f"--initial-cluster=default={peer}",
        )
        key, certificate = self.folder / "key.pem", self.folder / "cert.pem"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(certificate)),
            ],
            capture_output=True,
            check=True,
        )
        (self.folder / "tokens.csv").write_text(f"{self._token},admin,admin,system:masters\n")
        self._write_kubeconfig()
        self.start_api()
        for crd in (HERE / "crds").iterdir():
            self.kubectl("create", "-f", str(crd))
        for crd in ("mpijobs.kubeflow.org", "jobsets.jobset.x-k8s.io"):
            self.kubectl("wait", f"crd/{crd}", "--for=condition=Established", "--timeout=120s")
        self._serve_logs()

    def _serve_logs(self) -> None:
        """Answer as the kubelet of node `a`: with logs."""
        logs, over = self._logs, self._over

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802
                asked = urlsplit(self.path)
                _, what, _, pod, _ = asked.path.split("/")
                assert what == "containerLogs"
                self.send_response(200)
                self.end_headers()
                follows = "follow" in parse_qs(asked.query)
                sent = 0
                while True:
                    ends = not follows or pod in over
                    lines = logs.get(pod, [])[sent:]
                    sent += len(lines)
                    self.wfile.write("".join(lines).encode())
                    self.wfile.flush()
                    if ends:
                        return
                    time.sleep(0.05)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._kubelet = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "cert.pem", self.folder / "key.pem")
        self._kubelet.socket = context.wrap_socket(self._kubelet.socket, server_side=True)
        threading.Thread(target=self._kubelet.serve_forever, daemon=True).start()
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
        self.kubectl("create", "-f", "-", text=json.dumps(node))
        port = {"kubeletEndpoint": {"Port": self._kubelet.server_port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        self._set_status("node/a", {"addresses": addresses, "daemonEndpoints": port})

    def _write_kubeconfig(self) -> None:
        server = {
            "server": f"https://127.0.0.1:{self._api_port}",
            "certificate-authority": str(self.folder / "cert.pem"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config))

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

    def _stop(self, name: str) -> None:
        if process := self._started.pop(name, None):
            process.send_signal(signal.SIGKILL)
            process.wait()

    def _stop_all(self) -> None:
        if kubelet := getattr(self, "_kubelet", None):
            kubelet.shutdown()
            kubelet.server_close()
        for name in list(self._started):
            self._stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        def held() -> bool:
            for name, process in self._started.items():
                assert process.poll() is None, f"{name} ended before {what}"
            return holds()

        wait_until(held, what, every_s=0.2)


def server_program() -> Path:
    """Where the built API server is; skips the test where something is missing."""
    folder = Path(os.environ.get("KUBERNETES_BIN") or CHECKOUT / ".kubernetes")
    program = folder / "kube-apiserver"
    if not program.is_file():
        pytest.skip(f"no kube-apiserver in {folder}: tests/e2e/kubernetes/build.sh {folder}")
    path = f"{os.environ['PATH']}:{folder}"
    for name in ("etcd", "kubectl", "openssl", "setpriv"):
        if not shutil.which(name, path=path):
            pytest.skip(f"no {name} here")
    return program.resolve()
