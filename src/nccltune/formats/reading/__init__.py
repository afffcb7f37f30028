# SPDX-License-Identifier: Apache-2.0
"""Modules that all readers share.

context.py           the input of a reader: the file, the user's options, the report to fill
file_report.py       the report of a reader: counts, flags, unreadable lines
runs.py              runs: starts of a measuring program, the unit of replication
platform_facts.py    the platform facts that a run shows; whether two runs are of one platform
collective_names.py  the collective in the name of a file or a program
choice_evidence.py   the choice of a table: NCCL's log, command line, user option, file name
command_lines.py     settings and options in command lines
command_scale.py     the ranks and nodes that a command line starts
named_version.py     the version of NCCL that prose names
file_names.py        the choice in a file name
table_header.py      the columns of a table by the names that people give them
titled_header.py     the names of columns completed by titles, units and lines around them
titles.py             the titles of tables in the text around them
cell_lists.py        cells of several values as columns or rows of their own
pairs.py             lines of names and values as rows of a table
foreign_names.py     names of columns in other languages
quantities.py        numbers with units
tensor_shapes.py     sizes of tables whose rows name the shape of a tensor
"""
