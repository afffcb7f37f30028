# SPDX-License-Identifier: Apache-2.0
"""Start a job with the launcher of a site and follow it to its end.

job.py         a job: the keys of a job file
flavor.py      launchers and their versions
find.py        installed launchers and their versions
allocation.py  nodes that a queue gave to this shell
placement.py   processes and GPUs of each node
program.py     arguments of nccl-tests: GPUs, sizes
options.py     meaning of nccl-tests' and nccltune-bench's arguments
render/        from a job to a command, script or manifest
run.py         start, follow and end a command
batch.py       submit, watch and cancel a Slurm job
kubernetes/    create, watch and delete a Kubernetes job
follow.py      parse the output while it grows
process.py     the signal behind an interruption
judge.py       how a run ended, by its output
state.py       how a run ended, by its launcher
keep.py        the folder of a run, and its samples in a study
"""
