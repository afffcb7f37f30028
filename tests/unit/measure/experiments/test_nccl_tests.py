# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

from nccltune.formats.nccl_log.model_table import usable
from nccltune.measure.engine.program import run_program
from nccltune.measure.experiments.nccl_tests.binaries import NcclTestsSite, environment, possible
from nccltune.measure.experiments.nccl_tests.probe import ProbedRun, probe, read_output
from nccltune.model.choice import DEFAULT, Algorithm, Choice, Protocol, parse_choice
from nccltune.model.collective import TUNED, Collective
from nccltune.model.errors import PlatformError
from tests.programs import python_program

TREE = parse_choice("tree/ll")
TABLE = """\
[0] NCCL INFO   Algorithm   |         Tree        |        Ring          |   CollNetDirect  |
[0] NCCL INFO   Protocol    |     LL |  LL128 | Simple |     LL |  LL128 | Simple |
[0] NCCL INFO  Max NThreads |    512 |    640 |    512 |
[0] NCCL INFO     Broadcast | 0.0/ 0.0 | 0.0/ 0.0 | 0.0/ 0.0 | 9.3/ 0.6 | 18.0/ 0.0 | 22.4/ 1.2 |
[0] NCCL INFO     AllReduce | 26.8/ 0.1 | 48.0/ 0.0 | 64.4/ 0.5 | 36.6/ 0.4 | 65.0/ 0.0 \
| 92.4/   0.8 |  5.0/   0.0 |  8.5/   0.0 | 14.0/   0.0 |
[0] NCCL INFO   Algorithm   |           PAT        |      NEWER           |
[1] NCCL INFO TUNER/Plugin: Could not find: libnccl-tuner.so
[0] NCCL INFO     AllGather | 0.0/ 0.0 | 0.0/ 0.0 | 27.2/ 0.9 | 1.0/ 1.0 | 1.0/ 1.0 | 1.0/ 1.0 |
"""


def test_what_nccl_can_choose_is_read_from_its_model_table() -> None:
    found = usable(TABLE.splitlines())
    labels = {coll: [choice.label for choice in choices] for coll, choices in found.items()}
    assert labels == {
        Collective.BROADCAST: ["ring/ll", "ring/simple"],
        Collective.ALLREDUCE: ["tree/ll", "tree/simple", "ring/ll", "ring/simple"],
        Collective.ALLGATHER: ["pat/simple"],
    }
    assert usable(["nothing", "AllReduce | 1.0/ 1.0 |"]) == {}


def test_without_a_table_everything_that_exists_is_possible() -> None:
    assert len(possible(Collective.ALLREDUCE)) == 10
    assert len(possible(Collective.ALLGATHER)) == 6
    assert len(possible(Collective.BROADCAST)) == 3
    for collective in TUNED:
        found = possible(collective)
        assert len(set(found)) == len(found)
        for choice in found:
            if choice.algorithm not in (Algorithm.TREE, Algorithm.RING):
                assert choice.protocol is Protocol.SIMPLE


def test_a_choice_is_forced_by_plain_words_and_the_default_by_none() -> None:
    base = {"NCCL_ALGO": "ring", "NCCL_TUNER_PLUGIN": "x", "HOME": "/root", "NCCL_NET": "Socket"}
    assert environment(base, DEFAULT) == {"HOME": "/root", "NCCL_NET": "Socket"}
    forced = environment(base, parse_choice("nvls_tree/simple"))
    assert (forced["NCCL_ALGO"], forced["NCCL_PROTO"]) == ("nvlstree", "simple")
    assert "NCCL_TUNER_PLUGIN" not in forced


def test_binaries_are_found_also_with_a_suffix(tmp_path: Path) -> None:
    site = NcclTestsSite(tmp_path, 4)
    with pytest.raises(PlatformError, match="holds no all_reduce_perf"):
        site.binary(Collective.ALLREDUCE)
    (tmp_path / "all_reduce_perf").write_text("not to be run")
    with pytest.raises(PlatformError, match="that can be run"):
        site.binary(Collective.ALLREDUCE)
    suffixed = python_program(tmp_path / "reduce_scatter_perf_mpi")
    assert site.binary(Collective.REDUCESCATTER) == suffixed
    plain = python_program(tmp_path / "reduce_scatter_perf")
    assert site.binary(Collective.REDUCESCATTER) == plain


