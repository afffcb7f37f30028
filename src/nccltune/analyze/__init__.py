# SPDX-License-Identifier: Apache-2.0
"""From samples to S-curves and findings. This package is pure: it reads samples and writes nothing.

study.py      analyse a whole study
timings.py    sort samples into conditions, sizes and choices
curves.py     S-curves, their noise and their saturation
stats.py      robust means, and intervals for small samples
contrasts.py  gain of a choice over the default over several sizes, with its interval
gains.py      gain of every choice over the default at every size
findings.py   dips, plateaus and bad crossovers, one sentence each
expected.py   compare the measured peak with the bandwidth that the links allow
result.py     the structs of an analysis
"""

from nccltune.analyze.study import analyze
from nccltune.analyze.timings import sort_samples

__all__ = ["analyze", "sort_samples"]
