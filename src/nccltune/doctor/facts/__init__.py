# SPDX-License-Identifier: Apache-2.0
"""Typed facts of a node. Rules name a fact; code uses the constant that declares the fact.

declaration.py  declare a fact
catalogue.py    list all declared facts
facts.py        hold the facts of one node: values, and where they were read

node.py         the node, its CPUs, kernel, limits and shared memory
pci.py          PCI bridges and links
gpu.py          GPUs, their paths and copies, the IMEX domain
network.py      NICs, RDMA ports, GIDs and measurements of the network
cloud.py        the cloud and its placement
settings.py     settings, plugins and NCCL libraries
log.py          NCCL's log
topo.py         topology and graph files
results.py      results of tests and checks, and failures stated in outputs
"""

from nccltune.doctor.facts.catalogue import catalogue
from nccltune.doctor.facts.declaration import FactName, FactRecord, FactType
from nccltune.doctor.facts.facts import Fact, Facts, UnusedFile

__all__ = ["Fact", "FactName", "FactRecord", "FactType", "Facts", "UnusedFile", "catalogue"]
