# SPDX-License-Identifier: Apache-2.0
"""Modules that all readers share.

context.py           what a reader gets: the file, the user's options, the report to fill
file_report.py       what a reader reports: counts, flags, unreadable lines
runs.py              runs: starts of a measuring program, the unit of replication
platform_facts.py    the platform facts that a run shows; whether two runs are of one platform
collective_names.py  the collective in the name of a file or a program
choice_evidence.py   the choice of a table: NCCL's log, command line, user option, file name
command_lines.py     NCCL_ALGO and NCCL_PROTO in command lines
file_names.py        the choice in a file name
"""
