# SPDX-License-Identifier: Apache-2.0
"""Manifests: right ones without a finding, and variants with one mistake each."""

import re
from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.cli import run
from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.manifest import documents_of, from_manifests, judge_manifests
from nccltune.launch_lint.pods import gpus_of
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity

LIMITS = "resources: {limits: {nvidia.com/gpu: 2}}}}}"
MPIJOB = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: test}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: launcher
            image: nccl-tests
            command: [mpirun, --allow-run-as-root, -np, "16", --bind-to, none]
            args: [-x, NCCL_DEBUG=INFO, all_reduce_perf, -b, "8", -e, 8G, -f, "2", -g, "1"]
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            image: nccl-tests
            resources: {limits: {nvidia.com/gpu: 8}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: test}
spec:
  containers:
  - name: test
    image: nccl-tests
    command: [sh, -c, "./all_reduce_perf -b 8 -e 8G -f 2 -g 8"]
    resources: {limits: {nvidia.com/gpu: 8, memory: 64Gi}}
    volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""
PYTORCHJOB = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: &pod
        spec:
          containers:
          - name: pytorch
            image: train
            command: [torchrun, --nnodes=2, --nproc-per-node=8, train.py]
            resources: {limits: {nvidia.com/gpu: 8}}
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes: [{name: shm, emptyDir: {medium: Memory}}]
    Worker:
      replicas: 1
      template: *pod
"""
JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - name: node
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            hostNetwork: true
            dnsPolicy: ClusterFirstWithHostNet
            containers:
            - name: train
              image: train
              command: [bash, -c, "torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d
                --rdzv-endpoint=train-node-0-0.train:29500 train.py"]
              resources: {limits: {nvidia.com/gpu: 8, rdma/hca: 1}}
              securityContext: {capabilities: {add: [IPC_LOCK]}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
            volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: t}
spec: {template: {spec: {containers: [{name: a, image: x, command: [mpirun, all_reduce_perf]}]}}}
"""
GPUS = "            resources: {limits: {nvidia.com/gpu: 8}}\n"
SHM = "            volumeMounts: [{name: shm, mountPath: /dev/shm}]\n"

EFA = "            env: [{name: FI_PROVIDER, value: efa}]\n"
PATHS = "            env: [{{name: A, value: b}}, {{name: PATH, value: '{}'}}]\n"
DEVICES = "a.io/nic: 1, nvidia.com/gpu: 8"

