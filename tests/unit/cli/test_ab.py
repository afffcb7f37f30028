# SPDX-License-Identifier: Apache-2.0
"""`nccltune ab`: which tests of a study are one, and what its next command keeps."""

from pathlib import Path

import msgspec
import pytest

from nccltune.app.ab_releases import ReleaseVerdict, two_libraries
from nccltune.app.bench_launch import LaunchRequest
from nccltune.cli.ab import _prove_command, _what
from nccltune.model.errors import InputError

OLD, NEW = "old/libnccl.so.2", "new/libnccl.so.2"
BARE = LaunchRequest()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in a folder with libraries."""
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
