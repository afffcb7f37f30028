# SPDX-License-Identifier: Apache-2.0
"""A sweep with the nccl-tests binaries of a site: one process for each choice in each round.

binaries.py    which binary times which collective, and the command that runs the binary
probe.py       a short first run of each choice: the legal choices, what NCCL executes, the platform
experiment.py  the scope, the processes of every round, and the choices that are left out
"""
