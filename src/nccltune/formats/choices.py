# SPDX-License-Identifier: Apache-2.0
"""Which choice and which collective a file's name tells."""

import re
from pathlib import PurePath

from nccltune.model.choice import DEFAULT, AnyChoice, Choice, parse_algorithm, parse_protocol
from nccltune.model.collective import Collective

_CHOICE = re.compile(
    r"(?<![a-z0-9])(?P<algo>tree|ring|collnet[_-]?direct|collnet[_-]?chain|nvls[_-]?tree|nvls|pat)"
    r"[-_./+ ]{1,2}(?P<proto>ll128|ll|simple)(?![a-z0-9])"
)
_DEFAULT = re.compile(r"(?<![a-z0-9])default(?![a-z0-9])")
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


def choice_of_name(name: str) -> AnyChoice | None:
    """The choice that a file's name tells (`nt_Tree-LL128.txt`, `ring-simple`, `default`).

    Else that of its folder's name, as far as `name` has folders; None where they are silent or
    name two.
    """
    for part in reversed(PurePath(name).parts):
        found: set[AnyChoice] = {
            Choice(
                parse_algorithm(re.sub("[-_]", "", match["algo"])), parse_protocol(match["proto"])
            )
            for match in _CHOICE.finditer(part.lower())
        }
        if not found and _DEFAULT.search(part.lower()):
            found = {DEFAULT}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def collective_of_name(name: str) -> Collective | None:
    """The collective that a file's name tells, else its folder's; None where both are silent."""
    for part in reversed(PurePath(name).parts):
        rest = part.lower()
        for pattern, collective in _COLLECTIVES:
            if pattern.search(rest):
                return collective
    return None


def collective_of_program(program: str) -> Collective | None:
    """The collective of an nccl-tests binary (`all_reduce_perf_mpi`)."""
    stem = PurePath(program).name.partition("_perf")[0].replace("_", "")
    return next((item for item in Collective if item.value == stem), None)
