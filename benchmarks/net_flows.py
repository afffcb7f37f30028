# SPDX-License-Identifier: Apache-2.0
"""What a slow flow, flows that are reset and strangers cost a connection of eight flows.

python benchmarks/net_flows.py --host nccltune-net-host --pace libnccltune-pace.so \\
    --plugin libnccl-net-nccltune.so [--fastsocket libnccl-net-fastsocket.so] [--rounds 5] \\
    [--rate 20M] [--seconds 4] [--json FILE]

Without GPUs: nccltune-net-host plays NCCL between two processes over the loopback, with messages of
1 MiB, four at a time in one direction, on one connection. Every flow is paced to --rate bytes a
second from outside (SO_MAX_PACING_RATE by an interposed connect), and then: nothing else; one of
the eight to a tenth of it; one reset every second, one after the other; 1,000 strangers a minute at
the ports. A round runs all, one after the other; shown is the median (min - max) of the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

STRANGERS = Path(__file__).with_name("net_strangers.py")


@dataclass
class Candidate:
    """A plugin, how it is called, and by case the MB/s of each round; None: it failed."""

    name: str
    plugin: str
    options: list[str]
    settings: dict[str, str]
    skip: int  # connections before the eight that carry bytes
    mb_per_s: dict[str, list[float | None]] = field(default_factory=dict)


def paces(rate: int, skip: int) -> dict[str, dict[str, str]]:
    """The settings of the interposed library, by case."""
    even = {
        "PACE_SKIP": str(skip),
        "PACE_EVERY": "8",
        "PACE_WHICH": "3",
        "PACE_BYTES_PER_S": str(rate),
        "PACE_OTHERS_BYTES_PER_S": str(rate),
    }
    return {
        "all alike": even,
        "one at a tenth": even | {"PACE_BYTES_PER_S": str(rate // 10)},
        "one reset every second": even | {"PACE_RESET_MS": "1000"},
        "1,000 strangers a minute": even,
    }


def call(args: argparse.Namespace, candidate: Candidate, case: str, pace: dict[str, str]) -> None:
    command = [args.host, "throughput", "--direction", "forward", "--window", "4", "--fork"]
    command += ["--seconds", str(args.seconds), "--plugin", candidate.plugin, *candidate.options]
    environment = os.environ | {"NCCL_SOCKET_IFNAME": "lo", "LD_PRELOAD": args.pace}
    environment |= candidate.settings | pace
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as host:
        strangers = None
        if "strangers" in case:
            disturbed = [sys.executable, str(STRANGERS), "--process", str(host.pid)]
            disturbed += ["--a-minute", "1000", "--json"]
            strangers = subprocess.Popen(disturbed, stdout=subprocess.DEVNULL)
        try:
            said, complaint = host.communicate(timeout=args.seconds + 30)
        except subprocess.TimeoutExpired:
            host.kill()
            said, complaint = host.communicate()
        if strangers is not None:
            strangers.wait()
    rates = candidate.mb_per_s.setdefault(case, [])
    try:
        report = json.loads(said.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        print(f"{candidate.name}, {case}: {complaint.strip()[-300:]}", file=sys.stderr)
        rates.append(None)
        return
    rates.append(report["gb_per_s"]["forward"] * 1000 if report["ok"] else None)


def shown(rates: list[float | None], base: float | None) -> str:
    whole = [rate for rate in rates if rate is not None]
    failed = f", {len(rates) - len(whole)} of {len(rates)} failed" if None in rates else ""
    if not whole:
        return f"failed ({len(rates)} of {len(rates)})"
    median = statistics.median(whole)
    lost = "" if not base else f", {100 * (1 - median / base):.0f} % lost"
    return f"{median:.0f} ({min(whole):.0f} - {max(whole):.0f}) MB/s{lost}{failed}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--host", required=True)
    parser.add_argument("--pace", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--fastsocket")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=20_000_000)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()

    # The express flow, which is dialled first, carries no byte of such messages.
    eight = {"NCCLTUNE_NET_FLOWS": "8"}
    candidates = [Candidate("nccltune", str(Path(args.plugin).resolve()), [], eight, 1)]
    if args.fastsocket:
        # Its control connection comes first, too. It knows no sizes of grouped receives.
        settings = {
            "NCCL_FLOW_PLACEMENT_ENABLE": "0",
            "NCCL_SOCKET_NTHREADS": "8",
            "NCCL_NSOCKS_PERTHREAD": "1",
        }
        peer = str(Path(args.fastsocket).resolve())
        candidates.append(Candidate("Fast Socket", peer, ["--no-sizes"], settings, 1))
    for _ in range(args.rounds):
        for candidate in candidates:
            for case, pace in paces(args.rate, candidate.skip).items():
                call(args, candidate, case, pace)
    print(f"n = {args.rounds}, 8 flows of {args.rate / 1e6:.0f} MB/s, {os.cpu_count()} CPUs\n")
    cases = list(paces(args.rate, 0))
    print("| | " + " | ".join(cases) + " |")
    print("| --- " * (len(cases) + 1) + "|")
    for candidate in candidates:
        even = [rate for rate in candidate.mb_per_s[cases[0]] if rate is not None]
        base = statistics.median(even) if even else None
        cells = [shown(candidate.mb_per_s[c], None if c == cases[0] else base) for c in cases]
        print(f"| {candidate.name} | {' | '.join(cells)} |")
    if args.json:
        args.json.write_text(json.dumps({c.name: c.mb_per_s for c in candidates}, indent=1))


if __name__ == "__main__":
    main()
