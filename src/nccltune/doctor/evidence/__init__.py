# SPDX-License-Identifier: Apache-2.0
"""Read the state of nodes, and make facts of it.

An item is one input of a node: a file, a group of files, or the output of a tool. Each item has a
name, such as `lspci`.

catalogue.py  list of the files, tools and variables that are read on a node
gather.py     read the running node
folder.py     read folders that were collected on other nodes
layout.py     find the node that each file of a folder belongs to
kinds.py      recognise the kind of a file by its content, else by its name
item_names.py names of items, and the item that the name of a file identifies
raw.py        raw text by item, and the cached results of its parsers
files.py      read files of the running node, with a size limit
tools.py      run tools of the running node, with a time limit
plugins.py    find NCCL's plugins and libraries on the running node
pci_tree.py   build the PCI tree from sysfs
collect.py    make facts of the running node or of collected items
elsewhere.py  decide whether files are of this node or of another one
many_nodes.py make facts of a folder of nodes, in several processes
facts_node.py      facts of the node, its processor, kernel, limits and shared memory
facts_gpu.py       facts of GPUs, their links and paths
facts_net.py       facts of NICs, RDMA ports, GIDs, counters and measurements
facts_pci.py       facts of PCI devices, links and IOMMU groups
facts_log.py       facts of NCCL's log, its diagnostics and nccl-tests
facts_settings.py  facts of settings, plugins and NCCL libraries
facts_topo.py      facts of topology and graph files
facts_cloud.py     facts of the cloud
facts_failures.py  facts of failures that some output states
parsers/      parse the text of a tool or file into records
script.py     make a shell script that writes the same folder
redacting.py  remove secrets and addresses from raw text
"""
