# SPDX-License-Identifier: Apache-2.0
"""Options of srun, whose `mpiexec` a line is for, and settings of libfabric."""

import re

import pytest

from nccltune.launch.flavor import Flavor
from nccltune.launch_lint.check import LaunchCheck, check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.options import HYDRA, INTEL, OPENMPI_4, OPENMPI_5, SLURM, TABLES
from nccltune.launch_lint.source import from_text
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from tests.unit.launch_lint.judged import ids, only

REST = "all_reduce_perf -b 1G -e 8G -f 2 -g 1"
SRUN = "srun -N 2 --ntasks-per-node=8 --gpus-per-node=8"


@pytest.mark.parametrize(
    "option",
    [
        "--container-save=x",
        "--container-readonly",
        "--container-entrypoint",
        "--no-container-entrypoint",
        "--no-container-remap-root",
        "--container-image nvcr.io#nvidia/pytorch:26.01-py3",
        "--tres-bind=gres/gpu:none",
        "--segment=16",
        "--resv-ports",
        "--resv-ports=4",
        "--exclusive=user",
        "-K1",
        "-I30",
        "-K",
        "--kill-on-bad-exit=1",
        "--wait-for-children",
        "--tasks-per-node 8",
        "--cpu-bin=none",
        "--het-group=0",
        "-pgpu",
    ],
)
def test_options_of_slurm_and_pyxis_have_no_finding(option: str) -> None:
    judged = only(f"{SRUN} {option} {REST}")
    assert judged.findings == ()
    ((prediction, _),) = judged.predictions
    assert prediction.placement.processes == 16
    name = option.split()[0].partition("=")[0]
    if name.startswith("--"):
        assert ids(only(f"#SBATCH {option}\n{SRUN} {REST}")) <= {"batch-container"}


@pytest.mark.parametrize(
    ("option", "near"),
    [
        ("--made-up", None),
        ("--made-up=3", None),
        ("--made-up 3", None),
        ("--no-cpu-bind", None),
        ("--ntask-per-node=8", "--ntasks-per-node"),
    ],
)
@pytest.mark.parametrize("where", ["srun", "sbatch"])
def test_an_unknown_long_option_is_a_note_without_a_fix(
    option: str, near: str | None, where: str
) -> None:
    text = f"{SRUN} {option} {REST}" if where == "srun" else f"#SBATCH {option}\n{SRUN} {REST}"
    judged = only(text)
    (held,) = judged.findings
    assert held.finding.severity is Severity.NOTE
    assert held.finding.id == "option-unlisted"
    assert "a SPANK plugin may add it" in held.finding.message
    assert held.finding.fix == ""
    assert judged.fixed is None
    assert ("The nearest known name" in held.finding.message) == (near is not None)
    assert judged.predictions[0][0].placement is not None


@pytest.mark.parametrize(
    "option", ["-ppn 8", "--map-by ppr:8:node", "-Y", "--allow-run-as-root", "-genv A b"]
)
def test_an_option_of_another_launcher_is_an_error(option: str) -> None:
    judged = only(f"{SRUN} {option} {REST}")
    assert "option-unknown" in {held.finding.id for held in judged.findings}


def test_every_name_is_written_once_and_with_its_words() -> None:
    for table in TABLES.values():
        assert all(name and not name.startswith("-") for name in table)
    assert TABLES[SLURM]["container-mounts"].words == 1
    assert TABLES[SLURM]["exclusive"].is_optional
    assert TABLES[SLURM]["tasks-per-node"].meaning == "per_node"


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("srun -N 1 -n 8 --mpi=pmix --gpus-per-task=1", 8),
        ("srun -N 2 --ntasks-per-node=4 --gpus-per-task=a100:1", 4),
        ("srun -N 2 --ntasks-per-node=8 --gpus-per-node=8 --gpu-bind=single:1", 8),
        ("#SBATCH --gpus-per-task=1\nsrun -N 2 --ntasks-per-node=8", 8),
    ],
)
def test_a_process_that_sees_its_own_gpu_only_is_noted(command: str, gpus: int) -> None:
    judged = only(f"{command} {REST}")
    (held,) = [one for one in judged.findings if one.finding.id == "task-gpus-bound"]
    assert held.finding.severity is Severity.WARNING
    assert f"--gpus-per-node={gpus} --gpu-bind=none" in held.finding.fix
    assert not only(f"{command} --gpu-bind=none {REST}").findings
    if judged.fixed is not None:
        assert not only(judged.fixed).is_wrong
    assert (judged.fixed is None) is command.startswith("#SBATCH")
    for text in (f"export NCCL_TESTS_DEVICE=0\n{command} {REST}", f"{command} ./wrap {REST}"):
        assert not only(text).is_wrong


