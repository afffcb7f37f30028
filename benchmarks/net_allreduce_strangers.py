# SPDX-License-Identifier: Apache-2.0
"""An all-reduce loop over TCP while strangers come to the ports of its processes, and without.

python benchmarks/net_allreduce_strangers.py --program all_reduce_perf \\
    --plugin libnccl-net-nccltune.so [--a-minute 1000] [--cycles 30] [--calls 50] [--rounds 3] \\
    [--all-ports] [--ranks-per-gpu 1] [--nccl DIR] [--json FILE]

Needs GPUs, mpirun (Open MPI) and nccl-tests built with MPI; with --ranks-per-gpu, ranks share GPUs
under NVIDIA's MPS daemon. Sizes from 64 KiB to 64 MiB are gone through in cycles; every result is
checked. Cases, one after the other: nobody comes; from the end of the first cycle on so many
strangers of each kind a minute (net_strangers.py: port scans, HTTP requests, TLS hellos, random
bytes, silent peers) at the ports where the plugin listens; --all-ports: at all ports of the ranks,
NCCL's own among them. Shown is the median (min - max) of
the rows of all cycles but the first, of all rounds. Exit code 1 where an operation failed.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common import (
    Row,
    end_session,
    machine,
    read_row,
    save,
    session,
    shown,
    size_text,
    tests_version,
    told,
)
from net_loopback import (
    Candidate,
    check_network,
    environment,
    mpirun,
    nccltune,
    parse,
    said_by_nccl,
)

STRANGERS = Path(__file__).with_name("net_strangers.py")
# Not among those that the kernel gives to anybody, so that all of them are the plugin's.
PORTS = "21000-21999"
ALL_PORTS = "1-65535"
QUIET, ITS_PORTS, EVERY_PORT = "quiet", "strangers", "strangers at all ports"
SIZES = tuple(65536 * 4**step for step in range(6))


@dataclass
class Loop:
    """One run: its rows by cycle, what became of strangers, why it failed, what NCCL printed."""

    cycles: list[list[Row]]
    strangers: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)


def strangers_at(
    args: argparse.Namespace, processes: list[str], ports: str
) -> subprocess.Popen[str]:
    command = [sys.executable, str(STRANGERS), "--process", *processes, "--ports", ports]
    command += ["--a-minute", str(args.a_minute), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def call(args: argparse.Namespace, candidate: Candidate, ports: str | None) -> Loop:
    """One run of the program; strangers at these ports, if any."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        env = environment(candidate, folder, "INIT,NET", args.nccl)
        program = [args.program, "-b", str(SIZES[0]), "-e", str(SIZES[-1]), "-f", "4", "-g", "1"]
        program += ["-n", str(args.calls), "-w", "5", "-N", str(args.cycles)]
        before = f'echo $$ > "{folder}/pid.$OMPI_COMM_WORLD_RANK"; '
        command = mpirun(args.ranks, args.deadline, before, program, args.ranks_per_gpu)
        complaints = stack.enter_context((folder / "complaints").open("w"))
        pipes = {"stdout": subprocess.PIPE, "stderr": complaints, "stdin": subprocess.DEVNULL}
        process = stack.enter_context(session(command, env, **pipes))
        timer = threading.Timer(args.deadline, end_session, [process.pid])
        timer.start()
        stack.callback(timer.cancel)
        assert process.stdout is not None
        rows: list[Row] = []
        strangers = version = None
        for line in process.stdout:
            version = version or tests_version(line)
            if row := read_row(line):
                rows.append(row)
            if ports and strangers is None and len(rows) == len(SIZES):
                ranks = [path.read_text().strip() for path in folder.glob("pid.*")]
                strangers = strangers_at(args, ranks, ports)
            if strangers is not None and len(rows) == len(SIZES) * args.cycles:
                strangers.terminate()
        status = process.wait()
        loop = Loop([rows[at : at + len(SIZES)] for at in range(0, len(rows), len(SIZES))])
        if strangers is not None:
            loop.strangers = json.loads(strangers.communicate(timeout=60)[0])
        loop.said = said_by_nccl(folder) | {"nccl-tests": version}
        check_network(candidate, loop.said)
        if not timer.is_alive():
            loop.failures.append(f"not over after {args.deadline} s, {len(rows)} rows")
        elif status != 0:
            text = (folder / "complaints").read_text()[-1000:]
            loop.failures.append(f"exit code {status}: {text}")
    wrong = sum(row.wrong for row in rows)
    if wrong:
        loop.failures.append(f"{wrong} rows with wrong elements")
    if [row.size for row in rows] != list(SIZES) * args.cycles:
        loop.failures.append(f"{len(rows)} rows of {len(SIZES) * args.cycles}")
    return loop


