# SPDX-License-Identifier: Apache-2.0
"""A/B test of a proposed setting: processes with and without it, in alternating runs.

settings.py    the proposed settings, and how they are put into an environment
runs.py        files of the study: every timing, and which processes ran to their end
facts.py       the effective settings of NCCL, from the log of its start
logs.py        where NCCL writes that log, and how it is fetched
judge.py       where the setting helps, where it harms, and whether it is worth keeping
experiment.py  rounds of two processes, and which of them runs first
program.py     runs a program that prints tables of nccl-tests
bench.py       runs our own bench
replay.py      draws processes from a recorded trial
"""
