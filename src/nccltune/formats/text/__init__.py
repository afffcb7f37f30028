# SPDX-License-Identifier: Apache-2.0
"""Read any text file in bounded memory.

lines.py           split bytes into lines
delimited.py       split lines of tables into cells
cells.py           parse cells of NVIDIA's CSV files
json_stream.py     read the members of one large JSON object one at a time
yaml_documents.py  load YAML documents
diffs.py           read a diff as two texts
prefixes.py        remove prefixes that launchers, containers and log collectors add to a line
stamps.py          read time stamps at the start of a line
redact.py          decide which values of NCCL_* settings may be stored
"""
