# SPDX-License-Identifier: Apache-2.0
"""Compile in the background what parts of acceptance.py need: nccl-tests and the rank programs."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
from acceptance_runs import PartError, SkippedError, descendants, wait

ALL_REDUCE = "all_reduce_perf"
SYSTEM_FOLDERS = [Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib64"), Path("/usr/include")]
NO_NCCL_TESTS = "no nccl-tests: --nccl-tests or --nccl-tests-source"


class Build:
    """A compilation that runs beside the first parts, or the reason why there is none."""

    def __init__(self, name: str, result: Path, log: Path) -> None:
        self.name, self.result, self.log = name, result, log
        self.missing = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def path(self, seconds: float) -> Path:
        """Wait for the result.

        Raises SkippedError if it cannot be compiled here, PartError if the compiler failed.
        """
        if self.missing:
            raise SkippedError(self.missing)
        if self.process is not None:
            status = wait(self.process, seconds)
            if status is None:
                raise PartError(f"{self.name}: not compiled in time, see {self.log}")
            if status != 0:
                tail = self.log.read_text(errors="replace")[-1500:]
                raise PartError(f"{self.name}: not compiled, exit status {status}: {tail}")
        return self.result

    def running(self) -> list[int]:
        """Return its processes, which do not belong to a part."""
        if self.process is None or self.process.poll() is not None:
            return []
        return [self.process.pid, *descendants(self.process.pid)]


def nccl_tests(folder: Path, nccl: Path, given: Path | None, source: Path | None) -> Build:
    """Return all_reduce_perf, given or compiled with MPI for the GPU of this machine alone."""
    build = Build("nccl-tests", folder / "build" / ALL_REDUCE, folder / "nccl-tests.log")
    if given is not None:
        build.result = (given / ALL_REDUCE if given.is_dir() else given).resolve()
        return build
    if source is None:
        build.missing = NO_NCCL_TESTS
    else:
        start_nccl_tests(build, folder, nccl, source)
    return build


def start_nccl_tests(build: Build, folder: Path, nccl: Path, source: Path) -> None:
    headers = nccl_headers(nccl)
    mpi = mpi_folders()
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    needs = {
        "nvcc": nvcc,
        "nccl.h": headers,
        "mpicc of Open MPI": mpi,
        "make": shutil.which("make"),
    }
    number = compute_capability()
    needs["a GPU in nvidia-smi"] = number
    lacking = [name for name, found in needs.items() if not found]
    if lacking:
        build.missing = f"nccl-tests cannot be compiled without {', '.join(lacking)}"
        return
    assert headers is not None
    assert mpi is not None
    assert nvcc is not None
    assert number is not None
    nccl_home, mpi_home = folder / "nccl-home", folder / "mpi-home"
    linked_folder(nccl_home / "include", headers.glob("nccl*"))
    linked_folder(nccl_home / "lib", [library_for(headers, nccl)], "libnccl.so", "libnccl.so.2")
    mpi_home.mkdir()
    (mpi_home / "include").symlink_to(mpi[0])
    (mpi_home / "lib").symlink_to(mpi[1])
    settings = {
        "BUILDDIR": str(build.result.parent),
        "MPI": "1",
        "MPI_HOME": str(mpi_home),
        "NCCL_HOME": str(nccl_home),
        "CUDA_HOME": str(Path(nvcc).resolve().parents[1]),
        "NVCC": nvcc,
        "CUDARTLIB": "cudart_static",
        "NVCC_GENCODE": f"-gencode=arch=compute_{number},code=sm_{number}",
    }
    words = [f"{name}={value}" for name, value in settings.items()]
    build.start(["make", "-C", str(source.resolve() / "src"), "-j8", *words, str(build.result)])


def rank_programs(folder: Path, nccl: Path, *, needed: bool) -> Build:
    """Return the folder of the rank programs of one_gpu.py."""
    build = Build("rank programs", folder / "programs", folder / "programs.log")
    if not needed:
        build.missing = "not compiled"
        return build
    build.result.mkdir()
    code = "import sys, pathlib, one_gpu_runs; one_gpu_runs.build(*map(pathlib.Path, sys.argv[1:]))"
    here = str(Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {here!r}); {code}"
    build.start([sys.executable, "-c", code, str(build.result), str(nccl)])
    return build


def linked_folder(folder: Path, targets: Iterable[Path], *names: str) -> None:
    """Make a folder of links: each target by its own name, or the only one by these names."""
    folder.mkdir(parents=True)
    for target in targets:
        for name in names or (target.name,):
            (folder / name).symlink_to(target)


def packaged_nccl() -> Path | None:
    """Return the folder of the NCCL that was installed for PyTorch, with include/ and lib/."""
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    folders = map(Path, spec.submodule_search_locations or ()) if spec else ()
    return next((each for each in folders if (each / "lib/libnccl.so.2").is_file()), None)


def nccl_headers(nccl: Path) -> Path | None:
    packaged = packaged_nccl()
    places = [packaged / "include"] if packaged else []
    places += [nccl.parent / "include", nccl.parent.parent / "include", Path("/usr/include")]
    return next((place for place in places if (place / "nccl.h").is_file()), None)


def library_for(headers: Path, nccl: Path) -> Path:
    """Return the library of the same version as the headers, if it is beside them."""
    beside = headers.parent / "lib/libnccl.so.2"
    return beside if beside.is_file() else nccl


def mpi_folders() -> tuple[Path, Path] | None:
    """Return the folders of Open MPI's headers and libraries."""
    found = []
    for word, file in (("incdirs", "mpi.h"), ("libdirs", "libmpi.so")):
        try:
            command = ["mpicc", f"--showme:{word}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        folders = [*map(Path, done.stdout.split()), *SYSTEM_FOLDERS]
        found += [folder for folder in folders if (folder / file).exists()][:1]
    return (found[0], found[1]) if len(found) == 2 else None


def compute_capability() -> str | None:
    """Return that of the first GPU as nvcc takes it, such as 90."""
    line = common.first_line(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    return line.replace(".", "") if line else None


def folder_of(nccl: Path, folder: Path) -> Path:
    """Return a folder for LD_LIBRARY_PATH in which libnccl.so.2 is that library."""
    linked_folder(folder / "nccl", [nccl], "libnccl.so.2")
    return folder / "nccl"


def environment_with(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
