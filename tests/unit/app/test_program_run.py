# SPDX-License-Identifier: Apache-2.0
"""One run of a user's program: its timings, from a table or from the file of -J."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from nccltune.app.program_run import ProgramRun, ProgramStart, run_program
from nccltune.model.choice import TUNED_RUN
from nccltune.model.collective import Collective
from nccltune.model.errors import LaunchError
from nccltune.model.sample import Purpose, Sample
from nccltune.prove.result import RemovedRule
from tests.unit.formats import json_maker
from tests.unit.formats.maker import Made, points

LOG = (
    "alpha:7:77 [0] NCCL INFO ncclCommInitRankConfig comm 0x1 rank 0 nRanks 4 nNodes 1 "
    "localRanks 4 localRank 0\n"
    "alpha:7:77 [0] NCCL INFO AllGather: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n"
)
START = ProgramStart(1, 8, None)


class Quiet:
    """Progress of which a test looks at nothing but the last words."""

    def __init__(self) -> None:
        self.last: list[str] = []

    def warn(self, sentence: str) -> None: ...

    def starting(self, which: str, command: str, start: ProgramStart) -> None: ...

    def output(self, line: bytes) -> None: ...

    def last_words(self, lines: Sequence[str]) -> None:
        self.last += lines

    def dropped(self, rules: list[RemovedRule]) -> None: ...

    def stopped(self, kept: str) -> None: ...


def program(text: str, *words: str, status: int = 0) -> list[str]:
    """A program that logs as NCCL does, prints `text`, and ends with `status`."""
    log = f"printf %s {shlex.quote(LOG)} > ${{NCCL_DEBUG_FILE%%%*}}a.7.log"
    return ["/bin/sh", "-c", f"{log}; printf %s {shlex.quote(text)}; exit {status}", *words]


def started(
    words: Sequence[str], folder: Path, *, start: ProgramStart = START, quiet: Quiet | None = None
) -> tuple[ProgramRun, list[Sample]]:
    found: list[Sample] = []
    done = run_program(words, None, {}, folder, quiet or Quiet(), start, found.extend)
    return done, found


def test_the_samples_are_those_of_a_proof(tmp_path: Path) -> None:
    text = Made(points(4096), collective=Collective.ALLGATHER, ranks=4, one_process=True).text()
    done, found = started(program(text), tmp_path / "with")
    assert found == done.samples
    assert [(item.choice, item.bytes, item.in_place) for item in found] == [
        (TUNED_RUN, 4096, False),
        (TUNED_RUN, 4096, True),
    ]
    assert {(item.nodes, item.ranks) for item in found} == {(1, 4)}
    assert {item.source.purpose for item in found} == {Purpose.VERIFY}
    assert len({item.source.process for item in found}) == 1
    assert list(done.times) == [(Collective.ALLGATHER, 4096)]


@pytest.mark.parametrize("form", ["-J {}", "--output_file {}", "--output_file={}"])
def test_a_file_of_results_takes_the_place_of_a_table(tmp_path: Path, form: str) -> None:
    results = tmp_path / "results.json"
    text = json.dumps(json_maker.made())
    words = program("", *form.format(results).split())
    words[2] += f"; printf %s {shlex.quote(text)} > {results}"
    words[2] = words[2].replace("exit 0; ", "")
    done, _ = started(words, tmp_path / "without")
    assert sorted({item.bytes for item in done.samples}) == [1 << 12, 1 << 20]
    # A file of an earlier run is not this run's.
    os.utime(results, (0, 0))
    done, _ = started(program("", *form.format(results).split()), tmp_path / "with")
    assert done.samples == []


def test_a_failure_keeps_the_rows_and_names_the_start(tmp_path: Path) -> None:
    text = Made(points(4096), ranks=4, one_process=True).text()
    kept: list[Sample] = []
    quiet = Quiet()
    with pytest.raises(LaunchError, match="ended with status 3 with the plugin") as error:
        run_program(
            program(text, status=3),
            None,
            {},
            tmp_path / "with",
            quiet,
            ProgramStart(5, 8, 1.0),
            kept.extend,
        )
    assert len(kept) == 2
    assert "ended well in 4 starts before; the same command goes on" in (error.value.hint or "")
    assert quiet.last
