# SPDX-License-Identifier: Apache-2.0
"""Write the raw text of a node into a folder, as plain text files that a person can read."""

import datetime
import re
from pathlib import Path

import nccltune
from nccltune.doctor.evidence.gather import gather
from nccltune.doctor.evidence.item_names import INDEX
from nccltune.doctor.evidence.raw import NodeEvidence
from nccltune.model.errors import InputError


def collect_to(folder: Path, *, host: str | None = None) -> Path:
    """Read this node and write its files into `folder`/HOST. No root rights are needed.

    Returns the node's folder. Raises InputError if that folder cannot be written.
    """
    evidence = gather(thorough=True)
    return write_evidence(evidence, folder, host=host)


def write_evidence(evidence: NodeEvidence, folder: Path, *, host: str | None = None) -> Path:
    """Write the items of a node into `folder`/HOST, and return that folder.

    Existing files with the same names are overwritten. Raises InputError if the folder cannot be
    written.
    """
    name = re.sub(r"[^\w.-]", "_", host or evidence.host).lstrip(".") or "node"
    target = folder / name
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    index = [f"by\tnccltune {nccltune.__version__}", f"at\t{now}"]
    try:
        target.mkdir(parents=True, exist_ok=True)
        for item in sorted(evidence.names):
            raws = evidence.all(item)
            for number, raw in enumerate(raws, 1):
                end = f".{number}.txt" if len(raws) > 1 else ".txt"
                (target / f"{item}{end}").write_bytes(raw.data)
                index.append(f"read\t{item}\t{raw.source}")
        index += [f"not read\t{problem}" for problem in evidence.problems]
        text = "".join(f"{line}\n" for line in index)
        (target / f"{INDEX}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(target)) from error
    return target
