# SPDX-License-Identifier: Apache-2.0
"""From a platform to samples: what to measure next, and the conversation with the bench.

conversation.py  requests and answers of `nccltune-bench` as types
bench.py         starts the bench on this machine and speaks with it
ask.py           what a plan asks for: points of one collective, and which of them are missing
grid.py          the sizes that are measured
estimates.py     what timings say about gains before there are many of them
lane.py          the adaptive plan of one collective
plan.py          the plans: adaptive over all collectives, or every point
identity.py      what the bench runs on, and whether a study is of the same
sweep.py         carries a plan out: bench, study, budget, resume
"""
