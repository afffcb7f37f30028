# SPDX-License-Identifier: Apache-2.0
"""Times and rounds of imported runs, by evidence only."""

from pathlib import Path

import pytest

from nccltune.formats.importing.run_times import rounds_by_order
from nccltune.formats.reading.runs import RunFound
from nccltune.formats.text.stamps import stamp_of
from nccltune.model.collective import Collective
from nccltune.model.sample import Sample
from tests.unit.formats.measured import log_lines, measured, processes, put, take

NOON = 1_795_000_000.0


def times(study: Path) -> list[str | None]:
    return [samples[0].at for samples in processes(study).values()]


def alternating(tmp_path: Path, step: float, rounds: int = 3) -> list[Path]:
    names = [
        f"{choice}-{number}.txt" for number in range(rounds) for choice in ("default", "ring_ll")
    ]
    return [
        put(tmp_path / name, measured(seed), NOON + step * seed) for seed, name in enumerate(names)
    ]


def test_files_that_lie_as_far_apart_as_their_runs_took_have_times(tmp_path: Path) -> None:
    take(tmp_path / "s", *alternating(tmp_path, 20.0))
    found = times(tmp_path / "s")
    assert None not in found
    assert sorted(map(str, found)) == found
    assert {text[-6:] for text in map(str, found)} == {"+00:00"}


@pytest.mark.parametrize("step", [0.0, 0.01, 1.0])
def test_files_that_were_copied_together_have_no_times(tmp_path: Path, step: float) -> None:
    take(tmp_path / "s", *alternating(tmp_path, step))
    assert times(tmp_path / "s") == [None] * 6


def test_one_pair_of_files_too_close_invalidates_all_times(tmp_path: Path) -> None:
    paths = alternating(tmp_path, 20.0)
    put(paths[3], measured(3), NOON + 2 * 20.0 + 0.5)
    take(tmp_path / "s", *paths)
    assert times(tmp_path / "s") == [None] * 6


def test_a_long_table_needs_a_long_time(tmp_path: Path) -> None:
    slow = measured(1, iterations=1_000_000)
    paths = put(tmp_path / "a.txt", measured(0), NOON), put(tmp_path / "b.txt", slow, NOON + 60)
    take(tmp_path / "s", *paths)
    assert times(tmp_path / "s") == [None, None]


def test_times_are_checked_against_earlier_imports(tmp_path: Path) -> None:
    take(tmp_path / "s", put(tmp_path / "a.txt", measured(0), NOON))
    take(tmp_path / "s", put(tmp_path / "b.txt", measured(1), NOON + 30))
    take(tmp_path / "s", put(tmp_path / "c.txt", measured(2), NOON + 30.2))
    found = times(tmp_path / "s")
    assert found[:2] == sorted(map(str, found[:2]))
    assert found[2] is None


def test_stamps_in_the_log_count_more_than_the_file(tmp_path: Path) -> None:
    for number in range(2):
        made = measured(number)
        log = log_lines(made, "cudaDriverVersion 13000", stamp=f"[2026-11-21 0{number}:06:00] ")
        put(tmp_path / "runs" / f"default-{number}.txt", made.text() + log, NOON)
    take(tmp_path / "s", tmp_path / "runs")
    assert times(tmp_path / "s") == ["2026-11-21T00:06:00+00:00", "2026-11-21T01:06:00+00:00"]


def test_kubectl_stamps(tmp_path: Path) -> None:
    for number in range(2):
        lines = measured(number).lines()
        text = "".join(
            f"2026-11-21T0{number}:06:{at:02}.123456789Z {line}\n" for at, line in enumerate(lines)
        )
        put(tmp_path / "runs" / f"default-{number}.txt", text, NOON)
    take(tmp_path / "s", tmp_path / "runs")
    assert times(tmp_path / "s") == ["2026-11-21T00:06:00+00:00", "2026-11-21T01:06:00+00:00"]


def test_stamps_of_rows_stay(tmp_path: Path) -> None:
    take(tmp_path / "s", put(tmp_path / "default.txt", measured(1, stamps=True), NOON))
    assert times(tmp_path / "s") == ["2026-11-21T03:06:00"]


def test_times_of_clocks_that_cannot_be_compared_are_dropped(tmp_path: Path) -> None:
    take(tmp_path / "s", put(tmp_path / "a.txt", measured(0, stamps=True), NOON))
    take(tmp_path / "s", put(tmp_path / "b.txt", measured(1), NOON + 60))
    found = times(tmp_path / "s")
    assert found[0] is not None
    assert found[1] is None


# --- several runs in one file -------------------------------------------------------------------


def loop(tmp_path: Path, *choices: str, modified: float | None = None) -> Path:
    """Write one file with a run of each choice; the log of each run names the choice."""
    parts = []
    for seed, choice in enumerate(choices):
        made = measured(seed)
        algorithm, _, protocol = choice.partition("/")
        settings = (
            [
                f"NCCL_ALGO set by environment to {algorithm}",
                f"NCCL_PROTO set by environment to {protocol}",
            ]
            if protocol
            else ["NCCL_DEBUG_SUBSYS set by environment to ENV"]
        )
        lines = made.lines()
        at = len(list(made.head()))
        log = log_lines(made, *settings).splitlines()
        parts.append("\n".join([*lines[:at], *log, *lines[at:]]) + "\n")
    return put(tmp_path / "loop.txt", "".join(parts), modified)


