# SPDX-License-Identifier: Apache-2.0
"""The gate of a release: what each file in the wheels needs of the system, and what it shows."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.packaging.conftest import ARCHITECTURES, ROOT, wheel_path
from tests.packaging.elf import read

OLDEST_GLIBC = (2, 28)
GLIBC = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
MACHINES = {"x86_64": "x64", "aarch64": "AArch64"}


def exports_of(map_file: str) -> set[str]:
    """The symbols that a version script or a list of dynamic symbols names."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / map_file).read_text(encoding="utf-8"), flags=re.S)
    return set(re.findall(r"(\w+);", text))


def nccl_functions() -> set[str]:
    """Every function of NCCL that the send/recv library stands in for, and its profiling twin."""
    names = set()
    text = (ROOT / "native/sendrecv/hooks/symbols.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            words = line.split()
            names |= {words[0]} if words[-1] == "alone" else {words[0], f"p{words[0]}"}
    return names


HOST = exports_of("native/host/exports.list")
NET = exports_of("native/net/exports.map")
FILES = {
    "bin/nccltune-bench": HOST | exports_of("native/bench/nccl/exports.list"),
    "bin/nccltune-host": HOST,
    "lib/libnccl-net-nccltune.so": NET,
    "lib/nccltune-net/libnccl-net.so": NET,
    "lib/libnccl-profiler-nccltune.so": exports_of("native/profiler/exports.map"),
    "lib/libnccl-tuner-nccltune.so": exports_of("native/tuner/exports.map"),
    "lib/libnccltune-sendrecv.so": nccl_functions(),
    "lib/nccltune-sendrecv/libnccl.so.2": nccl_functions(),
}
STAYING = {file for file in FILES if file.startswith("lib/") and "tuner" not in file}
# Looked for at run time: glibc has it since 2.32.
OPTIONAL = {
    "lib/libnccltune-sendrecv.so": {"__libc_single_threaded"},
    "lib/nccltune-sendrecv/libnccl.so.2": {"__libc_single_threaded"},
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
class TestWheel:
    def test_holds_these_files(self, architecture: str, unpacked: dict[str, Path]) -> None:
        wheel_path(architecture)
        folder = unpacked[architecture]
        elves = {
            str(path.relative_to(folder))
            for path in folder.parent.parent.rglob("*")
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
        }
        assert elves == set(FILES)

    @pytest.mark.parametrize("file", FILES)
    def test_file(self, architecture: str, file: str, unpacked: dict[str, Path]) -> None:
        wheel_path(architecture)
        found = read(unpacked[architecture] / file)
        assert found.machine == MACHINES[architecture]
        assert found.glibc <= OLDEST_GLIBC
        assert found.versions == {"GLIBC"}
        assert found.needed <= GLIBC | {LOADERS[architecture]}
        assert found.exports == FILES[file]
        assert found.unversioned <= OPTIONAL.get(file, set())
        assert not found.has_search_path
        assert found.stays == (file in STAYING)
        # The send/recv library in a folder of its own stands for NCCL.
        assert (found.soname == "libnccl.so.2") == file.endswith("/libnccl.so.2")

    def test_tag(self, architecture: str) -> None:
        with zipfile.ZipFile(wheel_path(architecture)) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
            headers = Parser().parsestr(archive.read(name).decode())
        assert headers.get_all("Tag") == [f"py3-none-manylinux_2_28_{architecture}"]
        assert headers["Root-Is-Purelib"] == "false"

    def test_auditwheel_agrees(self, architecture: str) -> None:
        wheel = wheel_path(architecture)
        pytest.importorskip("auditwheel", reason="auditwheel is not installed (make wheels)")
        command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        words = " ".join(said.split())
        found = re.search(
            rf'is consistent with the following platform tag: "manylinux_2_(\d+)_{architecture}"',
            words,
        )
        assert found, said
        assert int(found[1]) <= OLDEST_GLIBC[1]


def test_reads_what_a_file_of_this_system_needs(tmp_path: Path) -> None:
    """The reader finds what the gate would refuse."""
    source = tmp_path / "newer.cc"
    source.write_text(
        "#include <cstdlib>\n#include <string>\n"
        "extern void Elsewhere();\n"
        "std::string Word(const char* text) {\n"
        "  Elsewhere();\n  return std::string(text) + getenv(text);\n}\n",
        encoding="utf-8",
    )
    library = tmp_path / "libnewer.so"
    command = ["c++", "-shared", "-fPIC", "-Wl,-rpath,/opt", "-o", str(library), str(source)]
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("no C++ compiler")
    found = read(library)
    assert "libstdc++.so.6" in found.needed
    assert "GLIBCXX" in found.versions
    assert "_Z4WordB5cxx11PKc" in found.exports
    assert "_Z9Elsewherev" in found.unversioned
    assert found.has_search_path
    assert found.glibc >= (2, 2)
