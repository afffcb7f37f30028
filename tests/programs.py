# SPDX-License-Identifier: Apache-2.0
"""Programs that tests write, run and load."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def completed(words: Sequence[object] | str, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end and return its status and output, as text."""
    command = words if isinstance(words, str) else [str(word) for word in words]
    options = {"capture_output": True, "text": True, "check": False} | options
    return subprocess.run(command, **options)  # type: ignore[no-any-return]  # noqa: PLW1510


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python_program(path: Path, text: str = "") -> Path:
    return write_program(path, f"#!{sys.executable}\n{text}")


def load_script(path: Path) -> ModuleType:
    name = f"script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Decorators and msgspec look up the module of a class by its name.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
