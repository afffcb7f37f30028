# SPDX-License-Identifier: Apache-2.0
"""The choice that a table was measured with, and the evidence for it."""

from pathlib import Path

import pytest

from nccltune.formats.importing.inputs import find_inputs, read_inputs
from nccltune.formats.nccl_log.run_settings import NcclLog
from nccltune.formats.reading.context import ReadOptions
from nccltune.formats.reading.platform_facts import Subject, differences
from nccltune.model.choice import Algorithm, Choice, Protocol, choice_label, parse_choice
from nccltune.model.collective import Collective
from tests.unit.formats.maker import Made, points, without_devices
from tests.unit.formats.reading_tools import Read, files, text

SIZES = (1 << 16, 1 << 20)
MADE = Made(points(*SIZES))
INFO = "alpha:2136:2201 [0] NCCL INFO "
TREE_LL = Choice(Algorithm.TREE, Protocol.LL)
TREE_LL_8 = Choice(Algorithm.TREE, Protocol.LL, 8)
RING_LL = Choice(Algorithm.RING, Protocol.LL)
RING_LL_8 = Choice(Algorithm.RING, Protocol.LL, 8)
RING_SIMPLE = Choice(Algorithm.RING, Protocol.SIMPLE)


def ran_line(size: int, what: str = "TREE proto LL", func: str = "AllReduce", hi: int = 7) -> str:
    return f"{INFO}{func}: {size} Bytes -> Algo {what} channel{{Lo..Hi}}={{0..{hi}}}"


def logged(made: Made, *messages: str, lines: tuple[str, ...] = ()) -> str:
    """Return a table with log `messages` after its device list and `lines` before its rows."""
    out = [*made.head(), *(INFO + message for message in messages), *made.columns(), *lines]
    return "\n".join([*out, *map(made.row, made.points), *made.foot()]) + "\n"


def ran(read: Read) -> dict[int, object]:
    """Return what ran by size; out of place and in place agree."""
    assert {(sample.bytes, sample.in_place) for sample in read.samples} == {
        (size, in_place) for size in SIZES for in_place in (False, True)
    }
    found = {(sample.bytes, sample.ran) for sample in read.samples}
    assert len(found) == len(SIZES)
    return dict(found)


def env(**settings: str) -> tuple[str, ...]:
    return tuple(f"NCCL_{name} set by environment to {value}" for name, value in settings.items())


@pytest.mark.parametrize(
    "name", ["Ring.txt", "Tree.txt", "LL128.txt", "nvls.txt", "default_ring_simple.txt"]
)
def test_a_known_name_without_a_whole_choice_leaves_it_unknown(name: str) -> None:
    read = text(MADE.text(), name)
    assert read.samples == []
    assert read.report.unreadable == len(SIZES)
    assert "choice_unknown" in read.doubtful
    assert "--choice" in read.sentence("choice_unknown")
    assert text(MADE.text(), name, choice=TREE_LL if "ree" in name else "default").doubtful <= {
        "choice_conflict"
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("simple-test.txt", "'simple'"),
        ("fat-tree.txt", "'tree' and 'fat'"),
        ("node-ring01.txt", "'ring' and 'ring01'"),
        ("runs-on-ringnode3.txt", "'ring' and 'on'"),
        ("default_run_bob.txt", "'default' and 'bob'"),
        ("bad_ring_cable.txt", "'ring' and 'bad'"),
        ("tuned_cluster.txt", "'tuned' and 'cluster'"),
        ("gpu-default-pool-7.txt", "'default' and 'pool'"),
        ("nvls_off.txt", "'nvls' and 'off'"),
    ],
)
def test_a_name_with_unknown_words_is_no_evidence(name: str, words: str) -> None:
    read = text(MADE.text(), name)
    assert read.labels == {"default"}
    assert f"has {words}, which state no choice" in read.sentence("choice_assumed")
    assert read.doubtful == set()
    assert text(MADE.text(), name, choice=TREE_LL).labels == {"tree/ll"}


