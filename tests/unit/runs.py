# SPDX-License-Identifier: Apache-2.0
"""Command lines run within this process."""

import json
from typing import Any, NamedTuple

import pytest

from nccltune.cli import run


class Printed(NamedTuple):
    """What a command printed."""

    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Run `nccltune WORDS`, require an exit code (None: any) and return what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, code: int | tuple[int, ...] | None = 0) -> Printed:
        self._capsys.readouterr()
        found = run([str(word) for word in words])
        printed = Printed(*self._capsys.readouterr())
        codes = code if isinstance(code, tuple) else (found if code is None else code,)
        assert found in codes, f"exit code {found}\n{printed.out}{printed.err}"
        return printed
