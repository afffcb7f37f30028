# SPDX-License-Identifier: Apache-2.0
"""The proof of a configuration: default against tuned, interleaved in one run.

result.py   what a proof is made of (proof.json)
sizes.py    which sizes are looked at: measured ones, those between, both sides of every edge
judge.py    when a size, and a rule, is good, bad or still open
collective_proof.py  one collective: timings, what ran, what is still to be measured
plan.py     all collectives: the questions to the bench, and the verdict
edit.py     takes a rule out of a configuration, or makes it narrower
run.py      passes over the bench until nothing more has to be taken out
stock.py    a program of the user's, started without and with the plugin
"""
