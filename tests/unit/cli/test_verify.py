# SPDX-License-Identifier: Apache-2.0
import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nccltune.app.verify import as_measured
from nccltune.cli import run
from nccltune.cli.measure_screen import rules_so_far
from nccltune.examples import examples
from nccltune.measure.bench.settings import restrictions
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.prove.result import Dropped, Proof
from nccltune.report.data import ProofGroupRow, ProofSizeRow
from nccltune.report.proof import build_proof, sentence
from nccltune.report.terminal import proof_tables, telling_proof
from nccltune.study.files import Study
from tests.unit.prove.proofs import K, M, Machine, drive, plan_for, rule


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study")
    made.write_json(made.platform_path, Platform(name="study"))
    return made


def proof(*, dropped: list[Dropped] | None = None, reason: str = "done") -> Proof:
    plan = plan_for([rule(4 * K, 64 * K), rule(128 * K, 512 * K, "ring/ll")])
    drive(plan, Machine(lambda _: 1.3))
    return Proof(
        study="study",
        config_hash="0",
        reason=reason,
        points=1,
        known=0,
        seconds=1.0,
        noise=0.011,
        replay=None,
        nccl_version="2.28.9",
        command="nccltune verify study",
        at="2026-11-21",
        rules=plan.verdicts({plan.rules[0]: 1.28}),
        dropped=dropped or [],
        groups=plan.groups(),
        passes=[],
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--replay", "x", "--gpus", "4"], "--replay: takes NCCL, GPUs and nodes"),
        (["--budget", "0"], "budget"),
        (["--budget", "5", "--", "ls"], "launch options are for measuring with our bench"),
        (["--gpus", "4", "--", "ls"], "launch options are for measuring with our bench"),
    ],
)
def test_bad_options_are_named(
    study: Study, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert run(["verify", str(study.path), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--", "ls"]])
def test_without_a_configuration_there_is_a_way_to_one(
    study: Study, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert run(["verify", str(study.path), *more]) == 2
    said = capsys.readouterr().err
    assert "tuner.conf: no such configuration" in said
    assert f"hint:  make it: nccltune tune {study.path}" in said


def test_a_configuration_without_rules_needs_no_gpu(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study.config_path.write_text("# nothing\n")
    assert run(["verify", str(study.path)]) == 0
    assert "nothing to verify: tuner.conf holds no rule" in capsys.readouterr().err


def test_the_launch_is_that_of_the_study(study: Study) -> None:
    def measured(**changes: object) -> object:
        platform = msgspec.structs.replace(Platform(name="study"), **changes)
        study.write_json(study.platform_path, platform)
        return as_measured(study)._asdict()

    nothing = as_measured(study)._asdict()
    assert nothing["replay"] is nothing["gpus"] is nothing["emulate_nodes"] is None
    assert measured(gpus=4, nodes=4, emulated_nodes=True) == {
        **nothing,
        "gpus": 4,
        "emulate_nodes": 4,
    }
    assert measured(gpus=4, nodes=1) == {**nothing, "gpus": 4}
    found = measured(replay="h200x4-as-4-nodes", gpus=4, nodes=4, emulated_nodes=True)
    assert found == {**nothing, "replay": examples()["h200x4-as-4-nodes"].absolute()}
    with pytest.raises(InputError, match="replays the recording 'mine'") as error:
        measured(replay="mine")
    assert "--replay PATH" in (error.value.hint or "")


def test_the_sentence_counts_what_became_of_the_rules() -> None:
    assert sentence(proof()) == "2 of 2 rules hold · 0 sizes slower · noise floor 1.1 %"
    narrow = Dropped(rule(4 * K, 128 * K), "slower", rule(4 * K, 64 * K))
    gone = Dropped(rule(1 * M, 2 * M), "slower: 0.9x at 2 MiB (0.8-0.95)")
    told = sentence(proof(dropped=[narrow, gone]))
    assert told.startswith("2 of 3 rules hold · 1 removed · 1 narrowed · 0 sizes slower")
    only = msgspec.structs.replace(proof(), rules=[], dropped=[gone])
    assert sentence(only).startswith("the rule does not hold · 1 removed")


def test_the_tables_show_telling_sizes_and_every_rule() -> None:
    out = io.StringIO()
    gone = Dropped(rule(1 * M, 2 * M), "slower: 0.9x at 2 MiB (0.8-0.95)")
    told = build_proof(proof(dropped=[gone], reason="budget"))
    proof_tables(told, Console(file=out, width=80))
    text = out.getvalue()
    assert "The budget was spent before everything was decided" in text
    assert "holds       all-reduce 4 KiB - 64 KiB tree/ll  1.30x  95 % CI 1.29-1.31" in text
    assert "expected 1.28x" in text
    assert "removed     all-reduce 1 MiB - 2 MiB tree/ll" in text
    assert "slower: 0.9x at 2 MiB" in text
    assert max(map(len, text.splitlines())) <= 80
    brief = io.StringIO()
    proof_tables(told, Console(file=brief, width=80), brief=True)
    assert "holds" not in brief.getvalue()
    assert "removed" in brief.getvalue()


def row(size: int, choice: str | None, verdict: str) -> ProofSizeRow:
    return ProofSizeRow(size, choice, False, verdict, "", 4, 1.0, 1.0, 1.0, 1.0, 1.0, None)


def test_telling_sizes_are_ends_best_neighbours_and_whatever_is_wrong() -> None:
    rows = [row(size, "tree/ll" if 4 <= size <= 10 else None, "alike") for size in range(1, 17)]
    rows[6] = msgspec.structs.replace(rows[6], gain=1.5)
    rows[14] = msgspec.structs.replace(rows[14], verdict="not alike")
    group = ProofGroupRow("all-reduce", 0.01, 0.01, rows)
    assert [item.bytes for item in telling_proof(group)] == [3, 4, 7, 10, 11, 15]
    alone = ProofGroupRow("all-gather", 0.01, 0.01, [row(1, None, "left alone")])
    assert telling_proof(alone) == []


def test_sizes_on_both_sides_of_an_edge_have_the_form_of_the_column() -> None:
    out = io.StringIO()
    plan = plan_for([rule(34_000, 256 * K)])
    drive(plan, Machine(lambda _: 1.3))
    told = build_proof(msgspec.structs.replace(proof(), groups=plan.groups(), rules=[]))
    proof_tables(told, Console(file=out, width=100))
    text = out.getvalue()
    edge = [line.split()[-1] for line in text.splitlines() if line.startswith("  33.2 KiB")]
    assert edge == ["alone", "tree/ll"]
    assert " B " not in text
    assert "Two rows of one size" in text


def test_a_size_left_alone_shows_what_was_measured() -> None:
    out = io.StringIO()
    plan = plan_for([rule(64 * K, 256 * K)])
    drive(plan, Machine(lambda _: 1.3))
    told = build_proof(msgspec.structs.replace(proof(), groups=plan.groups(), rules=[]))
    alone = msgspec.structs.replace(told.groups[0].sizes[0], gain=0.93, gain_low=0.8, gain_high=1.1)
    assert alone.verdict == "left alone"
    ruled = next(size for size in told.groups[0].sizes if size.choice)
    group = msgspec.structs.replace(told.groups[0], sizes=[alone, ruled])
    proof_tables(msgspec.structs.replace(told, groups=[group]), Console(file=out, width=100))
    assert "0.93x   0.80-1.10   left alone" in out.getvalue()


def test_the_live_table_says_what_is_known_of_every_rule() -> None:
    plan = plan_for([rule(4 * K, 64 * K)])
    out = io.StringIO()
    console = Console(file=out, width=100)
    console.print(rules_so_far(plan))
    assert "4 KiB - 64 KiB" in out.getvalue()
    drive(plan, Machine(lambda _: 1.3))
    console.print(rules_so_far(plan))
    assert "holds" in out.getvalue()


def test_settings_that_bend_are_explained() -> None:
    settings = {"NCCL_NVLS_ENABLE": "0", "NCCL_ALGO": "Ring", "NCCL_SOCKET_IFNAME": "lo"}
    assert restrictions(settings) == [
        "NCCL_ALGO=Ring (only these algorithms can be chosen)",
        "NCCL_NVLS_ENABLE=0 (NVLink SHARP is off)",
    ]
    assert restrictions({"NCCL_NVLS_ENABLE": "1"}) == []
