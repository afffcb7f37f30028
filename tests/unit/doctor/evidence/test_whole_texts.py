# SPDX-License-Identifier: Apache-2.0
"""Parsers that search whole texts take bounded time for long lines and for many lines."""

from collections.abc import Callable

import pytest

from nccltune.doctor.evidence.kinds import kinds_of
from nccltune.doctor.evidence.parsers.failures import completions, crash_frames, parse_failures
from nccltune.doctor.evidence.parsers.job_settings import parse_posted_settings
from nccltune.doctor.evidence.parsers.prose import described_hang, workarounds
from nccltune.doctor.evidence.parsers.ras import ras_ranks
from nccltune.doctor.evidence.parsers.watchdog import ranks_apart

_SCANNERS: tuple[Callable[[str], object], ...] = (
    *(completions, crash_frames, parse_failures, described_hang, ras_ranks, ranks_apart),
    workarounds,
    lambda text: parse_posted_settings(text, lambda _: True),
    lambda text: kinds_of("post.txt", text.encode()),
)
_NAMES = (
    "completions",
    "crash",
    "failures",
    "hang",
    "ras",
    "ranks",
    "workarounds",
    "posted",
    "kinds",
)
_INFO = "n1:1:2 [0] NCCL INFO Connected all rings\n"
_LONG = ("NCCL_A", "it NCCL_ works ", "it never ", " stalls ", "[ 1] /", "\t", "> ", "Aa, ", "A=")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scan", _SCANNERS, ids=_NAMES)
@pytest.mark.parametrize("part", _LONG)
def test_a_line_of_100_kb(scan: Callable[[str], object], part: str) -> None:
    line = part * (100_000 // len(part))
    scan(f"{_INFO}Segmentation fault\nMISMATCH ranks considered dead\n{line}\nNCCL_A=1 {line}")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("scan", _SCANNERS, ids=_NAMES)
@pytest.mark.parametrize(
    "line",
    [
        "Rank 1 has launched 5\n",
        "Rank {0} has launched 5\n",
        "Last error:\nCuda failure 'y'\n",
        "Last error:\nCuda failure 'y{0}'\n",
        "mlx5: h1: got completion with error:\n",
        "export NCCL_P2P_DISABLE=1\n",
        "Segmentation fault\n#1 0x0000000 in abort ()\n",
    ],
)
def test_200_000_lines(scan: Callable[[str], object], line: str) -> None:
    lines = "".join(line.format(number) for number in range(200_000 // line.count("\n")))
    scan(f"{_INFO}MISMATCH ranks considered dead\n{lines}")


@pytest.mark.timeout(240)
def test_each_of_many_completions_counts() -> None:
    dump = "mlx5: h1: got completion with error:\n" + 3 * f"{'0' * 8}\n" + "{0} 00008813 {0} {0}\n"
    (one,) = completions("a\n" + 50_000 * dump.format("0" * 8))
    assert (one.times, one.line) == (50_000, 2)