@pytest.mark.parametrize(
    "name",
    [
        "fat_tree_simple.txt",
        "not-tree_ll.txt",
        "no_ring_simple.txt",
        "notree.txt",
        "without_tree_ll.txt",
        "tree_ll_vs_ring_ll.txt",
        "ring_simple_vs_default.txt",
        "tree_ll_off.txt",
        "untuned.txt",
        "non-default.txt",
        "fat_tree_simple/run1.txt",
    ],
)
def test_a_name_that_may_state_a_choice_makes_the_default_doubtful(name: str) -> None:
    read = text(MADE.text(), name)
    assert read.labels == {"default"}
    assert read.doubtful == {"choice_assumed"}


def test_a_word_that_only_contains_a_choice_is_no_word_of_a_choice() -> None:
    command = "mpirun -x NCCL_MIN_NCHANNELS=8 ./all_reduce_perf -b 8\n"
    read = text(command + MADE.text(), "allreduce_without_ofi_plugin.txt")
    assert read.labels == {"default"}
    assert "nothing names the choice" in read.sentence("choice_assumed")
    assert "taken as the default, with NCCL_MIN_NCHANNELS=8" in read.sentence("choice_assumed")


@pytest.mark.parametrize(
    "name", ["run1.txt", "output.log", "string.txt", "monitoring.txt", "street.txt", "defaults.txt"]
)
def test_a_neutral_name_is_assumed_to_be_the_default(name: str) -> None:
    read = text(MADE.text(), name)
    assert read.labels == {"default"}
    assert "choice_assumed" in read.flags


@pytest.mark.parametrize(
    ("data", "name", "choice", "both"),
    [
        (env(ALGO="Ring", PROTO="Simple"), "tree_ll.txt", None, ("NCCL_ALGO=Ring", "tree/ll")),
        (env(ALGO="Ring", PROTO="Simple"), "out.txt", TREE_LL, ("NCCL_ALGO=Ring", "tree/ll")),
        (env(ALGO="Ring", PROTO="Simple"), "out.txt", "default", ("NCCL_ALGO=Ring", "default")),
        (env(ALGO="Tree"), "default.txt", None, ("NCCL_ALGO=Tree", "default")),
        (env(ALGO="^tree"), "out.txt", TREE_LL, ("NCCL_ALGO=^tree", "tree/ll")),
        ((), "ring_ll.txt", TREE_LL, ("--choice is tree/ll", "ring/ll")),
        ((), "Ring.txt", TREE_LL, ("--choice is tree/ll", "ring")),
        ((), "default.txt", "tuned", ("--choice is tuned", "default")),
    ],
)
def test_contradictions_are_refused_and_show_both(
    data: tuple[str, ...], name: str, choice: object, both: tuple[str, str]
) -> None:
    read = text(logged(MADE, *data), name, choice=choice)
    assert read.samples == []
    assert "choice_conflict" in read.doubtful
    assert all(words in read.sentence("choice_conflict") for words in both)


def test_runs_that_we_started_need_no_other_evidence() -> None:
    data = logged(MADE, *env(ALGO="Ring", PROTO="Simple"))
    assert text(data, choice=TREE_LL, started_here=True).labels == {"tree/ll"}


def test_the_environment_in_the_log() -> None:
    read = text(logged(MADE, *env(ALGO="Ring", PROTO="Simple")))
    assert read.labels == {"ring/simple"}
    assert "choice_assumed" not in read.flags


def test_a_name_and_a_setting_complete_each_other() -> None:
    assert text(logged(MADE, *env(PROTO="LL")), "Ring.txt").labels == {"ring/ll"}


def test_a_log_of_other_settings_puts_a_name_in_doubt() -> None:
    read = text(logged(MADE, *env(IB_HCA="mlx5")), "tree_ll.txt")
    assert read.labels == {"tree/ll"}
    assert "choice_unconfirmed" in read.doubtful


