# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of nccltune. Imports nothing of ours outside this folder.

collective.py  collectives: names, bytes that a tuner sees, bus bandwidth
choice.py      what NCCL may run for one call
chunks.py      what NCCL does with a tuner's chunk size
scale.py       nodes and ranks of a communicator
sizes.py       message sizes as nccl-tests writes them
sample.py      one timing
rule.py        a range of sizes and its choice
finding.py     a property of a curve, as data and as a sentence
platform.py    the machine that was measured
topology.py    a node's hardware as its files describe it
names.py       hints for misspelt words
errors.py      errors with a hint and an exit code
"""
