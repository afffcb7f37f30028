# SPDX-License-Identifier: Apache-2.0
"""Sources of rules as addresses: `NVIDIA/nccl#1202` and `docs:env` are short for theirs."""

import re

_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"


def link(source: str) -> str:
    """`words (address)`, or the words alone where they have none; `docs:PAGE` is NCCL's guide."""
    if source.startswith("docs:"):
        page = source.removeprefix("docs:")
        return f"NCCL user guide, {page} ({_DOCS}{page}.html)"
    found = _THREAD.fullmatch(source)
    # GitHub leads from issues/N to the pull request where N is one.
    return f"{source} (https://github.com/{found[1]}/issues/{found[2]})" if found else source
