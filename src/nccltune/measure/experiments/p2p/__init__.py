# SPDX-License-Identifier: Apache-2.0
"""A race between settings of NCCL's own send/recv: find the fastest settings.

Each process runs with one set of settings. A *candidate* is a setting with a value to try. The
*champion* is the fastest set of settings so far.

experiment.py  the scope, the calls that a process times, their start, and the verdict
settings.py    the five settings: legal values, effects, and candidates
race.py        which process to start next, and which settings can no longer win
verdict.py     the recommended settings, their gains, and their cost for other collectives
"""
