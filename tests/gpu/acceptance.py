# SPDX-License-Identifier: Apache-2.0
"""The acceptance run of a release: all GPU tests on one GPU, in one command and one table.

    python tests/gpu/acceptance.py --nccl libnccl.so.2 [--libraries DIR] \
        [--nccl-tests PATH | --nccl-tests-source DIR] [--parts bench,tuner] [-o results.json]

tests/gpu/README.md lists what it needs and what each part checks. Exit status: 0 if all parts
passed or were skipped for a reason in the table, 1 if one failed or there was no time for it, 3 if
this machine cannot run it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import acceptance_builds as builds
import acceptance_parts
import common  # found through acceptance_parts
import shared_gpu
from acceptance_parts import Site
from acceptance_runs import Acceptance, adopt_orphans, end_descendants, summary, table

NAMES = [name for name, *_ in acceptance_parts.PARTS]
VERSION = (
    "import ctypes, sys; number = ctypes.c_int();"
    "ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)); print(number.value)"
)


class MachineError(Exception):
    """This machine lacks what every part needs."""


def nccl_of(given: Path | None) -> Path:
    """Return the library to test: the given one, else PyTorch's."""
    if given is not None:
        return given.resolve()
    packaged = builds.packaged_nccl()
    if packaged is None:
        raise MachineError("no libnccl.so.2: --nccl FILE")
    return (packaged / "lib/libnccl.so.2").resolve()


def version_of(nccl: Path) -> tuple[int, ...]:
    """Return NCCL's version as three numbers."""
    done = subprocess.run(
        [sys.executable, "-c", VERSION, str(nccl)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MachineError(f"{nccl}: {done.stderr.strip()[-300:]}")
    number = int(done.stdout)
    return number // 10000, number // 100 % 100, number % 100


def libraries_of(given: Path | None) -> Path:
    """Return the folder with lib/ and bin/: the given one, else that of the installed nccltune."""
    if given is not None:
        return given.resolve()
    try:
        from nccltune.native import bench_path
    except ImportError as error:
        raise MachineError(f"nccltune is not installed for {sys.executable}: {error}") from error
    return bench_path().parents[1]


def check_machine() -> None:
    """Raise MachineError if a program is missing that every part needs."""
    # The program of this Python's environment, if that is not active.
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{Path(sys.executable).parent}"
    for program, of in {
        "nccltune": "nccltune (pip install)",
        shared_gpu.MPS_CONTROL: "NVIDIA's driver",
    }.items():
        if shutil.which(program) is None:
            raise MachineError(f"{program} of {of} is not on the PATH")


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nccl", type=Path, help="the libnccl.so.2 to test; default: PyTorch's")
    parser.add_argument("--libraries", type=Path, metavar="DIR",
                        help="with lib/ and bin/; default: the installed nccltune's")  # fmt: skip
    tests = parser.add_mutually_exclusive_group()
    tests.add_argument("--nccl-tests", type=Path, metavar="PATH",
                       help="all_reduce_perf, or its folder, compiled with MPI=1")  # fmt: skip
    tests.add_argument("--nccl-tests-source", type=Path, metavar="DIR",
                       help="sources of nccl-tests: compiles all_reduce_perf")  # fmt: skip
    parser.add_argument("--parts", default=",".join(NAMES), help="default: all")
    parser.add_argument("--seconds", type=float, default=540, help="for all parts together")
    parser.add_argument("--logs", type=Path, help="keep the output of each part in this folder")
    parser.add_argument("-o", "--output", type=Path, help="results as JSON")
    args = parser.parse_args(words)
    args.parts = args.parts.split(",")
    for name in args.parts:
        if name not in NAMES:
            parser.error(f"--parts: {name!r} is none of {', '.join(NAMES)}")
    for path in (args.nccl, args.libraries, args.nccl_tests, args.nccl_tests_source):
        if path is not None and not path.exists():
            parser.error(f"{path} does not exist")
    return args


def run(args: argparse.Namespace, folder: Path) -> int:
    check_machine()
    nccl, libraries = nccl_of(args.nccl), libraries_of(args.libraries)
    version = version_of(nccl)
    os.environ["NCCLTUNE_NATIVE_DIR"] = str(libraries)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    with_tests = {"verify", "net_allreduce"} & set(args.parts)
    source = args.nccl_tests_source if with_tests else None
    tests = builds.nccl_tests(folder, nccl, args.nccl_tests, source)
    one_node = "sendrecv" in args.parts and version[:2] >= shared_gpu.FIRST_ONE_NODE
    programs = builds.rank_programs(folder, nccl, needed=one_node)
    site = Site(nccl, builds.folder_of(nccl, folder), version, libraries, tests, programs)
    facts = {
        "machine": common.machine(),
        "nccl": ".".join(map(str, version)),
        "library": str(nccl),
        "libraries": str(libraries),
    }
    print(json.dumps(facts, indent=1), flush=True)

    def compiling() -> list[int]:
        return [*tests.running(), *programs.running()]

    began = time.monotonic()
    acceptance = Acceptance(folder, args.output, args.seconds, facts, compiling)
    for part in acceptance_parts.parts(site):
        if part.name in args.parts:
            acceptance.run(part)
    for row in acceptance.rows:
        if row.figures:
            print(f"\n{row.name}, timings on a shared GPU (they decide nothing):\n{row.figures}")
        if row.output:
            print(f"\n{row.name} failed; the end of its output:\n{row.output}")
    gpu = facts["machine"]["gpus (number, name, driver)"]
    print(f"\nNCCL {facts['nccl']}, {gpu}, {facts['machine']['cpus']} CPUs\n")
    print(table(acceptance.rows))
    print(f"\n{summary(acceptance.rows, time.monotonic() - began)}")
    return acceptance.exit_status()


def main() -> int:
    args = parse()
    common.exit_on_term()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="acceptance-", ignore_cleanup_errors=True) as temporary:
        folder = args.logs.resolve() if args.logs else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            print(f"--logs: {folder} is not empty", file=sys.stderr)
            return 2
        try:
            return run(args, folder)
        except MachineError as reason:
            print(f"cannot run: {reason}", file=sys.stderr)
            return 3
        finally:
            end_descendants()


if __name__ == "__main__":
    sys.exit(main())
