# SPDX-License-Identifier: Apache-2.0
"""Build hooks of scikit-build-core that fail at once if there is no C++ compiler.

Without this check, pip downloads and builds for a minute before CMake reports the missing compiler.
The check is skipped if NCCLTUNE_NATIVE is `off`, and if the CMake settings name a compiler.
"""

import os
import shutil
import sys
from typing import Any

from scikit_build_core import build as _hooks
from scikit_build_core.build import *  # noqa: F403

COMPILERS = ("c++", "g++", "clang++")

_MESSAGE = """\
error: no C++ compiler, which the compiled parts of nccltune need
hint:  install the wheel, which has them: nccltune-VERSION-py3-none-manylinux_2_28_ARCHITECTURE.whl
hint:  or a compiler that knows C++20 (Debian: apt install g++), or name one: CXX=...
hint:  or install without them: NCCLTUNE_NATIVE=off pip install .
       (import, analyze, tune, report, doctor, topo and lint need none of them)"""


def _check_compiler(config_settings: dict[str, Any] | None) -> None:
    chosen = ("CMAKE_CXX_COMPILER", "CMAKE_TOOLCHAIN_FILE", "wheel.cmake")
    words = f"{config_settings or ''} {os.environ.get('CMAKE_ARGS', '')}"
    if os.environ.get("NCCLTUNE_NATIVE") == "off" or any(name in words for name in chosen):
        return
    # CXX may hold compiler options after the name of the compiler.
    named = os.environ.get("CXX", "").split()[:1]
    if not any(shutil.which(name) for name in named or COMPILERS):
        sys.exit(_MESSAGE)


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return the requirements for building a wheel. Exit with an error if there is no compiler."""
    _check_compiler(config_settings)
    return _hooks.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return the requirements for building an editable installation.

    Exit with an error if there is no compiler.
    """
    _check_compiler(config_settings)
    return _hooks.get_requires_for_build_editable(config_settings)
