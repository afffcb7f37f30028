# SPDX-License-Identifier: Apache-2.0
"""Build the portable wheels into dist/: `python packaging/wheels.py [ARCHITECTURE ...]`.

Needs the dependency group `wheels`. The C++ runtime is compiled once per architecture and kept in
zig's cache ($ZIG_GLOBAL_CACHE_DIR, or ~/.cache/zig).
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("x86_64", "aarch64")


def build(architecture: str) -> Path:
    """Build the wheel for `architecture` and return its path.

    The tag manylinux_2_28 promises that the wheel runs with glibc 2.28. The tests in
    tests/packaging check this with auditwheel and with a reader of ELF files.
    """
    folder = ROOT / "build" / "wheels" / architecture
    shutil.rmtree(folder / "built", ignore_errors=True)
    settings = {
        "build-dir": str(folder / "cmake"),
        "cmake.define.CMAKE_TOOLCHAIN_FILE": str(ROOT / "cmake" / "PortableToolchain.cmake"),
        "cmake.define.NCCLTUNE_ARCH": architecture,
        "install.strip": "false",
    }
    _run(
        [sys.executable, "-m", "pip", "-v", "wheel", "--no-build-isolation", "--no-deps"]
        + [f"--config-settings={key}={value}" for key, value in settings.items()]
        + ["--wheel-dir", str(folder / "built"), str(ROOT)],
        _PYTHON_HOST_PLATFORM=f"linux-{architecture}",
    )
    (built,) = (folder / "built").glob("*.whl")
    tag = f"manylinux_2_28_{architecture}"
    _run([sys.executable, "-m", "wheel", "tags", "--remove", f"--platform-tag={tag}", str(built)])
    (tagged,) = (folder / "built").glob(f"*-{tag}.whl")
    target = ROOT / "dist"
    target.mkdir(exist_ok=True)
    for old in target.glob(f"nccltune-*_{architecture}.whl"):
        old.unlink()
    return Path(shutil.copy(tagged, target))


def _run(command: list[str], **environment: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "PATH": path, **environment})


def main(architectures: list[str]) -> int:
    """Build the wheels for `architectures`, or for all architectures if the list is empty."""
    unknown = set(architectures) - set(ARCHITECTURES)
    if unknown:
        print(f"error: unknown architecture {unknown.pop()!r}", file=sys.stderr)
        print(f"hint:  choose from {' '.join(ARCHITECTURES)}", file=sys.stderr)
        return 2
    for architecture in architectures or ARCHITECTURES:
        began = time.monotonic()
        wheel = build(architecture)
        size = wheel.stat().st_size / 1e6
        print(f"{wheel.relative_to(ROOT)}  {size:.1f} MB  {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
