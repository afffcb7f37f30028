# SPDX-License-Identifier: Apache-2.0
"""Whose `mpiexec` a line is for, and Intel MPI's hydra where it is not MPICH's."""

import pytest

from nccltune.launch.flavor import Flavor
from nccltune.launch_lint.check import LaunchCheck, check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.options import HYDRA, INTEL, OPENMPI_4, OPENMPI_5
from nccltune.launch_lint.source import from_text

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
    assert one.placement is not None
    assert [node.processes for node in one.placement.nodes] == [16]
