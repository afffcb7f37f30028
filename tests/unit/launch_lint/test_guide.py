# SPDX-License-Identifier: Apache-2.0
"""The four commands of a guide, variants with one mistake each, and inputs of people."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintedLaunch, LintRequest, lint
from nccltune.cli import run
from nccltune.launch_lint.check import LaunchCheck
from nccltune.launch_lint.command import LaunchContext
from tests.unit.launch_lint.judged import bad, only

TWO = LaunchContext(nodes=2)
SIZES = "-b 1G -e 8G -f 2 -n 100"
COMMON = "mpirun --allow-run-as-root -x NCCL_DEBUG=INFO"
ONE_NODE = f"{COMMON} -N 1 -n 1 --bind-to none all_reduce_perf -b 8 -e 8G -f 2 -g 8"
NVLS = (
    f"{COMMON} -x NCCL_NVLS_ENABLE=1 -N 1 -n 2 --bind-to none all_reduce_perf -b 1G -e 1G -f 2 -g 8"
)
PER_GPU = f"{COMMON} -x NCCL_NVLS_ENABLE=0 -N 8 -n 16 all_reduce_perf {SIZES} -g 1"
NO_NVLS = f"{COMMON} -x NCCL_NVLS_ENABLE=0 -N 1 -n 2 --bind-to none all_reduce_perf {SIZES} -g 8"
HYDRA = f"mpiexec.hydra -genv NCCL_DEBUG INFO -n 16 -ppn 8 all_reduce_perf {SIZES} -g 1"
SRUN = f"srun -N 2 --ntasks-per-node=8 --mpi=pmix all_reduce_perf {SIZES} -g 1"
SRUN_PER_NODE = f"srun -N 2 --ntasks-per-node=1 -c 96 --cpu-bind=none all_reduce_perf {SIZES} -g 8"
ON_HOSTS = f"mpirun --host a:8,b:8 -N 8 -n 16 all_reduce_perf {SIZES} -g 1"


def verdict(text: str, site: LaunchContext = TWO) -> LaunchCheck:
    return only(text, site)


@pytest.mark.parametrize(
    ("text", "site", "processes", "ranks"),
    [
        (ONE_NODE, LaunchContext(nodes=1), 1, 8),
        (NVLS, TWO, 2, 16),
        (PER_GPU, TWO, 16, 16),
        (NO_NVLS, TWO, 2, 16),
        (NVLS, LaunchContext(), 2, 16),
        (PER_GPU, LaunchContext(), 16, 16),
        (HYDRA, TWO, 16, 16),
        (SRUN, TWO, 16, 16),
        (SRUN_PER_NODE, TWO, 2, 16),
        (ON_HOSTS, LaunchContext(), 16, 16),
        (f"{NVLS} | tee out.txt", TWO, 2, 16),
        (NVLS.replace("mpirun", "mpirun -mca btl_openib_allow_ib 1 -mca pml ob1"), TWO, 2, 16),
    ],
)
def test_the_right_ones_have_no_findings(
    text: str, site: LaunchContext, processes: int, ranks: int
) -> None:
    judged = verdict(text, site)
    assert bad(judged) == set()
    assert not judged.is_wrong
    assert judged.fixed is None
    for prediction, _ in judged.predictions:
        assert (prediction.placement.processes, prediction.placement.ranks) == (processes, ranks)


def test_the_guides_third_command_starts_two_processes_on_one_node() -> None:
    guide = PER_GPU.replace("-n 16", "-n 2").replace("-e 8G", "-e 10G")
    judged = verdict(guide)
    ((prediction, _),) = judged.predictions
    assert [node.processes for node in prediction.placement.nodes] == [2]
    assert bad(judged) == {"total-below-per-node", "end-not-reached"}
    assert judged.fixed == PER_GPU


CONTROL = (
    "mpirun --allow-run-as-root -report-bindings -mca btl_openib_allow_ib 1 -mca pml ob1"
    " -mca btl_base_verbose 100 -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_DEBUG=INFO"
    " -x NCCL_IB_PCI_RELAXED_ORDERING=1 -x NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml"
    " -x CUDA_DEVICE_ORDER=PCI_BUS_ID"
)
LONG = [
    (f"{CONTROL} -N 1 -n 1 --bind-to none ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 8",
     8, set()),
    (f"{CONTROL} -x NCCL_NVLS_ENABLE=1 -N 8 -n 16 --map-by ppr:8:node ./build/all_reduce_perf"
     " -b 1G -e 8G -f 2 -n 100 -g 1", 16, set()),
    (f"{CONTROL} -x NCCL_NVLS_ENABLE=0 -N 8 -n 2 ./build/all_reduce_perf -b 1G -e 8G -f 2 -n 100"
     " -g 1", 2, {"total-below-per-node"}),
    (f"{CONTROL} -x NCCL_NVLS_ENABLE=0 -n 16 --map-by ppr:8:node ./build/all_reduce_perf -b 1G"
     " -e 10G -f 2 -g 1", 16, {"end-not-reached"}),
]  # fmt: skip


@pytest.mark.parametrize("block", [False, True], ids=["line", "block"])
@pytest.mark.parametrize(("text", "ranks", "expected"), LONG, ids=range(len(LONG)))
def test_a_command_longer_than_a_file_name(
    text: str, ranks: int, expected: set[str], *, block: bool
) -> None:
    assert len(text) > 300
    if block:
        text = text.replace(" -x", " \\\n    -x").replace(" ./", " \\\n    ./")
    (launch,) = lint(LintRequest([text], nodes=1 if ranks == 8 else 2)).launches
    (judged,) = launch.commands
    assert bad(judged) == expected
    ((prediction, _),) = judged.predictions
    assert prediction.placement.ranks == ranks
    assert (judged.fixed is not None) == bool(expected)


SWAPS = [
    (PER_GPU, "-N 8 -n 16", "--map-by ppr:8:node -n 2", "total-below-per-node"),
    (PER_GPU, "-n 16", "-n 32", "too-few-slots"),
    (PER_GPU, "-n 16", "-n 12", "uneven-nodes"),
    (PER_GPU, "-n 16", "-n 8", "idle-nodes"),
    (PER_GPU, "-g 1", "-g 8", "too-many-gpus"),
    (PER_GPU, "-g 1", "-t 2 -g 1", "too-many-gpus"),
    (PER_GPU, "-f 2", "-f 1.5", "factor-not-whole"),
    (PER_GPU, "-b 1G -e 8G", "-b 8G -e 1G", "sizes-backwards"),
    (PER_GPU, "-b 1G", "-b 2", "size-below-8"),
    (PER_GPU, "-b 1G", "-b 1X", "size-unreadable"),
    (PER_GPU, "-b 1G -e 8G", "-b 64M", "sizes-backwards"),
    (PER_GPU, "-g 1", "-g 1 -J out.txt", "json-name"),
    (PER_GPU, "-g 1", "-g 1 -q", "argument-unknown"),
    (PER_GPU, "-g 1", "-g 1 --iterations 5", "argument-unknown"),
    (PER_GPU, "-n 100", "-n many", "argument-not-a-number"),
    (PER_GPU, "-N 8", "-ppn 8", "option-unknown"),
    (PER_GPU, "-x NCCL_DEBUG=INFO", "-genv NCCL_DEBUG INFO", "option-unknown"),
    (PER_GPU, "-N 8", "-x NCCL_NVLS_ENABLE=1 -N 8", "env-twice"),
    (PER_GPU, "-N 8", "-x NCCL_IB_DISABLE=1 -x NCCL_IB_HCA=mlx5 -N 8", "settings-contradict"),
    (PER_GPU, "-N 8", "-x NCCL_ALGO=Ring -x NCCL_TUNER_PLUGIN=t.so -N 8", "settings-contradict"),
    (PER_GPU, "mpirun", "NCCL_SOCKET_IFNAME=eth0 mpirun", "env-not-exported"),
    (PER_GPU, "mpirun", "export NCCL_IB_HCA=mlx5\nmpirun", "env-not-exported"),
    (NVLS, "--bind-to none", "", "default-binding"),
    (NVLS, "--bind-to none", "--bind-to core", "default-binding"),
    (NVLS, "-n 2", "-n 1", "idle-nodes"),
    (NVLS, "-N 1 -n 2", "-N 8 -n 16", "too-many-gpus"),
    (NVLS, "-g 8", "-g 16", "too-many-gpus"),
    (NO_NVLS, "-N 1", "-x NCCL_ALGO=NVLSTree -N 1", "settings-contradict"),
    (ONE_NODE, "-g 8", "-g 1", "one-rank"),
    (ON_HOSTS, "a:8,b:8", "a,b", "too-few-slots"),
    (ON_HOSTS, "-N 8 -n 16", "-n 8", "idle-nodes"),
    (HYDRA, "-ppn 8", "-N 8", "hydra-N"),
    (HYDRA, "-genv NCCL_DEBUG INFO", "-x NCCL_DEBUG=INFO", "option-unknown"),
    (HYDRA, "-genv", "--allow-run-as-root -genv", "option-unknown"),
    (HYDRA, "-n 16", "-n 32", "hydra-wraps"),
    (HYDRA, "-n 16", "-n 2", "total-below-per-node"),
    (HYDRA, "mpiexec.hydra", "NCCL_IB_HCA=mlx5 mpiexec.hydra -genvnone", "env-not-exported"),
    (SRUN, "-N 2 --ntasks-per-node=8", "-N 8 -n 2", "srun-N-is-nodes"),
    (SRUN, "-N 2 --ntasks-per-node=8", "-N 2 -n 24 --ntasks-per-node=8",
     "srun-per-node-forgotten"),
    (SRUN, "-N 2", "-x NCCL_DEBUG=INFO -N 2", "srun-x"),
    (SRUN, "--mpi=pmix", "-ppn 8", "option-unknown"),
    (SRUN, "--mpi=pmix", "-mpi=pmix", "srun-one-dash"),
    (SRUN, "srun", "NCCL_IB_HCA=mlx5 srun --export=NONE", "export-drops"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "old", "new", "expected"), SWAPS)
def test_one_mistake_is_found_and_fixed(right: str, old: str, new: str, expected: str) -> None:
    assert old in right
    site = {ONE_NODE: LaunchContext(nodes=1), ON_HOSTS: LaunchContext()}.get(right, TWO)
    judged = verdict(right.replace(old, new, 1), site)
    assert expected in bad(judged)
    if judged.fixed is None:
        assert expected in ("size-unreadable", "one-rank")
        return
    again = verdict(judged.fixed, site)
    assert bad(again) == set(), judged.fixed


def test_each_variant_has_one_mistake_only() -> None:
    more = {
        (old, new): bad(verdict(right.replace(old, new, 1)))
        for right, old, new, _ in SWAPS
        if right in (PER_GPU, NO_NVLS)
    }
    several = {swap: found for swap, found in more.items() if len(found) > 1}
    # Below 8 bytes the end is not reached by doubling either.
    assert set(several) <= {("-b 1G", "-b 2"), ("-n 16", "-n 8")}


def test_a_value_that_would_be_the_program() -> None:
    judged = verdict(PER_GPU.replace("-N 8 -n 16", "-N 8 -n 16 -x NCCL_DEBUG_SUBSYS INIT"))
    assert bad(judged) == {"value-as-program"}
    assert judged.fixed is not None
    assert "-x NCCL_DEBUG_SUBSYS=INIT all_reduce_perf" in judged.fixed


def test_memory_of_a_gpu() -> None:
    judged = verdict(
        PER_GPU.replace("-e 8G", "-e 32G"), LaunchContext(nodes=2, gpu_memory=80 << 30)
    )
    assert bad(judged) == {"beyond-memory"}
    assert judged.fixed == PER_GPU.replace("-e 8G", "-e 16G")


def test_a_line_that_only_one_version_takes_is_for_that_version() -> None:
    judged = verdict(PER_GPU.replace("-N 8", "--output tag -N 8"))
    assert [flavor.words for flavor in judged.flavors] == ["Open MPI 5.0"]
    assert not judged.is_wrong
    assert "option-of-one-version" in {held.finding.id for held in judged.findings}


def test_tasks_without_a_share_of_each_node_are_noted() -> None:
    def notes(text: str) -> set[str]:
        judged = verdict(text, TWO)
        assert not judged.is_wrong
        return {held.finding.id for held in judged.findings}

    assert notes(SRUN.replace("--ntasks-per-node=8", "-n 16")) >= {"srun-per-node-unsaid"}
    assert "srun-per-node-unsaid" not in notes(SRUN)
    assert "check-off" in notes(f"{SRUN} -c 0")


FIELD = Path(__file__).parents[2] / "data" / "field"


def linted(name: str) -> LintedLaunch:
    (launch,) = lint(LintRequest([str(FIELD / name)])).launches
    return launch


def ranks(launch: LintedLaunch) -> int:
    (judged,) = launch.commands
    ((prediction, _),) = judged.predictions
    assert prediction.placement is not None
    return prediction.placement.ranks


def test_options_of_pyxis_are_right() -> None:
    launch = linted("log-14-pyxis-options/job.sbatch")
    assert not launch.is_bad
    assert launch.commands[0].findings == ()
    assert ranks(launch) == 16


def test_a_fixed_line_does_not_quote_a_substitution() -> None:
    (judged,) = linted("log-15-fixed-line-quotes-a-substitution/job.sbatch").commands
    assert [held.finding.id for held in judged.findings] == ["end-not-reached"]
    assert judged.fixed == (
        'srun --mpi=pmix --container-image="$IMG" /opt/nccl_tests/build/all_reduce_perf'
        " -b 1G -e 8G -f 2 -g 1"
    )


def test_nics_are_no_gpus() -> None:
    launch = linted("log-16-nic-resource-counted-as-gpu/mpijob.yaml")
    assert not launch.is_bad
    assert launch.findings == []
    assert ranks(launch) == 16


def test_the_number_of_ranks_from_the_operators_hostfile() -> None:
    launch = linted("log-24-number-of-ranks-in-the-shell/mpijob.yaml")
    assert not launch.is_bad
    assert ranks(launch) == 16
    (prediction, _) = launch.commands[0].predictions[0]
    assert prediction.assumed == "/etc/mpi/hostfile has a line for each of 2 workers"


def test_signs_within_a_list_of_devices_and_a_slash_before_a_port() -> None:
    folder = FIELD / "log-18-hca-list-with-two-carets"
    for name, right in (
        ("command.txt", "NCCL_IB_HCA='^=mlx5_8,mlx5_14' srun"),
        ("command2.txt", "-x NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 all_reduce_perf"),
    ):
        (launch,) = lint(LintRequest([(folder / name).read_text()])).launches
        (judged,) = launch.commands
        assert [held.finding.id for held in judged.findings] == ["hca"]
        assert judged.fixed is not None
        assert right in judged.fixed


def test_a_tuner_file_of_a_spreadsheet(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIELD / "log-23-excel-tuner-file" / "tuner.conf")
    (configuration,) = lint(LintRequest([path])).configurations
    (issue,) = configuration.issues
    assert "columns are separated by semicolons; commas are needed" in issue.message
    assert run(["lint", path]) == 1
    assert run(["explain", path, "--nodes", "2", "--ranks", "16"]) == 2
    assert "semicolons" in capsys.readouterr().err
