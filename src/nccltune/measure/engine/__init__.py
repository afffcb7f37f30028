# SPDX-License-Identifier: Apache-2.0
"""The engine that all experiments share: a scheduler, executors, and a record in the study.

Scheduler:
scheduler.py            runs tasks in order until no task is left or the budget is spent; progress

Executors:
communicator.py         one bench with one communicator; the choice is switched between calls
replayed_bench.py       a bench without GPUs, whose timings are drawn from a recording
recording.py            the timings and predictions of a recording
program.py              nccl-tests or any other program, run to its end

Record:
record.py               append-only files of a study; the summary of a run
point_record.py         the timings and failures of a sweep in one communicator

workload.py             the calls that each process times
"""
