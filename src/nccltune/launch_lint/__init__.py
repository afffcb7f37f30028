# SPDX-License-Identifier: Apache-2.0
"""Predict what a launch command starts, and find what is wrong with it.

source.py      the commands of a line, a script or a test's output
words.py       the words of a shell line, with their quotes
typography.py  dashes and quotes of word processors
read.py        where the launcher's options end, and which launcher it can be
command.py     the launcher's command line as rules see it
options.py     the options of each launcher and their arguments
hosts.py       the hosts of a command and their slots
placed.py      where a launcher puts processes
manifest.py    commands in Kubernetes manifests
pods.py        what the pods of a manifest lack
misplaced.py   launcher options after the program
variables.py   the variables that NCCL reads (variables.csv)
check.py       run every rule, for every launcher that the command may be for
rules/         the rules
finding.py     a finding and its edits
fix.py         apply the edits of findings
translate.py   options of one launcher in the words of another
starts.py      a prediction as a sentence
"""
