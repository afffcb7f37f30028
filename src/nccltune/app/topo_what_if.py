# SPDX-License-Identifier: Apache-2.0
"""Topo what-if: compute the ceiling of a platform now, and after changes.

The ceiling is the bandwidth of a collective that the links allow at large sizes.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import InputError
from nccltune.model.names import nearest
from nccltune.model.topology import Topology
from nccltune.predict import NEWEST, SizePrediction, predict
from nccltune.predict.communicator import SETTINGS
from nccltune.study.files import Study
from nccltune.topology.files.load import load_topology
from nccltune.topology.flows.calibration import read_calibration
from nccltune.topology.flows.domain import is_tray
from nccltune.topology.flows.expect import Expected
from nccltune.topology.flows.settings import check_name
from nccltune.topology.flows.what_if import (
    WhatIfCase,
    WhatIfChange,
    WhatIfResult,
    answerable,
    combined_change,
    suggested_changes,
    what_if,
)
from nccltune.topology.hardware.change import add_switch, move_nic
from nccltune.topology.hardware.classify import with_named_gpus
from nccltune.topology.nccl_model.settings import known_version, parse_version

LARGE = 8 << 30
"""The size in bytes at which NCCL's own choice is compared with the ceiling."""


class WhatIfRequest(NamedTuple):
    """A platform (a topology file or a study), and the changes to evaluate.

    `environment` is set now (NAME=VALUE). `moves` are NIC=PLACE, `switches` PLACE=DEVICE,...
    Without any change, settings that may matter are evaluated.
    """

    path: Path
    nodes: int = 1
    gpus: int | None = None
    collective: str = "allreduce"
    environment: Sequence[str] = ()
    nccl_version: str | None = None
    calibration: Path | None = None
    gdr_read: bool | None = None
    p2p_levels: Sequence[str] = ()
    algorithms: Sequence[str] = ()
    settings: Sequence[str] = ()
    moves: Sequence[str] = ()
    switches: Sequence[str] = ()
    to_nodes: Sequence[int] = ()


class Answers(NamedTuple):
    """The ceiling `now`, and after each change; sentences on what cannot be computed.

    `choice` is what NCCL's own model takes at `LARGE` bytes now; None if unknown.
    """

    case: WhatIfCase
    now: Expected
    answers: list[WhatIfResult]
    unanswered: list[str]
    choice: SizePrediction | None = None


def answer(request: WhatIfRequest) -> Answers:
    """Return the ceiling of a platform now, after each change, and after all of them.

    Raises InputError for a file that cannot be read, and for unknown names.
    """
    case = _case(request)
    unanswered: list[str] = []
    changes = _changes(case.topology, request)
    if not changes:
        changes, unanswered = answerable(case, suggested_changes(case, case.expected()))
    elif len(changes) > 1 and len(request.to_nodes) < 2:
        changes.append(combined_change(changes))
    now, answers = what_if(case, changes)
    return Answers(case, now, answers, unanswered, _nccl_choice(case))


def _nccl_choice(case: WhatIfCase) -> SizePrediction | None:
    if any(name in case.settings for name in ("NCCL_ALGO", "NCCL_PROTO")):
        return None
    if case.nodes > 1 and is_tray(case.topology):
        return None
    try:
        found = predict(
            case.topology,
            collective=case.collective,
            nodes=case.nodes,
            version=case.nccl_version or NEWEST,
            ranks_per_node=case.ranks_per_node,
            settings=case.settings,
            sizes=(LARGE,),
        )
    except InputError:
        return None
    return found.sizes[0]


def _case(request: WhatIfRequest) -> WhatIfCase:
    name = request.collective.lower().replace("-", "").replace("_", "")
    if name not in (*TUNED, Collective.SENDRECV):
        raise InputError(
            f"{request.collective!r} has no flows here",
            where="‹collective›",
            hint=nearest(name, TUNED),
        )
    stated = [setting_pair(text, "‹environment›") for text in request.environment]
    for setting, _ in stated:
        check_name(setting, others=True)
    calibration = request.calibration
    gpu, settings, version = conditions_of_study(request.path)
    wanted = request.nccl_version
    return WhatIfCase(
        topology=with_named_gpus(load_topology(request.path), gpu),
        collective=Collective(name),
        nodes=request.nodes,
        ranks_per_node=request.gpus,
        settings={
            **settings,
            **dict(stated),
        },
        calibration=None if calibration is None else read_calibration(calibration),
        nccl_version=parse_version(wanted, "‹nccl_version›") if wanted else version,
    )


def conditions_of_study(
    path: Path,
) -> tuple[str | None, dict[str, str], tuple[int, int, int] | None]:
    """Return the GPU, the settings that affect the ceiling, and the NCCL version of a study."""
    study = Study(path)
    if not study.platform_path.is_file():
        return None, {}, None
    platform = study.platform()
    settings = {name: value for name, value in platform.settings.items() if name in SETTINGS}
    return platform.gpu, settings, known_version(platform.nccl_version)


def setting_pair(text: str, where: str | None) -> tuple[str, str]:
    """Return name and value of a setting. Raises InputError, at `where`, for any other text."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"{text!r} is not NAME=VALUE", where=where)
    return name, value


def _changes(topology: Topology, request: WhatIfRequest) -> list[WhatIfChange]:
    found: list[WhatIfChange] = []
    if request.gdr_read is not None:
        word = "on" if request.gdr_read else "off"
        value = str(int(request.gdr_read))
        found.append(WhatIfChange(f"GPUDirect reads {word}", {"NCCL_NET_GDR_READ": value}))
    found += [
        WhatIfChange(f"P2P up to {level}", {"NCCL_P2P_LEVEL": level})
        for level in request.p2p_levels
    ]
    found += [WhatIfChange(f"{name}", {"NCCL_ALGO": name}) for name in request.algorithms]
    for text in request.settings:
        name, value = setting_pair(text, None)
        check_name(name)
        found.append(WhatIfChange(text, {name: value}))
    found += _hardware(topology, request)
    found += [WhatIfChange(f"{count:,} nodes", nodes=count) for count in request.to_nodes]
    return found


def _hardware(topology: Topology, request: WhatIfRequest) -> list[WhatIfChange]:
    """Return the requested changes of hardware, each tried once for its InputError."""
    found: list[WhatIfChange] = []
    for text in request.moves:
        nic, place = setting_pair(text, "‹moves›")
        move = partial(move_nic, nic=nic, place=place)
        move(topology)
        found.append(WhatIfChange(f"{nic} at {place}", hardware=move))
    for text in request.switches:
        place, listed = setting_pair(text, "‹switches›")
        names = [name for name in listed.split(",") if name]
        add = partial(add_switch, place=place, names=names)
        add(topology)
        found.append(WhatIfChange(f"a switch at {place} for {', '.join(names)}", hardware=add))
    return found
