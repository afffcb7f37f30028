# SPDX-License-Identifier: Apache-2.0
"""From which size on a message is worth a copy engine: NCCL itself against the library before it,
in processes of their own. How they are carried out, records and replays are those of `measure.p2p`.

settings.py         the library's settings: legal values, and the candidates
preload.py          a bench with the library before its NCCL, and what it says of its messages
comparison.py       what both comparisons share
order.py            which process to start next
threshold.py        from what is known of each size to one threshold. Pure
verdict.py          what is recommended, with its table
driver.py           the comparison by size
rounds.py           which process to start next, beside traffic
fairness.py         whether a chunk is recommended there, with its table
fairness_driver.py  that comparison
"""
