# SPDX-License-Identifier: Apache-2.0
"""Runs in pods that are kept, with a script as kubectl and this machine as every pod."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nccltune.launch.find import InstalledLauncher
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.kubernetes.kubectl import KUBECTL
from nccltune.launch.kubernetes.seen import KINDS
from nccltune.launch.render.kubernetes import ALIVE
from nccltune.measure.bench import pods as pods_module
from nccltune.measure.bench.pods import Pods
from nccltune.measure.bench.with_launcher import WithLauncher, command, program_with_launcher
from nccltune.measure.experiments.ab import facts
from nccltune.measure.experiments.ab.program import ProgramRunner
from nccltune.model.errors import InputError
from nccltune.model.sample import Sample
from tests.programs import write_program

FAKE = Path(__file__).parents[3] / "e2e" / "fake_nccl_tests.py"
SCRIPTS = {
    # A job, its pods, and commands in them, until it is deleted. As the real kubectl it reports the
    # end of a command.
    "kubectl": """\
cd "$FAKE_CLUSTER"
[ "$1" != --namespace ] || shift 2
case "$1 $2" in
create*) cat job.json ;;
"get pods") [ -e deleted ] || cat pods.json ;;
get*) [ -e deleted ] || cat job.json ;;
delete*) touch deleted ;;
exec*)
  while [ "$1" != -- ]; do shift; done
  shift
  "$@" || { status=$?; echo "command terminated with exit code $status" >&2; exit $status; } ;;
esac
""",
    # One process, with only those NCCL variables that -x names.
    "mpirun": """\
keep="PATH=$PATH" words=""
while [ $# -gt 0 ]; do
  case $1 in
  -x) eval "value=\\$$2"; keep="$keep $2=$value"; shift 2 ;;
  --hostfile|--host|-np|--map-by|--bind-to) shift 2 ;;
  --allow-run-as-root|--tag-output) shift ;;
  *) break ;;
  esac
done
exec env -i $keep "$@"
""",
    # It reads all of its input, as ssh does.
    "ssh": "cat >/dev/null\n",
    "nccltune-bench": "cat\n",
    "all_reduce_perf": """\