def micros(loops: list[Loop]) -> dict[int, list[float]]:
    """By size all that was measured after the first cycle, out of place and in place."""
    found: dict[int, list[float]] = defaultdict(list)
    for loop in loops:
        for cycle in loop.cycles[1:]:
            for row in cycle:
                found[row.size] += row.micros
    return found


def table(by_case: dict[str, list[Loop]]) -> str:
    measured = {case: micros(loops) for case, loops in by_case.items()}
    quiet = measured.pop(QUIET)
    lines = [f"| size, us | {QUIET} | " + " | ".join(f"{case} | against it" for case in measured)]
    lines[0] += " |"
    lines.append("| --- " * (2 + 2 * len(measured)) + "|")
    for size in SIZES:
        cells = [shown(quiet[size]) if quiet[size] else "-"]
        for values in measured.values():
            if not (values[size] and quiet[size]):
                cells += ["-", "-"]
                continue
            ratio = statistics.median(values[size]) / statistics.median(quiet[size])
            cells += [shown(values[size]), f"{ratio:.3f}x"]
        lines.append(f"| {size_text(size)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_strangers(case: str, loops: list[Loop]) -> str:
    """What became of all of them, in one line."""
    sums: dict[str, int] = defaultdict(int)
    kinds: dict[str, int] = defaultdict(int)
    for loop in loops:
        for kind, count in loop.strangers.items():
            kinds[kind] += count["sent"]
            for name, number in count.items():
                sums[name] += number
    turned_away = sum(loop.said.get("turned_away", 0) for loop in loops)
    return (
        f"{case}: {sums['sent']} came ({', '.join(f'{n} {kind}' for kind, n in kinds.items())}), "
        f"{sums['refused']} refused, {sums['closed']} closed, {sums['answered']} answered; "
        f"the plugin logged that it turned {turned_away} away"
    )


def result(facts: dict[str, Any], by_case: dict[str, list[Loop]]) -> dict[str, Any]:
    cases = {case: [asdict(loop) for loop in loops] for case, loops in by_case.items()}
    return {"machine": facts, "cases": cases}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--calls", type=int, default=50, help="of each size in a cycle, twice")
    parser.add_argument("--a-minute", type=float, default=1000, help="of each kind")
    parser.add_argument("--all-ports", action="store_true")
    parser.add_argument("--deadline", type=float, default=150, help="seconds for one run")
    args = parse(parser)

    candidate = nccltune(args.plugin, NCCLTUNE_NET_PORTS=PORTS)
    cases: dict[str, str | None] = {QUIET: None, ITS_PORTS: PORTS}
    if args.all_ports:
        cases[EVERY_PORT] = ALL_PORTS
    by_case: dict[str, list[Loop]] = {case: [] for case in cases}
    facts = machine()
    for number in range(args.rounds):
        for case, ports in cases.items():
            loop = call(args, candidate, ports)
            by_case[case].append(loop)
            sent = sum(count["sent"] for count in loop.strangers.values())
            print(
                f"round {number + 1}, {case}: {sum(map(len, loop.cycles))} rows, {sent} strangers",
                *loop.failures,
                *loop.said["warnings"][:5],
                sep="\n  ",
                file=sys.stderr,
            )
            save(args.json, result(facts, by_case))
    print(
        told(facts | {k: by_case[QUIET][0].said[k] for k in ("nccl", "nccl-tests", "plugin")}),
        end="\n\n",
    )
    rows = sum(map(len, micros(by_case[QUIET]).values())) // len(SIZES)
    print(f"n = {args.rounds} rounds, {args.ranks} ranks, {rows} measurements of a size\n")
    print(table(by_case), end="\n\n")
    for case in list(cases)[1:]:
        print(of_strangers(case, by_case[case]))
    for case, loops in by_case.items():
        failed = sum(bool(loop.failures) for loop in loops)
        warned = sum(len(loop.said["warnings"]) for loop in loops)
        print(f"{case}: {failed} of {len(loops)} runs failed, {warned} warnings in NCCL's log")
    nobody = any(not loop.strangers for case in list(cases)[1:] for loop in by_case[case])
    if nobody:
        print("error: strangers were missing", file=sys.stderr)
    any_failed = any(loop.failures for loops in by_case.values() for loop in loops)
    sys.exit(1 if any_failed or nobody else 0)


if __name__ == "__main__":
    main()
