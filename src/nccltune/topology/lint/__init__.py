# SPDX-License-Identifier: Apache-2.0
"""Rules that find errors in topology and graph files. Entry point: `check.lint_files`.

check.py    apply all rules to files
issue.py    an issue: severity, place, text
shape.py    PCI trees that no real machine has
links.py    PCIe links for which NCCL assumes a wrong bandwidth
nvlink.py   NVLinks that are missing, that lead nowhere or that only one end lists
balance.py  badly placed GPUs and NICs: no NIC near, shared uplinks, narrow slots
graphs.py   graph files that do not match the machine
across.py   nodes that differ from the others
here.py     a file for NCCL_TOPO_FILE compared with the machine that uses it
"""
