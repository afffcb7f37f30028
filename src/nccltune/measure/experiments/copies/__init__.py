# SPDX-License-Identifier: Apache-2.0
"""Compare NCCL's send/recv with copies by the GPUs' copy engines.

The send/recv library (`libnccltune-sendrecv.so`) makes these copies. The comparison is
by message size.

settings.py             the library's settings, and what carries the messages of a process
record.py               the processes in a study: every timing, and which processes ended
processes.py            start processes, or take them from an earlier session
experiment.py           the comparison: order of processes, budget, time estimate
verdict.py              the verdict: recommended settings and a table

Words:

native       NCCL's own send/recv
carrier      what transfers a message: NCCL or a copy engine
threshold    the size of the smallest message that a copy engine carries
noise floor  the least difference that counts
"""
