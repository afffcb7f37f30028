# SPDX-License-Identifier: Apache-2.0
"""The purpose of a sample, in its present form and in that of older files."""

import msgspec
import pytest

from nccltune.model.sample import Purpose, Source


@pytest.mark.parametrize(
    ("tool", "read", "purpose"),
    [
        ("nccltune-bench", "nccltune-bench", Purpose.TUNE),
        ("nccltune-bench verify", "nccltune-bench", Purpose.VERIFY),
        ("nccltune-bench replay verify", "nccltune-bench replay", Purpose.VERIFY),
        ("nccl-tests try", "nccl-tests", Purpose.AB),
        ("nccl-tests replay", "nccl-tests replay", Purpose.TUNE),
        ("verify", "verify", Purpose.TUNE),
    ],
)
def test_older_files_have_the_purpose_in_the_name_of_the_tool(
    tool: str, read: str, purpose: Purpose
) -> None:
    source = msgspec.json.decode(msgspec.json.encode({"tool": tool}), type=Source)
    assert (source.tool, source.purpose) == (read, purpose)
    assert msgspec.json.decode(msgspec.json.encode(source), type=Source) == source


def test_the_purpose_of_tuning_is_not_written() -> None:
    assert msgspec.json.encode(Source(tool="x")) == b'{"tool":"x"}'
    written = msgspec.json.encode(Source(tool="x", purpose=Purpose.AB))
    assert written == b'{"tool":"x","purpose":"ab"}'


def test_an_unknown_purpose_is_damage() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"tool":"x","purpose":"other"}', type=Source)
