# SPDX-License-Identifier: Apache-2.0
"""A sweep with the nccl-tests binaries of a site: a process for every choice and round.

program.py   starts a program and leaves nothing of it behind
binaries.py  which binary times which collective, and how it is called
look.py      a short first run of each choice: what can be chosen, what runs, on what
driver.py    the plan, the study, resume and budget
"""
