# SPDX-License-Identifier: Apache-2.0
"""Model of NCCL's decisions for given hardware: paths, rings and trees.

paths.py            path between two devices
path_search.py      best path before settings change it
settings.py         settings that change paths
flow_kind.py        kinds of flows: which device moves the bytes, and whether it writes or reads
routes.py           routes from each GPU to its peers and NICs
search.py           channels of each algorithm, and their speed (search_speeds.toml)
search_rules.py     goal of the search, and its rules by version
search_attempts.py  attempts of the search, one for each goal
search_order.py     order in which attempts try GPUs and NICs
"""