@pytest.mark.parametrize("where", ["srun", "sbatch"])
def test_an_image_has_its_own_paths(where: str) -> None:
    image = "--container-image=a#b"
    head, own = ("", image) if where == "srun" else (f"#SBATCH {image}\n", "")
    judged = only(f"{head}{SRUN} --export=NCCL_DEBUG=INFO {own} {REST}")
    (held,) = [one for one in judged.findings if one.finding.id == "export-drops"]
    assert held.finding.severity is Severity.NOTE
    assert "PATH" not in held.finding.message
    assert not judged.is_wrong


@pytest.mark.parametrize(
    ("options", "program", "lost"),
    [
        ("--export=A=1,M=$M", REST, ["NCCL_IB_HCA", "NCCL_NVLS_ENABLE"]),
        ("--export=M=$(hostname)", "bash -c 'python t.py'", ["NCCL_IB_HCA", "NCCL_NVLS_ENABLE"]),
        ("--export=A=1,NCCL_IB_HCA", "python t.py", ["NCCL_NVLS_ENABLE"]),
        ("--export=A=1", "env NCCL_IB_HCA=mlx5_1 python t.py", ["NCCL_NVLS_ENABLE"]),
        ("--export=A=1", "bash -c 'source e.sh; python t.py'", []),
        ("--export=ALL,M=$M", REST, None),
        ("--export=M=$(cut -d, -f1 h),A=1", REST, None),
        ("--export=A=1,$LIST", REST, None),
        ("--export=$LIST", REST, None),
        ("--export=A=<value>,ALL", REST, None),
    ],
)
@pytest.mark.parametrize("image", ["", "--container-image a#b"])
def test_variables_that_export_drops_are_named(
    options: str, program: str, lost: list[str] | None, image: str
) -> None:
    head = "export NCCL_IB_HCA=mlx5_0 NCCL_NVLS_ENABLE=0 CUDA_HOME=/c"
    judged = only(f'{head}\n{SRUN} {image} "{options}" {program}')
    found = [one.finding for one in judged.findings if one.finding.id == "export-drops"]
    assert len(found) == (lost is not None)
    for finding in found:
        assert finding.severity is (Severity.WARNING if lost or not image else Severity.NOTE)
        assert re.findall("NCCL_[A-Z_]+", finding.message.partition(": ")[2]) == lost
        assert finding.edits


@pytest.mark.parametrize(
    ("between", "is_lost"),
    [
        ("", True),
        ("export SLURM_EXPORT_ENV=ALL", False),
        ("unset SLURM_EXPORT_ENV", False),
        ("unset SLURM_MEM_PER_CPU", True),
    ],
)
def test_a_script_may_undo_the_export_of_sbatch(between: str, is_lost: bool) -> None:
    judged = only(f"#SBATCH --export=NONE\n{between}\n{SRUN} {REST}")
    assert ("export-drops" in {held.finding.id for held in judged.findings}) is is_lost


@pytest.mark.parametrize(
    ("head", "options", "program", "is_noted"),
    [
        ("", "--mpi=pmi2", REST, True),
        ("module load openmpi/5.0.3", "--mpi pmi2 --container-image=a#b", REST, True),
        ("module load intel-mpi", "--mpi=pmi2", REST, False),
        ("export I_MPI_PMI_LIBRARY=/l/libpmi2.so", "--mpi=pmi2", REST, False),
        ("", "--mpi=pmix", REST, False),
        ("", "--mpi=pmi2", "python t.py", False),
        ("", "--mpi=pmi2 -N 1 -n 1 --ntasks-per-node=1", REST, False),
    ],
)
def test_an_mpi_that_takes_pmix_alone(
    head: str, options: str, program: str, is_noted: bool
) -> None:
    judged = only(f"{head}\n{SRUN} {options} {program}")
    found = [h.finding.severity for h in judged.findings if h.finding.id == "mpi-type-old"]
    assert found == [Severity.NOTE] * is_noted


