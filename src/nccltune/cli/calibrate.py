# SPDX-License-Identifier: Apache-2.0
"""`nccltune calibrate`: what links of this platform reach, for the flow model."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nccltune.cli.bench_options import (
    command_line,
    launch_from,
    launch_options,
    recording,
    terminated_like_interrupted,
)
from nccltune.cli.output import json_option, print_json, stderr, stdout, styled

if TYPE_CHECKING:
    from rich.console import Console

    from nccltune.measure.bench import Launch
    from nccltune.model.study import Study
    from nccltune.topology.calibration import Calibration
    from nccltune.topology.derive import Derived, Observation

EPILOG = """\b
Examples:
  nccltune calibrate -o studies/links                      on a machine with GPUs
  nccltune calibrate --from examples/h200x4-1-node -o calibration.json
  nccltune topo what-if topo.xml --calibration calibration.json
"""
FILE = "calibration.json"
_ROUNDS = 4
_LOW, _HIGH = 256 << 20, 1 << 30


@click.command(epilog=EPILOG)
@click.option(
    "--from",
    "studies",
    multiple=True,
    metavar="STUDY",
    type=click.Path(path_type=Path),
    help="Take what is measured already, of one platform; one node first, then more.",
)
@click.option(
    "--topology",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The platform's topology  [default: topology.xml of the study]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE|STUDY",
    help="Where it is kept: with --from a file, else the study that is measured into.",
)
@launch_options
@json_option()
@click.pass_context
def command(
    context: click.Context,
    /,
    studies: tuple[Path, ...],
    topology: Path | None,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Measure the efficiencies that the flow model needs, or take them from a study.

    Large all-reduces, all-gathers and reduce-scatters show what the fullest link reaches of what
    NCCL books for it. Figures that nothing tells of stay at their defaults; each figure keeps where
    it comes from.
    """
    from nccltune.model.errors import InputError

    if not studies:
        if output is None:
            raise InputError(
                "where to is not said",
                where="-o",
                hint="nccltune calibrate -o studies/links measures; --from STUDY needs no GPU",
            )
        launch = launch_from(options)
        code = _measure(output, launch, command_line(context))
        if code:
            return code
        studies, output = (output,), output / FILE
    derived = _derive(studies, topology)
    if output is not None:
        output = output / FILE if output.is_dir() else output
        _write(output, derived.calibration)
    if as_json:
        print_json({"calibration": derived.calibration, "used": derived.used, "left": derived.left})
    else:
        _show(stdout(), derived)
    if output is not None:
        note = stderr()
        note.print(f"next: nccltune topo what-if TOPOLOGY --calibration {output}", style="dim")
    return 0


def _measure(path: Path, launch: "Launch", again: str) -> int:
    """A few large sizes with every choice, as a sweep that can go on after an interruption."""
    from nccltune.cli.sweep import run_sweep
    from nccltune.measure.sweep import Wanted
    from nccltune.model.collective import Collective

    wanted = Wanted(
        collectives=[Collective.ALLREDUCE, Collective.ALLGATHER, Collective.REDUCESCATTER],
        low=_LOW,
        high=_HIGH,
        rounds=_ROUNDS,
    )
    with terminated_like_interrupted():
        swept = run_sweep(path, launch, wanted, again)
    return swept if isinstance(swept, int) else 0


def _derive(paths: tuple[Path, ...], topology: Path | None) -> "Derived":
    from nccltune.model.errors import InputError
    from nccltune.model.study import Study
    from nccltune.topology.calibration import defaults
    from nccltune.topology.derive import derive, observations
    from nccltune.topology.load import load_topology

    result: Derived | None = None
    for path in paths:
        study = Study.open(recording(str(path)))
        found = _usable(study, observations(study.samples()))
        hardware = load_topology(topology or study.path)
        base = result.calibration if result else defaults()
        platform = study.platform()
        one = derive(
            hardware,
            found,
            base,
            name=study.name + (f", a replay of {platform.replay}" if platform.replay else ""),
            settings=platform.settings,
            nccl_version=_version(platform.nccl_version),
        )
        if result is not None:
            one.used.update(
                {key: value for key, value in result.used.items() if key not in one.used}
            )
            one.left.extend(result.left)
        result = one
    assert result is not None
    if not result.used:
        why = f": {result.left[0][1]}" if result.left else ""
        raise InputError(
            f"nothing in it tells what a link reaches{why}",
            where=", ".join(map(str, paths)),
            hint="sizes of 256 MiB and more, protocol Simple, nodes that are real: nccltune "
            "calibrate -o STUDY measures them",
        )
    return result


def _usable(study: "Study", found: "list[Observation]") -> "list[Observation]":
    """Raises InputError where "nodes" of one host speak through its loopback: no link of the file
    carries that."""
    from nccltune.model.errors import InputError

    if study.platform().emulated_nodes and all(one.nodes > 1 for one in found):
        raise InputError(
            "its nodes are one machine's GPUs, so no NIC was in the way",
            where=str(study.path),
            hint="a study of one node, or of real nodes",
        )
    return [one for one in found if one.nodes == 1 or not study.platform().emulated_nodes]


def _version(text: str | None) -> tuple[int, int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < 3 or not all(part.isdecimal() for part in parts[:3]):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def _write(path: Path, calibration: "Calibration") -> None:
    """The figures that were measured; what is at its default may change with nccltune."""
    import msgspec

    from nccltune.model.study import write_whole
    from nccltune.topology.calibration import defaults

    own = {
        name: figure
        for name, figure in calibration.values.items()
        if figure != defaults().values[name]
    }
    kept = msgspec.structs.replace(calibration, values=own)
    write_whole(path, msgspec.json.format(msgspec.json.encode(kept)).decode() + "\n")


def _show(out: "Console", derived: "Derived") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("figure", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("timings", justify="right")
    table.add_column("from")
    for name, figure in derived.calibration.values.items():
        if name in derived.used:
            count = str(figure.samples)
            table.add_row(name, f"{figure.value:.3f}", count, figure.source)
    out.print(table)
    for one, why in derived.left:
        words = f"{one.words}, {one.busbw_gb_per_s:.3g} GB/s: {why}"
        out.print(styled((f"left  {words}", "dim")))
    rest = len(derived.calibration.values) - len(derived.used)
    out.print(f"{rest} figures stay at their defaults")