def test_the_command_begins_with_the_launcher(tmp_path: Path) -> None:
    binary = python_program(tmp_path / "all_reduce_perf")
    site = NcclTestsSite(tmp_path, 1, ("mpirun", "-np", "8"))
    command = site.command(Collective.ALLREDUCE, 1024, 4096, "-c", "0")
    expected = f"mpirun -np 8 {binary} -b 1024 -e 4096 -f 2 -g 1 -c 0"
    assert command == expected.split()


FAKE = Path(__file__).parents[3] / "e2e" / "fake_nccl_tests.py"


@pytest.fixture
def site(tmp_path: Path) -> NcclTestsSite:
    for name in ("all_reduce_perf", "all_gather_perf"):
        (tmp_path / name).symlink_to(FAKE)
    return NcclTestsSite(tmp_path, 4)


def base(**variables: str) -> dict[str, str]:
    return {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **variables}


def seen(
    site: NcclTestsSite,
    choice: str,
    collective: Collective = Collective.ALLREDUCE,
    **variables: str,
) -> ProbedRun:
    asked = parse_choice(choice)
    return probe(site, collective, asked, 1024, 8192, base=base(**variables), limit_s=60)


def test_a_probe_finds_the_platform_what_can_be_chosen_and_what_ran(site: NcclTestsSite) -> None:
    found = seen(site, "default")
    assert (found.nodes, found.ranks, found.gpu) == (1, 4, "NVIDIA H200")
    assert (found.nccl_version, found.tests_version) == ("2.28.9", "2.19.6")
    assert [choice.label for choice in found.usable] == [
        "tree/ll", "tree/simple", "ring/ll", "ring/simple",
    ]  # fmt: skip
    assert [item.bytes for item in found.seen] == [1024, 2048, 4096, 8192]
    ring = Choice(Algorithm.RING, Protocol.SIMPLE, 2)
    assert all((item.choice, item.ran) == (DEFAULT, ring) for item in found.seen)
    assert found.error is None
    emulated = seen(site, "default", FAKE_NODES="4")
    assert (emulated.nodes, emulated.emulated_nodes) == (4, True)


def test_a_probe_of_all_gather_joins_bytes_per_rank_in_the_log_with_the_total(
    site: NcclTestsSite,
) -> None:
    found = seen(site, "ring/ll", Collective.ALLGATHER)
    assert [item.bytes for item in found.seen] == [1024, 2048, 4096, 8192]
    assert all(item.ran == Choice(Algorithm.RING, Protocol.LL, 2) for item in found.seen)


def test_a_choice_that_is_refused_or_does_not_run_is_left_out(site: NcclTestsSite) -> None:
    refused = seen(site, "tree/ll", FAKE_REFUSE="tree/ll")
    assert refused.error == (
        "NCCL warns: Error : no algorithm/protocol available for function AllReduce"
    )
    other = seen(site, "tree/ll", FAKE_IGNORE="1")
    assert other.error == "NCCL ran ring/simple instead"
    assert seen(site, "tree/ll").error is None


def test_output_is_read_with_the_choice_that_was_asked_for(site: NcclTestsSite) -> None:
    command = site.command(Collective.ALLREDUCE, 1024, 2048)
    ended = run_program(command, environment(base(), TREE), 60)
    samples, report = read_output(ended.output, Collective.ALLREDUCE, TREE, study="s")
    assert report.kind.value == "nccl-tests text"
    assert [(s.bytes, s.in_place, s.choice, s.wrong, s.study) for s in samples] == [
        (1024, False, TREE, 0, "s"),
        (1024, True, TREE, 0, "s"),
        (2048, False, TREE, 0, "s"),
        (2048, True, TREE, 0, "s"),
    ]
