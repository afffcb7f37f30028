# SPDX-License-Identifier: Apache-2.0
"""Recipes of make, and Dockerfiles."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.launch_lint import source
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.dockerfile import started_by


@pytest.mark.parametrize("prefix", ["", "@", "-", "+", "@-", "- @"])
@pytest.mark.parametrize("assigned", ["NP ?= 16", "NP := 16  # all", "NP=16", "export NP = 16"])
def test_a_recipe_of_make_is_a_command(tmp_path: Path, prefix: str, assigned: str) -> None:
    path = tmp_path / "Makefile"
    path.write_text(
        f"{assigned}\n.PHONY: run\nrun: build\n\t{prefix}mpirun -np $(NP) -N 8 \\\n"
        "\t  ./all_reduce_perf -b 8 -e 1G -f 2\n"
    )
    (launch,) = lint(LintRequest([str(path)])).launches
    (checked,) = launch.commands
    ((prediction, _),) = checked.predictions
    assert prediction.placement is not None
    assert [node.processes for node in prediction.placement.nodes] == [8, 8]


@pytest.mark.parametrize(
    ("recipe", "ids"),
    [
        ("\texport NCCL_ALGO=Tree\n\t@torchrun --nproc-per-node=8 t.py\n", ["export-lost"]),
        ("\t@export NCCL_ALGO=Tree && torchrun --nproc-per-node=8 t.py\n", []),
        ("\texport NCCL_ALGO=Tree; \\\n\ttorchrun --nproc-per-node=8 t.py\n", []),
        ("\ttorchrun --nproc-per-node=8 t.py\n\n.ONESHELL:\n", []),
    ],
)
def test_each_line_of_a_recipe_has_its_own_shell(
    tmp_path: Path, recipe: str, ids: list[str]
) -> None:
    path = tmp_path / "Makefile"
    path.write_text(f"run:\n{recipe}")
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [one.id for one in launch.findings] == ids
    exported = dict(source.from_text(path.read_text(), LaunchContext())[0].site.exported)
    assert ("NCCL_ALGO" in exported) == ("; " in recipe or "&&" in recipe)


@pytest.mark.parametrize(
    ("lines", "started"),
    [
        ("ENTRYPOINT torchrun t.py\nCMD [b]", "torchrun t.py"),
        ('ENTRYPOINT ["a"]\nCMD ["b"]', "a b"),
        ('CMD ["b"]\nENTRYPOINT ["a"]', "a b"),
        ('CMD ["b"]\nFROM x', "export A=1\nb"),
        ('CMD ["b"]\nFROM X\nENTRYPOINT ["a"]', "export A=1\na"),
        ('ENTRYPOINT ["a"]\nFROM x\nENV B=2\nCMD ["b"]', "export A=1\nexport B=2\na b"),
        ('CMD ["b"]\nFROM x AS y\nENV B=2\nFROM x', "export A=1\nb"),
        ('CMD ["b"]\nFROM z\nCMD c', "c"),
    ],
)
def test_what_a_dockerfile_starts(lines: str, started: str) -> None:
    env = "ENV A=1\n" if "FROM" in lines else ""
    assert started_by(f"FROM i AS x\n{env}{lines}\n").strip("\n") == started
