# SPDX-License-Identifier: Apache-2.0
"""Call kubectl with a context and a namespace, and read its errors."""

import os
import re
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from nccltune.model.errors import InputError, LaunchError, NccltuneError, PlatformError
from nccltune.native.child import start

KUBECTL = "kubectl"
EXEC_FAILED = "command terminated with exit code"
"""The start of the last line that a failed `kubectl exec` prints."""
REQUEST_LIMIT_S = 20
"""Seconds for one request, of which a call of kubectl may make several."""
_CALL_LIMIT_S = 3 * REQUEST_LIMIT_S
_OPERATORS = {
    "MPIJob": "install the MPI Operator (github.com/kubeflow/mpi-operator, 0.5 or later), or take "
    "--set kubernetes.kind=JobSet",
    "JobSet": "install JobSet (github.com/kubernetes-sigs/jobset), or take "
    "--set kubernetes.kind=MPIJob",
}


class KubectlResult(NamedTuple):
    """The exit status and output of a call of kubectl. `status` is None if the call timed out."""

    status: int | None
    out: bytes = b""
    errors: str = ""


class Kubectl:
    """Calls of kubectl for one cluster and namespace; None is that of its configuration."""

    def __init__(
        self,
        context: str | None = None,
        namespace: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self.environment = dict(environment)
        self._context = context
        self._base = base_words(context, namespace)

    def inside(self, namespace: str) -> "Kubectl":
        """Return a Kubectl for the same cluster and user, with another namespace."""
        return Kubectl(self._context, namespace, self.environment)

    def words(self, *arguments: str) -> tuple[str, ...]:
        """Return the whole command, as a user would type it."""
        return (*self._base, *arguments)

    def ask(self, *arguments: str) -> KubectlResult:
        """Call kubectl and return its result. Raises PlatformError if kubectl cannot be started."""
        return self._call(*arguments, f"--request-timeout={REQUEST_LIMIT_S}s")

    def write(self, pod: str, path: str, data: bytes) -> KubectlResult:
        """Write a file in the first container of a pod. Raises PlatformError without kubectl."""
        words = ("exec", "-i", pod, "--", "sh", "-c", 'cat > "$0"', path)
        return self._call(*words, data=data)

    def take(self, pod: str, pattern: str) -> KubectlResult:
        """Return the files that match a pattern, if any, and remove them. Raises PlatformError."""
        # Leave `$0` without quotes, so that the shell expands the pattern.
        script = "cat $0 2>/dev/null; rm -f $0"
        return self._call("exec", pod, "--", "sh", "-c", script, pattern)

    def _call(self, *arguments: str, data: bytes | None = None) -> KubectlResult:
        source = subprocess.DEVNULL if data is None else subprocess.PIPE
        process = start(self.words(*arguments), self.environment, stdin=source)
        try:
            out, errors = process.communicate(data, timeout=_CALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return KubectlResult(None, errors=f"no answer within {_CALL_LIMIT_S} s")
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return KubectlResult(process.returncode, out, errors.decode(errors="replace").strip())

    def read(self, *arguments: str) -> tuple[dict[str, Any] | None, str]:
        """Return the JSON of `kubectl get` (None if unreadable or absent), and why it is
        unreadable.

        Raises PlatformError if kubectl cannot be started.
        """
        answer = self.ask(*arguments, "-o", "json", "--ignore-not-found")
        if answer.status != 0:
            return None, _last(answer.errors) or "no answer"
        if not answer.out.strip():
            return None, ""
        try:
            return msgspec.json.decode(answer.out, type=dict[str, Any]), ""
        except msgspec.MsgspecError as error:
            return None, f"kubectl's answer cannot be read: {error}"


def base_words(context: str | None = None, namespace: str | None = None) -> tuple[str, ...]:
    """Return the start of a command: `kubectl` with the options for cluster and namespace."""
    words = [KUBECTL]
    if context is not None:
        words += ["--context", context]
    if namespace is not None:
        words += ["--namespace", namespace]
    return tuple(words)


def refusal(kind: str, errors: str) -> NccltuneError:
    """Return the error for a job of this kind that `kubectl create` refused, saying `errors`."""
    last = _last(errors)
    if re.search(r"no matches for kind|could not find the requested resource", errors):
        return PlatformError(f"the cluster knows no {kind}", hint=_OPERATORS[kind])
    if "AlreadyExists" in errors:
        return LaunchError(
            f"a {kind} of this name is there already: {last}",
            hint="--set name=NAME for another, or end that one if nobody needs it: "
            f"kubectl get {kind.lower()}",
        )
    if "unknown field" in errors or "(Invalid)" in errors or "is invalid" in errors:
        return InputError(f"the cluster does not take the manifest: {last}")
    if "(Forbidden)" in errors:
        return PlatformError(
            f"the cluster does not allow it: {last}",
            hint="--set kubernetes.namespace=NAME for another, or a role that may create it and "
            "read pods and their logs",
        )
    return PlatformError(
        f"kubectl does not reach the cluster: {last or 'it gave no reason'}",
        hint="kubectl cluster-info; --set kubernetes.context=NAME for another cluster",
    )


def _last(errors: str) -> str:
    """Return the last line that is not empty, without `error: `; earlier ones are retries."""
    lines = [line for line in errors.splitlines() if line.strip()]
    return lines[-1].removeprefix("error: ").strip() if lines else ""
