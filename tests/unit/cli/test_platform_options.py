# SPDX-License-Identifier: Apache-2.0
"""Options of the launch: resuming commands and contradictions."""

import shlex
from pathlib import Path

import click
import pytest

from nccltune.app.bench_launch import LaunchRequest, keys_of
from nccltune.cli.options import PLATFORM
from nccltune.cli.verb import Verb, command_line, flagged
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.runs import Cli


def resumed(*words: str) -> str:
    """Return the command line that a verb with these options prints to resume."""
    lines: list[str] = []

    @click.command("verb", cls=Verb)
    @click.argument("study")
    @click.argument("program", nargs=-1)
    @click.option("--check", is_flag=True)
    @PLATFORM
    def verb(**_: object) -> None:
        lines.append(command_line())

    verb.main([*words], prog_name="verb", standalone_mode=False)
    return lines[0]


@pytest.mark.parametrize(
    "line",
    [
        "--gpus 4 --set processes=per-node studies/a",
        "--set image=a:1 --set name=x --set 'slurm.options=[\"-A b\"]' studies/a",
        "--check 'studies/a b' -- prog -x",
    ],
)
def test_the_command_that_resumes_repeats_the_options(line: str) -> None:
    assert resumed(*shlex.split(line)) == f"nccltune verb {line}"


@pytest.mark.parametrize("launcher", [None, "local", "openmpi:5"])
def test_options_of_pods_are_refused_with_other_launchers(launcher: str | None) -> None:
    for setting in ("image=a", "name=x"):
        keys_of(LaunchRequest(launcher="kubernetes", settings=(setting,)))
        with pytest.raises(InputError, match="is for ‹launcher› kubernetes"):
            keys_of(LaunchRequest(launcher=launcher, settings=(setting,)))


def test_a_field_that_an_error_names_is_shown_as_the_flag_of_the_verb(cli: Cli) -> None:
    with pytest.raises(InputError, match="^‹nodes›: is for ‹launcher›$"):
        keys_of(LaunchRequest(nodes=2))
    assert (
        "error: --nodes: is for --launcher\n" in cli("sweep", "-o", "a", "--nodes", "2", code=2).err
    )
    # The field has another name than the flag.
    assert (
        "error: --rounds: "
        in cli(
            "sendrecv", "sweep", "-o", "a", "--rounds", "1", "--replay", "h200x2-1-node", code=2
        ).err
    )
    # Text of other programs and of files names fields, too.
    assert flagged("unknown field `nodes`, ‹nodes› or ‹unheard›") == (
        "unknown field `nodes`, --nodes or ‹unheard›"
    )


@pytest.mark.parametrize("launcher", [None, "local"])
def test_nodes_and_hosts_need_a_launcher(launcher: str | None) -> None:
    for request in (LaunchRequest(nodes=2), LaunchRequest(settings=("hosts=a,b",))):
        with pytest.raises(InputError, match="is for ‹launcher›"):
            keys_of(request._replace(launcher=launcher))
        keys_of(request._replace(launcher="slurm"))
    with pytest.raises(InputError, match="per-gpu or per-node"):
        keys_of(LaunchRequest(settings=("processes=one",)))


def test_verify_checks_launch_options(tmp_path: Path, cli: Cli) -> None:
    study = Study.create(tmp_path / "study")
    study.write_json(study.platform_path, Platform(name="study"))
    for more in ([], ["--", "true"]):
        assert (
            "--set kubernetes.image: is for --launcher kubernetes"
            in cli("verify", study.path, "--set", "image=a", *more, code=2).err
        )
