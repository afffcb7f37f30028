# SPDX-License-Identifier: Apache-2.0
"""A race between settings of NCCL's own send/recv, each in processes of its own.

experiment.py  the scope, what a process measures, and the verdict
settings.py    the five settings: legal values, their effect, which are worth a try
race.py        which process to start next, and which settings can no longer win
verdict.py     the recommended settings, their gains, and their cost for other collectives
start.py       starts a bench with settings of NCCL
"""
