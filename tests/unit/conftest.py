# SPDX-License-Identifier: Apache-2.0
"""What tests of several packages use."""

from collections.abc import Iterator

import pytest

from .runs import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """Do not sync to disk: a study appends some thousand times, and no test here needs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nccltune.study.files.os.fsync", lambda _: None)
        yield
