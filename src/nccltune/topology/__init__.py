# SPDX-License-Identifier: Apache-2.0
"""Model a node's hardware: links, paths, flows, and the link that limits a collective.

files/       read, write and draw topology files
hardware/    GPUs, NICs, switches and links of a node, with their bandwidths
nccl_model/  model of NCCL's decisions: paths, rings, trees, and their bandwidth
flows/       flows of a collective and the link that limits it
lint/        rules that find errors in topology and graph files
"""
