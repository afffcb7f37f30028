# SPDX-License-Identifier: Apache-2.0
"""Others' formats in and out. `inputs.read_inputs` reads any mix of files; one module a format.

inputs.py        files, folders and standard input, in order, each with the reader of its kind
detect.py        which kind a file is, by its content
reading.py       what a reading reports: counts, flags, what could not be read
nccl_tests_*.py  text and JSON of nccl-tests
prefixes.py      what launchers and log collectors write before a line
choice_evidence.py   the choice of a table: NCCL's log, command_lines.py, the user, file_names.py
evidence.py, choices.py  the collective of a table
rank_bounds.py   how many ranks a table's numbers allow
process_logs.py  the log lines of each run by process
yaml_documents.py    YAML in bounded time
nccl_log.py      what an NCCL log in the same output says
raw_csv.py       NVIDIA's raw CSV (measurements), both ways
tuner_csv.py     NVIDIA's tuner CSV (rules), both ways
xml_tree.py      small XML files, safely; topology_xml.py and graph_xml.py are NCCL's
nccl_xml_rules.py    what NCCL's own XML parser refuses
topology_xml_write.py  a topology for that parser
nvidia_smi_topo.py   the matrix of `nvidia-smi topo -m`, and the tree behind it
sysfs_topology.py    the running machine's PCI tree
"""
