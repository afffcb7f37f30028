# SPDX-License-Identifier: Apache-2.0
"""Configuration files of NCCL and its tuner plugins.

csv_rules.py  read and write NVIDIA's tuner CSV (rules)
nccl_conf.py  read and write nccl.conf: NAME=value lines
"""