WRONG = [
    (MPIJOB, GPUS, "", "pod-without-gpus"),
    (MPIJOB, "nvidia.com/gpu: 8", "memory: 8Gi, vpc.amazonaws.com/efa: 8", "pod-without-gpus"),
    (MPIJOB, "nvidia.com/gpu: 8", "nvidia.com/gpu: 0.5", "pod-gpus"),
    (MPIJOB, "{limits:", "{requests: {nvidia.com/gpu: 4}, limits:", "pod-gpus"),
    (MPIJOB, "nvidia.com/gpu: 8", "nvidia.com/gpu: 4", "too-many-gpus"),
    (MPIJOB, SHM, "", "pod-shm"),
    (MPIJOB, "slotsPerWorker: 8", "slotsPerWorker: 4", "idle-gpus"),
    (MPIJOB, "            command: [mpirun", GPUS + "            command: [mpirun", "idle-gpus"),
    (MPIJOB, "  slotsPerWorker: 8\n", "", "too-few-slots"),
    (MPIJOB, "replicas: 2", "replicas: 4", "idle-nodes"),
    (MPIJOB, "replicas: 2", "replicas: 1", "too-few-slots"),
    (MPIJOB, '-np, "16"', '-np, "8"', "idle-nodes"),
    (MPIJOB, "NCCL_DEBUG=INFO", "NCCL_DEBGU=INFO", "variable-unknown"),
    (MPIJOB, SHM, SHM + "            env: [{name: NCCL_IB_HCA, value: mlx5}]\n", "worker-env"),
    (POD, "nccl-tests", "i\n    env: [{name: NCCL_NVLS_ENABLE, value: 0}]", "env-not-text"),
    (POD, "nccl-tests", "i\n    env: [{name: NCCL_DEBUG, value: on}]", "env-not-text"),
    (MPIJOB, "slotsPerWorker", "slotPerWorker", "manifest"),
    (MPIJOB, "          containers:\n          - name: launcher",
     "          hostNetwork: true\n          containers:\n          - name: launcher", "pod-names"),
    (POD, "nvidia.com/gpu: 8, ", "", "pod-without-gpus"),
    (POD, "nvidia.com/gpu: 8", "nvidia.com/gpu: 4", "too-many-gpus"),
    (POD, "    volumeMounts: [{name: shm, mountPath: /dev/shm}]\n", "", "pod-shm"),
    (POD, "Mounts: [{name: shm", "Mounts: [{name: dshm", "pod-volume"),
    (POD, "-g 8", "-g 8 -d bf16", "argument-name"),
    (PYTORCHJOB, "nnodes=2", "nnodes=4", "job-nodes"),
    (JOBSET, "--nnodes=2", "--nnodes=4", "job-nodes"),
    (MPIJOB, "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=^eth", "pod-interface"),
    (PYTORCHJOB, GPUS, GPUS + EFA.replace("FI_PROVIDER", "GLOO_SOCKET_IFNAME"), "pod-interface"),
    (PYTORCHJOB, "nproc-per-node=8", "nproc-per-node=16", "too-many-gpus"),
    (PYTORCHJOB, "command: [torchrun, --nnodes=2, --nproc-per-node=8",
     "env: [{name: PET_NPROC_PER_NODE, value: '16'}]\n            command: [torchrun",
     "too-many-gpus"),
    (PYTORCHJOB, "name: pytorch", "name: train", "pytorch-container"),
    (PYTORCHJOB, GPUS, "", "pod-without-gpus"),
    (JOBSET, "nvidia.com/gpu: 8, ", "", "pod-without-gpus"),
    (JOB, "mpirun", "torchrun", "pod-without-gpus"),
    (JOBSET, "            dnsPolicy: ClusterFirstWithHostNet\n", "", "pod-names"),
    (JOBSET, "--rdzv-endpoint=train-node-0-0.train:29500 ", "", "torchrun-endpoint"),
    (JOBSET, "--rdzv-backend=c10d\n                --rdzv-endpoint=train-node-0-0.train:29500",
     "--master-addr=train-node-0-0.train --node-rank=0", "inner-rank"),
    (MPIJOB, "NCCL_DEBUG=INFO", "FI_PROVIDER=efa", "pod-efa"),
    (PYTORCHJOB, GPUS, GPUS + EFA, "pod-efa"),
    (JOBSET, "--rdzv-backend=c10d", "--node-rank=${HOSTNAME##*-}", "inner-rank"),
    (JOBSET, "hostNetwork: true", 'hostIPC: "True"', "manifest"),
    (PYTORCHJOB, GPUS, GPUS + PATHS.format("/a:$PATH"), "env-kept"),
    (PYTORCHJOB, GPUS, GPUS + PATHS.format("$(PATH):/a"), "env-kept"),
    (PYTORCHJOB, GPUS, GPUS + PATHS.format("${A}/bin"), "env-kept"),
]  # fmt: skip

RIGHT = [
    MPIJOB,
    # Who fills in the image with envsubst fills in this, too.
    PYTORCHJOB.replace(GPUS, GPUS + PATHS.format("/a:$PATH")).replace("image: train", "image: $I"),
    PYTORCHJOB.replace(GPUS, GPUS + PATHS.format("${PATH}")),
    # A field that is null is absent. Jobs for CPUs or for other accelerators need no GPU.
    MPIJOB.replace("            command: [mpi", "            args:\n            command: [mpi"),
    PYTORCHJOB.replace("nvidia.com/gpu: 8", "cpu: 8"),
    MPIJOB.replace("nvidia.com/gpu: 8", "aws.amazon.com/neuron: 8, vpc.amazonaws.com/efa: 8"),
    *(PYTORCHJOB, JOBSET),
    POD.replace("kind: Pod", "kind: Pod\n# a comment"),
    POD.replace("/dev/shm", "/a").replace("gpu: 8", "gpu: 8, nvidia.com/gpucores: 30"),
    PYTORCHJOB.replace("/dev/shm", "/a").replace("train.py", "train.py, --dist_backend=gloo"),
    POD.replace("volumes: [{name: shm, emptyDir: {medium: Memory}}]", "volumes: <of your site>"),
    MPIJOB.replace("Mounts: [{name: shm", "Mounts: [{name: of-the-operator"),
    MPIJOB.replace("nvidia.com/gpu: 8", "amd.com/gpu: 8"),
    MPIJOB.replace(GPUS, "            securityContext: {privileged: true}\n"),
    MPIJOB.replace(SHM, "").replace("  volumes:", "  hostIPC: true\n          volumes:"),
    MPIJOB.replace("NCCL_DEBUG=INFO", "FI_PROVIDER=efa").replace("nv", "a.com/efa: 4, nv"),
    PYTORCHJOB.replace(GPUS, GPUS + EFA + "            securityContext: {privileged: true}\n"),
    PYTORCHJOB.replace(GPUS, GPUS + EFA).replace("nvidia.com/gpu: 8", DEVICES),
    PYTORCHJOB.replace(GPUS, GPUS + PATHS.format("$(A):$$PATH:$HOME")),
    JOBSET.replace("c10d", "c10d --rdzv-id=${HOSTNAME##*-}").replace("Network: true", "IPC: true"),
    POD.replace("nccl-tests", "i\n    env: [{name: FI_PROVIDER, value: efa}]"),
    PYTORCHJOB.replace("[torchrun, --nnodes=2, --nproc-per-node=8, train.py]", "[torchrun, t.py]"),
    POD.replace(
        '[sh, -c, "./all_reduce_perf -b 8 -e 8G -f 2 -g 8"]',
        "[mpirun, --allow-run-as-root, -np, '8', all_reduce_perf, -b, '8', -e, 1G, -f, '2']",
    ),
]  # fmt: skip


