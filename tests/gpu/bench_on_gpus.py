# SPDX-License-Identifier: Apache-2.0
"""nccltune-bench with a real NCCL, on the GPUs of one machine.

    python tests/gpu/bench_on_gpus.py --bench build/release/native/bench/nccltune-bench \
        --tuner libnccl-tuner-nccltune.so [--nccl libnccl.so.2] [--only NAME ...]
        [--ranks-per-gpu N [--no-mps]] [-o results.json]

Needs Python alone, and 2 GPUs or more, or one with --ranks-per-gpu. Each check prints one line; a
failed one exits with 1.

combinations   every collective, data type and reduction is right, one process a GPU
shapes         every collective is right in place, registered, as a graph; one process with all
               GPUs, one process a GPU, and emulated nodes. Ranks that share a GPU: each a node,
               and with NCCL 2.31 or newer all on one node
choices        forced choices run: the bench reports what NCCL's own log shows, call by call, also
               for the default
calls          NCCL's tuner gets numPipeOps for groups of calls, and regBuff 1 for registered
               buffers; both are printed. The results of every call of a group are right
timings        events against the host clock, default against default, and with the probe against
               without
failures       too large a size, a stuck collective, a killed rank: named, and nothing is left
nccl-tests     (with --all-reduce-perf, built without MPI; no shared GPUs) the small all-reduce,
               alternating
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import common
import shared_gpu
from bench_processes import TUNED, Answer, Bench, calls_in


def shapes(options: argparse.Namespace) -> dict[str, dict[str, int]]:
    ranks, gpus = options.ranks, options.gpus
    if options.ranks_per_gpu > 1:
        found = {f"{ranks} emulated nodes": {"processes": ranks, "nodes": ranks}}
        if nccl_version(options) >= shared_gpu.FIRST_ONE_NODE:
            found[f"{ranks} ranks of one node"] = {"processes": ranks, "nodes": 1}
        return found
    return {
        "one process": {"processes": 1, "gpus_per_process": gpus},
        "a process a GPU": {"processes": gpus},
        f"{gpus} emulated nodes": {"processes": gpus, "nodes": gpus},
    }


def nccl_version(options: argparse.Namespace) -> tuple[int, ...]:
    if options.version is None:
        with Bench(options, processes=options.ranks) as bench:
            options.version = bench.hello()["nccl"]["version"]
            bench.quit()
    return tuple(map(int, options.version.split(".")))


def problems(points: list[Answer], what: str, *, checked: bool = True) -> list[str]:
    """What is wrong with points that should all be right."""
    found = []
    for point in points:
        words = f"{what}: {json.dumps(point)}"
        if point["op"] != "point" or "error" in point:
            found.append(words)
        elif checked and point["wrong"] != 0:
            found.append(f"not checked or wrong: {words}")
        elif not point["time_us"] > 0 or not point["host_us"] > 0:
            found.append(f"no time: {words}")
    return found


def check_combinations(options: argparse.Namespace, report: Answer) -> list[str]:
    """Small steps: every collective with every type, every reduction with every type."""
    failures: list[str] = []
    count = 0
    ranks = options.ranks
    with Bench(options, processes=ranks) as bench:
        can = bench.hello()["can"]
        for collective in can["collectives"]:
            redops = can["redops"] if "reduce" in collective else ["sum"]
            for dtype in can["dtypes"]:
                for redop in redops:
                    points = bench.measure(
                        collective=collective,
                        bytes=[ranks * 8 * 1000, ranks << 20],
                        dtype=dtype,
                        redop=redop,
                        root=ranks - 1,
                        iterations=1,
                    )
                    count += len(points)
                    failures += problems(points, f"{collective} {dtype} {redop}")
        if bench.quit() != [0] * ranks:
            failures.append("a process did not end well")
    report["steps"] = count
    return failures


def check_shapes(options: argparse.Namespace, report: Answer) -> list[str]:
    failures: list[str] = []
    count = 0
    hellos = {}
    for name, shape in shapes(options).items():
        with Bench(options, **shape) as bench:
            hello = bench.hello()
            hellos[name] = hello
            if hello["nodes"] != max(1, shape.get("nodes", 0)) or hello["ranks"] != options.ranks:
                failures.append(f"{name}: {hello['nodes']} nodes, {hello['ranks']} ranks")
            for collective in hello["can"]["collectives"]:
                for mode in range(4):
                    registered, graph = mode & 1, mode & 2
                    points = bench.measure(
                        collective=collective,
                        bytes=[1024, 96 * 1024, 24 << 20],
                        registered=bool(registered),
                        graph=bool(graph),
                        iterations=2,
                    )
                    count += len(points)
                    failures += problems(points, f"{name} {collective} mode {mode}")
            if any(bench.quit()):
                failures.append(f"{name}: a process did not end well")
    report["steps"] = count
    report["hello"] = hellos
    return failures


def compressed(calls: list[Any]) -> list[Any]:
    return [call for i, call in enumerate(calls) if i == 0 or call != calls[i - 1]]


def check_choices(options: argparse.Namespace, report: Answer) -> list[str]:
    """Forced choices and defaults against the log that NCCL writes of the same calls."""
    failures: list[str] = []
    sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 24]
    told = 0
    for name, shape in shapes(options).items():
        with tempfile.TemporaryDirectory() as folder:
            log_file = f"{folder}/log.%p.0" if shape["processes"] == 1 else f"{folder}/log.%p.%h"
            environment = {
                "NCCL_DEBUG": "INFO",
                "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING",
                "NCCL_DEBUG_FILE": log_file,
            }
            said = []
            silent: set[str] = set()
            with Bench(options, **shape, environment=environment) as bench:
                hello = bench.hello()
                leader = bench.processes[0].pid
                for collective in TUNED:
                    table = bench.table(collective, sizes)
                    for size in sizes:
                        choices: list[Any] = ["default"]
                        for cell in table[size]["costs"]:
                            algorithm, protocol = cell.split("/")
                            choice = {"algorithm": algorithm, "protocol": protocol}
                            choices.append(choice)
                            choices += [{**choice, "channels": n} for n in (1, 2, 4)]
                        points = bench.measure(
                            collective=collective, bytes=[size], choices=choices, iterations=1
                        )
                        failures += problems(points, f"{name} {collective} {size}")
                        for point in points:
                            ran, choice = point.get("ran"), point.get("choice")
                            if collective == "broadcast" and ran and ran["channels"] is None:
                                # NCCL 2.32 reports no broadcast to its profiler interface.
                                silent.add(collective)
                                ran = {**ran, "channels": 0}
                            if not ran or ran.get("channels") is None:
                                failures.append(f"{name}: nothing is reported as run: {point}")
                                continue
                            call = (ran["algorithm"], ran["protocol"], ran["channels"])
                            said.append((collective, size, *call))
                            if choice == "default":
                                predicted = table[size]["predicted"]
                                if call[:2] != (predicted["algorithm"], predicted["protocol"]):
                                    failures.append(f"{name}: {point}, predicted {predicted}")
                            elif call[:2] != (choice["algorithm"], choice["protocol"]):
                                failures.append(f"{name}: {choice} did not run: {point}")
                            elif ran["channels"] > choice.get("channels", 64):
                                failures.append(f"{name}: more channels than asked for: {point}")
                            if not point["applied"]:
                                failures.append(f"{name}: not applied: {point}")
                if any(bench.quit()):
                    failures.append(f"{name}: a process did not end well")
            paths = list(Path(folder).glob(f"log.{leader}.*"))
            log = "".join(path.read_text(errors="replace") for path in paths)
            calls = calls_in(log, options.ranks, hello["nccl"]["version"])
            # Left out: the first all-reduce, the ranks' meetings and the calls for the tables. What
            # follows each other alike is one.
            wanted = {(collective, size) for collective in TUNED for size in sizes}
            heard = compressed(
                [
                    (*call[:4], 0) if call[0] in silent else call
                    for call in calls
                    if call[:2] in wanted
                ]
            )
            spoken = compressed(said)
            missing = [call for call in spoken if call not in heard]
            order = subsequence(spoken, heard)
            told += len(said)
            if missing or not order:
                failures.append(
                    f"{name}: NCCL's log has {len(heard)} calls and does not bear out {missing[:5]}"
                    f" (in order: {order})"
                )
            strange = [call for call in heard if call not in set(spoken)]
            if strange:
                failures.append(
                    f"{name}: NCCL's log has calls that were not reported: {strange[:5]}"
                )
    report["points"] = told
    return failures


def check_calls(options: argparse.Namespace, report: Answer) -> list[str]:
    """What NCCL's tuner gets for groups of calls and for registered buffers."""
    failures: list[str] = []
    rows = []
    ranks, version = options.ranks, nccl_version(options)
    ring = {"algorithm": "ring", "protocol": "simple"}
    # A communicator has at most 64 channels, so 65 calls and more are several for a channel.
    groups = [1, 4, 65, 200]
    nodes = ranks if options.ranks_per_gpu > 1 else 0
    with Bench(options, processes=ranks, nodes=nodes) as bench:
        bench.hello()
        for collective in TUNED:
            for registered in (False, True):
                pipe_ops = {}
                for calls in groups:
                    what = f"{collective}, {calls} calls a group, registered {registered}"
                    points = bench.measure(
                        collective=collective,
                        bytes=[calls * ranks * 4096],
                        choices=["default", ring],
                        group_calls=calls,
                        registered=registered,
                        iterations=2,
                    )
                    failures += problems(points, what)
                    for point in points:
                        seen = point.get("seen")
                        # The tuner gets whether buffers are registered since NCCL 2.24.
                        wanted = registered if version >= (2, 24) else None
                        if seen is None or seen["registered"] != wanted or not point["applied"]:
                            failures.append(f"{what}: {json.dumps(point)}")
                        else:
                            pipe_ops.setdefault(calls, set()).add(seen["pipe_ops"])
                rows.append([collective, registered, {n: sorted(pipe_ops[n]) for n in pipe_ops}])
                print(
                    f"  {collective:<14} regBuff {int(registered)}  numPipeOps by calls of a "
                    f"group: {rows[-1][2]}"
                )
                # Since NCCL 2.22 it is the number of calls for each channel, rounded up.
                expected = [
                    {calls: {-(-calls // channels)} for calls in groups}
                    for channels in range(1, 65)
                ]
                if version < (2, 22):
                    expected = [{calls: {1} for calls in groups}]
                if pipe_ops not in expected:
                    failures.append(f"{collective}: no number of channels gives {pipe_ops}")
        if any(bench.quit()):
            failures.append("a process did not end well")
    report["numPipeOps"] = rows
    return failures


def subsequence(short: list[Any], long: list[Any]) -> bool:
    rest = iter(long)
    return all(any(item == other for other in rest) for item in short)


def medians(points: list[Answer], key: str) -> dict[int, float]:
    sizes = sorted({point["bytes"] for point in points})
    return {size: statistics.median(p[key] for p in points if p["bytes"] == size) for size in sizes}


def check_timings(options: argparse.Namespace, report: Answer) -> list[str]:
    """Not decided on: printed and kept, but for times that make no sense at all."""
    failures: list[str] = []
    sizes = [8, 1024, 8192, 65536, 1 << 20, 1 << 24, 1 << 28]
    rows = {}
    for name, shape in shapes(options).items():
        for probe in ("on", "off", "on again"):
            environment = {"NCCL_PROFILER_PLUGIN": "none"} if probe == "off" else {}
            with Bench(options, **shape, environment=environment) as bench:
                bench.hello()
                start = time.monotonic()
                points = bench.measure(
                    collective="allreduce", bytes=sizes, rounds=10, iterations=20, check=False
                )
                seconds = time.monotonic() - start
                failures += problems(points, name, checked=False)
                bench.quit()
            events, hosts = medians(points, "time_us"), medians(points, "host_us")
            inside = sum(
                p["time_us"] * (p["iterations"] + 1) * 1e-6 for p in points if "time_us" in p
            )
            rows[f"{name}, probe {probe}"] = {
                "event_us": events,
                "host_us": hosts,
                "overhead_ms_a_step": 1e3 * (seconds - inside) / len(points),
            }
            print(f"  {name}, probe {probe}: {1e3 * (seconds - inside) / len(points):.2f} ms a step"
                  " beside the timed calls")  # fmt: skip
            for size in sizes:
                print(f"    {size:>10}  events {events[size]:9.2f} us  host {hosts[size]:9.2f} us")
                if not 0.5 < events[size] / hosts[size] < 2:
                    failures.append(f"{name} {size}: {events[size]} us by events, {hosts[size]}")
    report["rows"] = rows
    return failures


def check_failures(options: argparse.Namespace, report: Answer) -> list[str]:
    failures: list[str] = []
    ranks = options.ranks
    with Bench(options, processes=ranks) as bench:
        bench.hello()
        (point,) = bench.measure(collective="allreduce", bytes=[1 << 40], iterations=1)
        report["memory"] = point.get("error")
        if point.get("error", {}).get("kind") != "memory":
            failures.append(f"a size larger than memory: {point}")
        failures += problems(
            bench.measure(collective="allreduce", bytes=[1 << 20], iterations=1), "after memory"
        )
        if any(bench.quit()):
            failures.append("a process did not end well")
    # A process that stops: over sockets its peers' collective gets stuck.
    with Bench(options, processes=ranks, nodes=ranks) as bench:
        bench.hello()
        bench.ids = 1
        bench.send(
            {"op": "measure", "id": 1, "collective": "allreduce", "bytes": [1 << 26],
             "choices": ["default"], "rounds": 1, "default_repeats": 1, "warmup": 1,
             "iterations": 2000, "timeout_s": 3}
        )  # fmt: skip
        time.sleep(1.5)
        bench.processes[-1].send_signal(signal.SIGSTOP)
        start = time.monotonic()
        answer = bench.read()
        report["stuck"] = {"answer": answer, "after_s": time.monotonic() - start}
        kind = answer.get("error", answer).get("kind")
        if kind not in ("timeout", "died"):
            failures.append(f"a stuck collective: {answer}")
        bench.processes[-1].send_signal(signal.SIGCONT)
        codes = bench.end(20)
        report["stuck"]["codes"] = codes
        report["stuck"]["all_ended_after_s"] = time.monotonic() - start
        if codes[0] != 4:
            failures.append(f"a stuck collective: exit codes {codes}")
    options.mps.renew()
    for moment in (0.3, 1.0):
        with Bench(options, processes=ranks) as bench:
            bench.hello()
            bench.send(
                {"op": "measure", "id": 1, "collective": "allreduce", "bytes": [1 << 20, 1 << 28],
                 "choices": ["default"], "rounds": 10000, "iterations": 20}
            )  # fmt: skip
            time.sleep(moment)
            bench.processes[-1].kill()
            start = time.monotonic()
            codes = bench.end(15)
            seconds = time.monotonic() - start
            report[f"killed after {moment} s"] = {"codes": codes, "ended_after_s": seconds}
            if codes[0] != 4 or seconds > 10:
                failures.append(f"a killed rank: exit codes {codes} after {seconds:.1f} s")
        options.mps.renew()
    left = shared_gpu.processes_on_gpus()
    report["left_on_gpus"] = left
    if left:
        failures.append(f"processes left on the GPUs: {left}")
    return failures


def check_nccl_tests(options: argparse.Namespace, report: Answer) -> list[str]:
    """Alternating, the same number of calls a timing, one process with all GPUs in both."""
    failures: list[str] = []
    sizes = [1024 << power for power in range(0, 11, 2)]
    rounds, iterations = 6, 20
    library = str(Path(options.nccl).parent) if options.nccl else ""
    env = {**os.environ, "LD_LIBRARY_PATH": library + ":" + os.environ.get("LD_LIBRARY_PATH", "")}
    theirs: dict[int, list[float]] = {size: [] for size in sizes}
    ours: dict[int, list[Answer]] = {size: [] for size in sizes}
    for _ in range(rounds):
        command = [options.all_reduce_perf, "-b", "1K", "-e", "1M", "-f", "4", "-n",
                   str(iterations), "-w", "5", "-t", str(options.gpus), "-g", "1", "-a", "3",
                   "-c", "0"]  # fmt: skip
        output = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        for line in output.stdout.splitlines():
            words = line.split()
            if len(words) >= 13 and words[0].isdigit() and int(words[0]) in theirs:
                theirs[int(words[0])].append(float(words[5]))
        with Bench(options, processes=1, gpus_per_process=options.gpus) as bench:
            bench.hello()
            points = bench.measure(
                collective="allreduce", bytes=sizes, rounds=5, iterations=iterations, check=False
            )
            failures += problems(points, "nccl-tests", checked=False)
            bench.quit()
        for point in points:
            ours[point["bytes"]].append(point)
    report["rows"] = []
    for size in sizes:
        if not theirs[size]:
            return [*failures, f"nccl-tests gave no row of {size} bytes"]
        their = statistics.median(theirs[size])
        host = statistics.median(p["host_us"] for p in ours[size])
        event = statistics.median(p["time_us"] for p in ours[size])
        report["rows"].append([size, their, host, event, theirs[size]])
        print(f"    {size:>8}  nccl-tests {their:8.2f} us   host {host:8.2f} us"
              f" ({host / their:.3f})   events {event:8.2f} us ({event / their:.3f})")  # fmt: skip
    return failures


CHECKS = {
    "combinations": check_combinations,
    "shapes": check_shapes,
    "choices": check_choices,
    "calls": check_calls,
    "timings": check_timings,
    "failures": check_failures,
    "nccl-tests": check_nccl_tests,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tuner")
    parser.add_argument("--nccl")
    parser.add_argument("--gpus", type=int, default=0)
    shared_gpu.add_options(parser)
    parser.add_argument("--only", nargs="+", choices=list(CHECKS))
    parser.add_argument("--all-reduce-perf")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one run of the bench")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    if not options.gpus:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
        options.gpus = len(listing.stdout.splitlines())
    options.ranks, options.version = options.gpus * options.ranks_per_gpu, None
    if options.ranks < 2:
        print("needs 2 GPUs or more, or --ranks-per-gpu", file=sys.stderr)
        return 3
    if options.ranks_per_gpu > 1 and options.all_reduce_perf:
        parser.error("--all-reduce-perf is without --ranks-per-gpu")
    names = options.only or [n for n in CHECKS if n != "nccl-tests" or options.all_reduce_perf]
    common.exit_on_term()
    with shared_gpu.Mps(used=options.ranks_per_gpu > 1 and not options.no_mps) as options.mps:
        return run_checks(options, names)


def run_checks(options: argparse.Namespace, names: list[str]) -> int:
    reports: dict[str, Answer] = {}
    failed = 0
    for name in names:
        report: Answer = {}
        start = time.monotonic()
        try:
            failures = CHECKS[name](options, report)
        except (RuntimeError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            failures = [f"{type(error).__name__}: {error}"]
        report["failures"] = failures
        report["seconds"] = time.monotonic() - start
        reports[name] = report
        count = report.get("steps", report.get("points", ""))
        verdict = "FAILED" if failures else "ok    "
        print(f"{verdict} {name:<14} {report['seconds']:6.1f} s  {count}", flush=True)
        for failure in failures[:20]:
            print(f"  {failure[:600]}")
        failed += bool(failures)
        if options.output:
            Path(options.output).write_text(json.dumps(reports, indent=1))
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
