# SPDX-License-Identifier: Apache-2.0
"""Rules that find errors in topology and graph files. Entry point: `check.lint_files`.

check.py    apply all rules to files; nodes that differ, and a file beside its machine
issue.py    an issue: severity, place, text
shape.py    PCI trees that no real machine has
links.py    PCIe links for which NCCL assumes a wrong bandwidth, and broken NVLinks
balance.py  badly placed GPUs and NICs: no NIC near, shared uplinks, narrow slots
"""
