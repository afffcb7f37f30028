# SPDX-License-Identifier: Apache-2.0
"""Compare NCCL's send/recv with copies by the GPUs' copy engines.

The send/recv library (`libnccltune-sendrecv.so`) makes these copies. There are two comparisons: by
message size, and of chunk sizes while large background messages (*traffic*) are sent.

settings.py             the library's settings: legal values and candidates
preload.py              start a bench with the library preloaded, and read its message counts
comparison.py           the base class of both comparisons
experiment.py           the comparison by message size
order.py                the order of processes in the comparison by message size
threshold.py            the threshold, from the effects at each message size
verdict.py              the verdict by message size: recommended settings and a table
fairness_experiment.py  the comparison of chunk sizes during traffic
rounds.py               the order of processes in the comparison of chunk sizes
fairness.py             the verdict by chunk size: the recommended chunk size and a table

Words:

native       NCCL's own send/recv
carrier      what transfers a message: NCCL or a copy engine
threshold    the size of the smallest message that a copy engine carries
policy       settings with `NCCLTUNE_SENDRECV_POLICY=vccl`: copy engines then copy a message through
             a buffer on the receiver's GPU
champion     the best policy, if it is worth a proof
noise floor  the least difference that counts
"""
