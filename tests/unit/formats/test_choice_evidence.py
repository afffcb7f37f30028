# SPDX-License-Identifier: Apache-2.0
"""Which choice a table was made with, and who says so."""

import pytest

from nccltune.formats.choices import choice_of_name, collective_of_name
from nccltune.formats.nccl_log import NcclLog, forced
from nccltune.model.choice import Algorithm, Choice, Protocol, choice_label, parse_choice
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, points
from tests.unit.formats.reading_tools import Read, files, text

SIZES = (1 << 16, 1 << 20)
MADE = Made(points(*SIZES))
INFO = "alpha:2136:2201 [0] NCCL INFO "
TREE_LL = Choice(Algorithm.TREE, Protocol.LL)
RING_SIMPLE = Choice(Algorithm.RING, Protocol.SIMPLE)


def ran_line(size: int, what: str = "TREE proto LL", func: str = "AllReduce", hi: int = 7) -> str:
    return f"{INFO}{func}: {size} Bytes -> Algo {what} channel{{Lo..Hi}}={{0..{hi}}}"


def logged(made: Made, *messages: str, lines: tuple[str, ...] = ()) -> str:
    """A table with log messages after its device list (`messages`) and before its rows."""
    out = [*made.head(), *(INFO + message for message in messages), *made.columns(), *lines]
    return "\n".join([*out, *map(made.row, made.points), *made.foot()]) + "\n"


def env(**settings: str) -> tuple[str, ...]:
    return tuple(f"NCCL_{name} set by environment to {value}" for name, value in settings.items())


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("nt_Tree-LL128.txt", "tree/ll128"),
        ("tree_ll128", "tree/ll128"),
        ("ring-simple", "ring/simple"),
        ("allreduce_ring_ll.out", "ring/ll"),
        ("NVLSTree-Simple.log", "nvls_tree/simple"),
        ("nvls_tree_simple.log", "nvls_tree/simple"),
        ("nvls-simple", "nvls/simple"),
        ("CollnetDirect_Simple", "collnet_direct/simple"),
        ("collnet_chain-simple", "collnet_chain/simple"),
        ("pat_simple.txt", "pat/simple"),
        ("default.txt", "default"),
        ("nt_default_2.txt", "default"),
        ("tree_ll/out.txt", "tree/ll"),
        ("tree_ll/ring_ll.txt", "ring/ll"),
        ("defaults.txt", None),
        ("fattree_ll.txt", None),
        ("tree_llx.txt", None),
        ("tree_ll_ring_ll.txt", None),
        ("out.txt", None),
    ],
)
def test_file_names(name: str, label: str | None) -> None:
    found = choice_of_name(name)
    assert (choice_label(found) if found is not None else None) == label


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("all_reduce_perf.txt", "allreduce"),
        ("AllGather.log", "allgather"),
        ("reduce-scatter_8.txt", "reducescatter"),
        ("alltoallv.txt", "alltoallv"),
        ("alltoall.txt", "alltoall"),
        ("bcast.txt", "broadcast"),
        ("sendrecv", "sendrecv"),
        ("reduce.txt", "reduce"),
        ("scatter.txt", "scatter"),
        ("out.txt", None),
    ],
)
def test_collectives_of_names(name: str, collective: str | None) -> None:
    assert collective_of_name(name) == collective


def test_the_user_is_believed_first() -> None:
    data = logged(MADE, *env(ALGO="Ring", PROTO="Simple"))
    assert text(data, "tree_ll.txt", choice=TREE_LL).labels == {"tree/ll"}
    assert text(data, "tree_ll.txt", choice="default").labels == {"default"}
    assert text(data, "tree_ll.txt", choice="tuned").labels == {"tuned"}


def test_then_the_environment_in_the_log() -> None:
    read = text(logged(MADE, *env(ALGO="Ring", PROTO="Simple")), "tree_ll.txt")
    assert read.labels == {"ring/simple"}
    assert "choice_assumed" not in read.flags


def test_then_the_files_name() -> None:
    assert text(MADE.text(), "nt_Tree-LL128.txt").labels == {"tree/ll128"}
    assert text(logged(MADE, "Bootstrap: Using lo"), "tree_ll.txt").labels == {"tree/ll"}


def test_else_the_default_and_it_is_said() -> None:
    read = text(MADE.text())
    assert read.labels == {"default"}
    assert "choice_assumed" in read.flags
    assert "choice_assumed" not in text(MADE.text(), "default.txt").flags


