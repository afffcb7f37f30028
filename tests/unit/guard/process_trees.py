# SPDX-License-Identifier: Apache-2.0
"""Trees like /proc, with processes whose root is a folder of the test."""

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

PASSWD = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n"


@cache
def library_data(source: str) -> bytes:
    """Return a shared object of C source, without a library of its own."""
    with tempfile.NamedTemporaryFile(suffix=".so") as made:
        words = ["cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", made.name]
        subprocess.run(words, input=source.encode(), check=True)
        return Path(made.name).read_bytes()


NCCL = 'const char v[] = "NCCL version {} compiled";\nint ncclGetVersion(void) {{ return 0; }}\n'


def nccl_library(version: str = "2.28.9") -> bytes:
    return library_data(NCCL.format(version))


def plugin_library(*symbols: str) -> bytes:
    return library_data("".join(f"int {name} = 1;\n" for name in symbols))


class ProcessTree:
    """A folder of processes. `root` is the root folder of all of them, with a user `ann`."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.root = folder / "proc", folder / "root"
        self.proc.mkdir()
        (self.proc / "stat").write_text("cpu 1 2\nbtime 1000\n")
        self.write("/etc/passwd", PASSWD)
        (self.root / "home" / "ann").mkdir(parents=True)

    def write(self, path: str, content: str | bytes) -> Path:
        """Write a file below the root, last changed before any process started."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
        return place

    def process(
        self, pid: int, environment: dict[str, str], *libraries: str, gone: str = ""
    ) -> Path:
        """Add a process that has mapped `libraries` of the root, and `gone`, which was replaced."""
        folder = self.proc / str(pid)
        folder.mkdir()
        lines = ["7f00-7f01 r-xp 00000000 00:00 0", "7f01-7f02 rw-p 00000000 00:00 0     [heap]"]
        for path in libraries:
            inode = (self.root / path.lstrip("/")).resolve().stat().st_ino
            lines += [f"7f10-7f20 r-xp 00000000 08:01 {inode}                  {path}"] * 2
        lines += [f"7f30-7f40 r-xp 00000000 08:01 999                  {gone} (deleted)"] * bool(
            gone
        )
        (folder / "maps").write_text("\n".join(lines) + "\n")
        pairs = [f"{name}={value}".encode() for name, value in environment.items()]
        (folder / "environ").write_bytes(b"\0".join(pairs) + b"\0")
        status = "Name:\tx\nState:\tS (sleeping)\nPPid:\t7\nUid:\t1000\t1000\t1000\t1000\n"
        (folder / "status").write_text(f"{status}NSpid:\t{pid}\t{pid % 100}\n")
        (folder / "uid_map").write_text("0 0 4294967295\n")
        (folder / "cmdline").write_bytes(b"python\0train.py\0")
        # It started in the far future, so that no file of the test is newer.
        ticks = 10**15 * os.sysconf("SC_CLK_TCK")
        cells = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} (a) b) S {cells} {ticks} 0\n")
        (folder / "root").symlink_to(self.root)
        (folder / "cwd").symlink_to("/home/ann")
        return folder
