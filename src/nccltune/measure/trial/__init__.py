# SPDX-License-Identifier: Apache-2.0
"""A/B of a proposed setting: processes with it and without it, in turn, round after round.

settings.py   what is proposed, and how it is put into an environment
runs.py       what is kept in the study: every timing, and which processes came to their end
facts.py      what NCCL made of its settings, by the log of its start
logs.py       where NCCL writes that log, and how it comes here
judge.py      where the setting helps, where it harms, and whether it is worth keeping
driver.py     rounds, order, resume, budget
program.py    runs a program that prints tables of nccl-tests
bench.py      runs our own bench
replay.py     draws processes from a recorded trial
"""
