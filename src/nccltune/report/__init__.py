# SPDX-License-Identifier: Apache-2.0
"""Reports for people: one structure of plain data, rendered as a page.

build.py        make the report's data from analysis, tuning and proof; its header
data.py         the report as plain data
charts.py       columns of the two charts
verdict.py      the verdict in a few sentences
proof.py        the report of a proof
worth.py        what rules are worth to a job, in words
words.py        format numbers and ranges
remarks.py      the words for each kind of finding, and equal findings as one
html.py         the page
examination.py  the doctor's findings as a page
"""
