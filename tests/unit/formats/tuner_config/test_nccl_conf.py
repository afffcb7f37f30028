# SPDX-License-Identifier: Apache-2.0
"""NCCL's configuration file, as NCCL reads it."""

from pathlib import Path

import pytest

from nccltune.formats.tuner_config.nccl_conf import (
    conf_lines,
    first_settings,
    read_conf,
    render_conf,
)
from nccltune.model.errors import InputError

TEXT = "# NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n #NCCL_X=1\nno sign\n\nNCCL_ALGO=Tree\nNCCL_A=b=c # d"


def test_lines_with_their_numbers() -> None:
    assert list(conf_lines(TEXT)) == [
        (2, "NCCL_ALGO", "Ring"),
        # Only a `#` in the first column starts a comment.
        (3, " #NCCL_X", "1"),
        (6, "NCCL_ALGO", "Tree"),
        (7, "NCCL_A", "b=c # d"),
    ]


def test_the_first_line_of_a_name_counts(tmp_path: Path) -> None:
    assert first_settings(TEXT) == {"NCCL_ALGO": "Ring", " #NCCL_X": "1", "NCCL_A": "b=c # d"}
    (tmp_path / "nccl.conf").write_text(TEXT)
    assert read_conf(tmp_path / "nccl.conf") == first_settings(TEXT)


def test_only_a_line_feed_ends_a_line() -> None:
    assert first_settings("NCCL_A=1\x0bNCCL_B=2\u2028NCCL_C=3") == {
        "NCCL_A": "1\x0bNCCL_B=2\u2028NCCL_C=3"
    }


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    settings = {"NCCL_ALGO": "^nvls", "NCCL_NET_PLUGIN": "/a b/libx.so"}
    path = tmp_path / "nccl.conf"
    path.write_text(render_conf(settings, ["made by a test", ""]))
    assert read_conf(path) == settings
    with pytest.raises(InputError, match="cannot be read"):
        read_conf(tmp_path / "none")


def test_a_file_of_a_size_that_no_configuration_has(tmp_path: Path) -> None:
    path = tmp_path / "nccl.conf"
    path.write_text("NCCL_ALGO=" + "x" * (1 << 20))
    with pytest.raises(InputError, match="1 MiB"):
        read_conf(path)