def test_a_log_of_other_choices_contradicts_a_name() -> None:
    lines = tuple(ran_line(size, "RING proto SIMPLE") for size in SIZES)
    read = text(logged(MADE, lines=lines), "tree_ll.txt")
    assert read.samples == []
    assert "ring/simple" in read.sentence("choice_conflict")


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("mpirun -np 4 -x NCCL_ALGO=Tree -x NCCL_PROTO=LL ./all_reduce_perf -b 8", "tree/ll"),
        ("$ mpirun -np 4 -x 'NCCL_ALGO=Tree' -x NCCL_PROTO=\"LL\" all_reduce_perf", "tree/ll"),
        ("mpiexec.hydra -genv NCCL_ALGO Tree -genv NCCL_PROTO LL all_reduce_perf", "tree/ll"),
        ("NCCL_ALGO=Ring NCCL_PROTO=Simple ./all_reduce_perf -g 4", "ring/simple"),
        ("srun --export=ALL,NCCL_ALGO=Ring,NCCL_PROTO=LL128 all_reduce_perf_mpi", "ring/ll128"),
        ("export NCCL_ALGO=Tree NCCL_PROTO=LL", "tree/ll"),
        ("+ export NCCL_ALGO=Tree\n+ export NCCL_PROTO=LL\n+ ./all_reduce_perf -g 4", "tree/ll"),
        ("+ NCCL_ALGO=Tree\n+ NCCL_PROTO=LL\n+ ./all_reduce_perf -g 4", "tree/ll"),
        ("setenv NCCL_ALGO Tree\nsetenv NCCL_PROTO LL", "tree/ll"),
        ("# mpirun -x NCCL_ALGO=Tree -x NCCL_PROTO=LL all_reduce_perf", "tree/ll"),
        ("=== NCCL_ALGO=Tree, NCCL_PROTO=LL ===", "tree/ll"),
        ('docker run -e NCCL_ALGO="ring;allreduce:tree" -e NCCL_PROTO=LL x_perf', "tree/ll"),
        ("mpirun -x NCCL_ALGO=NVLS ./all_reduce_perf", "nvls/simple"),
        ("export NCCL_ALGO=Tree\nexport NCCL_PROTO=LL\nunset NCCL_ALGO NCCL_PROTO", "default"),
        ("mpirun -np 4 ./all_reduce_perf", "default"),
        ("mpirun -x NCCL_ALGO=Tree ./all_reduce_perf", "NCCL_ALGO=Tree"),
        ("mpirun -x NCCL_PROTO=LL ./all_reduce_perf", "NCCL_PROTO=LL"),
        ("export NCCL_ALGO=nvlstree", "nvls_tree/simple"),
        ("mpirun -x NCCL_PROTO=LL,LL128 -x NCCL_ALGO=Ring ./all_reduce_perf", None),
        ("When I set NCCL_ALGO=Tree I get:", "NCCL_ALGO=Tree"),
        ("Results with `NCCL_PROTO=LL`:", "NCCL_PROTO=LL"),
        ("Without NCCL_PROTO=LL I get:", None),
        ("# A against NCCL_PROTO=Simple", None),
        ("mpirun -x NCCL_ALGO=$ALGO -x NCCL_PROTO=LL ./all_reduce_perf", None),
    ],
)
def test_command_lines_above_the_table(line: str, label: str | None) -> None:
    read = text(f"{line}\n{MADE.text()}")
    assert read.labels == (set() if label is None else {label})
    assert ("choice_unknown" in read.doubtful) is (label is None)


