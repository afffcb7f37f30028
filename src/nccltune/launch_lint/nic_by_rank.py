# SPDX-License-Identifier: Apache-2.0
"""Find scripts that give each rank of a node another NIC."""

import re
from collections.abc import Iterator

from nccltune.launch_lint.finding import LaunchFinding, warning

_RANK = r"(?:\w{0,40}LOCAL_RANK(?:ID)?|SLURM_LOCALID|MPI_LOCALRANKID|\w{0,40}local_?rank)\b"
"""The place of a rank among those of its node, as launchers and scripts name it."""
_FROM_RANK = re.compile(
    r"^[ \t]*(?:(?:let|export)[ \t]+)?"
    rf"(\w+)=(?:[^\s;&|#]*?|[^\s;&|#(]*\$\(\([^()\n]*?){_RANK}",
    re.M,
)
_HCA = re.compile(r"^[^#\n]*\bNCCL_IB_HCA=(\"[^\"\n]{1,300}\"|[^\s;&|'\"]{1,300})", re.M)
_COMMENT = re.compile(r"(?<!\S)#.*")


def nics_by_rank(text: str) -> Iterator[LaunchFinding]:
    """Find `NCCL_IB_HCA=mlx5_$SLURM_LOCALID`, and branches over such a rank that set it."""
    if "NCCL_IB_HCA=" not in text:
        return
    plain = _COMMENT.sub("", text)
    names = "|".join((_RANK, *(rf"{name}\b" for name in _FROM_RANK.findall(plain))))
    values = dict.fromkeys(value.strip('"') for value in _HCA.findall(plain))
    own = [v for v in values if re.search(rf"\$[^$]*?(?<!\w)(?:{names})(?!:\+)", v)]
    # Ranks differ where a case, or the conditions of several branches, read the rank.
    branch = re.compile(
        rf"^[ \t]*(?:case|if)\b[^\n]*\$\{{?(?:{names})(?s:.{{0,3000}}?)\b(?:esac|fi)\b", re.M
    )
    within = (_HCA.findall(found[0]) for found in branch.finditer(plain))
    fixed = next(
        (branches for given in within if len(branches := _without_variables(given)) > 1), []
    )
    if own or fixed:
        said = " or ".join(own or fixed)
        yield warning(
            "hca-by-rank",
            f"NCCL_IB_HCA is {said}, by the rank on its node: NCCL builds its rings and trees of"
            " the NICs that all ranks of a node see, and chooses for each GPU the nearest itself",
            "set NCCL_IB_HCA to all NICs that the job may use, alike on every rank, or leave it"
            " out",
        )


def _without_variables(values: list[str]) -> list[str]:
    return [value for value in dict.fromkeys(v.strip('"') for v in values) if "$" not in value]
