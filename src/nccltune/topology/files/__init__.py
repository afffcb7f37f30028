# SPDX-License-Identifier: Apache-2.0
"""Read and write topology files, and draw topologies.

load.py            read a file of any supported format
vm_file.py         write a topology file for a virtual machine
tree.py            links arranged as trees, for the terminal and the picture
picture.py         draw a machine as SVG
picture_layout.py  positions of the boxes in the picture
"""
