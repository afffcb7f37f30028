# SPDX-License-Identifier: Apache-2.0
"""Model the flows of a collective, and find the link that limits it.

A *ceiling* is the bandwidth that the links allow if nothing else limits the collective.

expect.py       expected bandwidth of a collective, and its limiting link
domain.py       nodes that NVLink joins (MNNVL)
flows.py        amounts that each channel sends over each link
ceiling.py      the ceiling, computed from loads by max-min fair shares
settings.py     settings that change flows
calibration.py  cost of each kind of flow (calibration.json)
measured.py     ceilings for the collectives and scales of a study
what_if.py      effect of a hardware or settings change on the ceiling
"""
