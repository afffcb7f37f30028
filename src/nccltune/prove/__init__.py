# SPDX-License-Identifier: Apache-2.0
"""The proof of a configuration: the default against the tuned rules, in alternating order.

result.py            the structs of a proof (proof.json)
sizes.py             the sizes to prove: measured, between measured ones, and at edges of rules
judge.py             decide whether a size or a rule is good, bad or open
collective_proof.py  one collective: its timings, its verdicts, and its next requests
plan.py              all collectives: the requests to the bench, and the verdict on every rule
spot.py              a check in seconds whether deployed rules still hold
check_drops.py       rules that a check removed, until they are measured again
edit.py              remove a rule from a configuration, or narrow its range of sizes
run.py               measure in passes until every remaining rule holds
program.py           rounds of a user's program, and the plan that judges rules by them
job.py               whether a job is faster with the configuration as a whole
stock.py             compare two runs of a user's program, without and with the plugin

Words:

default  a call without rules: NCCL decides
tuned    a call with the rules of the configuration
gain     natural log of default time over tuned time; above 0 is faster
round    timings of a size made close together: one of the tuned call and two of the default
pass     a measurement of one set of rules; after it, rules that do not hold are removed and the
         next pass begins
"""
