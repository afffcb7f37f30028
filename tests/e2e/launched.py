# SPDX-License-Identifier: Apache-2.0
"""A running `nccltune launch run` of the program that stands in for nccl-tests."""

import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import line, running

PROGRAM = Path(__file__).with_name("launched_program.py")


class RunningLaunch:
    """The command with `words`, which keeps its rows in the folder's `study`."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *words: object, program: object = None
    ) -> None:
        self.study, self.places = folder / "study", folder / "places"
        self.places.mkdir(exist_ok=True)
        started = () if program is None else ("--", program)
        self.process = subprocess.Popen(
            line("launch", "run", *words, "-o", self.study, "--json", *started),
            env={**environment, "PLACES": str(self.places), "PYTHONFAULTHANDLER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        self._talk = ""

    def until(self, text: str) -> None:
        """Wait until a line with the text is shown."""
        assert self.process.stderr is not None
        while text not in self._talk:
            told = self.process.stderr.readline()
            assert told, self._talk
            self._talk += told

    def end(self) -> tuple[int, dict[str, Any], str]:
        """Its exit code, result and standard error. If it hangs, the test fails with the place."""
        try:
            out, talk = self.process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            pytest.fail(self.process.communicate(timeout=60)[1])
        return self.process.returncode, json.loads(out) if out else {}, self._talk + talk

    def sizes(self) -> list[int]:
        """The sizes of the samples that the study has."""
        lines = (self.study / "samples.jsonl").read_text().splitlines()
        return sorted({json.loads(line)["bytes"] for line in lines})


def alive_at(places: Path) -> list[int]:
    """Processes of the job that run: those that carry its PLACES."""
    return [one.pid for one in running() if one.variables.get("PLACES") == str(places)]
