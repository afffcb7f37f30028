# SPDX-License-Identifier: Apache-2.0
"""Deployed rules and settings: what runs now, and who overrides whom.

mapped.py        NCCL, plugins and our libraries among mapped files
sources.py       whose value of a setting NCCL takes
jobs.py          the job of a process, its scale and NCCL's log
loaded_rules.py  the tuner configuration of a process, and which of its rules apply
audit.py         the audit of one process
node_status.py   all processes of this node, and what conflicts
metrics.py       counters of processes for Prometheus
"""
