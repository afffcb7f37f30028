# SPDX-License-Identifier: Apache-2.0
"""The exact command or manifest for each launcher; manifests with mistakes; the guide."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from click.testing import CliRunner

from nccltune.cli import cli
from nccltune.launch.flavor import Flavor, Launcher
from nccltune.launch.job import Job, KubernetesOptions, SlurmOptions, job_from, read_toml
from nccltune.launch.kubernetes.schema import check_manifest
from nccltune.launch.render import RenderContext, render
from nccltune.launch.render.rendered import words_of
from nccltune.model.errors import InputError

EXAMPLES = Path(__file__).parents[3] / "examples" / "jobs"
PROGRAM = ["all_reduce_perf", "-b", "8", "-e", "1G", "-f", "2"]
OPENMPI_4 = Flavor(Launcher.OPENMPI, (4, 1, 4))
OPENMPI_5 = Flavor(Launcher.OPENMPI, (5, 0, 11))
OPENMPI = Flavor(Launcher.OPENMPI)
HYDRA = Flavor(Launcher.HYDRA, (4, 0, 2))
INTEL = Flavor(Launcher.HYDRA, (2021, 18, 1))
SLURM = Flavor(Launcher.SLURM, (23, 2))
KUBERNETES = Flavor(Launcher.KUBERNETES)
TWO = Job(
    program=PROGRAM, nodes=2, hosts=["a", "b"], hcas="mlx5_0,mlx5_1", inherit=["NCCLTUNE_TOKEN"]
)


@pytest.mark.parametrize(
    ("flavor", "tag"),
    [(OPENMPI_4, "--tag-output"), (OPENMPI_5, "--output tag"), (OPENMPI, "--tag-output")],
)
def test_open_mpi(flavor: Flavor, tag: str) -> None:
    rendered = render(TWO, flavor)
    assert shlex.join(rendered.words) == (
        "mpirun --host a:8,b:8 -np 16 --map-by ppr:8:node --bind-to none "
        f"-x NCCL_IB_HCA=mlx5_0,mlx5_1 -x NCCLTUNE_TOKEN {tag} "
        "all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    )
    assert rendered.files == {}


def test_open_mpi_as_root_under_another_name() -> None:
    around = RenderContext(program="mpirun.openmpi", as_root=True)
    words = render(Job(program=PROGRAM), OPENMPI_4, around).words
    # Without hosts this machine has as many slots as cores, which are fewer than GPUs at times.
    assert words[:4] == ("mpirun.openmpi", "--allow-run-as-root", "--host", "localhost:8")


def test_hydra() -> None:
    assert shlex.join(render(TWO, HYDRA).words) == (
        "mpiexec.hydra -hosts a,b -n 16 -ppn 8 -bind-to none -genv NCCL_IB_HCA mlx5_0,mlx5_1 "
        "-prepend-rank all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    )


def test_intel_mpi_is_unbound_by_its_own_word() -> None:
    assert shlex.join(render(TWO, INTEL).words) == (
        "mpiexec.hydra -hosts a,b -n 16 -ppn 8 -genv I_MPI_PIN off -genv NCCL_IB_HCA mlx5_0,mlx5_1 "
        "-prepend-rank all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    )
    job = Job(program=PROGRAM, environment={"I_MPI_PIN": "on"})
    words = render(job, INTEL).words
    assert words.count("I_MPI_PIN") == 1
    assert "on" in words, "the job's own word counts"


def test_a_hydra_that_nobody_knows_is_unbound_in_both_words() -> None:
    words = shlex.join(render(TWO, Flavor(Launcher.HYDRA)).words)
    assert " -bind-to none -genv I_MPI_PIN off " in words


@pytest.mark.parametrize(("mpi", "word"), [("Intel", "I_MPI_PIN"), ("MPICH", "-bind-to")])
def test_an_image_with_hydra(mpi: Literal["Intel", "MPICH"], word: str) -> None:
    options = KubernetesOptions(image="r/n:1", mpi=mpi)
    manifest = yaml.safe_load(render(Job(program=PROGRAM, kubernetes=options), KUBERNETES).text)
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    assert {"I_MPI_PIN", "-bind-to"} & set(launcher["command"]) == {word}


def test_slurm_script() -> None:
    slurm = SlurmOptions(partition="gpu", time="00:10:00", mpi="pmi2", options=["--qos=high"])
    job = Job(
        program=PROGRAM, nodes=2, processes="per-node", slurm=slurm, environment={"A": "b,c d"}
    )
    rendered = render(job, SLURM)
    assert rendered.words == ("sbatch", "--parsable", "job.sbatch")
    assert rendered.text == (
        "#!/bin/bash\n"
        "#SBATCH --job-name=nccl-test\n"
        "#SBATCH --no-requeue\n"
        "#SBATCH --nodes=2\n"
        "#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --gpus-per-node=8\n"
        "#SBATCH --exclusive\n"
        "#SBATCH --partition=gpu\n"
        "#SBATCH --time=00:10:00\n"
        "#SBATCH --qos=high\n"
        "export A='b,c d'\n"
        "srun \\\n"
        "    --mpi=pmi2 \\\n"
        "    --export=ALL \\\n"
        "    --cpu-bind=none \\\n"
        "    --kill-on-bad-exit=1 \\\n"
        "    --label \\\n"
        "    all_reduce_perf -b 8 -e 1G -f 2 -g 8\n"
    )


def test_slurm_in_an_allocation() -> None:
    job = Job(program=PROGRAM, nodes=2, environment={"A": "b"}, slurm=SlurmOptions(gpus=False))
    assert shlex.join(render(job, SLURM, RenderContext(in_allocation=True)).words) == (
        "env A=b srun --nodes=2 --ntasks-per-node=8 --mpi=pmix --export=ALL --cpu-bind=none "
        "--kill-on-bad-exit=1 --label all_reduce_perf -b 8 -e 1G -f 2 -g 1"
    )


def test_local() -> None:
    job = Job(program=PROGRAM, processes="per-node", nvls=False)
    words = shlex.join(render(job, Flavor(Launcher.LOCAL)).words)
    assert words == "env NCCL_NVLS_ENABLE=0 all_reduce_perf -b 8 -e 1G -f 2 -g 8"
    with pytest.raises(InputError, match="8 processes; without a launcher there is one"):
        render(Job(program=PROGRAM), Flavor(Launcher.LOCAL))


@pytest.mark.parametrize("flavor", [OPENMPI_4, OPENMPI_5, HYDRA, INTEL, SLURM])
def test_a_conversation_has_no_tags(flavor: Flavor) -> None:
    words = render(TWO, flavor, RenderContext(conversation=True)).words
    assert not {"--tag-output", "--output", "-prepend-rank", "--label"} & set(words)
    assert ("--input=0" in words) == (flavor is SLURM)
    assert words[-len(TWO.words) :] == tuple(TWO.words)


def test_mpi_job() -> None:
    options = KubernetesOptions(image="r/n:1", namespace="bench", resources={"rdma/ib": 1})
    job = Job(program=PROGRAM, nodes=2, processes="per-node", kubernetes=options, nvls=True)
    rendered = render(job, KUBERNETES)
    assert rendered.words == ("kubectl", "create", "-f", "job.yaml")
    manifest = yaml.safe_load(rendered.text)
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    assert manifest["metadata"] == {"name": "nccl-test", "namespace": "bench"}
    assert manifest["spec"]["slotsPerWorker"] == 1
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    assert replicas["Worker"]["replicas"] == 2
    (worker,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert worker["resources"] == {"limits": {"nvidia.com/gpu": 8, "rdma/ib": 1}}
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    assert shlex.join(launcher["command"]) == (
        "mpirun --allow-run-as-root --hostfile /etc/mpi/hostfile -np 2 --map-by ppr:1:node "
        "--bind-to none -x NCCL_NVLS_ENABLE=1 --tag-output all_reduce_perf -b 8 -e 1G -f 2 -g 8"
    )


def test_job_set() -> None:
    options = KubernetesOptions(image="r/n:1", kind="JobSet")
    rendered = render(Job(program=PROGRAM, nodes=2, kubernetes=options), KUBERNETES)
    manifest = yaml.safe_load(rendered.text)
    assert (manifest["apiVersion"], manifest["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    worker, launcher = manifest["spec"]["replicatedJobs"]
    assert worker["template"]["spec"]["parallelism"] == 2
    assert worker["template"]["spec"]["completions"] == 2
    script = launcher["template"]["spec"]["template"]["spec"]["containers"][0]["command"][2]
    hosts = "nccl-test-worker-0-0.nccl-test:8,nccl-test-worker-0-1.nccl-test:8"
    assert f"exec mpirun --allow-run-as-root --host {hosts} -np 16" in script


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (Job(program=PROGRAM), "a pod needs an image"),
        (
            Job(program=PROGRAM, inherit=["A"], kubernetes=KubernetesOptions(image="r/n")),
            "no process of a cluster can inherit A",
        ),
        (
            Job(
                program=PROGRAM,
                kubernetes=KubernetesOptions(image="r/n", kind="JobSet", mpi="MPICH"),
            ),
            "a JobSet with MPICH",
        ),
    ],
)
def test_what_kubernetes_cannot(job: Job, says: str) -> None:
    with pytest.raises(InputError, match=says):
        render(job, KUBERNETES)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("flavor", [OPENMPI_4, OPENMPI_5, HYDRA, INTEL, SLURM])
def test_every_word_is_explained(path: Path, flavor: Flavor) -> None:
    rendered = render(job_from(read_toml(path), str(path)), flavor)
    assert all(part.meaning and part.words for part in rendered.parts)
    if not rendered.files:
        assert words_of(rendered.parts) == rendered.words
    assert rendered.placement == job_from(read_toml(path), str(path)).placement


@pytest.mark.parametrize("kind", ["MPIJob", "JobSet"])
def test_pods_run_on_the_hosts_that_a_job_names(kind: Literal["MPIJob", "JobSet"]) -> None:
    options = KubernetesOptions(image="r/n", kind=kind)
    job = Job(program=PROGRAM, nodes=2, hosts=["n1", "n2"], kubernetes=options)
    rendered = render(job, KUBERNETES)
    manifest = yaml.safe_load(rendered.text)
    assert rendered.text.count("nodeAffinity") == 1
    text = str(manifest)
    assert "'key': 'kubernetes.io/hostname', 'operator': 'In', 'values': ['n1', 'n2']" in text
    assert any("n1, n2" in part.meaning for part in rendered.parts)
    without = render(Job(program=PROGRAM, nodes=2, kubernetes=options), KUBERNETES)
    assert "affinity" not in without.text


CONTAINERS = "spec.mpiReplicaSpecs.Worker.template.spec.containers"


def _manifest(kind: str, mpi: str = "OpenMPI") -> dict[str, Any]:
    options = KubernetesOptions(kind=kind, mpi=mpi, image="image", namespace="n")  # type: ignore[arg-type]
    job = Job(program=["all_reduce_perf"], nodes=2, kubernetes=options)
    found: dict[str, Any] = yaml.safe_load(render(job, Flavor(Launcher.KUBERNETES)).text)
    return found


@pytest.mark.parametrize(
    ("kind", "mpi"),
    [("MPIJob", "OpenMPI"), ("MPIJob", "Intel"), ("MPIJob", "MPICH"), ("JobSet", "OpenMPI")],
)
def test_what_we_render_has_only_fields_that_exist(kind: str, mpi: str) -> None:
    check_manifest(_manifest(kind, mpi))


def test_the_key_is_mounted_in_the_home_of_the_images_user() -> None:
    options = KubernetesOptions(image="image", ssh_path="/home/nccltune/.ssh")
    job = Job(program=["all_reduce_perf"], kubernetes=options)
    manifest = yaml.safe_load(render(job, Flavor(Launcher.KUBERNETES)).text)
    check_manifest(manifest)
    assert manifest["spec"]["sshAuthMountPath"] == "/home/nccltune/.ssh"
    assert "sshAuthMountPath" not in _manifest("MPIJob")["spec"]


GONE = object()


@pytest.mark.parametrize(
    ("kind", "path", "value", "where"),
    [
        ("MPIJob", "spec.slotsPerWorkers", 8, "spec"),
        ("MPIJob", "spec.slotsPerWorker", "8", "spec.slotsPerWorker"),
        ("MPIJob", "spec.cleanPodPolicy", "Running", "spec"),
        ("MPIJob", "spec.runPolicy.cleanPodPolicy", "running", "spec.runPolicy"),
        ("MPIJob", "spec.mpiImplementation", "OpenMpi", "spec.mpiImplementation"),
        ("MPIJob", "spec.mpiReplicaSpecs.worker", {}, "spec.mpiReplicaSpecs"),
        ("MPIJob", "spec.mpiReplicaSpecs.Launcher", GONE, "spec.mpiReplicaSpecs"),
        ("MPIJob", CONTAINERS, [], CONTAINERS),
        ("MPIJob", "apiVersion", "kubeflow.org/v1", "apiVersion"),
        ("MPIJob", "spec", GONE, "spec"),
        ("JobSet", "spec.network.enableDnsHostnames", True, "spec.network"),
        ("JobSet", "spec.successPolicy.operator", "all", "spec.successPolicy.operator"),
        ("JobSet", "spec.replicatedJobs", [], "spec.replicatedJobs"),
    ],
)
def test_one_mistake_is_found_with_its_place(
    kind: str, path: str, value: object, where: str
) -> None:
    document = part = _manifest(kind)
    *before, last = path.split(".")
    for name in before:
        part = part[name]
    if value is GONE:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(InputError) as raised:
        check_manifest(document)
    place = raised.value.where or ""
    assert place == where if kind == "JobSet" else place.startswith(where)


def test_other_kinds_are_not_judged() -> None:
    check_manifest({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})
    check_manifest({"apiVersion": "v1", "kind": {"a": "b"}})


ROOT = Path(__file__).parents[3]
GUIDES = sorted((ROOT / "docs" / "guides").glob("launching/*.md"))
RENDER = "$ nccltune launch render "
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks(page: Path, language: str = "") -> Iterator[str]:
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
        if match[1] == language:
            yield match[2]


def rendered(page: Path) -> list[str]:
    """Return the blocks that show a command with what it renders."""
    return [block for block in blocks(page) if block.startswith(RENDER)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_what_a_guide_renders_is_what_is_rendered(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    # For root a command has another option, and in an allocation Slurm has another line.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    shown = rendered(page)
    assert shown, "a guide shows what is started"
    for block in shown:
        line, _, text = block.partition("\n")
        done = CliRunner().invoke(cli, shlex.split(line.removeprefix("$ nccltune ")))
        assert done.exit_code == 0, done.output
        assert done.stdout == text, line


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_jobs_of_a_guide_are_the_shipped_ones(page: Path) -> None:
    shipped = [path.read_text() for path in (ROOT / "examples" / "jobs").glob("*.toml")]
    for block in blocks(page, "toml"):
        if block.startswith("#"):
            assert block in shipped


def test_every_launcher_has_its_guide() -> None:
    index = (ROOT / "docs" / "guides" / "launching.md").read_text()
    named = set(re.findall(r"\(launching/([a-z-]+)\.md\)", index))
    assert named >= {page.stem for page in GUIDES} | {"one-machine", "openmpi", "hydra", "slurm"}


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).is_file(), target
