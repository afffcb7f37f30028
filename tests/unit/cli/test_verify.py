# SPDX-License-Identifier: Apache-2.0
"""nccltune verify and nccltune ab: configuration, launch of the study, live table, next command."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from nccltune.app import bench_launch
from nccltune.app.ab_releases import ReleaseVerdict, two_libraries
from nccltune.app.bench_launch import LaunchRequest, Site
from nccltune.app.verify import as_measured, launch_as_measured
from nccltune.cli.ab import _prove_command, _what
from nccltune.cli.measure_screen import rules_so_far
from nccltune.examples import examples
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.prove.proofs import K, Machine, drive, plan_for, rule
from tests.unit.runs import Cli


@pytest.fixture
def study(tmp_path: Path) -> Study:
    made = Study.create(tmp_path / "study")
    made.write_json(made.platform_path, Platform(name="study"))
    return made


@pytest.mark.parametrize("more", [[], ["--", "ls"]])
def test_a_missing_configuration_is_an_error_with_a_hint(
    study: Study, cli: Cli, more: list[str]
) -> None:
    err = cli("verify", study.path, *more, code=2).err
    assert "tuner.conf: no such configuration" in err
    assert f"hint:  make it: nccltune tune {study.path}" in err


def test_a_configuration_without_rules_needs_no_gpu(study: Study, cli: Cli) -> None:
    study.config_path.write_text("# nothing\n")
    assert "nothing to verify: tuner.conf holds no rule" in cli("verify", study.path).err


def test_the_launch_is_that_of_the_study(study: Study) -> None:
    def measured(**changes: object) -> object:
        platform = msgspec.structs.replace(Platform(name="study"), **changes)
        study.write_json(study.platform_path, platform)
        return as_measured(study)._asdict()

    nothing = as_measured(study)._asdict()
    assert nothing["replay"] is nothing["gpus"] is nothing["emulate_nodes"] is None
    assert measured(gpus=4, nodes=4, emulated_nodes=True) == {
        **nothing,
        "gpus": 4,
        "emulate_nodes": 4,
    }
    assert measured(gpus=4, nodes=1) == {**nothing, "gpus": 4}
    found = measured(replay="h200x4-as-4-nodes", gpus=4, nodes=4, emulated_nodes=True)
    assert found == {**nothing, "replay": examples()["h200x4-as-4-nodes"].absolute()}
    with pytest.raises(InputError, match="replays the recording 'mine'") as error:
        measured(replay="mine")
    assert "--replay PATH" in (error.value.hint or "")


def test_ranks_that_shared_a_gpu_share_it_again(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_launch, "running_daemon", lambda _: None)
    platform = Platform(name="study", gpus=1, nodes=4, emulated_nodes=True, ranks_per_gpu=4)
    study.write_json(study.platform_path, platform)
    notes: list[str] = []
    launch = launch_as_measured(study, LaunchRequest(), Site(notes.append, lambda _: None))
    assert (launch.gpus, launch.ranks_per_gpu, launch.emulate_nodes) == (1, 4, 4)
    assert launch.mps is None
    assert "take turns" in notes[0]


def test_the_live_table_shows_the_state_of_every_rule() -> None:
    plan = plan_for([rule(4 * K, 64 * K)])
    out = io.StringIO()
    console = Console(file=out, width=100)
    console.print(rules_so_far(plan))
    assert "4 KiB - 64 KiB" in out.getvalue()
    drive(plan, Machine(lambda _: 1.3))
    console.print(rules_so_far(plan))
    assert "holds" in out.getvalue()


OLD, NEW = "old/libnccl.so.2", "new/libnccl.so.2"
BARE = LaunchRequest()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (OLD, NEW, "my libs/libnccl.so.2", "a:b/libnccl.so.2"):
        Path(name).parent.mkdir()
        Path(name).touch()


def test_tests_with_other_libraries_or_mps_are_other_tests() -> None:
    requests = [
        BARE,
        BARE._replace(mps=True),
        *(BARE._replace(nccl=Path(one)) for one in (OLD, NEW)),
    ]
    assert len({tuple(_what(request, {})) for request in requests}) == len(requests)
    named = (Path(OLD), Path(OLD).absolute())
    first, second = (_what(BARE._replace(nccl=path), {}) for path in named)
    assert first == second


@pytest.mark.parametrize(
    ("preload", "words"), [(None, "/n.so"), ("", "/n.so"), ("/mine.so", "/mine.so:/n.so")]
)
def test_the_next_command_keeps_what_is_preloaded(
    monkeypatch: pytest.MonkeyPatch, preload: str | None, words: str
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if preload is not None:
        monkeypatch.setenv("LD_PRELOAD", preload)
    verdict = msgspec.convert(
        {
            **dict.fromkeys(("why", "reason", "command"), ""),
            **dict.fromkeys(("rounds", "known", "processes", "seconds", "min_gain"), 0),
            **dict.fromkeys(("collectives", "changed", "what"), ()),
            "decision": "harms",
            "settings": {"libnccl.so.2": "/n.so"},
            "baseline": {"libnccl.so.2": "/o.so"},
            "read": None,
            "releases": (None, None),
            "confirmed": False,
            "candidate": "s-nccl",
        },
        ReleaseVerdict,
    )
    said = _prove_command(verdict, BARE, ["all_reduce_perf"])
    assert said == f"LD_PRELOAD={words} nccltune verify s-nccl -- all_reduce_perf"


@pytest.mark.parametrize("named", ["my libs/libnccl.so.2", "a:b/libnccl.so.2"])
def test_a_library_that_cannot_be_preloaded_is_refused_with_the_way_out(named: str) -> None:
    with pytest.raises(InputError, match="splits a path") as error:
        two_libraries([OLD, named], BARE, preloaded=True)
    assert "ln -s" in str(error.value.hint)
    Path("link.so").symlink_to(named)
    assert two_libraries([OLD, "link.so"], BARE, preloaded=True)[1].endswith("/link.so")
    assert two_libraries([OLD, named], BARE)[1].endswith(named)
