# SPDX-License-Identifier: Apache-2.0
"""What tests of several packages use."""

import pytest

from .runs import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
