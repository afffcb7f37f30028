# SPDX-License-Identifier: Apache-2.0
"""What a sweep of choices measures next, and when it stops. Nothing in this package measures.

plan.py             plans over all collectives: adaptive, or the full grid
collective_plan.py  the adaptive plan of one collective: its stages, and when each one ends
size_state.py       what is known at every measured size
rounds.py           which sizes get further rounds
refine.py           which sizes between the measured ones come next
hopeless.py         which choices cannot win at larger sizes
channel_trials.py   channel counts and chunk sizes for the choices that rules will name
estimates.py        gains from few timings
grid.py             the sizes that are measured
nccl_tables.py      NCCL's own tables, read before anything is measured
time_estimate.py    how long the rest takes
"""
