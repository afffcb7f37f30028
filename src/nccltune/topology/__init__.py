# SPDX-License-Identifier: Apache-2.0
"""From a node's hardware to its links, paths, flows and the link that limits a collective.

load.py          a file of any kind to a topology; machine.py the one it runs on
fill_in.py       GPUs and NVLinks that files leave to detection (gpu_models.py, node_shapes.toml)
links.py         vertices and directed links: the shared words
bandwidth.py     NCCL's bandwidth of one link, from bandwidths.toml
build.py         topologies to links; classify.py what a PCI device is
paths.py         NCCL's paths; path_search.py the search, settings.py what changes them
tree.py          links as trees, for the terminal and for picture.py (picture_layout.py)
lint/            what is wrong with files
vm_file.py       files for virtual machines
"""
