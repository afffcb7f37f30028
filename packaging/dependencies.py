# SPDX-License-Identifier: Apache-2.0
"""Print requirements from pyproject.toml: `python packaging/dependencies.py [EXTRA|GROUP]`."""

import sys
import tomllib
from pathlib import Path


def dependencies(name: str | None) -> list[str]:
    """Return the requirements of nccltune, or of one of its extras or dependency groups."""
    text = Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    project = document["project"]
    if name is None:
        return list(project["dependencies"])
    return list({**project["optional-dependencies"], **document["dependency-groups"]}[name])


if __name__ == "__main__":
    print(*dependencies(sys.argv[1] if len(sys.argv) > 1 else None), sep="\n")
