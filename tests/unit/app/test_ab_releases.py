# SPDX-License-Identifier: Apache-2.0
"""Two releases of NCCL: which choices changed, and which old ones become candidates."""

from pathlib import Path

import pytest

from nccltune.app.ab_releases import ReleaseVerdict, with_releases
from nccltune.cli.ab_screen import _chosen
from nccltune.formats.tuner_config.csv_rules import read_rules
from nccltune.measure.experiments.ab.experiment import TrialOutcome
from nccltune.measure.experiments.ab.judge import judge
from nccltune.measure.experiments.ab.runs import SettingTrial
from nccltune.measure.experiments.ab.settings import LIBRARY
from nccltune.model.choice import DEFAULT, Choice, parse_choice
from nccltune.model.collective import Collective
from nccltune.model.platform import Platform
from nccltune.model.sample import Purpose, Sample, Source
from nccltune.study.files import Study

TRIAL = SettingTrial(settings={LIBRARY: "/new"}, baseline={LIBRARY: "/old"}, what=[])
PLAIN, REGISTERED, GRAPH, BOTH = (False, False), (True, False), (False, True), (True, True)
Row = tuple[tuple[bool, bool], int, str, str, float]
"""Whether registered and in a graph, KiB, what each release ran, and the time of the second."""


def compared(path: Path, rows: list[Row], after: str = "2.32.3") -> ReleaseVerdict:
    """Return the verdict on releases that ran so; the first one takes 10 us."""
    study = Study.create(path)
    study.write_json(study.platform_path, Platform(name="s", nccl_version="2.28.9"))
    samples = [
        Sample(
            study="s",
            collective=Collective.ALLGATHER,
            bytes=kib << 10,
            nodes=2,
            ranks=2,
            registered=kind[0],
            graph=kind[1],
            choice=DEFAULT,
            ran=ran if isinstance(ran := parse_choice(label), Choice) else None,
            settings=TRIAL.of(side),
            round=round_,
            time_us=time_us * (1 + 0.001 * round_),
            source=Source(tool="nccltune-bench", nccl_version=version, purpose=Purpose.AB),
        )
        for kind, kib, *labels, slower in rows
        for round_ in range(6)
        for side, version, label, time_us in zip(
            ("default", "set"), ("2.28.9", after), labels, (10.0, slower), strict=True
        )
    ]
    outcome = TrialOutcome("done", list(range(6)), 0, 12, 12.0)
    verdict = judge(TRIAL, samples, outcome, min_gain=0.03)
    return with_releases(study, TRIAL, samples, outcome, verdict)


@pytest.mark.parametrize(
    ("rows", "changed", "rules"),
    [
        pytest.param(
            # Channels count only where the algorithm and the protocol are the same.
            [
                (PLAIN, 28, "pat/simple/2", "ring/simple/1", 15.0),
                (PLAIN, 32, "pat/simple/1", "ring/simple/2", 15.0),
            ],
            ["28 32 pat/simple ring/simple slower"],
            ["28 32 pat/simple None"],
            id="algorithm",
        ),
        pytest.param(
            [(PLAIN, 32, "pat/simple/1", "pat/simple/2", 15.0)],
            ["32 32 pat/simple/1 pat/simple/2 slower"],
            ["32 32 pat/simple/1 None"],
            id="more-channels",
        ),
        pytest.param(
            [
                (PLAIN, 32, "ring/ll/22", "ring/ll/16", 15.0),
                (PLAIN, 64, "ring/ll/22", "ring/ll/16", 10.0),
            ],
            ["32 32 ring/ll/22 ring/ll/16 slower", "64 64 ring/ll/22 ring/ll/16 same"],
            [],  # rules only lower channels since 2.31
            id="fewer-channels",
        ),
        pytest.param(
            # NCCL 2.30 and later name the chunk; for some calls no channels.
            [
                (PLAIN, 32, "ring/ll/2", "ring/ll/2/32768", 15.0),
                (PLAIN, 64, "ring/ll/2", "ring/ll/-/32768", 15.0),
            ],
            [],
            [],
            id="named-otherwise",
        ),
        pytest.param(
            [
                (PLAIN, 32, "ring/ll", "ring/simple", 15.0),
                (REGISTERED, 32, "ring/ll", "ring/simple", 10.0),
                (GRAPH, 32, "tree/ll", "ring/ll", 15.0),
                (BOTH, 32, "tree/simple", "ring/ll", 15.0),
                (BOTH, 64, "tree/simple", "ring/ll", 15.0),
            ],
            [
                "32 32 ring/ll ring/simple slower",
                "32 32 ring/ll ring/simple same",
                "32 32 tree/ll ring/ll slower",
                "32 64 tree/simple ring/ll slower",
            ],
            # In graphs and registered, the larger size is left.
            ["32 32 ring/ll False", "32 32 tree/ll True", "32 64 tree/simple True"],
            id="kinds-of-calls",
        ),
        pytest.param(
            [
                (REGISTERED, 64, "ring/ll", "ring/simple", 15.0),
                *((BOTH, kib, "tree/ll", "ring/simple", 15.0) for kib in (32, 64, 128)),
            ],
            ["64 64 ring/ll ring/simple slower", "32 128 tree/ll ring/simple slower"],
            ["64 64 ring/ll True", "32 63 tree/ll True", "64 128 tree/ll True"],
            id="both-sides-are-left",
        ),
        pytest.param(
            [(GRAPH, 32, "tree/ll", "ring/ll", 15.0)],
            ["32 32 tree/ll ring/ll slower"],
            ["32 32 tree/ll True"],
            id="graphs-alone",
        ),
    ],
)
def test_what_was_faster_under_the_first_release_becomes_a_candidate(
    tmp_path: Path, rows: list[Row], changed: list[str], rules: list[str]
) -> None:
    found = compared(tmp_path / "s", rows)
    assert [
        f"{one.min_bytes >> 10} {one.max_bytes >> 10} {one.before.label} {one.after.label} "
        f"{one.effect}"
        for one in found.ran
    ] == changed
    assert [
        f"{rule.min_bytes >> 10} {rule.max_bytes >> 10} {rule.choice.label} {rule.registered}"
        for rule in found.rules
    ] == rules
    assert found.known_ran == len(rows)
    assert (found.candidate is None) == (not rules)
    assert not any(
        one.registered == other.registered
        and one.min_bytes <= other.max_bytes
        and other.min_bytes <= one.max_bytes
        for index, other in enumerate(found.rules)
        for one in found.rules[index + 1 :]
    )
    if found.candidate is not None:
        written = read_rules(Study(Path(found.candidate)).config_path, strict=True).rules
        assert [item.rule for item in written] == list(found.rules)


def test_more_channels_are_a_candidate_where_a_rule_can_raise_them(tmp_path: Path) -> None:
    found = compared(tmp_path / "s", [(PLAIN, 32, "ring/ll/22", "ring/ll/16", 15.0)], "2.30.7")
    assert [rule.choice.label for rule in found.rules] == ["ring/ll/22"]


def test_other_channels_that_do_no_harm_are_one_line(tmp_path: Path) -> None:
    rows = [(PLAIN, kib, f"ring/ll/{kib}", "ring/ll/1", 10.0) for kib in (32, 64)]
    assert list(_chosen(compared(tmp_path / "s", rows))) == [
        "other channels in 2 ranges of sizes, as fast within noise"
    ]