def _ids(text: str) -> set[str]:
    documents = documents_of(text, "job.yaml")
    findings = judge_manifests(documents)
    for found in from_manifests(documents, LaunchContext(), "job.yaml"):
        findings += [held.finding for held in check(found.line, found.site).findings]
    return {finding.id for finding in findings if finding.severity is not Severity.NOTE}


@pytest.mark.parametrize("text", RIGHT)
def test_right_manifests_have_no_finding(text: str) -> None:
    assert _ids(text) == set()


@pytest.mark.parametrize(("right", "old", "new", "expected"), WRONG)
def test_one_mistake_is_found(right: str, old: str, new: str, expected: str) -> None:
    assert old in right
    assert expected in _ids(right.replace(old, new))


@pytest.mark.parametrize(
    ("mounts", "volume", "fix"),
    [
        ("[]", "{name: s, emptyDir: {sizeLimit: 9Gi, medium: Memory}}", ["name: s, mountPath"]),
        ("[{name: s, mountPath: /tmp}]", "{name: s, emptyDir: {medium: Memory}}", ["an emptyDir"]),
        ("[]", "{name: s, emptyDir: {}}", ["an emptyDir"]),
        ("[{name: t, mountPath: /dev/shm/}]", "{name: t, emptyDir: {medium: Memory}}", []),
    ],
)
def test_shared_memory_that_is_not_mounted(mounts: str, volume: str, fix: list[str]) -> None:
    text = POD.replace("[{name: shm, mountPath: /dev/shm}]", mounts)
    text = text.replace("{name: shm, emptyDir: {medium: Memory}}", volume)
    found = [one.fix for one in judge_manifests(documents_of(text, "a")) if one.id == "pod-shm"]
    assert [part in one for one in found for part in fix or [""]] == [True] * len(fix)


def test_claims_of_a_stateful_set_are_volumes() -> None:
    claims = "spec: {volumeClaimTemplates: [{metadata: {name: b}}], t"
    text = JOB.replace("kind: Job", "kind: StatefulSet").replace("spec: {t", claims)
    text = text.replace("image: x", "image: x, volumeMounts: [{name: b, mountPath: /b}]")
    assert "pod-volume" not in _ids(text)
    assert "pod-volume" in _ids(text.replace("[{name: b", "[{name: c"))


@pytest.mark.parametrize("value", ["$PATH", "$(PATH)", "${PATH}"])
def test_a_value_that_stays_is_quoted_as_it_is_written(value: str) -> None:
    text = PYTORCHJOB.replace(GPUS, GPUS + PATHS.format(f"{value}:/a"))
    said = {one.message for one in judge_manifests(documents_of(text, "a"))}
    assert any(f"does not replace {value} in the value of PATH" in one for one in said)


