# SPDX-License-Identifier: Apache-2.0
"""The data types that all packages of nccltune share. They import no other package of nccltune.

collective.py  collectives: names, sizes as NCCL's tuner counts them, bus bandwidth
choice.py      algorithm, protocol, channels and chunk size of a call
forced.py      what NCCL_ALGO and NCCL_PROTO leave to NCCL
nccl_releases.py  what each release of NCCL has
nccl_variables.py  the variables that each release of NCCL reads (nccl_variables.csv)
scale.py       nodes and ranks of a communicator
numbers.py     numbers as people read them
sizes.py       message sizes as nccl-tests writes them
sample.py      one measured time
rule.py        the choice for a range of sizes
finding.py     a property of a curve, as data and as a sentence
platform.py    the machine that was measured
topology.py    a node's hardware as its files describe it
names.py       hints for misspelt words
errors.py      errors with a hint and an exit code
"""
