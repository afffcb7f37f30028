# SPDX-License-Identifier: Apache-2.0
"""Compare NCCL's send/recv with the copy engines of the send/recv library.

settings.py             the library's settings: legal values and candidates
preload.py              a bench with the library preloaded, and its message counts
comparison.py           what both comparisons share
experiment.py           compare by message size
order.py                which process to start next
threshold.py            from gains by size to one threshold
verdict.py              the recommended settings, with their table
fairness_experiment.py  compare chunk sizes beside traffic
rounds.py               which process to start next beside traffic
fairness.py             the recommended chunk size, with its table
"""
