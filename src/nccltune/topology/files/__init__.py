# SPDX-License-Identifier: Apache-2.0
"""Topology files, and pictures of topologies.

load.py            read a file of any kind as a topology
vm_file.py         write a topology file for a virtual machine
tree.py            links as trees, for the terminal and the picture
picture.py         a machine as SVG
picture_layout.py  positions of the boxes in the picture
"""
