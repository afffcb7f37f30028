# SPDX-License-Identifier: Apache-2.0
"""What measurements of send/recv share: native NCCL, and the library before it."""

import argparse
import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Candidate:
    """What a user could choose: settings for all ranks."""

    name: str
    settings: dict[str, str] = field(hash=False)


def candidate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--library", required=True, help="libnccltune-sendrecv.so")
    parser.add_argument(
        "--candidate",
        action="append",
        default=[],
        metavar="NAME:VARIABLE=VALUE,...",
        help="one more: the library with settings, or native NCCL with settings of NCCL alone",
    )
    parser.add_argument("--nccl", help="folder of the libnccl.so.2 to use")


def candidates(args: argparse.Namespace) -> list[Candidate]:
    """Native NCCL first, ours last."""
    others = []
    for text in args.candidate:
        name, _, listed = text.partition(":")
        settings = dict(each.split("=", 1) for each in listed.split(",") if each)
        ours = any(variable.startswith("NCCLTUNE_") for variable in settings)
        others.append(_ours(args, name, settings) if ours else Candidate(name, settings))
    return [Candidate("native", {}), *others, _ours(args, "nccltune", {})]


def _ours(args: argparse.Namespace, name: str, settings: dict[str, str]) -> Candidate:
    before = {
        "LD_PRELOAD": str(Path(args.library).resolve()),
        "NCCLTUNE_SENDRECV": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "32"),
    }
    return Candidate(name, before | settings)


def environment(args: argparse.Namespace, candidate: Candidate) -> dict[str, str]:
    """For all ranks of one run. Nothing of ours is inherited."""
    inherited = {name: value for name, value in os.environ.items() if "NCCLTUNE" not in name}
    settings = inherited | candidate.settings
    if args.nccl:
        # Wheels of PyTorch find theirs before LD_LIBRARY_PATH is looked at.
        real = str(Path(args.nccl).resolve() / "libnccl.so.2")
        settings["LD_PRELOAD"] = ":".join(filter(None, [settings.get("LD_PRELOAD"), real]))
    return settings
