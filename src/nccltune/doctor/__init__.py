# SPDX-License-Identifier: Apache-2.0
"""The doctor: compare the facts of nodes with a rule base, and report findings and remedies.

The flow is evidence -> facts -> rules -> examination -> report. A fact is a named value of a node,
such as `gpu.driver`. A rule is a condition over facts, with a remedy. The verdict of a rule is
finding, ok, cannot tell (a fact is missing) or not applicable.

evidence/       read nodes, collected folders and logs; make facts of them
facts/          declare every fact: name, type, meaning, source
language/       the expressions of rules
rules/          the rules, one TOML file per family
rulebase.py     read and check all rule files
rule.py         one rule: its fields, and its compiled form
code.py         rules that are Python functions over the facts of all nodes
examine.py      evaluate each rule on each node: finding, ok, cannot tell, not applicable
result.py       the result of an examination, and whether the exit code is 1
summary.py      summarise an examination; list the files that "cannot tell" rules need
titles.py       describe a node in one line
script.py       make a shell script of the fixes
platform.py     fill a study's `platform.json` with facts
"""