@pytest.mark.parametrize(
    ("setting", "name", "label"),
    [
        *(("ALGO=Ring", name, "NCCL_ALGO=Ring") for name in ("ring", "run_ring_5n", "r1")),
        *(("PROTO=LL128", name, "NCCL_PROTO=LL128") for name in ("LL128", "allreduce-ll128")),
        ("ALGO=Tree", "tree_ll", "tree/ll"),
        # The name adds a word, or contradicts.
        ("PROTO=LL,LL128", "ll", None),
        ("ALGO=Ring", "tree", None),
    ],
)
def test_a_name_that_agrees_with_the_command_line_adds_nothing(
    setting: str, name: str, label: str | None
) -> None:
    read = text(f"mpirun -x NCCL_{setting} ./all_reduce_perf\n{MADE.text()}", f"{name}.txt")
    assert read.labels == (set() if label is None else {label})


def test_a_command_line_contradicts_a_name_or_a_log() -> None:
    command = "mpirun -x NCCL_ALGO=Tree -x NCCL_PROTO=LL all_reduce_perf\n"
    for read in (
        text(command + MADE.text(), "ring_ll.txt"),
        text(command + MADE.text(), choice="default"),
        text(command + logged(MADE, *env(ALGO="Ring", PROTO="LL"))),
    ):
        assert read.samples == []
        assert "NCCL_ALGO=Tree" in read.sentence("choice_conflict")


def test_each_run_has_its_own_command_line() -> None:
    lines = [
        "+ mpirun -x NCCL_ALGO=Tree -x NCCL_PROTO=LL all_reduce_perf",
        "+ mpirun -x NCCL_ALGO=Ring -x NCCL_PROTO=Simple all_reduce_perf",
        "+ mpirun all_reduce_perf",
    ]
    read = text("".join(f"{line}\n{MADE.text()}" for line in lines))
    assert read.report.choices == {"tree/ll": 4, "ring/simple": 4, "default": 4}
    # It is unknown whether the first line applies to the second table.
    read = text(f"{lines[0]}\n{MADE.text()}{MADE.text()}")
    assert read.report.choices == {"tree/ll": 4}
    assert "choice_unknown" in read.doubtful
    exported = "export NCCL_ALGO=Tree\nexport NCCL_PROTO=LL\n"
    assert text(exported + MADE.text() + MADE.text()).report.choices == {"tree/ll": 8}


def of_process(pid: int, *messages: str) -> str:
    return "".join(f"alpha:{pid}:{pid} [0] NCCL INFO {message}\n" for message in messages)


@pytest.mark.parametrize("second", [2136, 4000])
def test_settings_above_a_header_belong_to_the_run_below(second: int) -> None:
    data = "".join(
        of_process(made.pid, *env(ALGO=algorithm, PROTO="LL")) + made.text()
        for made, algorithm in ((MADE, "Tree"), (MADE.with_(pid=second), "Ring"))
    )
    assert text(data).report.choices == {"tree/ll": 4, "ring/ll": 4}


def test_settings_above_a_header_without_a_device_list() -> None:
    bare = without_devices(MADE.text())
    data = "".join(
        of_process(pid, *env(ALGO=algorithm, PROTO="LL")) + bare
        for pid, algorithm in ((7, "Tree"), (9, "Ring"), (11, "Tree"))
    )
    read = text(data, nodes=1, ranks=4)
    assert read.report.choices == {"tree/ll": 8, "ring/ll": 4}


def test_lines_of_a_process_that_come_after_its_table() -> None:
    first, second = MADE, MADE.with_(pid=4000)
    data = first.text() + of_process(first.pid, *env(ALGO="Tree", PROTO="LL")) + second.text()
    data += of_process(second.pid, *env(ALGO="Ring", PROTO="LL"))
    assert text(data).report.choices == {"tree/ll": 4, "ring/ll": 4}


def test_ranks_with_different_settings_are_an_error() -> None:
    made = MADE.with_(one_process=False)
    data = (
        made.text()
        + of_process(made.pid, *env(ALGO="Tree", PROTO="LL"))
        + of_process(made.pid + 1, *env(ALGO="Ring", PROTO="LL"))
    )
    read = text(data)
    assert read.samples == []
    sentence = read.sentence("choice_conflict")
    assert "alpha:2136 has NCCL_ALGO=Tree" in sentence
    assert "alpha:2137 has NCCL_ALGO=Ring" in sentence