@pytest.mark.parametrize(
    ("command", "slots", "fix"),
    [
        ("[mpirun, python, a.py]", 4, "write slotsPerWorker: 8"),
        ("[mpirun, -np, '8', python3, a.py]", 4, "write slotsPerWorker: 8"),
        ("[sh, -c, 'cd /w && mpiexec -x A=b python a.py']", 1, "write slotsPerWorker: 8"),
        *(
            (f"[mpirun, {words}]", 1, None)
            for words in ("torchrun, a.py", "-ppn, '8', python, a.py")
        ),
        ("[mpirun, python, -m, torch.distributed.run, a.py]", 1, None),
        ("[mpirun, bash, -c, 'accelerate launch a.py']", 1, None),
        ("[mpirun, ./a.out]", 1, None),
        ("[mpirun, python, a.py]", 8, None),
    ],
)
def test_slots_for_a_program_that_is_not_followed(
    command: str, slots: int, fix: str | None
) -> None:
    text = MPIJOB.replace('[mpirun, --allow-run-as-root, -np, "16", --bind-to, none]', command)
    text = re.sub(r" *args:.*\n", "", text.replace("slotsPerWorker: 8", f"slotsPerWorker: {slots}"))
    found = [one for one in judge_manifests(documents_of(text, "a")) if one.id == "idle-gpus"]
    assert [(one.severity, one.fix) for one in found] == ([(Severity.NOTE, fix)] if fix else [])


@pytest.mark.parametrize(
    ("kind", "spec", "found"),
    [
        ("InferenceService", "{predictor: {model: {args: [-tp=4], " + LIMITS, ["too-many-gpus"]),
        ("InferenceService", "{predictor: {model: {args: [-tp=2], " + LIMITS, []),
        ("InferenceService", "{predictor: {workerSpec: {}, model: {args: [-tp=4], " + LIMITS, []),
        ("TrainJob", "{trainer: {env: [{name: NCCL_SOCKET_IFNAME, value: ib0}]}}",
         ["pod-interface"]),
        ("TrainJob", "{trainer: {env: [{name: NCCL_SOCKET_IFNAME, value: eth0}]}}", []),
    ],
)  # fmt: skip
def test_fields_of_kinds_whose_pods_others_complete(kind: str, spec: str, found: list[str]) -> None:
    documents = documents_of(f"apiVersion: a/v1\nkind: {kind}\nspec: {spec}\n", "a.yaml")
    assert [one.id for one in judge_manifests(documents)] == found


def test_nics_without_a_device_of_the_pod_are_noted() -> None:
    text = MPIJOB.replace("NCCL_DEBUG=INFO", "NCCL_IB_HCA=mlx5")
    texts = [
        *(text, text.replace("nvidia.com/gpu: 8", DEVICES), text.replace("=mlx5", "=^mlx5")),
        *(text.replace("replicas: 2", "replicas: 1"), text.replace("NCCL_IB", "NCCL_NET=IB")),
        text.replace("{name: test}", "{annotations: {k8s.v1.cni.cncf.io/networks: a}}"),
        text.replace("{name: test}", "{annotations: {a/distributed: evening}, labels: {b: ib}}"),
    ]
    found = [[one.id for one in judge_manifests(documents_of(one, "a"))] for one in texts]
    assert found == [["pod-rdma"], [], [], [], [], [], ["pod-rdma"]]


def test_a_pod_without_a_launcher_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    for program, said in (
        ("python", "Master: python starts one process, and the pod has 8 GPUs"),
        ("./start", "the fields of 2 pods with GPUs were checked alone"),
    ):
        path.write_text(PYTORCHJOB.replace("torchrun, --nnodes=2, --nproc-per-node=8", program))
        assert run(["lint", str(path)]) == 0
        assert said in capsys.readouterr().out
    path.write_text(text := path.read_text().replace("./start", "python3"))
    path.write_text(text.replace("spec:", "spec:\n  nprocPerNode: auto", 1))
    assert run(["lint", str(path)]) == 1
    assert "8 GPUs: nprocPerNode starts nothing" in capsys.readouterr().out
    path.write_text(text.replace(GPUS, ""))
    assert run(["lint", str(path)]) == 1
    assert "nvidia.com/gpu" in capsys.readouterr().out


def test_aliases_that_stand_for_too_much() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 12):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        levels.append(f"a{level}: &a{level} [{aliases}]")
    with pytest.raises(InputError, match="aliases"):
        documents_of("apiVersion: v1\nkind: Pod\n" + "\n".join(levels), "job.yaml")