def test_an_unset_variable_is_not_set() -> None:
    text = f"export NCCL_ALG=x NCCL_PROTO=LL\nunset NCCL_ALG\n{SRUN} {REST}"
    (found,) = from_text(text, LaunchContext())
    assert found.site.exported == (("NCCL_PROTO", "LL"),)
    assert "variable-unknown" not in {held.finding.id for held in only(text).findings}


@pytest.mark.parametrize("value", ["^=mlx5_0,^=mlx5_1", "mlx5_0,mlx5_1", "=mlx5_0,=mlx5_1"])
def test_a_comma_ends_a_value_of_export(value: str) -> None:
    judged = only(f"{SRUN} --export=ALL,NCCL_IB_HCA={value} {REST}")
    assert "export-comma" in {held.finding.id for held in judged.findings}
    if judged.fixed is not None:
        assert not only(judged.fixed).is_wrong


TWO = "mpirun -np 16 -H a:8,b:8"
TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"


def with_options(options: str) -> LaunchCheck:
    return only(f"{TWO} {options} {TEST}")


@pytest.mark.parametrize(
    ("options", "kind", "fixed"),
    [
        ("-x FI_PROVIDER=sockets", "fi-provider", None),
        ("-x FI_PROVIDER=tcp -x FI_EFA_FORK_SAFE=1", "settings-contradict", "FI_EFA_FORK_SAFE"),
        ("-x FI_EFA_USE_DEVICE_RDMA=0", "setting-left-over", None),
        ("-x FI_EFA_USE_DEVICE_RDMA=1", "efa-not-needed", None),
        ("-x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1", "efa-not-needed", None),
        ("-x OFI_NCCL_PROTCOL=RDMA", "variable-unknown", "OFI_NCCL_PROTOCOL=RDMA"),
        ("-x OFI_NCCL_PROTOCOL=fast", "variable-value", None),
        ("-x UCX_NET_DEVICES=mlx5_0:1", "ucx-no-effect", None),
    ],
)
def test_a_setting_of_other_software(options: str, kind: str, fixed: str | None) -> None:
    judged = with_options(options)
    assert kind in [held.finding.id for held in judged.findings]
    assert (judged.fixed is None) == (fixed is None)
    assert fixed is None or fixed in (judged.fixed or "")


@pytest.mark.parametrize(
    "options",
    [
        "-x FI_PROVIDER=efa",
        "-x FI_PROVIDER=cxi",
        "-x OFI_NCCL_PROTOCOL=rdma -x OFI_NCCL_MADE_UP_LATER=1",
        "-x GLOO_SOCKET_IFNAME=eth0 -x NCCL_SOCKET_IFNAME=eth0",
        "-x RDMAV_FORK_SAFE=1",
        "-x HSA_NO_SCRATCH_RECLAIM=1 -x RCCL_MSCCL_ENABLE=0",
    ],
)
def test_right_settings_of_other_software(options: str) -> None:
    assert with_options(options).findings == ()


def test_variables_of_libfabric_and_rocm_before_mpirun_do_not_reach_other_nodes() -> None:
    for name in ("OFI_NCCL_PROTOCOL=RDMA", "HSA_NO_SCRATCH_RECLAIM=1", "RCCL_MSCCL_ENABLE=0"):
        judged = only(f"{name} {TWO} {TEST}")
        assert [held.finding.id for held in judged.findings] == ["env-not-exported"]


def test_a_resource_that_open_mpi_does_not_have_is_not_guessed() -> None:
    judged = with_options("--map-by ppr:1:gpu")
    assert "option-value" in [held.finding.id for held in judged.findings]
    assert judged.fixed is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("python -m bench --tests all_reduce_perf --nodes 2", "python -m bench"),
        ("cd /opt\n./run_nccl.sh --nodes 2", "./run_nccl.sh"),
        ("NCCL_DEBUG=INFO bash tests/run.sh 2", "tests/run.sh"),
        ("make -C nccl run\nsudo ./x.sh", "./x.sh"),
        ("ansible-playbook -i hosts nccl.yml", "nccl.yml"),
    ],
)
def test_what_was_not_followed_is_named(text: str, named: str) -> None:
    with pytest.raises(InputError, match="not followed") as raised:
        from_text(text, LaunchContext())
    assert named in raised.value.message


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("python -m bench --all", "python -m bench"),
        ("bash -c 'cd w && R=$RANK python3 t.py --c 7.yaml'", "t.py"),
        ("/bin/bash -lc './run.sh; true'", "./run.sh"),
        ("bash -c 'true'", None),
        ('bash -c "echo \'a"', None),
        ("./run.sh -c t.yaml", "./run.sh"),
    ],
)
def test_a_script_below_a_launcher_is_named(program: str, name: str | None) -> None:
    (held,) = only(f"{TWO} {program}").findings
    assert held.finding.message.startswith("what" if name is None else f"{name} was not followed")


