# SPDX-License-Identifier: Apache-2.0
"""Compare NCCL's send/recv with copies by the GPUs' copy engines.

The send/recv library (`libnccltune-sendrecv.so`) makes these copies. The comparison is
by message size.

settings.py             the library's settings: legal values and candidates
preload.py              start a bench with the library preloaded, and read its message counts
experiment.py           the comparison by message size
order.py                the order of processes in the comparison by message size
threshold.py            the threshold, from the effects at each message size
verdict.py              the verdict by message size: recommended settings and a table

Words:

native       NCCL's own send/recv
carrier      what transfers a message: NCCL or a copy engine
threshold    the size of the smallest message that a copy engine carries
policy       settings with `NCCLTUNE_SENDRECV_POLICY=vccl`: copy engines then copy a message through
             a buffer on the receiver's GPU
champion     the best policy, if it is worth a proof
noise floor  the least difference that counts
"""
