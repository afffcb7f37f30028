# SPDX-License-Identifier: Apache-2.0
"""From samples to S-curves and findings. Pure: reads samples, writes nothing."""

from nccltune.analyze.study import analyze, analyze_sorted
from nccltune.analyze.timings import sort_samples

__all__ = ["analyze", "analyze_sorted", "sort_samples"]
