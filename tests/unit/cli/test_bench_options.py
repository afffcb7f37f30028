# SPDX-License-Identifier: Apache-2.0
import shlex
from pathlib import Path

import click
import pytest

from nccltune.cli import run
from nccltune.cli.bench_options import check_pods, command_line, launch_options
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.model.study import Study


def resumed(*words: str) -> str:
    """The command line that a verb with these options would print to go on."""
    said: list[str] = []

    @click.command("verb")
    @click.argument("study")
    @click.argument("program", nargs=-1)
    @click.option("--check", is_flag=True)
    @launch_options
    @click.pass_context
    def verb(context: click.Context, /, **_: object) -> None:
        said.append(command_line(context))

    verb.main([*words], prog_name="verb", standalone_mode=False)
    return said[0]


@pytest.mark.parametrize(
    "line",
    [
        "--gpus 4 --processes one studies/a",
        "--image a:1 --set name=x --set 'slurm.options=[\"-A b\"]' studies/a",
        "--check 'studies/a b' prog -x",
    ],
)
def test_the_command_that_goes_on_is_the_one_that_was_given(line: str) -> None:
    words = shlex.split(line)
    if "prog" in words:
        words.insert(words.index("prog"), "--")
    assert resumed(*words) == f"nccltune verb {line}"


@pytest.mark.parametrize("launcher", [None, "local", "openmpi:5"])
def test_options_of_pods_are_not_ignored_elsewhere(launcher: str | None) -> None:
    check_pods("kubernetes", "image", ("name=x",))
    with pytest.raises(InputError, match="is for --launcher kubernetes"):
        check_pods(launcher, "image", ())
    with pytest.raises(InputError, match="is for --launcher kubernetes"):
        check_pods(launcher, None, ("name=x",))


def test_verify_checks_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study.create(tmp_path / "study")
    study.write_json(study.platform_path, Platform(name="study"))
    for more in ([], ["--", "true"]):
        assert run(["verify", str(study.path), "--image", "a", *more]) == 2
        assert "--image: is for --launcher kubernetes" in capsys.readouterr().err
