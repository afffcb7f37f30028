# SPDX-License-Identifier: Apache-2.0
"""Read and write topology files.

load.py     read a file of any supported format
vm_file.py  write a topology file for a virtual machine
"""
