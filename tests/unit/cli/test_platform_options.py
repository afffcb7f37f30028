# SPDX-License-Identifier: Apache-2.0
"""Options of the launch and bad options: resuming commands, contradictions, what is said."""

import os
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
from tests.programs import write_program
from tests.unit.runs import Cli


def resumed(*words: str) -> str:
    """Return the command line that a verb with these options prints to resume."""
    lines: list[str] = []

    @click.command("verb", cls=Verb)
    @click.argument("study")
    @click.argument("program", nargs=-1)
    @click.option("--check", is_flag=True)
    @click.option("--anew", is_flag=True)
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
    # --anew there would discard what the run that goes on has measured.
    assert resumed("--anew", *shlex.split(line)) == f"nccltune verb {line}"


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


PROGRAM = "-- build/all_reduce_perf -b 4096 -e 65536 -f 4"
REPLAY = "--replay: takes NCCL, GPUs and nodes"
BENCH = "are for measuring with our bench"
CALLS = "the recording h200x4-as-4-nodes holds no"
SHARED = "--gpus 1 --ranks-per-gpu 4"
SETTINGS = "sendrecv sweep -o s --gpus 2"
TESTS = Path(__file__).parents[2]
PLACES = {
    "dgx": TESTS / "data" / "topologies" / "dgx.xml",
    "graph": TESTS / "data" / "topologies" / "flat-vm-graph.xml",
    "vm": TESTS / "data" / "topologies" / "flat-vm.xml",
    "l40s": TESTS.parent / "examples" / "l40s-one-switch" / "topo.xml",
    "run": TESTS / "data" / "field" / "node-01-h100-two-nodes" / "all_reduce_2n.txt",
}
NICS = "hint:  --nics 8x400 for 8 NICs of 400 Gbit/s"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: a study with rules, a recording of nothing, a program."""
    for name in [name for name in os.environ if name.startswith(("NCCL_", "CUDA_"))]:
        monkeypatch.delenv(name)
    for name in ("study", "empty", "build"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "platform.json").write_text(f'{{"name": "{name}"}}')
    (tmp_path / "study" / "tuner.conf").write_text("allreduce,2048,32768,tree,ll,-1,4,4\n")
    write_program(tmp_path / "build" / "all_reduce_perf", "#!/bin/sh\nexit 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep -o s --collectives allreduce,alreduce", "did you mean 'allreduce'"),
        ("sweep -o s --sizes 64M-1K", "runs backwards"),
        ("sweep -o s --sizes 2-1K", "begin at 4 bytes"),
        ("sweep -o s --gain-threshold 0", "must be above 0"),
        ("sweep -o s --rounds 3", "--rounds: is for --exhaustive"),
        ("sweep -o s --replay x --gpus 4", REPLAY),
        ("sweep -o s --replay x --set processes=per-node", REPLAY),
        ("sweep -o s --replay x --launcher openmpi", REPLAY),
        ("sweep -o s --replay no-such-study", "no-such-study"),
        ("sweep -o s --replay h200x4-as-4-nodes --registered", CALLS),
        ("sweep -o s --replay h200x4-as-4-nodes --pipe-ops 4", CALLS),
        ("sweep -o s --budget 0", "budget"),
        ("sweep -o s --gpus 1", "one GPU alone has nothing to measure"),
        ("sweep -o s --mps", "is for ranks that share a GPU"),
        (f"sweep -o s {SHARED} --launcher openmpi", "without --launcher"),
        (f"sweep -o s {SHARED} --set processes=per-node", "needs a process for each rank"),
        (f"sweep -o s {SHARED} --replay h200x4-as-4-nodes", "takes NCCL, GPUs and nodes"),
        ("sendrecv sweep -o s --policies", "no such option: --policies"),
        ("sweep -o s --library x", "no such option: --library"),
        ("verify study --replay x --gpus 4", REPLAY),
        ("verify study --budget 0", "budget"),
        ("verify study --rounds 5", "--rounds: is for a COMMAND"),
        ("verify study --registered -- ls", BENCH),
        ("verify study --gpus 4 -- ls", BENCH),
        ("verify study --nodes 2 -- ls", "--nodes: is for --launcher"),
        ("verify study --set hosts=a,b -- ls", "--set hosts: is for --launcher"),
        ("verify study --launcher openmpi --replay x -- ls", BENCH),
        ("verify study --launcher openmpi-5 -- ls", "did you mean 'openmpi:5'?"),
        ("ab -o s", "no setting to test"),
        (f"ab NCCL_X=1 -o s --gpus 4 {PROGRAM}", "--gpus: is for --launcher"),
        (f"ab NCCL_X=1 -o s --sizes 1K {PROGRAM}", "--sizes: is for our bench"),
        (f"ab NCCL_X=1 -o s --launcher kubernetes {PROGRAM}", "a pod needs an image"),
        (f"ab NCCL_X=1 -o s --set image=a {PROGRAM}", "--set kubernetes.image: is for --launcher"),
        (
            f"ab NCCL_X=1 -o s --launcher kubernetes --set image=a --set hosts=b {PROGRAM}",
            "Kubernetes finds the nodes itself",
        ),
        (f"ab NCCL_X=1 -o s --set hosts=a {PROGRAM}", "--set hosts: is for --launcher"),
        ("ab NCCL_X=1 -o s --collectives nonsense", "'nonsense' is not a collective"),
        (f"{SETTINGS} --exhaustive", "no such option: --exhaustive"),
        (f"{SETTINGS} --collectives allreduce", "no such option: --collectives"),
        (f"{SETTINGS} --p2p", "it is now: nccltune ab"),
        (f"{SETTINGS} --emulate-nodes 2", "no such option: --emulate-nodes"),
        (f"{SETTINGS} --launcher slurm", "no such option: --launcher"),
        (f"{SETTINGS} --rounds 3", "--rounds: 4 pairs at least"),
        (f"{SETTINGS} --sizes 1K-64M", "sizes must be from 4 KiB to 1 GiB"),
        (f"{SETTINGS} --sizes 4M-64M", "must have the default threshold, 2 MiB, among them"),
        (f"{SETTINGS} --library none.so", "none.so: no such library"),
        (
            "sendrecv sweep -o s --replay empty",
            "holds no recorded comparison of NCCL with copy engines",
        ),
        ("sendrecv sweep -o s --replay empty --library x", "is not for a replay"),
        (f"NCCLTUNE_SENDRECV_POLICY=vccl {SETTINGS}", "unset NCCLTUNE_SENDRECV_POLICY"),
        (f"CUDA_DEVICE_MAX_CONNECTIONS=1 {SETTINGS}", "CUDA_DEVICE_MAX_CONNECTIONS=1 is set"),
        (f"CUDA_DEVICE_MAX_CONNECTIONS=7 {SETTINGS}", "CUDA_DEVICE_MAX_CONNECTIONS=7 is set"),
        (f"NCCL_COMM_BLOCKING=0 {SETTINGS}", "NCCL_COMM_BLOCKING=0 is set"),
        ("sendrecv env --format nccl.conf", "--format: NCCL reads nccl.conf when"),
        ("analyze a.log b.log", "of several files give the folder"),
        ("env", "Missing argument"),
        ("env --net", "hint:  it is now: nccltune net env"),
        ("check study --max-age soon", "is not a number of days; write 90d or 12w"),
        ("check study --against-nccl libmissing.so", "--against-nccl: no such file: libmissing.so"),
        ("check study --against-nccl new", "--against-nccl: 'new' is not an NCCL version"),
        ("check study --against-nccl 2.30.7", "no such library"),
        ("check study --budget -1", "--budget"),
        ("doctor --rule none", "no rule is called 'none'"),
        ("doctor --rule 18 --collect-script", "take one"),
        ("doctor --rule 18 .", "takes neither"),
        ("doctor --fix-script --json", "take one"),
        ("doctor . x.log", "one folder, or files"),
        ("doctor no-such-file.log", "no such file"),
        ("report study --terminal --json", "error:"),
        ("report study --terminal -o x.html", "error:"),
        ("report study --json --open", "error:"),
        ("compare {run} /nonexistent", "error: /nonexistent: no such file or folder"),
        ("compare {run} {l40s} --nics 8x400", "one input is placed among reference systems"),
        *((f"compare {{run}} --nics {nics}", NICS) for nics in ("400", "8x", "0x400", "eight")),
        ("lint ''", "an empty name is no file and no command"),
        ("predict {dgx} --nccl-version new", "--nccl-version: 'new' is not an NCCL version"),
        ("predict {dgx} --nccl missing.so", "--nccl: no such file: missing.so"),
        ("predict {dgx} --nccl new", "--nccl: 'new' is not an NCCL version"),
        ("predict {dgx} --against 2.18.1", "older than the oldest known model"),
        ("predict {dgx} NCCL_NTHREADS=64", "NCCL_NTHREADS is not modelled"),
        ("predict {dgx} NCCL_PROTOS=LL", "is no variable of NCCL 2.3 to 2.32"),
        ("predict {dgx} NCCL_NVLS_ENABLE", "is not NAME=VALUE"),
        ("predict {dgx} --collectives alltoall", "is not a collective that NCCL tunes"),
        ("predict {dgx} --gpus 9", "names 8 GPUs, not 9"),
        ("topo show /nonexistent.xml", "cannot be read: No such file"),
        ("topo show {graph}", "is a graph file"),
        ("topo show {dgx} --nccl-version new", "'new' is not an NCCL version"),
        ("topo show {dgx} --env P2P_LEVEL=SYS", "is not an NCCL setting"),
        ("topo show {dgx} --env NCCL_P2P_LEVELS=SYS", "did you mean NCCL_P2P_LEVEL?"),
        ("topo convert --switches 2", "no such option: --switches"),
        ("topo convert {vm}", "the link of 0001:00:00.0 is not known"),
        ("topo what-if none.xml", "cannot be read"),
        ("topo what-if {l40s} NCCL_ALGO", "is not NAME=VALUE"),
        ("topo what-if {l40s} NCCL_BUFFSIZE=8388608", "NCCL_BUFFSIZE is not modelled"),
        ("topo what-if {l40s} NCCL_NET_GDR_REED=0", "did you mean NCCL_NET_GDR_READ?"),
        ("topo what-if {l40s} --env FOO=1", "FOO is no variable of NCCL 2.3 to 2.32"),
        ("topo what-if {l40s} --collective alltoall", "has no flows here"),
        ("topo what-if {l40s} --nccl-version new", "is not an NCCL version"),
        ("topo what-if {l40s} --move-nic mlx5_7=CPU0", "no device 'mlx5_7'"),
        ("topo what-if {l40s} --add-switch CPU0=", "needs devices below it"),
        ("topo what-if {l40s} --gpus 9", "names 4 GPUs, not 9"),
    ],
)
def test_options_are_refused_with_the_reason(
    words: str, message: str, folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    verb = shlex.split(words.format_map(PLACES))
    while "=" in verb[0]:
        name, _, value = verb.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    before = sorted(folder.rglob("*"))
    # Without a GPU it is the machine that cannot check for another release.
    out, err = cli(*verb, code=(2, 3) if "--against-nccl" in words else 2)
    assert message in err
    assert (out, "bug" in err) == ("", False)
    assert "hint:" in err or not words.startswith(("topo show", "topo convert"))
    assert sorted(folder.rglob("*")) == before
