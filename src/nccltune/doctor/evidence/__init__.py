# SPDX-License-Identifier: Apache-2.0
"""The evidence side of the doctor: what is read of nodes, and the facts that it tells.

collect(root)        the facts of this node                        collect.py
folder_facts(path)   the facts of nodes that others collected      collect.py
collect_to(folder)   write this node's files                       write.py
collect_script()     a shell script that does the same             script.py

catalogue.py says what is read; parsers/ read it, text in and records out; facts_*.py give records
the names of `facts.toml`.
"""