export FAKE_RANKS=4 FAKE_EFFECT=OTHER=1:0.5:0 FAKE_READS=NCCL_X
[ -z "$NCCL_SLOW" ] || export FAKE_SLOW=$NCCL_SLOW
[ -z "$NCCL_BAD" ] || { echo "no such GPU" >&2; exit 9; }
exec {here}/all_reduce_perf "$@"
""",
}
WORDS = ["all_reduce_perf", "-b", "4096", "-e", "16384"]


def _pod(name: str, role: str, kind: str) -> dict[str, Any]:
    state = {"running": {"startedAt": "2026-11-21T14:00:00Z"}}
    return {
        "metadata": {"name": name, "labels": {KINDS[kind].role_label: role}},
        "spec": {"nodeName": "a"},
        "status": {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "containerStatuses": [{"name": role, "state": state}],
        },
    }


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder with the cluster's files. Its programs are first on the PATH."""
    (tmp_path / "all_reduce_perf").symlink_to(FAKE)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, text in SCRIPTS.items():
        write_program(bin_ / name, "#!/bin/sh\n" + text.replace("{here}", str(tmp_path)))
    job = {"metadata": {"name": "nccltune", "namespace": "default", "uid": "1"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_CLUSTER", str(tmp_path))
    # Programs of a container are on this machine here.
    (tmp_path / "shm").mkdir()
    monkeypatch.setattr(facts, "_IN_PODS", f"{tmp_path}/shm/")
    alive = pods_module._ALIVE.replace(ALIVE, f"{tmp_path}/alive").replace("sleep 20", "sleep 0.1")
    monkeypatch.setattr(pods_module, "_ALIVE", alive)
    return tmp_path


def _pods(cluster: Path, kind: str = "MPIJob") -> Pods:
    listed = [_pod(f"nccltune-{role}-0", role, kind) for role in ("launcher", "worker")]
    (cluster / "pods.json").write_text(json.dumps({"items": listed}))
    options = KubernetesOptions(image="a", kind=kind)  # type: ignore[arg-type]
    job = Job(program=["unused"], name="nccltune", gpus_per_node=1, kubernetes=options)
    return Pods(job, lambda _: None)


@pytest.fixture
def pods(cluster: Path) -> Iterator[Pods]:
    made = _pods(cluster)
    yield made
    made.close()
    assert (cluster / "deleted").exists()


def _runner(pods: Pods, tried: dict[str, str | None], limit_s: float = 60) -> ProgramRunner:
    under = WithLauncher(InstalledLauncher(Flavor(Launcher.KUBERNETES), KUBECTL), 1, 1, pods=pods)
    return ProgramRunner(WORDS, os.environ, tried, with_launcher=under, limit_s=limit_s)


def test_each_run_has_its_own_settings_and_brings_its_table_and_log(
    pods: Pods, cluster: Path
) -> None:
    tried: dict[str, str | None] = {"NCCL_X": "1", "OTHER": "1"}
    runner = _runner(pods, tried)
    times = {}
    for name, settings in (("default", {}), ("set", tried)):
        kept: list[Sample] = []
        ran = runner.run(settings, 0, kept.extend)
        assert ran.error is None
        assert ran.facts is not None
        assert ran.facts.read == (["NCCL_X"] if settings else [])
        assert {(sample.bytes, sample.ranks) for sample in kept} == {
            (4096, 4),
            (8192, 4),
            (16384, 4),
        }
        times[name] = sum(sample.time_us for sample in kept)
    # Settings of other programs reach the processes too.
    assert times["set"] / times["default"] == pytest.approx(0.5, rel=0.1)
    assert (cluster / "alive").exists()
    assert not list((cluster / "shm").iterdir())


def test_how_a_program_failed_is_reported_in_its_own_words(pods: Pods) -> None:
    tried: dict[str, str | None] = {"NCCL_BAD": "1"}
    ran = _runner(pods, tried).run(tried, 0, lambda _: None)
    assert ran.error == "ended with status 9; its last line: no such GPU"


def test_a_run_that_is_given_up_ends_in_the_pods(pods: Pods) -> None:
    variables = {**os.environ, "NCCL_SLOW": "600"}
    words, lines = pods.program(WORDS, variables)
    assert "600" not in " ".join(words)
    # kubectl is killed. Its command notices that only by the end of its input.
    with subprocess.Popen(
        words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(b"".join(line + b"\n" for line in lines))
        started.stdin.flush()
        assert started.stdout.readline().startswith(b"# nccl-tests")
        started.stdin.close()
        assert started.wait(30) == 128 + signal.SIGTERM
        # Its output is closed: no process of it is left.
        started.stdout.read()


def test_a_program_that_names_its_gpus_is_refused_before_there_are_pods(cluster: Path) -> None:
    with pytest.raises(InputError, match="-g, which follows from"):
        _pods(cluster).program([*WORDS, "-g", "4"], {})


def test_waiting_for_pods_consumes_no_input(cluster: Path) -> None:
    pods = _pods(cluster, "JobSet")
    try:
        words, lines = pods.command([], 77, {})
        said = b"".join(line + b"\n" for line in [*lines, b"hello"])
        done = subprocess.run(words, input=said, capture_output=True, timeout=120, check=True)
        assert done.stdout == b"hello\n"
    finally:
        pods.close()


MPIRUN = InstalledLauncher(Flavor(Launcher.OPENMPI, (5, 0, 11)), "mpirun")
HYDRA = InstalledLauncher(Flavor(Launcher.HYDRA, (4, 0, 2)), "mpiexec.hydra")
SRUN = InstalledLauncher(Flavor(Launcher.SLURM, (22, 5, 8)), "srun")
BENCH = ["/opt/nccltune-bench", "--nccl=/l"]
SCONTROL = """#!/bin/sh
[ "$2" = hostnames ] && printf 'c7\\nc9\\n' || echo "NodeName=$3 NodeAddr=10.0.0.7 State=IDLE"
"""


def test_one_node_meets_at_itself_and_inherits_what_is_ours() -> None:
    environment = {"NCCLTUNE_TOKEN": "s3cret", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    words, _ = command(BENCH, WithLauncher(MPIRUN, 1, 4), 77, environment)
    assert words[0] == "mpirun"
    assert [words[at + 1] for at, word in enumerate(words) if word == "-x"] == [
        "NCCLTUNE_TOKEN",
        "NCCL_DEBUG",
    ]
    assert words[words.index("-np") + 1] == "4"
    assert words[-5:] == [*BENCH, "--rendezvous=127.0.0.1:77", "--gpus-per-process", "1"]
    assert "s3cret" not in " ".join(words)
    assert not [word for word in words if "tag" in word]


def test_several_nodes_meet_at_the_first() -> None:
    words, _ = command(BENCH, WithLauncher(HYDRA, 2, 8, ("n1", "n2"), per_node=True), 77, {})
    assert words[words.index("-n") + 1] == "2"
    assert words[-3:] == ["--rendezvous=n1:77", "--gpus-per-process", "8"]
    assert "n1" in words[words.index("-hosts") + 1]


def test_unnamed_nodes() -> None:
    with pytest.raises(InputError, match="none is named"):
        command(BENCH, WithLauncher(MPIRUN, 2, 8), 77, {})


def test_in_a_job_of_slurm_they_meet_at_the_address_of_its_first_node(tmp_path: Path) -> None:
    write_program(tmp_path / "scontrol", SCONTROL)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "c[7,9]"}
    words, _ = command(BENCH, WithLauncher(SRUN, 2, 8), 77, environment)
    assert words[0] == "srun"
    assert {"--nodes=2", "--ntasks-per-node=8", "--mpi=none", "--input=0"} <= set(words)
    assert "--rendezvous=10.0.0.7:77" in words
    assert "--gpus-per-node=8" not in words
    with_gpus, _ = command(
        BENCH, WithLauncher(SRUN, 2, 8), 77, environment | {"SLURM_JOB_GPUS": "0,1"}
    )
    assert "--gpus-per-node=8" in with_gpus


def test_without_nodes_from_slurm() -> None:
    with pytest.raises(InputError, match="no nodes") as caught:
        command(BENCH, WithLauncher(SRUN, 2, 8), 77, {})
    assert "salloc" in str(caught.value.hint)
    with pytest.raises(InputError, match="no nodes"):
        program_with_launcher(["all_reduce_perf"], WithLauncher(SRUN, 2, 8), {})


def test_a_program_of_mpi_gets_settings_gpus_and_tags() -> None:
    environment = {"NCCL_TUNER_PLUGIN": "/p.so", "NCCL_DEBUG": "INFO", "HOME": "/root"}
    under = WithLauncher(MPIRUN, 2, 8, ("n1", "n2"), per_node=True)
    rendered = program_with_launcher(["all_reduce_perf", "-b", "8"], under, environment)
    words = rendered.words
    assert [words[at + 1] for at, word in enumerate(words) if word == "-x"] == [
        "NCCL_DEBUG",
        "NCCL_TUNER_PLUGIN",
    ]
    assert words[-5:] == ("all_reduce_perf", "-b", "8", "-g", "8")
    assert words[words.index("--output") :][:2] == ("--output", "tag")
    assert rendered.placement.processes == 2


def test_a_program_of_mpi_in_a_job_of_slurm() -> None:
    environment = {"SLURM_JOB_NODELIST": "c[7,9]", "SLURM_JOB_GPUS": "0,1"}
    under = WithLauncher(SRUN, 2, 8, mpi="pmi2")
    words = program_with_launcher(["all_reduce_perf"], under, environment).words
    assert words[0] == "srun"
    assert {"--nodes=2", "--mpi=pmi2", "--export=ALL", "--gpus-per-node=8"} <= set(words)


def test_an_mpirun_may_know_its_nodes_by_itself() -> None:
    with pytest.raises(InputError, match="none is named"):
        program_with_launcher(["all_reduce_perf"], WithLauncher(MPIRUN, 2, 8), {})
    known = program_with_launcher(
        ["all_reduce_perf"], WithLauncher(MPIRUN, 2, 8), {"PBS_NODEFILE": "/nodes"}
    )
    assert "--host" not in known.words
