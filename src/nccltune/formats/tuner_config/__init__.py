# SPDX-License-Identifier: Apache-2.0
"""Configuration files of NCCL and its tuner plugins.

csv_rules.py  read and write NVIDIA's tuner CSV (rules)
joined.py     join the rules of several scales into one configuration
nccl_conf.py  read and write nccl.conf: NAME=value lines
"""
