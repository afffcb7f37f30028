# SPDX-License-Identifier: Apache-2.0
"""Facts that other tools measured: RDMA bandwidth, pings between rails."""

from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.network import RDMA_RAIL_PINGS, RDMA_TESTS, RdmaTest


def add_measured(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `rdma.tests` and `rdma.rail_pings`."""
    tests: list[RdmaTest] = []
    raws = evidence.all("perftest")
    for raw in raws:
        tests += evidence.parse(raw, parse_perftest).records
    if tests:
        facts.add(RDMA_TESTS, tests, raws[0].place())
    pings = evidence.parsed("rail-pings", parse_rail_pings)
    if pings is not None:
        facts.add(RDMA_RAIL_PINGS, pings[0].records, pings[1].place())