TAIL = "all_reduce_perf -b 8 -e 1G -f 2 -g 1"
HOSTS = "-hosts a,b -n 16 -ppn 8"
PLAIN = "-n 8"


def verdict(line: str, *wanted: Flavor) -> LaunchCheck:
    (found,) = from_text(f"{line} {TAIL}", LaunchContext())
    return check(found.line, found.site, wanted)


def findings(line: str, *wanted: Flavor) -> dict[str, str]:
    return {
        held.finding.id: held.finding.severity.value for held in verdict(line, *wanted).findings
    }


@pytest.mark.parametrize(
    ("line", "flavor"),
    [
        (f"mpiexec.hydra {HOSTS}", HYDRA),
        (f"/opt/intel/oneapi/mpi/latest/bin/mpirun {HOSTS}", INTEL),
        (f"I_MPI_DEBUG=5 mpirun {HOSTS}", INTEL),
        (f"mpirun {HOSTS} -genv I_MPI_FABRICS shm:ofi", INTEL),
        ("mpirun -hosts a,b -n 16 -perhost 8", INTEL),
        (f"mpiexec.hydra {HOSTS} -topolib hwloc", HYDRA),
        (f"MPICH_GPU_SUPPORT_ENABLED=1 mpiexec {PLAIN}", HYDRA),
        (f"module load cuda cray-mpich\nmpiexec {PLAIN}", HYDRA),
        (f"ml load intel-mpi\nmpiexec {PLAIN}", INTEL),
    ],
)
def test_whose_line_it_is(line: str, flavor: Flavor) -> None:
    assert verdict(line).flavors == (flavor,)


@pytest.mark.parametrize(
    "sign", ["export OMPI_MCA_pml=ucx\n", "module load openmpi/5\n", "ml load hpcx openmpi\n"]
)
def test_a_line_of_open_mpi_by_its_signs(sign: str) -> None:
    assert verdict(f"{sign}mpiexec {PLAIN}").flavors == (OPENMPI_4, OPENMPI_5)
    # What shows two libraries shows neither.
    assert HYDRA in verdict(f"module load mpich\n{sign}mpiexec {PLAIN}").flavors


def test_bind_to_does_nothing_there() -> None:
    line = f"mpiexec.hydra {HOSTS} -bind-to none"
    assert findings(line) == {}
    assert findings(line, INTEL) == {"intel-bind-to": "warning"}
    fixed = verdict(line, INTEL).fixed
    assert fixed == f"mpiexec.hydra {HOSTS} -genv I_MPI_PIN off {TAIL}"
    assert findings(fixed.removesuffix(TAIL)) == {}


def test_its_pinning_is_worth_a_note() -> None:
    assert findings(f"mpiexec.hydra {HOSTS}", INTEL) == {"intel-pinning": "note"}
    assert findings("mpiexec.hydra -hosts a,b -n 2 -ppn 1", INTEL) == {}
    assert findings(f"I_MPI_PIN=off mpiexec.hydra {HOSTS}", INTEL) == {}


def test_an_option_that_it_lacks() -> None:
    assert findings(f"mpiexec.hydra {HOSTS} -topolib hwloc", INTEL)["option-unknown"] == "error"
    assert findings("mpiexec.hydra -hosts a,b -n 16 -N 8", INTEL)["hydra-N"] == "error"
    assert findings("mpiexec.hydra -hosts a,b -n 16 -perhost 8", HYDRA)["option-unknown"] == "error"


def test_without_ppn_its_placement_is_not_known() -> None:
    ((prediction, _),) = verdict("mpiexec.hydra -hosts a:8,b:8 -n 16", INTEL).predictions
    assert prediction.placement is None
    assert prediction.unknown is not None
    assert "set -ppn" in prediction.unknown
    ((one, _),) = verdict("mpiexec.hydra -hosts a -n 16", INTEL).predictions
    assert [node.processes for node in one.placement.nodes] == [16]
