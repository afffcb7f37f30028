# SPDX-License-Identifier: Apache-2.0
"""Behaves like all_reduce_perf with NCCL 2.28 in it, as far as `nccltune verify` can see.

stock_program.py [--no-log] [--no-table] [--ignore-plugin] [--fail] [--alone]
                 [--slow A/P] [--wrong A/P] [--stop-at N FILE] [--job GAIN] [--fail-at NUMBERS FILE]
                 [--old LIBRARY]

The plugin that NCCL_TUNER_PLUGIN names is really loaded, by the program that plays NCCL's side. A
rank's log goes to NCCL_DEBUG_FILE as NCCL writes it, the table to standard output. Under a
launcher that is what its first process does; with --alone every one, as without MPI, of one rank.
Choices of the plugin are faster than NCCL's own, but that of --slow; that of --wrong computes wrong
results. At its Nth start, which it counts in FILE, --stop-at interrupts the process above. Of the
starts with the plugin, --fail-at lets those fail that NUMBERS (3,4) name. NCCL in the preloaded
LIBRARY chooses tree/ll by itself.
With --job it is a training script instead, which is faster by GAIN with the plugin. It logs to
standard error, as torchtitan does. Its first two steps are slow.
"""

import os
import signal
import sys
import time
from pathlib import Path

from nccltune.model.collective import Collective
from nccltune.model.scale import Scale
from nccltune.native import PluginHost
from nccltune.native.records import TunerAnswer
from tests.unit.formats.maker import Made, Point

SIZES = [1 << power for power in range(10, 21, 2)]
SLOWER = "RING", "SIMPLE"
OLD = "--old" in sys.argv and sys.argv[sys.argv.index("--old") + 1]
NCCLS_OWN = ("TREE", "LL") if os.environ.get("LD_PRELOAD") == OLD else SLOWER


def decide(plugin: str | None) -> tuple[list[str], dict[int, tuple[str, str]]]:
    """What a plugin logs, and what runs at every size."""
    if plugin is None or "--ignore-plugin" in sys.argv:
        return [], dict.fromkeys(SIZES, NCCLS_OWN)
    ran = {}
    with PluginHost(plugin, nccl_version="2.28.9", scale=Scale(4, 4)) as host:
        lines = [line.text for line in host.init.log]
        for size in SIZES:
            decided = host.decide(Collective.ALLREDUCE, size).decided
            ran[size] = NCCLS_OWN
            if isinstance(decided, TunerAnswer) and decided.algorithm and decided.protocol:
                ran[size] = decided.algorithm.name, decided.protocol.name
    return ["TUNER/Plugin: Using nccltune (v5)", *lines], ran


def other_rank() -> bool:
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
    return any(os.environ.get(name, "0") != "0" for name in names)


def is_choice_of(flag: str, ran: tuple[str, str]) -> bool:
    """Whether the choice that ran is the one behind `flag`."""
    if flag not in sys.argv:
        return False
    return "/".join(ran).lower() == sys.argv[sys.argv.index(flag) + 1]


def time_us(ran: tuple[str, str]) -> float:
    return 20.0 if ran == SLOWER else 25.0 if is_choice_of("--slow", ran) else 15.0


def stop_at() -> None:
    """Interrupt the process above, if this is the start to do it."""
    if "--stop-at" not in sys.argv:
        return
    number, file = sys.argv[sys.argv.index("--stop-at") + 1 :][:2]
    with Path(file).open("a") as counted:
        counted.write("x")
    if Path(file).stat().st_size == int(number):
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(60)


def is_to_fail() -> bool:
    if "--fail-at" not in sys.argv or "NCCL_TUNER_PLUGIN" not in os.environ:
        return False
    numbers, file = sys.argv[sys.argv.index("--fail-at") + 1 :][:2]
    with Path(file).open("a") as counted:
        counted.write("x")
    return str(Path(file).stat().st_size) in numbers.split(",")


def main() -> None:
    if other_rank() and "--alone" not in sys.argv:
        return
    if "--fail" in sys.argv or is_to_fail():
        sys.exit(3)
    said, ran = decide(os.environ.get("NCCL_TUNER_PLUGIN"))
    if "--no-log" not in sys.argv:
        name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "alpha").replace("%p", str(os.getpid()))
        lines = [
            "ncclCommInitRankConfig comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0",
            *said,
        ]
        for size, (algorithm, protocol) in ran.items():
            choice = f"Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..3}}"
            lines.append(f"AllReduce: {size} Bytes -> {choice}")
        prefix = f"alpha:{os.getpid()}:77 [0] NCCL INFO "
        text = "".join(f"{prefix}{line}\n" for line in lines)
        Path(name).write_text(text, encoding="utf-8")
    if "--job" in sys.argv:
        gain = float(sys.argv[sys.argv.index("--job") + 1]) if said else 1.0
        for step in range(10):
            speed = 7000 * gain * (0.1 if step < 2 else 1 + 0.001 * (step % 3))
            sys.stderr.write(
                f"[rank0]:step: {step:2}  loss: 8.1  \x1b[34mtps: {speed:,.0f}\x1b[39m\n"
            )
        stop_at()
        return
    if "--no-table" in sys.argv:
        return
    times = {size: time_us(ran[size]) for size in SIZES}
    wrong = {size: 7 * is_choice_of("--wrong", ran[size]) for size in SIZES}
    made = Made(
        tuple(Point(size, times[size], times[size] + 1, wrong[size]) for size in SIZES),
        ranks=1 if "--alone" in sys.argv else 4,
        hosts=("alpha", "beta", "gamma", "delta") if OLD else ("alpha",),
        pid=os.getpid(),
        one_process=False,
    )
    sys.stdout.write(made.text())
    sys.stdout.flush()
    stop_at()
    sys.exit(int(any(wrong.values())))


main()
