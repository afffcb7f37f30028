# SPDX-License-Identifier: Apache-2.0
"""Files of weights."""

from pathlib import Path

import pytest

from nccltune.model.errors import InputError
from nccltune.tune.weights import read_weights


@pytest.mark.parametrize("weight", ["1e308", "nan", "-1", "inf", ""])
def test_impossible_weights_are_refused(tmp_path: Path, weight: str) -> None:
    path = tmp_path / "weights.csv"
    path.write_text(f"64K,{weight}\n")
    with pytest.raises(InputError, match="is not a weight"):
        read_weights(path)
