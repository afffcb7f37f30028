# SPDX-License-Identifier: Apache-2.0
"""The parts of acceptance.py: which scripts run with which sizes, and what their results show.

Ranks share one GPU under MPS. Sizes are chosen for seconds; timings are shown and decide nothing.
"""

import contextlib
import importlib.util
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import net_loopback
import shared_gpu
from acceptance_builds import Build, environment_with
from acceptance_runs import Part, PartError, PartRun, SkippedError

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
RANKS = 2
VERIFY_RANKS = 4
AUTO_BUDGET_S = 24
TUNER_RULES = """\
allreduce,0,32768,ring,simple,-1,2,2
allreduce,1048576,16777216,tree,simple,-1,2,2
allgather,0,32768,ring,simple,-1,2,2
reducescatter,1048576,16777216,ring,ll,-1,2,2
broadcast,1048576,16777216,ring,ll,-1,2,2
reduce,0,32768,ring,simple,-1,2,2
"""
STUDY_RULES = """\
# nccltune: schema=1
allreduce,0,32768,ring,simple,-1,4,4
allreduce,1048576,4194304,tree,simple,-1,4,4
"""


@dataclass(frozen=True)
class Site:
    """What is tested, and what of it is compiled in the background."""

    nccl: Path
    nccl_folder: Path
    """Its libnccl.so.2 is `nccl`."""
    version: tuple[int, ...]
    libraries: Path
    """With lib/ and bin/."""
    nccl_tests: Build
    rank_programs: Build

    @property
    def bench(self) -> Path:
        return self.libraries / "bin/nccltune-bench"

    @property
    def tuner(self) -> Path:
        return self.libraries / "lib/libnccl-tuner-nccltune.so"

    @property
    def net(self) -> Path:
        return self.libraries / "lib/libnccl-net-nccltune.so"

    @property
    def sendrecv(self) -> Path:
        return self.libraries / "lib/libnccltune-sendrecv.so"


Check = Callable[[Site, PartRun], str]


def script(name: str, *words: object, folder: Path = HERE) -> list[str]:
    return [sys.executable, str(folder / name), *map(str, words)]


def shared(ranks: int = RANKS) -> tuple[str, ...]:
    return ("--ranks-per-gpu", str(ranks))


def need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise SkippedError(f"{sys.executable} has no PyTorch")


def need_mpirun() -> None:
    if shutil.which("mpirun") is None:
        raise SkippedError("no mpirun (Open MPI)")


def need_one_node(site: Site) -> None:
    if site.version[:2] < shared_gpu.FIRST_ONE_NODE:
        version = ".".join(map(str, site.version))
        raise SkippedError(f"NCCL {version}: ranks of one node share a GPU since 2.31")