def test_values_that_contain_themselves() -> None:
    with pytest.raises(InputError, match="refers to what it is part of"):
        documents_of("apiVersion: v1\nkind: Pod\nspec: &a [*a]\n", "job.yaml")


@pytest.mark.parametrize(
    ("resource", "gpus"),
    [
        ("nvidia.com/gpu", 8),
        ("nvidia.com/gpu.shared", 8),
        ("nvidia.com/mig-1g.10gb", 8),
        ("gpu.nvidia.com/h100", 8),
        ("amd.com/gpu", 8),
        ("gpu.intel.com/xe", 8),
        ("nvidia.com/rdma-vf", 0),
        ("nvidia.com/hostdev", 0),
        ("nvidia.com/mlnxnics", 0),
        ("nvidia.com/gpumem", 0),
        ("nvidia.com/sriov_rdma", 0),
        ("rdma/ib", 0),
        ("vpc.amazonaws.com/efa", 0),
    ],
)
def test_which_resources_are_gpus(resource: str, gpus: int) -> None:
    assert gpus_of({"resources": {"limits": {resource: 8}}}) == gpus


def test_kubernetes_replaces_variables_of_a_command() -> None:
    text = MPIJOB.replace('-np, "16"', "-np, $(NP)").replace(
        "image: nccl-tests\n            command",
        'image: t\n            env: [{name: NP, value: "16"}]\n            command',
    )
    (found,) = from_manifests(documents_of(text, "job.yaml"), LaunchContext(), "job.yaml")
    ((prediction, _),) = check(found.line, found.site).predictions
    assert prediction.placement.processes == 16


@pytest.mark.parametrize("slots", ["eight", '"8"', "-8"])
def test_slots_that_are_no_number_are_one_finding(slots: str) -> None:
    text = MPIJOB.replace("slotsPerWorker: 8", f"slotsPerWorker: {slots}")
    documents = documents_of(text, "job.yaml")
    (finding,) = judge_manifests(documents)
    assert finding.id == "manifest"
    (found,) = from_manifests(documents, LaunchContext(), "job.yaml")
    assert not check(found.line, found.site).is_wrong


def test_an_mpi_job_whose_processes_fit_its_gpus_lacks_slots() -> None:
    text = MPIJOB.replace("slotsPerWorker: 8", "slotsPerWorker: 1")
    (found,) = from_manifests(documents_of(text, "job.yaml"), LaunchContext(), "job.yaml")
    judged = check(found.line, found.site)
    assert [held.finding.fix for held in judged.findings][:1] == ["write slotsPerWorker: 8"]
    assert judged.fixed is None


def test_a_template_of_a_number_of_gpus_is_no_fault() -> None:
    text = MPIJOB.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: $GPUS")
    (finding,) = judge_manifests(documents_of(text, "job.yaml"))
    assert finding.message == "MPIJob: $GPUS is not filled in: its fields were not checked"


def test_jobs_in_a_config_map_are_manifests() -> None:
    lines = "\n".join(f"    {line}" for line in MPIJOB.splitlines())
    text = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata:\n  job.yaml: |\n{lines}\n"
    )
    (found,) = from_manifests(documents_of(text, "m.yaml"), LaunchContext(), "m.yaml")
    placement = check(found.line, found.site).predictions[0][0].placement
    assert [node.processes for node in placement.nodes] == [8, 8]


TEMPLATE = """
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: {{ include "t.fullname" . }}-x
  labels:
  {{- include "t.labels" . | nindent 4 }}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - command: ["/bin/bash", "-c"]
            args: ['mpirun -np {{ mul .Values.n 8 }} -x NCCL_ALG=Ring all_reduce_perf -b 8 -e 8G']
    Worker:
      replicas: {{ .Values.n }}
      template:
        spec:
          {{- with .Values.selector }}
          nodeSelector: {{- toYaml . | nindent 12 }}
          {{- end }}
          {%- if tolerations %}
          tolerations:
          - {{- if .key }}
            key: {{ .key }}
          containers:
          - image: {{ .Values.image | quote }}
            resources: {limits: {nvidia.com/gpu: 8}}
"""