def test_ranks_with_different_settings_in_files_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    made = MADE.with_(one_process=False)
    (folder / "table.txt").write_text(made.text())
    for pid, algorithm in ((made.pid, "Tree"), (made.pid + 1, "Ring")):
        (folder / f"zz.alpha.{pid}").write_text(of_process(pid, *env(ALGO=algorithm, PROTO="LL")))
    (read,) = [item for item in files(folder) if "choice_conflict" in item.doubtful]
    assert read.samples == []


def test_a_choice_in_the_file_name_labels_the_table() -> None:
    assert text(MADE.text(), "nt_Tree-LL128.txt").labels == {"tree/ll128"}
    assert text(logged(MADE, "Bootstrap: Using lo"), "tree_ll.txt").labels == {"tree/ll"}


def test_the_default_in_a_file_name_is_not_assumed() -> None:
    assert "choice_assumed" not in text(MADE.text(), "default.txt").flags


def test_a_log_that_forces_nothing_shows_the_default_and_what_ran() -> None:
    lines = tuple(ran_line(size) for size in SIZES)
    read = text(logged(MADE, *env(DEBUG="INFO"), lines=lines))
    assert read.labels == {"default"}
    assert ran(read) == dict.fromkeys(SIZES, TREE_LL_8)
    assert "choice_assumed" not in read.flags


@pytest.mark.parametrize("tail", ["", " cgaClusterSize 4"])
def test_choice_lines_since_2_24(tail: str) -> None:
    read = text(logged(MADE, lines=(ran_line(SIZES[0], "RING proto LL128", hi=0) + tail,)))
    assert ran(read) == {SIZES[0]: Choice(Algorithm.RING, Protocol.LL128, 1), SIZES[1]: None}


@pytest.mark.parametrize("func", ["", "AllReduce: "])
def test_choice_lines_before_2_24(func: str) -> None:
    line = f"{INFO}{func}{SIZES[0]} Bytes -> Algo 1 proto 2 time 2860.208008"
    read = text(logged(MADE, lines=(line,)))
    assert ran(read) == {SIZES[0]: RING_SIMPLE, SIZES[1]: None}


