# SPDX-License-Identifier: Apache-2.0
"""Model of NCCL's decisions for given hardware: paths, rings and trees.

paths.py            path between two devices
settings.py         settings that change paths
routes.py           routes from each GPU to its peers and NICs
search.py           channels of each algorithm, and their speed (search_speeds.toml)
search_rules.py     goal of the search, and its rules by version
search_attempts.py  attempts of the search, one for each goal
search_order.py     order in which attempts try GPUs and NICs
"""
