# SPDX-License-Identifier: Apache-2.0
"""The engine that all experiments share: a scheduler, executors, and a record in the study.

Scheduler:
scheduler.py            runs tasks in order until none is left or the budget is spent
budget.py               seconds spent and left; how long a process takes
status.py               what an experiment of processes reports while it runs

Executors:
communicator.py         one bench in one communicator; the choice is switched between calls
settings_processes.py   one process for each set of settings
replay.py               recorded processes instead of GPUs
program.py              nccl-tests or any other program, run to its end

Record:
record.py               append-only files of a study; the summary of a run
point_record.py         points of a communicator: what is known, what failed
process_record.py       processes with their settings: every timing, and which ones ended

Experiments that compare settings:
settings_experiment.py  what they share: budget, resumption, status, time estimate
settings.py             a set of settings
workload.py             what each process measures
process_order.py        the order of candidates and defaults
gains.py                gains over the neighbouring defaults, and their noise
effective.py            the effective settings, from NCCL's log
"""
