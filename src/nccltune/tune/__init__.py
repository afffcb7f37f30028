# SPDX-License-Identifier: Apache-2.0
"""Find rules from timings, lint rules, and explain what a tuner plugin decides.

A rule sets NCCL's algorithm, protocol, channels and chunk size for one collective, a range of sizes
and a scale (number of nodes and ranks).

study.py       tune a whole study: weights of sizes, groups, one rule for several scales
search.py      the rule search
evidence.py    the evidence for a rule: gain, state and reason
state.py       whether a rule is sure, a candidate or no rule
left_alone.py  why sizes have no rule
segment.py     split the size axis into ranges, with a price for each change; where curves cross
worth.py       what rules are worth to a job, and weights from its recordings
result.py      the structs of a tuning, and its options
basis.py       the facts of a platform that rules rest on
lint.py        rules of a configuration that do not do what their author expects
explain.py     decisions of any tuner plugin at each size
"""
