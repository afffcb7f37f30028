# SPDX-License-Identifier: Apache-2.0
"""What measurements of send/recv share: native NCCL, and the library before it."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import run_ranks, save


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


@dataclass
class Rounds:
    """Of a candidate, what all ranks reported in each round."""

    candidate: Candidate
    rounds: list[list[dict[str, Any]]] = field(default_factory=list)

    def run(self, args: argparse.Namespace, program: Sequence[str], seconds: float) -> None:
        """One more, with a rank a GPU."""
        with tempfile.TemporaryDirectory() as folder:
            same = [environment(args, self.candidate)] * args.gpus
            reports = run_ranks(Path(folder), [sys.executable, *program], same, seconds)
        if reports is None:
            sys.exit(f"error: {self.candidate.name} failed")
        self.rounds.append(reports)


def save_rounds(
    args: argparse.Namespace, facts: dict[str, Any], all_runs: Sequence[Rounds]
) -> None:
    rows = [
        {"name": r.candidate.name, "settings": r.candidate.settings, "rounds": r.rounds}
        for r in all_runs
    ]
    save(args.json, {"machine": facts, "bytes": args.bytes, "candidates": rows})
