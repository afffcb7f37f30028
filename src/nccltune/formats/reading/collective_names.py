# SPDX-License-Identifier: Apache-2.0
"""Find the collective in the name of a file or of a program, or in a title."""

import re
from pathlib import PurePath

from nccltune.model.collective import Collective

_COLLECTIVES = (
    (re.compile(r"all[-_ ]?reduce"), Collective.ALLREDUCE),
    (re.compile(r"all[-_ ]?gather"), Collective.ALLGATHER),
    (re.compile(r"reduce[-_ ]?scatter"), Collective.REDUCESCATTER),
    (re.compile(r"all[-_ ]?to[-_ ]?all[-_ ]?v(?![a-z])"), Collective.ALLTOALLV),
    (re.compile(r"all[-_ ]?to[-_ ]?all"), Collective.ALLTOALL),
    (re.compile(r"broadcast|bcast"), Collective.BROADCAST),
    (re.compile(r"send[-_ ]?recv"), Collective.SENDRECV),
    (re.compile(r"hypercube"), Collective.HYPERCUBE),
    (re.compile(r"scatter"), Collective.SCATTER),
    (re.compile(r"gather"), Collective.GATHER),
    (re.compile(r"(?<![a-z])reduce"), Collective.REDUCE),
)
_NO_NAME = re.compile(
    r"(?<!\S)\S+\.(?:py|sh|cu|cc|cpp|md|rst|txt|log|json|csv|ipynb)\b|\breduce[sd]\b"
    r"|\b(?:to|can|will|could|may|should|and|which|that|helps?) reduce\b"
)
"""Names of files, and English verbs."""


def collective_of_name(name: str) -> Collective | None:
    """Return the collective in a file's name, else in that of the nearest folder; else None."""
    for part in reversed(PurePath(name).parts):
        rest = part.lower()
        for pattern, collective in _COLLECTIVES:
            if pattern.search(rest):
                return collective
    return None


def collective_of_title(title: str) -> Collective | None:
    """Return the only collective that a title names; None if it names none or several."""
    rest, found = title.lower(), []
    for pattern, collective in _COLLECTIVES:
        rest, number = pattern.subn(" ", rest)
        found += [collective] if number else []
    return found[0] if len(found) == 1 else None


def collective_of_text(text: str) -> Collective | None:
    """Return the only collective that a text names beside names of files and English verbs."""
    return collective_of_title(text) or collective_of_title(_NO_NAME.sub(" ", text.lower()))


def only_collective(collective: Collective) -> str:
    """Return the note on a table of the only collective that its text names."""
    return f"{collective.value}: the only collective that the text names (else give --collective)"


def collective_of_program(program: str) -> Collective | None:
    """Return the collective of an nccl-tests binary (`all_reduce_perf_mpi`); None if unknown."""
    stem = PurePath(program).name.partition("_perf")[0].replace("_", "")
    stem = re.sub("^[nr]ccl", "", stem)
    return next((item for item in Collective if item.value == stem), None)
