# SPDX-License-Identifier: Apache-2.0
"""The page of job files has every key with its default, and no other."""

import re
from pathlib import Path

import msgspec
import pytest

from nccltune.launch.job import Job, KubernetesOptions, SlurmOptions

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "job-files.md"
TABLES = {"# Job files": Job, "## `[slurm]`": SlurmOptions, "## `[kubernetes]`": KubernetesOptions}


def rows(title: str) -> dict[str, str]:
    """The column of defaults by key, of the table under a title."""
    _, _, section = PAGE.read_text().partition(f"{title}\n")
    found = {}
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("| `"):
            _, keys, _, default, *_ = line.split("|")
            found.update(dict.fromkeys(re.findall(r"`(\w+)`", keys), default.strip()))
    return found


@pytest.mark.parametrize("title", TABLES)
def test_every_key_is_there_and_no_other(title: str) -> None:
    tables = {"slurm", "kubernetes"}
    names = {field.name for field in msgspec.structs.fields(TABLES[title])} - tables
    assert set(rows(title)) == names


@pytest.mark.parametrize("title", TABLES)
def test_defaults_are_those_of_the_code(title: str) -> None:
    shown = rows(title)
    for field in msgspec.structs.fields(TABLES[title]):
        if isinstance(field.default, bool):
            assert shown[field.name] == f"`{str(field.default).lower()}`"
        elif isinstance(field.default, str):
            assert shown[field.name] == f"`{field.default}`"
