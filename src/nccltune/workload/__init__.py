# SPDX-License-Identifier: Apache-2.0
"""What a job sends: read recordings of its communication into one table.

`read_workload` finds the format of each file by content. Each reader is a generator of calls in
bounded memory; only a pickle is read as a whole.

call.py             a call, its communicator, and its size as NCCL's tuner counts it
table.py            the calls of a job, summed up
demand.py           what a job calls of one collective at one scale: weights of measured sizes
reading.py          find the format of files, and read them into the table
pytorch_names.py    names, types and groups as PyTorch writes them
kineto.py           traces of the PyTorch profiler
chakra.py           Chakra traces in protobuf and JSON (execution traces of PyTorch)
flight_recorder.py  dumps of PyTorch's Flight Recorder
inspector.py        JSON lines of NCCL's Inspector
comm_dump.py        dumps of communicators by NCCLX
sampled.py          times of a random sample of calls
recorder.py         files of nccltune's recorder
jobs.py             the jobs in one folder of the recorder
"""
