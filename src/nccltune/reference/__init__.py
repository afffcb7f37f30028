# SPDX-License-Identifier: Apache-2.0
"""Place a measured curve among published ones: is this number normal?

curves.jsonl  the published figures, one curve a line, each with its source
curves.py     read and write curves of reference systems
alike.py      which systems are alike: GPU, GPUs a node, nodes, NIC rate
placement.py  figures of the systems that are alike, and the verdict
nodes.py      the usual node of a GPU model
causes.py     what a run shows that can make it slow
"""