def test_a_log_that_forces_nothing_tells_the_default_and_what_ran() -> None:
    lines = tuple(ran_line(size) for size in SIZES)
    read = text(logged(MADE, *env(DEBUG="INFO"), lines=lines))
    assert read.labels == {"default"}
    assert {sample.ran for sample in read.samples} == {Choice(Algorithm.TREE, Protocol.LL, 8)}
    assert "choice_assumed" not in read.flags


@pytest.mark.parametrize("tail", ["", " cgaClusterSize 4"])
def test_choice_lines_since_2_24(tail: str) -> None:
    read = text(logged(MADE, lines=(ran_line(SIZES[0], "RING proto LL128", hi=0) + tail,)))
    ran = {sample.bytes: sample.ran for sample in read.samples}
    assert ran == {SIZES[0]: Choice(Algorithm.RING, Protocol.LL128, 1), SIZES[1]: None}


@pytest.mark.parametrize("func", ["", "AllReduce: "])
def test_choice_lines_before_2_24(func: str) -> None:
    line = f"{INFO}{func}{SIZES[0]} Bytes -> Algo 1 proto 2 time 2860.208008"
    read = text(logged(MADE, lines=(line,)))
    assert {sample.ran for sample in read.samples if sample.bytes == SIZES[0]} == {RING_SIMPLE}


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.REDUCESCATTER])
def test_bytes_are_per_rank_since_2_24(collective: Collective) -> None:
    func = {"allgather": "AllGather", "reducescatter": "ReduceScatter"}[collective]
    made = Made(points(*SIZES), collective, ranks=8)
    new = tuple(ran_line(size // 8, "RING proto LL", func) for size in SIZES)
    assert all(sample.ran for sample in text(logged(made, lines=new)).samples)
    # The same numbers in the form before 2.24 count over all ranks.
    old = tuple(f"{INFO}{func}: {size} Bytes -> Algo 1 proto 0 time 1.0" for size in SIZES)
    assert all(sample.ran for sample in text(logged(made, lines=old)).samples)
    wrong = tuple(ran_line(size, "RING proto LL", func) for size in SIZES)
    assert {s.ran for s in text(logged(made, lines=wrong)).samples if s.bytes == SIZES[1]} == {None}


def test_a_log_that_comes_after_the_rows_still_counts() -> None:
    # Standard output is written in blocks: the log may be ahead of or behind the rows.
    data = MADE.text() + "\n".join(ran_line(size) for size in SIZES)
    assert all(sample.ran for sample in text(data).samples)


def test_a_log_of_one_run_says_nothing_of_the_next() -> None:
    forced_run = logged(MADE, *env(ALGO="Tree", PROTO="LL"))
    read = text(forced_run + logged(MADE, *env(DEBUG="INFO")))
    assert read.report.choices == {"tree/ll": 4, "default": 4}


def test_a_forced_choice_that_did_not_run_is_named_by_what_ran() -> None:
    lines = (ran_line(SIZES[0]), ran_line(SIZES[1], "RING proto SIMPLE"))
    for read in (
        text(logged(MADE, lines=lines), "tree_ll.txt"),
        text(logged(MADE, *env(ALGO="Tree", PROTO="LL"), lines=lines)),
        text(logged(MADE, lines=lines), choice=TREE_LL),
    ):
        assert {(s.bytes, choice_label(s.choice)) for s in read.samples} == {
            (SIZES[0], "tree/ll"),
            (SIZES[1], "ring/simple"),
        }
        assert "choice_overridden" in read.flags


def test_fewer_channels_are_no_other_choice() -> None:
    read = text(logged(MADE, lines=(ran_line(SIZES[0]),)), choice=parse_choice("tree/ll/32"))
    assert read.labels == {"tree/ll/32"}
    assert "choice_overridden" not in read.flags


def test_half_forced_needs_the_log() -> None:
    data = logged(MADE, *env(ALGO="Tree"), lines=(ran_line(SIZES[0]),))
    read = text(data)
    assert read.labels == {"tree/ll"}
    assert {sample.bytes for sample in read.samples} == {SIZES[0]}
    assert "choice_unknown" in read.doubtful
    assert read.report.unreadable == 1
    assert "--choice" in read.sentence("choice_unknown")
    assert text(data, "tree_ll.txt").labels == {"tree/ll"}
    assert text(data, choice="default").labels == {"default"}


def test_exclusions_leave_a_restricted_default() -> None:
    read = text(logged(MADE, *env(ALGO="^NVLS,NVLSTree")))
    assert read.labels == {"default"}
    assert "choice_restricted" in read.flags
    assert read.doubtful == set()


@pytest.mark.parametrize(
    ("algorithms", "protocols", "label"),
    [
        ("Tree", "LL", "tree/ll"),
        ("TREE", "ll128", "tree/ll128"),
        ("ring;allreduce:tree", "LL", "tree/ll"),
        ("ring;broadcast:tree", "LL", "ring/ll"),
        ("NVLS", None, "nvls/simple"),
        ("^ring,collnetdirect,collnetchain,nvls,nvlstree,pat", "^LL,LL128", "tree/simple"),
        ("NVLSTree", "Simple", "nvls_tree/simple"),
        ("Tree,Ring", "LL", None),
        ("Tree", None, None),
        (None, "LL", None),
        (None, None, None),
    ],
)
def test_forced_choices(algorithms: str | None, protocols: str | None, label: str | None) -> None:
    found = forced(algorithms, protocols, Collective.ALLREDUCE).choice
    assert (found.label if found else None) == label


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (
            "AllReduce [Symmetric]: 65536 Bytes -> Kernel AllReduce_AGxLL nchannels 4 nthreads 2",
            "sym",
        ),
        ("AllReduce [Copy Engine]: 65536 Bytes -> cudaMemcpy", "copy engine"),
    ],
)
def test_what_no_tuner_is_asked_about(line: str, what: str) -> None:
    read = text(logged(MADE, lines=(INFO + line,)), "tree_ll.txt")
    assert what in read.sentence("tuner_bypassed")
    labels = {(s.bytes, choice_label(s.choice)) for s in read.samples}
    assert labels == {(SIZES[0], "default"), (SIZES[1], "tree/ll")}


