# SPDX-License-Identifier: Apache-2.0
"""The image, built of its Containerfile over a Debian that is made here, and used as its user."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nccltune
from tests.e2e.packaging.conftest import ROOT
from tests.programs import completed

pytestmark = pytest.mark.timeout(1200)
BASE = "docker.io/library/debian:bookworm-slim"
# What the MPI Operator does: it mounts a key, and starts sshd in workers without a command.
AS_IN_A_POD = """
mkdir ~/.ssh
ssh-keygen -q -t ecdsa -b 521 -N '' -f ~/.ssh/id_rsa
cp ~/.ssh/id_rsa.pub ~/.ssh/authorized_keys
/usr/sbin/sshd -De 2>/dev/null &
trap 'kill %1' EXIT
for try in 1 2 3 4 5 6 7 8 9 10; do ssh 127.0.0.1 true && break; sleep 1; done
ssh 127.0.0.1 'id -u; command -v orted; python3 -m nccltune --version'
"""


def buildah(store: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run buildah with a store of its own, where no kernel feature but chroot is needed."""
    place = ["--root", store / "root", "--runroot", store / "run", "--storage-driver", "vfs"]
    return completed(
        ["buildah", *map(str, [*place, *words])], env=os.environ | {"BUILDAH_ISOLATION": "chroot"}
    )


@pytest.fixture(scope="module")
def image(
    wheel: Path, debian: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs a program in a container of the image, as the image's user."""
    if shutil.which("buildah") is None:
        pytest.skip("no buildah: apt-get install buildah")
    store, context = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("dist")
    shutil.copy(wheel, context)

    def done(*words: object) -> str:
        result = buildah(store, *words)
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout.strip()

    base = done("from", "scratch")
    done("add", base, debian, "/")
    done("commit", "--rm", base, BASE)
    # The certificates that this machine trusts, and its settings of apt.
    volumes = [
        word
        for path in ("/etc/ssl/certs", "/etc/apt/apt.conf.d")
        if Path(path).is_dir()
        for word in ("-v", f"{path}:{path}:ro")
    ]
    recipe = ROOT / "packaging" / "container" / "Containerfile"
    # NCCL is 350 MB, and no GPU is here to use it.
    done(
        "build", "--pull-never", *volumes, "--build-arg", "NCCL=", "-f", recipe, "-t", "i", context
    )
    container = done("from", "--pull-never", "i")
    user = done("inspect", "--format", "{{.OCIv1.Config.User}}", container)
    assert user == "1000:1000"
    yield lambda *words: buildah(store, "run", "--user", user, container, "--", *words)
    buildah(store, "rm", "--all")
    buildah(store, "rmi", "--all", "--force")


def test_it_has_this_version(image: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = image("nccltune", "--version")
    assert result.stdout.strip() == f"nccltune {nccltune.__version__}", result.stderr


def test_the_demo_runs_as_a_user_without_rights(
    image: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = image("sh", "-ec", "id -u; nccltune demo; test -s studies/*/report.html")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1000\n")
    assert "rules hold" in result.stdout


def test_its_python_has_nccltune(image: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Pods are asked to start `python3`."""
    result = image("python3", "-c", "import nccltune; print(nccltune.__version__)")
    assert result.stdout.strip() == nccltune.__version__, result.stderr


def test_mpirun_reaches_a_worker_that_is_no_root(
    image: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = image("bash", "-ec", AS_IN_A_POD)
    assert result.stdout.split("\n") == [
        "1000",
        "/usr/bin/orted",
        f"nccltune {nccltune.__version__}",
        "",
    ], result.stderr
    ranks = image("mpirun", "-n", "2", "python3", "-c", "print('rank')")
    assert ranks.stdout.split() == ["rank", "rank"], ranks.stderr
