# SPDX-License-Identifier: Apache-2.0
"""Decide what a sweep of NCCL's choices measures next.

A sweep ends when its plan has no request left, or when `engine/scheduler.py` finds that the next
request would exceed the time budget. Nothing in this package starts a measurement.

plan.py             plans over all collectives: adaptive, or the full grid
collective_plan.py  the adaptive plan of one collective: its stages, and when each one ends
size_state.py       the state of one size: the leading choice and its rivals
rounds.py           which sizes get further rounds
refine.py           which sizes between the measured ones are measured next
channel_trials.py   which channel counts and chunk sizes are tried for the choice of a rule
estimates.py        gains over the default from few timings
grid.py             the sizes that can be measured
nccl_tables.py      NCCL's own tables, read before the first measurement
time_estimate.py    how long a request takes, and how long the rest of a plan takes

Words:

choice   an algorithm and a protocol, optionally with a channel count or a chunk size
default  no forced choice: NCCL decides
gain     natural log of the default's time over the time of a choice; above 0 is faster
round    timings made close together: each requested choice once and the default twice
"""
