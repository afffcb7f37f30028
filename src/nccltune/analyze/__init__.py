# SPDX-License-Identifier: Apache-2.0
"""Compute S-curves and findings from samples. This package is pure: it writes no files.

An S-curve is bandwidth over message size. A sample is one timing of one collective at one size. A
choice is an algorithm, protocol, number of channels and chunk size. A round is a set of timings
taken close together in time in one process.

study.py             analyse a whole study
timings.py           sort samples into conditions, sizes and choices
default_runs.py      what NCCL ran as its default; separate runs that did not run the same
curves.py            S-curves, their noise and their saturation
stats.py             robust means, and intervals for small samples
contrasts.py         gain of a choice over the default over several sizes, with its interval
gains.py             gain of every choice over the default at every size
findings.py          bad crossovers, slow runs and defects of a curve, with one sentence for each
shapes.py            dips and plateaus of a curve
falling_findings.py  the sentences about them
compared.py          what was compared with the default, what was not, and what is the fastest
expected.py          compare the measured peak with the bandwidth that the links allow
result.py            the structs of an analysis
"""

from nccltune.analyze.study import analyze
from nccltune.analyze.timings import sort_samples

__all__ = ["analyze", "sort_samples"]
