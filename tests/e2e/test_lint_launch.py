# SPDX-License-Identifier: Apache-2.0
"""What the linter predicts is what real launchers start: Open MPI 4 and 5, MPICH's hydra, Intel
MPI's."""

import itertools
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from nccltune.launch.flavor import Flavor, flavor_of
from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.options import HYDRA, INTEL, OPENMPI_4, OPENMPI_5, TABLES
from nccltune.launch_lint.source import from_words
from tests.e2e.command_line import intel_mpi
from tests.programs import completed, write_program

OPENMPI_CASES = [
    "--host a:8,b:8 -N 8 -n 2",
    "--host a:8,b:8 -N 8",
    "--host a:8,b:8 -N 8 -n 12",
    "--host a:8,b:8 -N 8 -n 32",
    "--host a:8,b:8 -n 3",
    "--host a:8,b:8 -n 18",
    "--host a:8,b:8 -n 18 --oversubscribe",
    "--host a:8,b:8 -npernode 1",
    "--host a:8,b:8 --map-by ppr:3:node -n 5",
    "--host a:8,b:8 --map-by node -n 3",
    "--host a,b",
    "--host a,b -n 3",
    "--host a,b -N 8 -n 16",
    "--host a:4,b:8 -N 8",
    "--host a:4,b:8 -N 8 -n 8",
    "--host a:8,b:4 -N 8 -n 8",
    "--host a:2,b:2,c:2 -N 2 -n 5",
]
HYDRA_CASES = [
    f"-hosts {hosts} {rest}"
    for hosts, rest in itertools.product(
        ["a:8,b:8", "a,b", "a:4,b:8"],
        ["", "-n 3", "-n 18", "-ppn 2", "-ppn 8 -n 32", "-ppn 1 -n 4"],
    )
]


def _launcher(names: list[str], major: int | None) -> str:
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        said = completed([path, "--version"])
        flavor = flavor_of(said.stdout)
        if flavor is not None and (major is None or flavor.version[:1] == (major,)):
            return path
    pytest.skip(f"no {' or '.join(name for name in names if name)} of version {major} here")


def _predicted(words: list[str], flavor: Flavor) -> dict[str, int] | str | None:
    """Processes of each host, None where the launcher will refuse, why where it is not known."""
    (found,) = from_words(words, LaunchContext())
    verdict = check(found.line, found.site, (flavor,))
    ((prediction, _),) = verdict.predictions
    if prediction.placement is None:
        return prediction.unknown if prediction.fails is None else None
    return {str(node.host): node.processes for node in prediction.placement.nodes}


def _mapped(words: list[str]) -> dict[str, int] | None:
    """The map that Open MPI prints and does not launch; None where it refuses."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = ""
    for _ in range(5):
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=120,
            env=os.environ | root,
        )
        text = (done.stdout + done.stderr).decode(errors="replace")
        # Now and then PMIx does not start on a loaded machine, long before anything is mapped.
        if "listener thread failed to start" not in text:
            break
        time.sleep(0.5)
    found: dict[str, int] = {}
    host = None
    for line in text.splitlines():
        if match := re.search(r"Data for node: (\S+)", line):
            host = match[1]
        if host is not None and (match := re.search(r"Num procs: (\d+)", line)):
            found[host] = int(match[1])
    if not found:
        assert re.search("slots|more processes", text), text
    return {name: number for name, number in found.items() if number} or None


def _mispredicted(mpirun: str, show: list[str], flavor: Flavor) -> dict[str, object]:
    """Each case that Open MPI maps otherwise than predicted, with both."""
    wrong: dict[str, object] = {}
    for case in OPENMPI_CASES:
        options = [*case.split(), "--bind-to", "none"]
        predicted = _predicted(["mpirun", *options, "hostname"], flavor)
        real = _mapped([mpirun, "--do-not-launch", *show, *options, "hostname"])
        if predicted != real:
            wrong[case] = (predicted, real)
    return wrong


def test_open_mpi_4_maps_as_predicted() -> None:
    mpirun = _launcher(["mpirun.openmpi", "mpirun"], 4)
    assert _mispredicted(mpirun, ["--display-map"], OPENMPI_4) == {}


def test_open_mpi_5_maps_as_predicted() -> None:
    mpirun = _launcher([f"{os.environ.get('OPENMPI5_BIN', '')}/mpirun", "mpirun", "prterun"], 5)
    assert _mispredicted(mpirun, ["--display", "map"], OPENMPI_5) == {}


@pytest.mark.parametrize("total", [[], ["-n", "3"]])
@pytest.mark.parametrize("way", [[], ["-N", "2"]])
def test_open_mpi_starts_what_is_predicted(total: list[str], way: list[str]) -> None:
    mpirun = _launcher(["mpirun.openmpi", "mpirun"], 4)
    options = ["--host", "localhost:4", "--bind-to", "none", *total, *way]
    predicted = _predicted(["mpirun", *options, "echo", "here"], OPENMPI_4)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = completed([mpirun, *options, "echo", "here"], timeout=120, env=os.environ | root)
    if predicted is None:
        assert done.returncode != 0
    assert done.stdout.split().count("here") == sum((predicted or {}).values())


@pytest.mark.parametrize("flavor", [HYDRA, INTEL], ids=["MPICH", "Intel"])
def test_hydra_starts_what_is_predicted(tmp_path: Path, flavor: Flavor) -> None:
    if flavor is INTEL:
        mpiexec = str(intel_mpi() / "mpiexec.hydra")
    else:
        mpiexec = _launcher(["mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"], None)
    # Hosts that are made up: what hydra would run there by ssh runs here and prints for which.
    strip = "while [[ $1 == -* ]]; do shift; done"
    here = 'export ON=$1; shift\nexec bash -c "$*"'
    ssh = write_program(tmp_path / "ssh", f"#!/bin/bash\n{strip}\n{here}\n")
    tail = ["bash", "-c", "echo on $ON"]
    wrong = {}
    for case in HYDRA_CASES:
        options = case.split()
        predicted = _predicted(["mpiexec.hydra", *options, "hostname"], flavor)
        launch = ["-launcher", "ssh", "-launcher-exec", str(ssh)]
        # As many on a node as it has cores: nothing that a line shows.
        by_cores = flavor is INTEL and "-ppn" not in options
        # Hydra loses output of what ends at once, now and then, or waits for it for ever.
        real, told = None, "did not end"
        for _ in range(1 if by_cores else 3):
            with suppress(subprocess.TimeoutExpired):
                done = completed([mpiexec, *launch, *options, *tail], timeout=60)
                real = dict(Counter(re.findall(r"^on (\S+)$", done.stdout, re.M))) or None
                told = f"{done.returncode}: {done.stderr}"
            if predicted == real:
                break
        if by_cores:
            assert "set -ppn" in str(predicted)
        elif predicted != real:
            wrong[case] = (predicted, real, told)
    assert not wrong


def test_intel_mpi_takes_the_options_that_it_is_said_to_take() -> None:
    mpiexec = str(intel_mpi() / "mpiexec.hydra")
    wrong = {}
    for name in sorted(TABLES[HYDRA].keys() | TABLES[INTEL].keys()):
        done = completed([mpiexec, f"-{name}"], stdin=subprocess.DEVNULL, timeout=120)
        taken = "unrecognized argument" not in done.stdout + done.stderr
        if taken != (name in TABLES[INTEL]):
            wrong[name] = taken
    assert not wrong