def test_a_template_is_read_with_unknown_values(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(TEMPLATE)
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [finding.id for finding in launch.findings] == ["template"]
    (judged,) = launch.commands
    (prediction, _) = judged.predictions[0]
    assert prediction.unknown == "the number of processes is '${mul_.Values.n_8}'"
    assert judged.findings[0].finding.id == "variable-unknown"
    assert judged.fixed is None


def test_a_kustomization_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kustomization.yaml"
    path.write_text("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n")
    with pytest.raises(InputError, match="is a kustomization"):
        lint(LintRequest([str(path)]))


def _indented(text: str, margin: str) -> str:
    return "".join(f"{margin}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "page",
    [
        f"# Run\n- Apply `kind: MPIJob`:\n```yaml\n{MPIJOB}```\n```\nkubectl get pods\n```\n",
        f"1. Create it:\n\n    ~~~\n{_indented(MPIJOB, '    ')}    ~~~\n\n2. Apply: it runs.\n",
        f"Create it::\n\n  .. code-block:: yaml\n\n{_indented(MPIJOB, '     ')}\nThen: wait.\n",
        f"> I use this: a job\n>\n{_indented(MPIJOB, '> ')}>\n> and it hangs: why?\n",
        f"#!/bin/bash\nset -e: x\nkubectl apply -f - <<EOF\n{MPIJOB}EOF\nkubectl get pods\n",
        f"Our job: {{}}\n```\n{MPIJOB}---\n{MPIJOB}```\n",
        f"Job: a\n{MPIJOB}\nIt hangs: why?\n",
    ],
)
def test_manifests_inside_a_page_or_a_script_are_read(tmp_path: Path, page: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(page.replace("NCCL_DEBUG=INFO", "NCCL_ALG=Ring").replace("/dev/shm", "/dev/s"))
    (launch,) = lint(LintRequest([str(path)])).launches
    placements = [command.predictions[0][0].placement for command in launch.commands]
    assert [place.processes if place else None for place in placements] == [16]
    assert [one.finding.id for one in launch.commands[0].findings] == ["variable-unknown"]
    assert {finding.id for finding in launch.findings} == {"pod-shm"}


def test_commands_beside_the_manifests_of_a_page_are_read(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        f"Apply: this\n```\n{MPIJOB}```\nor run\n```\nsrun -n 4 all_reduce_perf -b 8\n```\n"
    )
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [one.command.launcher.text for one in launch.commands] == ["mpirun", "srun"]


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("MPIJob", "mpiReplicaSpecs.Worker.template.spec.containers"),
        ("MPIJob", "mpiReplicaSpecs.Launcher.template.spec.containers"),
        ("PyTorchJob", "pytorchReplicaSpecs.Worker.template.spec.containers"),
        ("Deployment", "template.spec.containers"),
        ("StatefulSet", "template.spec.containers"),
        ("Job", "template.spec.containers"),
        ("Pod", "containers"),
    ],
)
def test_what_a_patch_lacks_is_no_fault(tmp_path: Path, kind: str, place: str) -> None:
    path = tmp_path / "patch.yaml"
    spec = "[{resources: {limits: {nvidia.com/gpu: 8}}, env: [{name: NCCL_ALG, value: Ring}]}]"
    for name in reversed(place.split(".")):
        spec = f"{{{name}: {spec}}}"
    path.write_text(f"apiVersion: v1\nkind: {kind}\nspec: {spec}\n")
    (launch,) = lint(LintRequest([str(path)])).launches
    ids = [finding.id for finding in launch.findings]
    assert ids == ["manifest-patch", "variable-unknown", "settings-alone"]


@pytest.mark.parametrize(
    ("elastic", "command", "processes", "unknown"),
    [
        ("", "[torchrun, train.py]", 16, None),
        ("  nprocPerNode: '4'\n", "[torchrun, train.py]", 8, None),
        ("", "[torchrun, --nproc-per-node=2, train.py]", 4, None),
        ("  elasticPolicy: {minReplicas: 2, maxReplicas: 2}\n", "[torchrun, train.py]", 16, None),
        ("  elasticPolicy: {maxReplicas: 8}\n", "[torchrun, train.py]", None, "2 to 8 nodes"),
        ("  elasticPolicy: {minReplicas: 1, maxReplicas: 8}\n", "[bash, -c, 'torchrun t.py']", None,
         "1 to 8 nodes (an elastic job), 8 on each"),
    ],
)  # fmt: skip
def test_the_operator_gives_torchrun_its_nodes(
    elastic: str, command: str, processes: int | None, unknown: str | None
) -> None:
    text = PYTORCHJOB.replace("[torchrun, --nnodes=2, --nproc-per-node=8, train.py]", command)
    text = text.replace("  pytorchReplicaSpecs", f"{elastic}  pytorchReplicaSpecs")
    documents = documents_of(text, "job.yaml")
    for found in from_manifests(documents, LaunchContext(), "job.yaml"):
        checked = check(found.line, found.site)
        (prediction, _) = checked.predictions[0]
        placement = prediction.placement
        assert (placement.processes if placement is not None else None) == processes
        assert (prediction.unknown or "").startswith(unknown or "")
        assert not checked.is_wrong


