# SPDX-License-Identifier: Apache-2.0
"""The scripts of tests/gpu import each other as programs do, from their own folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))
