# SPDX-License-Identifier: Apache-2.0
"""The hardware of a node and its links.

machine.py     topology of the running machine
build.py       one graph of directed links from topologies, as in NCCL
links.py       vertices and directed links
classify.py    NCCL's kind of a PCI device, and models of GPUs (gpu_models.toml)
bandwidth.py   NCCL's bandwidth of a link (bandwidths.toml)
fill_in.py     GPUs and NVLinks that a file leaves to detection (node_shapes.toml)
subset.py      a node with only some GPUs and NICs, such as those of NCCL_IB_HCA
change.py      walk and change a topology
"""
