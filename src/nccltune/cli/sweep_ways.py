# SPDX-License-Identifier: Apache-2.0
"""Other ways to sweep: settings of send/recv (`--p2p`), copy engines (`--sendrecv`), or nccl-tests
(`--with-nccl-tests`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nccltune.cli.bench_options import (
    LAUNCH,
    check_pods,
    command_line,
    launch_from,
    terminated_like_interrupted,
    under_from,
)
from nccltune.cli.context import given
from nccltune.cli.manner import Manner
from nccltune.cli.what_options import sizes_from, wanted_from

_NCCL_TESTS_ROUNDS = 4
"""So many timings of a point tell their own noise."""


def ways_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose one of them."""
    for option in reversed(
        (
            click.option(
                "--p2p",
                is_flag=True,
                help="Race settings of native send/recv instead; each needs processes of its own.",
            ),
            click.option(
                "--sendrecv",
                is_flag=True,
                help="Find the size from which on copy engines are to carry send/recv instead: "
                "NCCL against the library before it.",
            ),
            click.option(
                "--sendrecv-library",
                metavar="PATH",
                type=click.Path(path_type=Path),
                help="With --sendrecv: the libnccltune-sendrecv.so to measure  [default: the "
                "installed one]",
            ),
            click.option(
                "--policies",
                is_flag=True,
                help="With --sendrecv: try VCCL's policy with its settings, too.",
            ),
            click.option(
                "--load",
                is_flag=True,
                help="With --sendrecv: compare while the GPUs compute, as training does.",
            ),
            click.option(
                "--fairness",
                is_flag=True,
                help="With --sendrecv: find the chunk that lets other messages come between the "
                "parts of large ones, instead.",
            ),
            click.option(
                "--with-nccl-tests",
                "nccl_tests",
                metavar="DIR",
                type=click.Path(path_type=Path, exists=True, file_okay=False),
                help="Use these nccl-tests binaries instead of our bench: a process a choice.",
            ),
            click.option(
                "--launch-prefix",
                metavar="COMMAND",
                help="With nccl-tests and without --launcher: the words that start a process for "
                "each GPU, such as 'mpirun -np 8'.",
            ),
        )
    ):
        command = option(command)
    return command


def other_way(
    context: click.Context,
    path: Path,
    options: dict[str, Any],
    *,
    budget: float | None,
    exhaustive: bool,
    rounds: int | None,
    dry_run: bool,
    as_json: bool,
) -> int | None:
    """Sweep in another way where the options ask for one: the exit code. None where they do not;
    the options of the ways are taken out of `options` then."""
    from nccltune.model.errors import InputError

    p2p, sendrecv = options.pop("p2p"), options.pop("sendrecv")
    folder, prefix = options.pop("nccl_tests"), options.pop("launch_prefix")
    library, policies = options.pop("sendrecv_library"), options.pop("policies")
    load, fairness = options.pop("load"), options.pop("fairness")
    if prefix is not None and folder is None:
        raise InputError("is for --with-nccl-tests", where="--launch-prefix")
    for option, chosen in (
        ("--sendrecv-library", library is not None),
        ("--policies", policies),
        ("--load", load),
        ("--fairness", fairness),
    ):
        if chosen and not sendrecv:
            raise InputError("is for --sendrecv", where=option)
        if chosen and fairness and option in ("--policies", "--load"):
            raise InputError("is not for --fairness", where=option)
    if not p2p and not sendrecv and folder is None:
        return None
    if p2p and sendrecv:
        raise InputError(
            "is about NCCL's own send/recv",
            where="--p2p",
            hint="leave it out, and run it by itself, in any study of this machine",
        )
    way = "--p2p" if p2p else "--sendrecv" if sendrecv else "--with-nccl-tests"
    if way != "--with-nccl-tests" and folder is not None:
        raise InputError("has its own bench", where=way, hint="leave out --with-nccl-tests")
    if exhaustive:
        raise InputError(f"is not for {way}", where="--exhaustive")
    manner = Manner(command_line(context), dry_run, as_json)
    with terminated_like_interrupted():
        if p2p:
            return _race(context, path, options, budget, rounds, manner)
        if sendrecv:
            more = {"library": library, "policies": policies, "load": load, "fairness": fairness}
            return _compare(context, path, options | more, budget, rounds, manner)
        return _drive(context, path, options, folder, prefix, budget, rounds, manner)