@pytest.mark.parametrize("collective", [Collective.ALLGATHER, Collective.REDUCESCATTER])
def test_bytes_are_per_rank_since_2_24(collective: Collective) -> None:
    func = {"allgather": "AllGather", "reducescatter": "ReduceScatter"}[collective]
    made = Made(points(*SIZES), collective, ranks=8)
    new = tuple(ran_line(size // 8, "RING proto LL", func) for size in SIZES)
    assert ran(text(logged(made, lines=new))) == dict.fromkeys(SIZES, RING_LL_8)
    # The same numbers in the form before 2.24 count over all ranks.
    old = tuple(f"{INFO}{func}: {size} Bytes -> Algo 1 proto 0 time 1.0" for size in SIZES)
    assert ran(text(logged(made, lines=old))) == dict.fromkeys(SIZES, RING_LL)
    wrong = tuple(ran_line(size, "RING proto LL", func) for size in SIZES)
    assert ran(text(logged(made, lines=wrong)))[SIZES[1]] is None


def test_a_log_that_comes_after_the_rows_still_counts() -> None:
    # Standard output is buffered: the log may precede or follow the rows.
    data = MADE.text() + "\n".join(ran_line(size) for size in SIZES)
    assert ran(text(data)) == dict.fromkeys(SIZES, TREE_LL_8)


def test_choice_lines_below_the_only_table_are_its_own_unless_another_run_began() -> None:
    below = "\n".join(ran_line(size) for size in SIZES).replace(":2136:", ":77:")
    head = INFO.replace(":2136:", ":77:")
    assert ran(text(MADE.text() + below)) == dict.fromkeys(SIZES, TREE_LL_8)
    for data in (
        MADE.text() + below.replace("alpha", "beta"),
        MADE.text() + f"{head}NCCL version 2.27.3+cuda12.6\n{below}",
        MADE.text() + f"{head}NCCL_DEBUG set by environment to INFO\n{below}",
        MADE.text() + MADE.with_(pid=4000).text() + below,
        MADE.text() + below.replace("AllReduce", "AllGather"),
    ):
        assert {sample.ran for sample in text(data).samples} == {None}


def test_a_log_of_one_run_does_not_apply_to_the_next() -> None:
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
    by_size = {sample.bytes: choice_label(sample.choice) for sample in read.samples}
    assert by_size == {SIZES[0]: "tree/ll", SIZES[1]: "NCCL_ALGO=Tree"}
    assert "--choice" in read.sentence("choice_restricted")
    assert text(data, "tree_ll.txt").labels == {"tree/ll"}
    assert "choice_conflict" in text(data, choice="default").doubtful


def test_exclusions_leave_a_restricted_default() -> None:
    read = text(logged(MADE, *env(ALGO="^NVLS,NVLSTree")))
    assert read.labels == {"default"}
    assert "choice_restricted" in read.flags
    assert read.doubtful == set()


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
def test_calls_that_bypass_the_tuner_are_flagged(line: str, what: str) -> None:
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
    # Without a device list the log gives ranks and nodes.
    assert text(without_devices(logged(MADE, line))).report.scales == {"4x4": 4}


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


def test_logs_in_files_of_their_own_are_joined(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "table.txt").write_text(MADE.text())
    log = [INFO + message for message in env(ALGO="Tree", PROTO="LL")]
    (folder / "zz.alpha.2136").write_text("\n".join(log + [ran_line(size) for size in SIZES]))
    (folder / "zz.alpha.9").write_text(INFO.replace(":2136:", ":9:") + env(ALGO="Ring")[0])
    read = next(item for item in files(folder) if item.samples)
    assert read.labels == {"tree/ll"}
    assert ran(read) == dict.fromkeys(SIZES, TREE_LL_8)


def test_a_log_with_two_choices_for_a_size_names_none() -> None:
    log = NcclLog()
    for what in ("TREE proto LL", "RING proto LL"):
        log.observe(ran_line(4096, what).removeprefix(INFO))
    assert log.ran(Collective.ALLREDUCE, 4096, 4) is None
    assert log.functions == {Collective.ALLREDUCE}


@pytest.mark.parametrize(
    "message",
    [
        "TUNER/Plugin: Using internal tuner plugin.",
        "TUNER/Plugin: Could not find: libnccl-tuner-site.so. Using internal tuner plugin.",
        "TUNER/Plugin: Failed to find ncclTunerPlugin_v2 symbol, using internal tuner instead.",
    ],
)
def test_a_tuner_that_was_not_found_did_not_decide(message: str) -> None:
    command = "NCCL_TUNER_PLUGIN=libnccl-tuner-site.so ./all_reduce_perf -g 4\n"
    assert "tuner_loaded" in text(command + MADE.text()).doubtful
    read = text(command + logged(MADE, message))
    assert read.doubtful == set()


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [
        ("NCCL_TUNER_PLUGIN=/opt/amazon/lib/libnccl-ofi-tuner.so", True),
        ("NCCL_TUNER_PLUGIN=site NCCL_TUNER_CONFIG_FILE=/etc/x.conf", True),
        ("NCCL_TUNER_CONFIG_FILE=/etc/x.conf", True),
        ("NCCL_TUNER_PLUGIN=none", False),
        ("NCCL_TUNER_PLUGIN=/x/libnccl-tuner-nccltune.so", False),
        ("NCCL_TUNER_PLUGIN=/x/libnccl-tuner-nccltune.so NCCLTUNE_CONFIG=/x/tuner.conf", True),
        ("NCCL_DEBUG=WARN", False),
    ],
)
def test_a_tuner_in_the_command_line(settings: str, loaded: bool) -> None:
    data = f"{settings} ./all_reduce_perf -g 4\n{MADE.text()}"
    assert ("tuner_loaded" in text(data).doubtful) is loaded
    # A table that the user labels as tuned is what it claims to be.
    assert text(data, choice="tuned").doubtful == set()


def test_a_profiler_plugin_is_noted() -> None:
    read = text(f"NCCL_PROFILER_PLUGIN=/x/libprof.so ./all_reduce_perf -g 4\n{MADE.text()}")
    assert "'libprof.so' was loaded" in read.sentence("note")
    assert read.doubtful == set()
    off = text(f"NCCL_PROFILER_PLUGIN=none ./all_reduce_perf -g 4\n{MADE.text()}")
    assert "note" not in off.flags


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ("NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=8", "ring/ll/8"),
        ("NCCL_ALGO=Tree NCCL_PROTO=LL NCCL_MIN_CTAS=4 NCCL_MAX_CTAS=4", "tree/ll/4"),
        ("NCCL_ALGO=Ring NCCL_PROTO=LL NCCL_MIN_NCHANNELS=4 NCCL_MAX_NCHANNELS=8", "ring/ll"),
        ("NCCL_ALGO=Ring NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=8", "NCCL_ALGO=Ring"),
        ("NCCL_MIN_NCHANNELS=8 NCCL_MAX_NCHANNELS=8", "default"),
    ],
)
def test_equal_limits_of_the_channels_are_a_part_of_the_choice(settings: str, label: str) -> None:
    read = text(f"{settings} ./all_reduce_perf -b 64K -e 1M -g 8\n{MADE.text()}")
    assert read.labels == {label}
    if label == "default":
        assert "8 channels only" in read.sentence("choice_restricted")