def by_process(study: Path) -> list[tuple[str, bool, int, str | None]]:
    found = []
    for samples in processes(study).values():
        first: Sample = samples[0]
        label = first.choice if isinstance(first.choice, str) else first.choice.label
        found.append((label, first.source.in_rounds, first.round, first.at))
    return found


def test_runs_of_one_file_have_times_in_their_order(tmp_path: Path) -> None:
    take(tmp_path / "s", loop(tmp_path, "default", "tree/ll", "default", "tree/ll", modified=NOON))
    found = by_process(tmp_path / "s")
    assert [label for label, *_ in found] == ["default", "tree/ll"] * 2
    order = [str(at) for *_, at in found]
    assert sorted(set(order)) == order


def untimed(tmp_path: Path, path: Path) -> list[Path]:
    """Return the file and another one with the same time: both were copied."""
    return [path, put(tmp_path / "other.txt", measured(99), path.stat().st_mtime)]


def test_a_file_that_goes_through_its_choices_has_rounds(tmp_path: Path) -> None:
    path = loop(tmp_path, "default", "tree/ll", "tree/ll", "default", "default", "tree/ll")
    take(tmp_path / "s", *untimed(tmp_path, path))
    found = by_process(tmp_path / "s")[:6]
    assert [(rounds, number) for _, rounds, number, _ in found] == [
        (True, 0),
        (True, 0),
        (True, 1),
        (True, 1),
        (True, 2),
        (True, 2),
    ]
    assert {at for *_, at in found} == {None}
    assert not by_process(tmp_path / "s")[6][1]


def test_a_file_of_blocks_has_no_rounds(tmp_path: Path) -> None:
    path = loop(tmp_path, "default", "default", "tree/ll", "tree/ll")
    take(tmp_path / "s", *untimed(tmp_path, path))
    assert [item[1:3] for item in by_process(tmp_path / "s")[:4]] == [(False, 0)] * 4


def order_of(*choices: str) -> list[int] | None:
    runs = []
    for choice in choices:
        run = RunFound()
        run.collective = Collective.ALLREDUCE
        run.saw(choice, 1)
        runs.append(run)
    return rounds_by_order(runs)


def test_rounds_by_order() -> None:
    assert order_of("d", "t", "d", "t", "d") == [0, 0, 1, 1, 2]
    assert order_of("d", "t", "d", "d", "t", "d") == [0, 0, 0, 1, 1, 1]
    assert order_of("d", "t") is None
    assert order_of("d", "d", "d", "d") is None
    assert order_of("d", "d", "t", "t") is None
    assert order_of("d", "t", "r", "d", "t", "t") is None


# --- stated by the user -------------------------------------------------------------------------


def test_rounds_that_the_user_states(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        for shift, choice in enumerate(("default", "tree_ll")):
            made = measured(number + 20 * shift, cycles=2)
            put(tmp_path / "runs" / f"{choice}-{number}.txt", made, NOON)
    take(tmp_path / "s", tmp_path / "runs", in_rounds=True)
    found = processes(tmp_path / "s")
    stated = [(samples[0].choice == "default", samples[0].round) for samples in found.values()]
    # run-2 precedes run-10.
    assert stated == [(True, 0), (True, 1), (True, 2), (False, 0), (False, 1), (False, 2)]
    for samples in found.values():
        assert all(sample.source.in_rounds for sample in samples)
        assert {sample.round for sample in samples} == {samples[0].round}
        assert {sample.repeat for sample in samples} == {0, 1}
    first = measured(1, cycles=2).points[0].out_us
    assert next(iter(found.values()))[0].time_us == first
    # A later import of one more round continues the numbers.
    more = [
        put(tmp_path / f"{choice}-11.txt", measured(60 + at))
        for at, choice in enumerate(("default", "tree_ll"))
    ]
    take(tmp_path / "s", *more, in_rounds=True)
    assert [samples[0].round for samples in list(processes(tmp_path / "s").values())[-2:]] == [3, 3]


@pytest.mark.parametrize(
    ("line", "seconds", "zoned"),
    [
        ("2026-11-21T01:02:03.5Z # nThread", 1795222923.0, True),
        ("2026-11-21T03:02:03+02:00 stdout F # nThread", 1795222923.0, True),
        ("[2026-11-21 01:02:03] host:1:2 [0]", 1795222923.0, False),
        ("Nov 21 01:02:03 # nThread", 1795222923.0, False),
        ("Sat Nov 21 01:02:03 2026<stdout>:# nThread", 1795222923.0, False),
        ("1795222923.25 # nThread", 1795222923.0, True),
    ],
)
def test_stamps(line: str, seconds: float, zoned: bool) -> None:
    assert stamp_of(line, latest=1795300000.0) == (seconds, zoned)


def test_text_that_is_no_time_stamp() -> None:
    assert stamp_of("# nThread 1 nGpus 4 minBytes 8") is None
    assert stamp_of("[2026-99-21 01:02:03] host") is None
    assert stamp_of("Feb 31 01:02:03 host", latest=1795300000.0) is None
    # A stamp without a year is of the past.
    assert stamp_of("Dec 30 01:02:03 x", latest=1795222923.0) == (1767056523.0, False)