def _race(
    context: click.Context,
    path: Path,
    options: dict[str, Any],
    budget: float | None,
    rounds: int | None,
    manner: Manner,
) -> int:
    from nccltune.cli.sweep_p2p import SIZES, race
    from nccltune.measure.p2p.driver import Wanted
    from nccltune.model.errors import InputError

    if rounds is not None:
        raise InputError("is not for --p2p, which races", where="--rounds")
    if given(context, "collectives"):
        raise InputError("is not for --p2p: send/recv is what is raced", where="--collectives")
    if options["gain_threshold"] <= 0:
        raise InputError("must be above 0", where="--gain-threshold")
    low, high = sizes_from(options["sizes"] if given(context, "sizes") else SIZES)
    wanted = Wanted(low, high, options["gain_threshold"], budget, options["seed"])
    return race(path, launch_from({name: options[name] for name in LAUNCH}), wanted, manner)


def _compare(
    context: click.Context,
    path: Path,
    options: dict[str, Any],
    budget: float | None,
    rounds: int | None,
    manner: Manner,
) -> int:
    from nccltune.cli.sweep_fairness import SIZES as FAIRNESS_SIZES
    from nccltune.cli.sweep_fairness import compare_fairness
    from nccltune.cli.sweep_sendrecv import SIZES, compare
    from nccltune.measure.sendrecv.driver import NOISE_FLOOR, PAIRS, Wanted
    from nccltune.measure.sendrecv.fairness_driver import ROUNDS, FairnessWanted
    from nccltune.model.errors import InputError

    if given(context, "collectives"):
        raise InputError(
            "is not for --sendrecv: send/recv is what is compared", where="--collectives"
        )
    for name in ("emulate_nodes", "nodes", "hosts"):
        if options[name] is not None:
            raise InputError(
                "is not for --sendrecv: copy engines reach the GPUs of one node",
                where=f"--{name.replace('_', '-')}",
            )
    if options["launcher"] not in (None, "local"):
        raise InputError(
            "is not for --sendrecv: it starts the processes of one node itself",
            where="--launcher",
            hint="run it on a node, without --launcher",
        )
    floor = options["gain_threshold"] if given(context, "gain_threshold") else NOISE_FLOOR
    if floor <= 0:
        raise InputError("must be above 0", where="--gain-threshold")
    launch = launch_from({name: options[name] for name in LAUNCH})
    library = options["library"]
    if launch.replay is not None and library is not None:
        raise InputError("is not for a replay", where="--sendrecv-library")
    if options["fairness"]:
        low, high = sizes_from(options["sizes"] if given(context, "sizes") else FAIRNESS_SIZES)
        fair = FairnessWanted(
            low,
            high,
            rounds=rounds or ROUNDS,
            noise_floor=floor,
            budget_s=budget,
            seed=options["seed"],
        )
        return compare_fairness(path, launch, library, fair, manner)
    low, high = sizes_from(options["sizes"] if given(context, "sizes") else SIZES)
    wanted = Wanted(
        low,
        high,
        pairs=rounds or PAIRS,
        policies=options["policies"],
        load=options["load"],
        noise_floor=floor,
        budget_s=budget,
        seed=options["seed"],
    )
    return compare(path, launch, library, wanted, manner)


def _drive(
    context: click.Context,
    path: Path,
    options: dict[str, Any],
    folder: Path,
    prefix: str | None,
    budget: float | None,
    rounds: int | None,
    manner: Manner,
) -> int:
    import shlex

    from nccltune.cli.sweep_nccl_tests import drive
    from nccltune.measure.gpus import visible_gpus
    from nccltune.measure.nccl_tests.binaries import Site
    from nccltune.measure.nccl_tests.driver import Wanted
    from nccltune.model.errors import InputError

    launcher, nodes, hosts = (options[name] for name in ("launcher", "nodes", "hosts"))
    check_pods(launcher, options["image"], options["settings"])
    launched = launcher not in (None, "local")
    for name in ("emulate_nodes", "nccl", "replay", "gain_threshold"):
        if given(context, name):
            option = f"--{name.replace('_', '-')}"
            raise InputError("is not for --with-nccl-tests", where=option)
    for name in ("processes", "nodes", "hosts"):
        if not launched and given(context, name):
            raise InputError("is for --launcher, with --with-nccl-tests", where=f"--{name}")
    if prefix is not None and launcher is not None:
        raise InputError("is what --launcher stands for", where="--launch-prefix")
    if prefix is not None and options["gpus"] is not None:
        raise InputError(
            "the launcher of --launch-prefix says how many processes, each with one GPU",
            where="--gpus",
        )
    asked = wanted_from(options)
    wanted = Wanted(
        asked.collectives,
        asked.low,
        asked.high,
        rounds or _NCCL_TESTS_ROUNDS,
        budget,
        asked.seed,
    )
    under = None
    if launched:
        per_node = options["processes"] == "one"
        under = under_from(launcher, nodes, hosts, options["gpus"], per_node=per_node)
    gpus = 1 if prefix is not None or launched else options["gpus"] or visible_gpus("name --gpus")
    site = Site(folder.absolute(), gpus, tuple(shlex.split(prefix or "")), under)
    return drive(path, site, wanted, manner)