def test_variables_of_torchrun_stand_for_its_options() -> None:
    line = "PET_NNODES=2 PET_NPROC_PER_NODE=4 torchrun --rdzv-backend=c10d --rdzv-endpoint=a:1 t.py"
    (launch,) = lint(LintRequest([line])).launches
    placement = launch.commands[0].predictions[0][0].placement
    assert [node.processes for node in placement.nodes] == [4, 4]


@pytest.mark.parametrize("margin", ["", "    "])
def test_a_manifest_that_cannot_be_read_hides_no_command_of_a_page(
    tmp_path: Path, margin: str
) -> None:
    broken = f"{margin}kind: Pod\n{margin}apiVersion: v1\n{margin}spec: {{a: [\n"
    path = tmp_path / "page.md"
    path.write_text(
        f"# A: b\n```\n{broken}```\nor: run\n```\nsrun -n 4 all_reduce_perf -b 8\n```\n"
    )
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [one.command.launcher.text for one in launch.commands] == ["srun"]
    path.write_text(f"# A comment\n---\n{broken}")
    with pytest.raises(InputError, match="is not YAML"):
        lint(LintRequest([str(path)]))


@pytest.mark.parametrize("role", ["Master", "Worker"])
def test_the_gpus_of_each_role_of_a_job_are_its_own(tmp_path: Path, role: str) -> None:
    own, path = PYTORCHJOB.partition("        spec:\n          cont"), tmp_path / "job.yaml"
    pod = "".join(own[1:]).partition("    Worker:")[0]
    text = PYTORCHJOB.replace("&pod", "").replace("template: *pod", f"template:\n{pod}")
    head, sign, tail = text.partition("    Worker:")
    parts = {"Master": head, "Worker": tail}
    parts[role] = parts[role].replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 4")
    path.write_text(f"{parts['Master']}{sign}{parts['Worker']}")
    (launch,) = lint(LintRequest([str(path)])).launches
    said = [one.finding.message for check in launch.commands for one in check.findings]
    assert [text.partition("; ")[2] for text in said] == [
        f"the node has 4 (the limit of the {role}'s container)"
    ]


@pytest.mark.parametrize("given", [None, 8])
def test_the_gpus_of_a_container_are_of_its_manifest(tmp_path: Path, given: int | None) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(PYTORCHJOB.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 4"))
    (launch,) = lint(LintRequest([str(path)], gpus=given)).launches
    said = [one.finding.message for check in launch.commands for one in check.findings]
    assert [text for text in said if text.endswith("the node has 4 (the container's limit)")]
    assert not [text for text in said if "--gpus" in text]
    path.write_text(MPIJOB.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 4"))
    (launch,) = lint(LintRequest([str(path)], gpus=given)).launches
    fixes = [one.finding.fix for check in launch.commands for one in check.findings]
    assert any(fix.endswith("or raise the limit to 8 GPUs") for fix in fixes)


@pytest.mark.parametrize("shell", ["-cx", "-cex", "-xc", "-euxo, pipefail, -c", "-c, -x, --"])
def test_a_script_is_found_behind_any_options_of_its_shell(shell: str) -> None:
    (found,) = from_manifests(
        documents_of(POD.replace("sh, -c,", f"bash, {shell},"), ""), LaunchContext(), ""
    )
    assert found.line.words[0].text == "./all_reduce_perf"
    options = shell.replace(",", "")
    line = f"docker run --gpus all --shm-size=8g img bash {options} 'mpirun -np 16 all_reduce_perf'"
    (check,) = lint(LintRequest([line], nodes=2)).launches[0].commands
    assert [one.processes for p, _ in check.predictions if (one := p.placement)] == [16]
    inner = f"srun -N 2 bash {options} 'torchrun --nnodes=2 --nproc-per-node=8 t.py'"
    (check,) = lint(LintRequest([inner])).launches[0].commands
    assert [p.inner.each for p, _ in check.predictions if p.inner is not None] == [8]
