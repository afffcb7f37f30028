# SPDX-License-Identifier: Apache-2.0
"""The proof of a configuration: default against tuned, interleaved in one run.

result.py            the structs of a proof (proof.json)
sizes.py             the sizes to prove: measured ones, those between, both sides of every edge
judge.py             decide whether a size, or a rule, is good, bad or still open
collective_proof.py  one collective: timings, what ran, what is still to be measured
plan.py              all collectives: the questions to the bench, and the verdict
edit.py              remove a rule from a configuration, or narrow it
run.py               passes over the bench until every remaining rule holds
stock.py             compare two runs of a user's program, without and with the plugin
"""
