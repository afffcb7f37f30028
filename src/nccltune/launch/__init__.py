# SPDX-License-Identifier: Apache-2.0
"""Start a job with a launcher (mpirun, hydra, Slurm, Kubernetes) and follow it to its end.

job.py         a job: the keys of a job file
flavor.py      launchers and their versions
find.py        installed launchers, and what a queue gave to this shell
placement.py   processes and GPUs of each node
program.py     arguments of nccl-tests: GPUs, sizes
options.py     meaning of nccl-tests' and nccltune-bench's arguments
render/        render a job as a command, script or manifest
run.py         start, follow and end a command
batch.py       submit, watch and cancel a Slurm job
kubernetes/    create, watch and delete a Kubernetes job
follow.py      parse the output of a running job
state.py       the ways in which a run can end, judged by its output
keep.py        store a run and its samples in a study
"""
