# SPDX-License-Identifier: Apache-2.0
"""A sweep with the nccl-tests binaries of a site: one process for every choice and round.

binaries.py    which binary times which collective, and its command
probe.py       a short first run of each choice: what can be chosen, what runs, on what
experiment.py  the scope, the processes of every round, and what is left out
"""
