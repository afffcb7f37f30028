# SPDX-License-Identifier: Apache-2.0
"""Add web addresses to the sources that rules name.

`NVIDIA/nccl#1202` and `docs:env` are short forms of such sources.
"""

import re

_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_DOCS = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"


def link(source: str) -> str:
    """Return `words (address)`, or only the words if they have no address.

    `docs:PAGE` is a page of NCCL's user guide.
    """
    if source.startswith("docs:"):
        page = source.removeprefix("docs:")
        return f"NCCL user guide, {page} ({_DOCS}{page}.html)"
    found = _THREAD.fullmatch(source)
    # GitHub redirects issues/N to the pull request if N is one.
    return f"{source} (https://github.com/{found[1]}/issues/{found[2]})" if found else source
