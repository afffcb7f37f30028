# SPDX-License-Identifier: Apache-2.0
"""Compare measurements: two sides size by size, or the nodes, scales and times of a fleet.

This package is pure: it reads and writes no files. All values are logs of times, so that a
difference of two values is the log of a ratio.

runs.py      a run (one start of a program) with its curves; the facts in which two sides differ
scan.py      neighbours in a series that differ from 0 beyond the scatter of the series
matching.py  the tests of two sides to compare
found.py     what the comparison of two curves found, and its sentences
sides.py     two sides size by size: ratios, ranges beyond noise, verdict
fleet.py     many runs of one test: nodes, pairs of nodes and runs that are slower than the others
series.py    many runs of one test: bandwidth over the number of nodes, and over time
"""