def test_a_loaded_tuner_makes_the_default_doubtful() -> None:
    for line in ("TUNER/Plugin: Using Acme (v4)", "TUNER/Plugin: Using tuner plugin Acme"):
        read = text(logged(MADE, line))
        assert "tuner_loaded" in read.doubtful
        assert "Acme" in read.sentence("tuner_loaded")
        assert text(logged(MADE, line), choice="tuned").doubtful == set()


def test_nodes_as_nccl_counts_them() -> None:
    line = "comm 0x55 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0"
    read = text(logged(MADE, line, "NCCL version 2.28.9+cuda13.0", "Using network Socket"))
    assert read.report.scales == {"4x4": 4}
    assert read.report.emulated_nodes
    assert read.report.network == "Socket"
    # Without a device list the log tells ranks and nodes.
    data = "\n".join(line for line in logged(MADE, line).splitlines() if "Rank  " not in line)
    assert text(data).report.scales == {"4x4": 4}


def test_settings_are_kept_without_secrets_and_hosts() -> None:
    read = text(
        logged(
            MADE,
            *env(
                IB_HCA="mlx5",
                COMM_ID="10.0.0.1:77",
                HOSTID="secret",
                TOPO_FILE="/home/someone/topo.xml",
                MY_TOKEN="abc",
                NET="x" * 200,
            ),
        )
    )
    assert read.report.settings == {"NCCL_IB_HCA": "mlx5", "NCCL_TOPO_FILE": "topo.xml"}


def test_logs_in_files_of_their_own_are_joined(tmp_path: object) -> None:
    from pathlib import Path

    folder = Path(str(tmp_path)) / "runs"
    folder.mkdir()
    (folder / "table.txt").write_text(MADE.text())
    log = [INFO + message for message in env(ALGO="Tree", PROTO="LL")]
    (folder / "zz.alpha.2136").write_text("\n".join(log + [ran_line(size) for size in SIZES]))
    (folder / "zz.alpha.9").write_text(INFO.replace(":2136:", ":9:") + env(ALGO="Ring")[0])
    read = next(item for item in files(folder) if item.samples)
    assert read.labels == {"tree/ll"}
    assert all(sample.ran for sample in read.samples)


def test_a_log_with_two_choices_for_a_size_names_none() -> None:
    log = NcclLog()
    for what in ("TREE proto LL", "RING proto LL"):
        log.observe(ran_line(4096, what).removeprefix(INFO))
    assert log.ran(Collective.ALLREDUCE, 4096, 4) is None
    assert log.functions == {Collective.ALLREDUCE}


def by_size(read: Read) -> dict[int, str]:
    return {sample.bytes: choice_label(sample.choice) for sample in read.samples}
