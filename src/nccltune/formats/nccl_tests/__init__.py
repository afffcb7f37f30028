# SPDX-License-Identifier: Apache-2.0
"""Read the output of nccl-tests, text and JSON.

text.py                 text output, mixed with lines of launchers and NCCL
source.py               the output of one process
run.py                  the header: version, parameters, devices
scale.py                how many nodes and ranks a table has
conditions.py           in which way a run measured something else than plain calls
wrapped.py              join lines that a terminal wrapped
copied_table.py         copies of a table: Markdown, CSV, TSV, other column names
columns.py              the columns of a table, from its header lines
table.py                convert rows to samples
rows.py                 judge the rows of a table together
checks.py               check that a table is consistent
rank_bounds.py          the numbers of ranks that a table's numbers allow
collective_evidence.py  find the collective that a table measures
process_logs.py         NCCL's log lines by process
json_results.py         the JSON of `-J`
rccl_results.py         the results file of rccl-tests, JSON or CSV
"""
