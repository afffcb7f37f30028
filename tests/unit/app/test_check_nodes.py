# SPDX-License-Identifier: Apache-2.0
"""A check of several nodes holds if each of them has the same file and nothing differs."""

from pathlib import Path

import msgspec
import pytest

from nccltune.app.check import CheckResult, Fact, joined
from nccltune.app.status import NodeOutput
from nccltune.cli.check_screen import show_check

SAME = Fact("driver", "580.1", "580.1", "same")
RESULT = CheckResult(
    config="/etc/tuner.conf",
    config_hash="0b51d5cd9d5cfe7c",
    at="2026-11-27T05:00:00+00:00",
    holds=True,
    nccl="2.28.9",
    against=None,
    replay=None,
    seconds=30.0,
    facts=[SAME],
    rules=[],
)
UNMEASURED = msgspec.structs.replace(RESULT, seconds=0.0, holds=False)


def output(host: str, **changes: object) -> NodeOutput:
    found = msgspec.structs.replace(UNMEASURED, **changes)
    return NodeOutput(host, msgspec.json.encode(found), "")


DRIVER = Fact("driver", "580.1", "590.2", "differs")
ALL = [output("a"), output("b")]


@pytest.mark.parametrize(
    ("outputs", "holds", "words"),
    [
        (ALL, True, "2 of 2 have this file, and nothing differs"),
        (ALL[:1], False, "1 of 2 have this file, and nothing differs; 1 did not answer"),
        ([ALL[0], output("b", config_hash="f" * 16)], False, "b: another file: content ffff"),
        ([ALL[0], output("b", facts=[DRIVER])], False, "b: driver was 580.1, is 590.2"),
        (
            [ALL[0], NodeOutput("b", b"", "error: tuner.conf: no such file")],
            False,
            "b: could not be checked: error: tuner.conf: no such file",
        ),
        ([ALL[0], NodeOutput("b", b"", "")], False, "b: could not be checked: printed no result"),
    ],
)
def test_each_node_counts(
    outputs: list[NodeOutput], holds: bool, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = joined(RESULT, outputs, 2)
    assert found.holds is holds
    # Nodes cannot make good what the measurement found.
    assert not joined(msgspec.structs.replace(RESULT, holds=False), outputs, 2).holds
    show_check(found, Path("study"))
    assert words in " ".join(capsys.readouterr().out.split())


def test_the_file_that_apply_left_is_that_of_nodes_that_share_it() -> None:
    result = msgspec.structs.replace(RESULT, new_hash="e" * 16)
    assert joined(result, [output("a", config_hash="e" * 16)], 1).holds
