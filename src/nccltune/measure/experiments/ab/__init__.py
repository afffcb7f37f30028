# SPDX-License-Identifier: Apache-2.0
"""A/B test of proposed settings: processes with and without the settings, in alternating runs.

settings.py    the proposed settings, and how they are put into an environment
runs.py        files of the study: every timing, and every process that has ended
facts.py       the effective settings of NCCL, and the log of its start that has them
judge.py       where the settings help, where they harm, and whether they are worth keeping
experiment.py  rounds of two processes, and which of the two runs first
program.py     run a program that prints tables of nccl-tests, or a job
speed.py       how fast a job is, from what it prints
bench.py       run our own bench
replay.py      draw processes from a recorded trial

Words:

trial    the A/B test of one set of settings in one study
side     `default` (without the proposed settings) or `set` (with them)
round    one process of each side, one directly after the other
probe    the first process of a trial: it is a `default`, and it is not compared
"""