def test_forced_channels_are_no_other_platform(tmp_path: Path) -> None:
    for channels in (4, 8):
        forced = " ".join(f"NCCL_{end}_NCHANNELS={channels}" for end in ("MIN", "MAX"))
        command = f"NCCL_ALGO=Ring NCCL_PROTO=LL {forced} ./all_reduce_perf -g 8\n"
        made = Made(points(*SIZES, start=20.0 + channels)).text()
        (tmp_path / f"{channels}.txt").write_text(command + made)
    inputs = find_inputs([tmp_path])
    runs = [
        batch.run
        for reading in read_inputs(inputs, ReadOptions(study="made"))
        for batch in reading.batches()
    ]
    assert sorted(run.choice for run in runs) == ["ring/ll/4", "ring/ll/8"]
    assert not differences(*(Subject(run.facts, run.nodes, run.ranks) for run in runs))


@pytest.mark.parametrize(
    ("collective", "command", "name", "label"),
    [
        (Collective.BROADCAST, "NCCL_PROTO=LL128 ./broadcast_perf", "out.txt", "ring/ll128"),
        (Collective.BROADCAST, "NCCL_PROTO=Simple ./broadcast_perf", "b_Simple.txt", "ring/simple"),
        (Collective.REDUCE, "NCCL_PROTO=LL ./reduce_perf", "out.txt", "ring/ll"),
        (Collective.BROADCAST, "NCCL_ALGO=Tree ./broadcast_perf", "out.txt", "NCCL_ALGO=Tree"),
        (Collective.BROADCAST, "NCCL_ALGO=Ring ./broadcast_perf", "out.txt", "NCCL_ALGO=Ring"),
        (Collective.BROADCAST, "./broadcast_perf", "out-simple.txt", "default"),
        (Collective.ALLREDUCE, "NCCL_PROTO=LL ./all_reduce_perf", "out.txt", "NCCL_PROTO=LL"),
    ],
)
def test_a_protocol_is_the_whole_choice_where_only_rings_are(
    collective: Collective, command: str, name: str, label: str
) -> None:
    made = Made(points(*SIZES), collective=collective)
    read = text(f"mpirun -np 4 -x {command}\n{made.text()}".replace(" -x ./", " ./"), name)
    assert read.labels == {label}
