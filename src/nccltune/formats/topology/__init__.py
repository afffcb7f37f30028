# SPDX-License-Identifier: Apache-2.0
"""Read and write descriptions of a node's hardware.

nccl_xml.py           NCCL's topology XML and the dialects of RCCL and FlagCX
nccl_xml_writer.py    write a topology as XML that NCCL's parser accepts
nccl_xml_rules.py     well-formed XML that NCCL's parser refuses
graph_xml.py          NCCL's graph XML: rings and trees of its search
xml_tree.py           parse small XML files, with limits and without DTD
nvidia_smi_matrix.py  the matrix of `nvidia-smi topo -m`
pasted_matrix.py      restore a pasted matrix: lost tabs, wrapped lines
beside_results.py     the one topology in a text with results
sysfs.py              the PCI tree of the running machine
cpu_list.py           lists of CPUs
"""
