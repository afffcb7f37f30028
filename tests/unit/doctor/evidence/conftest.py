# SPDX-License-Identifier: Apache-2.0
"""A made-up node for the tests of evidence."""

from pathlib import Path

import pytest

from tests.unit.doctor.evidence.node import make_node


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a made-up node. Tests only read them."""
    path = tmp_path_factory.mktemp("node")
    make_node(path)
    return path