def read(path: Path) -> Any:
    """Return the results that a script has written. Raises PartError if there are none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PartError(f"no results: {error}") from error


def lines_with(text: str, *words: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.startswith(words))


def steps_of(path: Path) -> str:
    """Return the outcomes that one_gpu.py or training.py wrote.

    Raises PartError if a step did not run. Steps that NCCL alone does not get through are named.
    """
    steps = read(path)["steps"]
    counts = Counter(step["outcome"] for step in steps)
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    others = [step["name"] for step in steps if step["outcome"] in ("native", "skipped")]
    if others:
        text += f" ({', '.join(others)}: not with NCCL alone)"
    if counts["not run"]:
        raise PartError(f"out of time: {text}")
    return text


def bench(site: Site, run: PartRun) -> str:
    output = run.folder / "bench.json"
    checks = ("combinations", "shapes", "choices", "calls", "failures")
    words = ("--bench", site.bench, "--tuner", site.tuner, "--nccl", site.nccl, "--gpus", 1)
    run.run(script("bench_on_gpus.py", *words, *shared(), "--limit", 90, "-o", output, "--only",
                   *checks))  # fmt: skip
    found = read(output)
    shapes = ", ".join(found["shapes"]["hello"])
    return (
        f"{found['combinations']['steps'] + found['shapes']['steps']} results right ({shapes}); "
        f"{found['choices']['points']} choices as in NCCL's log"
    )


def tuner(site: Site, run: PartRun) -> str:
    need_torch()
    rules = run.folder / "tuner.conf"
    rules.write_text(TUNER_RULES)
    sizes = [1 << power for power in (10, 14, 16, 20, 22, 24)]
    words = ("--plugin", site.tuner, "--nccl", site.nccl, "--config", rules, "--gpus", 1)
    text = run.run(script("tuner_on_gpus.py", *words, *shared(), "--rounds", 2, "--sizes", *sizes))
    run.figures = "\n".join(line for line in text.splitlines() if line.startswith(("in", "out")))
    return lines_with(text, "neutral:", "rules:")


def kill(site: Site, run: PartRun) -> str:
    words = ("--kills", 3, "--points", 80, *shared(), "--", "--gpus", 1, "--nccl", site.nccl)
    grid = ("--collectives", "allreduce", "--sizes", "1K-1M", "--rounds", 8)
    text = run.run(script("kill_on_gpus.py", *words, *grid))
    ends = [line.split("ended in ")[1].split(" with")[0] for line in text.splitlines()
            if line.startswith("killed")]  # fmt: skip
    return f"ended within {', '.join(ends)}; {lines_with(text, 'the last run')}"


def net_allreduce(site: Site, run: PartRun) -> str:
    need_mpirun()
    program = site.nccl_tests.path(run.left_s)
    words = ("--program", program, "--plugin", site.net, "--nccl", site.nccl_folder)
    more = ("--ranks", RANKS, *shared(), "--rounds", 2, "--largest", "64M")
    run.figures = run.run(script("net_allreduce.py", *words, *more, folder=BENCHMARKS)).strip()
    return "1 KiB to 64 MiB right with NCCL's transport and with the plugin"


def net_training(site: Site, run: PartRun) -> str:
    need_torch()
    words = ("--plugin", site.net, "--nccl", site.nccl_folder, "--ranks", RANKS, *shared())
    model = ("--layers", 4, "--batch", 4, "--steps", 8, "--warm-up", 2)
    text = run.run(
        script("net_training.py", *words, *model, "--rounds", 1, "--deadline", 40,
               folder=BENCHMARKS)
    )  # fmt: skip
    run.figures = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    return lines_with(text, "Losses")


def verify(site: Site, run: PartRun) -> str:
    need_mpirun()
    program = site.nccl_tests.path(run.left_s)
    study = run.folder / "study"
    study.mkdir()
    (study / "platform.json").write_text('{"name": "study"}')
    (study / "tuner.conf").write_text(STUDY_RULES)
    sizes = ["-b", "1K", "-e", "16M", "-f", "4", "-g", "1", "-n", "5", "-w", "2"]
    command = net_loopback.mpirun(
        VERIFY_RANKS, run.left_s, "", [str(program), *sizes], VERIFY_RANKS
    )
    with run.log.open("a") as log, contextlib.redirect_stdout(log), shared_gpu.Mps() as mps:
        environment = net_loopback.NODES | mps.environment | environment_with(site.nccl_folder)
        text = run.run(
            ["nccltune", "verify", str(study), "--json", "--", *command],
            environment,
            statuses=(0, 1),
            is_json=True,
        )
    proof = json.loads(text)
    if proof["problems"]:
        raise PartError("; ".join(proof["problems"]))
    scale = (proof["after"]["nodes"], proof["after"]["ranks"])
    if scale != (VERIFY_RANKS, VERIFY_RANKS):
        raise PartError(f"{scale[0]} nodes and {scale[1]} ranks in NCCL's log")
    ruled = [point for point in proof["points"] if point["rule"] is not None]
    if not ruled:
        raise PartError("no size was inside a rule")
    changed = sum(point["before"] != point["after"] for point in ruled)
    return (
        f"rules followed at {len(ruled)} of {len(ruled)} sizes, {changed} of them changed; "
        f"{len(proof['points']) - len(ruled)} others as before"
    )


def training_nodes(site: Site, run: PartRun) -> str:
    return training(site, run, "nodes", "--nodes-nccl")


def training_one_node(site: Site, run: PartRun) -> str:
    need_one_node(site)
    return training(site, run, "host", "--nccl")


def training(site: Site, run: PartRun, setup: str, nccl: str) -> str:
    need_torch()
    output = run.folder / "training.json"
    words = ("--sendrecv", site.sendrecv, "--net", site.net, "--tuner", site.tuner, nccl, site.nccl)
    more = ("--parts", "ddp,fsdp", "--setups", setup, "--modes", "1", "--seconds", run.left_s - 5)
    run.run(script("training.py", *words, *more, "-o", output))
    return steps_of(output)


def pipeline(site: Site, run: PartRun) -> str:
    need_torch()
    need_one_node(site)
    words = ("--library", site.sendrecv, "--nccl", site.nccl_folder, "--gpus", 1, *shared())
    model = ("--hidden", 2048, "--length", 2048, "--microbatches", 4, "--steps", 3, "--warm-up", 1)
    found = []
    for name, chunks in (("1F1B", 1), ("interleaved", 2)):
        text = run.run(
            script("megatron_pipeline.py", *words, *model, "--chunks", chunks, "--rounds", 1,
                   folder=BENCHMARKS)
        )  # fmt: skip
        counts = next(line for line in text.splitlines() if line.startswith("- nccltune: "))
        found.append(f"{name}: {counts.removeprefix('- nccltune: ')}")
    return f"losses and weights of NCCL alone; {', '.join(found)}"


def sendrecv(site: Site, run: PartRun) -> str:
    need_one_node(site)
    programs = site.rank_programs.path(run.left_s)
    output = run.folder / "one_gpu.json"
    words = ("--library", site.sendrecv, "--nccl", site.nccl, "--programs", programs)
    more = ("--parts", "same,million", "--only", "exchange", "--operations", 50_000)
    run.run(script("one_gpu.py", *words, *more, "--seconds", run.left_s - 5, "-o", output))
    return steps_of(output)


def auto(site: Site, run: PartRun) -> str:
    study = run.folder / "study"
    words = ("--gpus", "1", *shared(4), "--mps", "--nccl", str(site.nccl))
    scope = ("--budget", str(AUTO_BUDGET_S), "--sizes", "1K-4M")
    text = run.run(["nccltune", "auto", "-o", str(study), *words, *scope, "--json"], is_json=True)
    found = json.loads(text)
    platform = read(study / "platform.json")
    measured = (platform["gpus"], platform["ranks_per_gpu"], platform["mps"], platform["nodes"])
    if measured != (1, 4, True, 4):
        raise PartError(f"the study is of another platform: {platform}")
    if not Path(found["report"]).is_file():
        raise PartError(f"no report: {found['report']}")
    proof, points = found["proof"], found["sweep"]["points"]
    if proof is None:
        return f"{points} timings; no rule beats the default, so nothing to prove; report written"
    holding = sum(rule["verdict"] == "holds" for rule in proof["rules"])
    return f"{points} timings; {holding} of {len(proof['rules'])} rules hold; report written"


# What compiles in the background is needed as late as possible.
PARTS: list[tuple[str, str, float, Check]] = [
    ("bench", "collectives right; choices as in NCCL's log; failures end", 120, bench),
    ("tuner", "neutral without rules; rules followed in NCCL's log", 90, tuner),
    ("kill", "3 x kill -9 in a sweep: no timing lost, nothing left", 90, kill),
    ("auto", "from nothing to a proven report, 4 ranks", 90, auto),
    ("verify", "stock nccl-tests under Open MPI follow the rules, 4 ranks", 120, verify),
    ("net_allreduce", "all-reduce over the network plugin right", 90, net_allreduce),
    ("net_training", "losses over the network plugin as over NCCL's transport", 90, net_training),
    ("training-nodes", "DDP and FSDP with all plugins: losses of NCCL alone", 120, training_nodes),
    ("training-one-node", "the same with messages by copy engine", 120, training_one_node),
    ("pipeline", "1F1B and interleaved pipeline with one connection", 90, pipeline),
    ("sendrecv", "the send/recv library: every byte checked", 80, sendrecv),
]


def parts(site: Site) -> list[Part]:
    def bound(check: Check) -> Callable[[PartRun], str]:
        return lambda run: check(site, run)

    return [Part(name, checks, limit, bound(check)) for name, checks, limit, check in PARTS]
