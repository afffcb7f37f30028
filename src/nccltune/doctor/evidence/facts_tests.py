# SPDX-License-Identifier: Apache-2.0
"""Facts that other tools measured: RDMA bandwidth, pings between rails."""

from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.doctor.facts import Facts
from nccltune.doctor.facts.network import RDMA_RAIL_PINGS, RDMA_TESTS, RailReach, RdmaTest


def add_measured(evidence: NodeEvidence, facts: Facts) -> None:
    """Add `rdma.tests` and `rdma.rail_pings`."""
    tests: list[RdmaTest] = []
    raws = evidence.all("perftest")
    for raw in raws:
        tests += [
            RdmaTest(hca=one.hca, peer=one.peer, gbit_per_s=one.gbit_per_s, gpu=one.gpu)
            for one in evidence.parse(raw, parse_perftest).runs
        ]
    if tests:
        facts.add(RDMA_TESTS, tests, raws[0].place())
    pings = evidence.parsed("rail-pings", parse_rail_pings)
    if pings is not None:
        facts.add(
            RDMA_RAIL_PINGS,
            [
                RailReach(from_rail=one.from_rail, to_rail=one.to_rail, reached=one.reached)
                for one in pings[0].pings
            ],
            pings[1].place(),
        )
