# SPDX-License-Identifier: Apache-2.0
"""A race between settings of NCCL's native send/recv, each of which needs processes of its own.

settings.py       the five settings: legal values, what they do where, which are worth a try
effective.py      what NCCL made of them, from its log
workload.py       what every process measures
runs.py           what is kept in a study: every timing, and which processes came to their end
board.py          the gains of every process over the defaults before and after it
race.py           which process to start next, and who can no longer win
verdict.py        what is recommended, what it gains and what it costs elsewhere
replay.py         recorded processes instead of GPUs
session.py        starts processes one after the other: study, resume, budget
process_sweep.py  carries any sweep out whose settings need processes of their own
driver.py         the race
"""
