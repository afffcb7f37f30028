# SPDX-License-Identifier: Apache-2.0
"""How a long run is to behave, whatever it measures."""

from typing import NamedTuple


class Manner(NamedTuple):
    """`again` is the command that resumes; `dry_run` only says what would be measured; `as_json`
    prints the result for machines."""

    again: str
    dry_run: bool = False
    as_json: bool = False
