# SPDX-License-Identifier: Apache-2.0
"""Facts of what other tools measured: RDMA bandwidth, pings between rails."""

from typing import Any

from nccltune.doctor.evidence.parsers.perftest import parse_perftest
from nccltune.doctor.evidence.parsers.pings import parse_rail_pings
from nccltune.doctor.evidence.raw import Evidence
from nccltune.doctor.facts import Facts


def add_measured(evidence: Evidence, facts: Facts) -> None:
    """Put in `rdma.tests` and `rdma.rail_pings`."""
    tests: list[dict[str, Any]] = []
    raws = evidence.all("perftest")
    for raw in raws:
        tests += [
            {"hca": one.hca, "peer": one.peer, "gbit_per_s": one.gbit_per_s, "gpu": one.gpu}
            for one in evidence.parse(raw, parse_perftest).runs
        ]
    if tests:
        facts.add("rdma.tests", tests, raws[0].place())
    pings = evidence.parsed("rail-pings", parse_rail_pings)
    if pings is not None:
        facts.add(
            "rdma.rail_pings",
            [
                {"from_rail": one.from_rail, "to_rail": one.to_rail, "reached": one.reached}
                for one in pings[0].pings
            ],
            pings[1].place(),
        )
