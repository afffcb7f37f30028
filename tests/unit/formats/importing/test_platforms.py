# SPDX-License-Identifier: Apache-2.0
"""A study is of one platform: refused files, splits and doubts."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from nccltune.formats.importing.importer import ImportState
from nccltune.formats.importing.platforms import studies_beside
from nccltune.formats.importing.suspect import platform_doubts
from nccltune.formats.reading.platform_facts import (
    PlatformFacts,
    Subject,
    differences,
    machine_name,
    relevant_settings,
)
from nccltune.model.errors import InputError
from nccltune.model.platform import Platform
from nccltune.study.files import Study
from tests.unit.formats.maker import Made, points
from tests.unit.formats.measured import measured, processes, put, take, with_log

TWO_NODES = {"hosts": ("n1", "n2"), "one_process": False}
A100 = {**TWO_NODES, "gpu": "NVIDIA A100-SXM4-80GB", "loaded": 21803, "headers": 21803}
H100 = {
    "hosts": ("h1", "h2"),
    "one_process": False,
    "gpu": "NVIDIA H100 80GB HBM3",
    "loaded": 22903,
    "headers": 22903,
}
Text = Callable[[Made], str]


def runs(
    folder: Path,
    *,
    default: dict[str, object] | None = None,
    tree: dict[str, object] | None = None,
    default_text: Text = Made.text,
    tree_text: Text = Made.text,
    each: int = 2,
) -> Path:
    """Write runs of the default and of tree/ll, with the changes of each side."""
    for number in range(each):
        one = measured(number, **{**TWO_NODES, **(default or {})})
        other = measured(50 + number, **{**TWO_NODES, **(tree or {})})
        put(folder / f"default-{number}.txt", default_text(one))
        put(folder / f"tree_ll-{number}.txt", tree_text(other))
    return folder


def logged(*messages: str) -> Text:
    return lambda made: with_log(made, *messages)


def set_to(name: str, value: str) -> str:
    return f"{name} set by environment to {value}."


def refused(study: Path, *inputs: Path) -> str:
    before = sorted(study.parent.rglob("*"))
    with pytest.raises(InputError) as error:
        take(study, *inputs)
    assert sorted(study.parent.rglob("*")) == before
    assert "--split" in (error.value.hint or "")
    return str(error.value)


def test_runs_of_two_clusters_are_refused(tmp_path: Path) -> None:
    error_text = refused(tmp_path / "s", runs(tmp_path / "runs", default=A100, tree=H100, each=4))
    assert (
        "GPU: NVIDIA A100-SXM4-80GB in runs/default-0.txt, runs/default-1.txt, runs/default-2.txt"
        " and 1 more; NVIDIA H100 80GB HBM3 in runs/tree_ll-0.txt" in error_text
    )
    assert "NCCL: 2.18.3 in runs/default-0.txt" in error_text
    assert "hosts: 2 hosts" in error_text


SIDES: dict[str, tuple[Text, Text, str]] = {
    "fewer channels": (
        logged(),
        logged(set_to("NCCL_MAX_NCHANNELS", "2")),
        "NCCL_MAX_NCHANNELS: not set in ",
    ),
    "other channels": (
        logged(set_to("NCCL_MAX_NCHANNELS", "4")),
        logged(set_to("NCCL_MAX_NCHANNELS", "2")),
        "NCCL_MAX_NCHANNELS: 4 in ",
    ),
    "sockets": (
        logged("Using network IB"),
        logged(set_to("NCCL_IB_DISABLE", "1"), "Using network Socket"),
        "network: IB in ",
    ),
    "other NICs": (
        logged("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>"),
        logged("NET/IB : Using [0]mlx5_2:1/IB [RO]; OOB eth0:192.0.2.1<0>"),
        "NICs: IB mlx5_0 mlx5_1 in ",
    ),
    "another NCCL by its log": (
        logged("NCCL version 2.28.9+cuda12.9"),
        logged("NCCL version 2.29.2+cuda12.9"),
        "NCCL: 2.28.9 in ",
    ),
    "another driver": (
        logged("cudaDriverVersion 12080"),
        logged("cudaDriverVersion 13000"),
        "CUDA driver version: 12080 in ",
    ),
}


@pytest.mark.parametrize("side", list(SIDES))
def test_logs_that_differ_are_refused(tmp_path: Path, side: str) -> None:
    default_text, tree_text, message = SIDES[side]
    folder = runs(tmp_path / "runs", default_text=default_text, tree_text=tree_text)
    assert message in refused(tmp_path / "s", folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hosts": ("n1", "n3")}, "hosts: 2 hosts"),
        ({"ranks": 4, "hosts": ("n1", "n1", "n1", "n2")}, "ranks of each host: 2+2 in"),
        ({"hosts": ("n1", "n2"), "gpu": "NVIDIA H100"}, "GPU: NVIDIA H200 in"),
        ({"loaded": 22903}, "NCCL: 2.28.9 in"),
    ],
)
def test_other_machines_are_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    assert message in refused(tmp_path / "s", runs(tmp_path / "runs", tree=changes))


def test_a_second_import_is_held_against_the_study(tmp_path: Path) -> None:
    study = tmp_path / "s"
    take(study, runs(tmp_path / "runs", default=A100, tree=A100))
    before = {path: path.read_bytes() for path in study.iterdir()}
    error_text = refused(study, put(tmp_path / "more.txt", measured(80, **H100)))
    assert "the platform of this study" in error_text
    assert "A100-SXM4-80GB in s/platform.json" in error_text
    assert {path: path.read_bytes() for path in study.iterdir()} == before


def test_samples_of_another_study_are_held_against_this_one(tmp_path: Path) -> None:
    take(tmp_path / "a", runs(tmp_path / "runs-a", default=A100, tree=A100))
    take(tmp_path / "h", runs(tmp_path / "runs-h", default=H100, tree=H100))
    error_text = refused(tmp_path / "a", tmp_path / "h" / "samples.jsonl")
    assert "GPU: NVIDIA A100-SXM4-80GB in" in error_text
    # Without its platform.json the samples themselves show NCCL and the first host.
    bare = tmp_path / "elsewhere" / "samples.jsonl"
    bare.parent.mkdir()
    bare.write_bytes((tmp_path / "h" / "samples.jsonl").read_bytes())
    error_text = refused(tmp_path / "a", bare)
    assert "NCCL: 2.18.3 in" in error_text
    assert "hosts:" in error_text
    assert take(tmp_path / "new", bare, tmp_path / "runs-h").samples == 96


def test_the_settings_of_a_bench_count(tmp_path: Path) -> None:
    study = tmp_path / "s"
    platform = Platform(
        name="s", gpu="NVIDIA H200", nodes=2, gpus=4, settings={}, recorded_at="2026-11-23"
    )
    Study.create(study).write_json(study / "platform.json", platform)
    made = measured(1, **TWO_NODES)
    text = with_log(made, set_to("NCCL_P2P_DISABLE", "1"))
    assert "NCCL_P2P_DISABLE: not set in s/platform.json" in refused(
        study, put(tmp_path / "default.txt", text)
    )
    assert take(study, put(tmp_path / "default.txt", made)).samples == 24


SAME: dict[str, tuple[dict[str, object], Text]] = {
    "other scale": ({"hosts": ("n1",), "ranks": 2}, Made.text),
    "a sweep's own settings": (
        {},
        logged(
            set_to("NCCL_ALGO", "Tree"),
            set_to("NCCL_PROTO", "LL"),
            set_to("NCCL_DEBUG_SUBSYS", "INIT,ENV"),
            set_to("NCCL_TOPO_DUMP_FILE", "/tmp/topo.xml"),
            set_to("NCCL_TUNER_CONFIG_FILE", "tuner.conf"),
        ),
    ),
    "a domain": ({"hosts": ("n1.example.com", "n2.example.com")}, Made.text),
    "headers of another NCCL": ({"headers": 22000}, Made.text),
}


@pytest.mark.parametrize("what", list(SAME))
def test_runs_that_differ_in_these_are_of_one_platform(tmp_path: Path, what: str) -> None:
    changes, tree_text = SAME[what]
    folder = runs(
        tmp_path / "runs",
        tree=changes,
        default_text=logged() if tree_text is not Made.text else Made.text,
        tree_text=tree_text,
    )
    assert take(tmp_path / "s", folder).samples == 96


def test_a_split_writes_a_study_for_each_platform(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", default=A100, tree=H100)
    result = take(tmp_path / "s", folder, split=True)
    assert result.studies == [str(tmp_path / "s"), str(tmp_path / "s-2")]
    for path, gpu in zip(("s", "s-2"), (A100["gpu"], H100["gpu"]), strict=True):
        assert Study(tmp_path / path).platform().gpu == gpu
        assert {
            sample.study for samples in processes(tmp_path / path).values() for sample in samples
        } == {path}
    assert {item.report.name: item.studies for item in result.files} == {
        **{f"runs/default-{number}.txt": [str(tmp_path / "s")] for number in range(2)},
        **{f"runs/tree_ll-{number}.txt": [str(tmp_path / "s-2")] for number in range(2)},
    }
    again = take(tmp_path / "s", folder, split=True)
    assert again.samples == 0
    assert {item.outcome for item in again.files} == {ImportState.ALREADY}
    # One more run of each goes to its study.
    put(folder / "default-9.txt", measured(9, **A100))
    put(folder / "tree_ll-9.txt", measured(59, **H100))
    assert take(tmp_path / "s", folder, split=True).samples == 48
    assert [len(processes(tmp_path / name)) for name in ("s", "s-2")] == [3, 3]
    assert [study.path for study in studies_beside(tmp_path / "s")] == [tmp_path / "s-2"]


def test_a_split_divides_a_file_with_runs_of_two_platforms(tmp_path: Path) -> None:
    text = measured(1, **A100).text() + measured(2, **H100).text()
    result = take(tmp_path / "s", put(tmp_path / "default.txt", text), split=True)
    assert result.files[0].studies == [str(tmp_path / "s"), str(tmp_path / "s-2")]
    assert [len(processes(tmp_path / name)) for name in ("s", "s-2")] == [1, 1]


def test_a_split_writes_runs_of_unknown_platform_apart(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", default=A100, tree=H100)
    put(folder / "ring_ll.txt", bare(measured(70)))
    result = take(tmp_path / "s", folder, split=True)
    assert len(result.studies) == 3
    alone = next(item for item in result.files if item.report.name == "runs/ring_ll.txt")
    assert [len(processes(Path(study))) for study in alone.studies] == [1]


# --- doubts ---------------------------------------------------------------------------------------


def bare(made: Made) -> str:
    """Return a table without its header, as users paste it."""
    return "\n".join([*made.columns(), *map(made.row, made.points), *made.foot()]) + "\n"


def doubts(tmp_path: Path, folder: Path) -> list[str]:
    from nccltune.formats.importing.importer import import_files
    from nccltune.formats.importing.inputs import find_inputs
    from nccltune.formats.reading.context import ReadOptions

    options = ReadOptions(study="s", nodes=2, ranks=4)
    import_files(tmp_path / "s", find_inputs([folder]), options)
    return platform_doubts(Study(tmp_path / "s"))


def test_a_setting_that_one_side_shows_is_a_doubt(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", default_text=logged(set_to("NCCL_MAX_NCHANNELS", "2")), each=2)
    (sentence,) = doubts(tmp_path, folder)
    assert sentence.startswith("NCCL settings are known of default-0.txt, default-1.txt only")
    assert "not of tree_ll-0.txt, tree_ll-1.txt (tree/ll)" in sentence
    assert "run tree/ll once more" in sentence


def test_a_version_that_one_side_shows_is_a_doubt(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", tree_text=bare)
    (sentence,) = doubts(tmp_path, folder)
    assert sentence.startswith("GPU, NCCL and hosts are known of default-0.txt")


def test_facts_that_no_run_shows_are_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, runs(tmp_path / "runs", default_text=bare, tree_text=bare)) == []


def test_facts_that_runs_of_each_choice_show_are_no_doubt(tmp_path: Path) -> None:
    folder = runs(tmp_path / "runs", default_text=logged("Using network IB"))
    text = with_log(measured(60, **TWO_NODES), "Using network IB")
    put(folder / "tree_ll-9.txt", text)
    assert doubts(tmp_path, folder) == []


def test_a_command_above_one_of_two_tables_sets_nothing_for_the_platform(tmp_path: Path) -> None:
    command = "NCCL_P2P_DISABLE=1 mpirun -np 16 all_reduce_perf -b 8 -e 1G\n"
    one, other = (measured(number, **TWO_NODES).text() for number in (1, 2))
    for first, expected in ((one, {}), (command + one, {"NCCL_P2P_DISABLE": "1"})):
        study = tmp_path / str(len(expected))
        take(study, put(tmp_path / "both.txt", first + command + other))
        assert Study(study).platform().settings == expected


def test_a_log_without_settings_is_no_doubt(tmp_path: Path) -> None:
    assert doubts(tmp_path, runs(tmp_path / "runs", default_text=logged())) == []


def test_a_table_that_joins_a_bench_is_a_doubt(tmp_path: Path) -> None:
    platform = Platform(
        name="s", gpu="NVIDIA H200", nccl_version="2.28.9", recorded_at="2026-11-23"
    )
    Study.create(tmp_path / "s").write_json(tmp_path / "s" / "platform.json", platform)
    folder = runs(tmp_path / "runs", default_text=bare, tree_text=bare)
    (sentence,) = doubts(tmp_path, folder)
    assert sentence.startswith("GPU and NCCL are known of platform.json only")


# --- facts ----------------------------------------------------------------------------------------


def test_names_that_containers_make_name_no_machine() -> None:
    for name in (
        "22f64f592750",
        "bench-7d9f8-x4k2p",
        "nccl-test-worker-0",
        "nccl-test-worker-0-1",
        "job-launcher",
    ):
        assert machine_name(name) is None
    for name in ("node-1", "ip-172-31-5-17", "nid005471", "0666a154", "spark-fb97", "localhost"):
        assert machine_name(name) == name


def test_settings_that_make_no_platform() -> None:
    settings = {"NCCL_ALGO": "^NVLS", "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5"}
    assert relevant_settings(settings) == {"NCCL_IB_HCA": "mlx5"}
    assert relevant_settings(settings, restricted=True) == {
        "NCCL_ALGO": "^NVLS",
        "NCCL_IB_HCA": "mlx5",
    }


FACTS = PlatformFacts(settings={"NCCL_IB_QPS_PER_CONNECTION": "4"}, settings_by="log")
NOTHING = PlatformFacts(settings_by="log")
WHOLE = PlatformFacts(settings_by="environment")


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        (Subject(FACTS, 2, 8, "allreduce"), Subject(NOTHING, 2, 8, "allreduce"), True),
        # A log leaves out what this scale or collective never reads.
        (Subject(FACTS, 2, 8, "allreduce"), Subject(NOTHING, 1, 8, "allreduce"), False),
        (Subject(FACTS, 2, 8, "allreduce"), Subject(NOTHING, 2, 8, "alltoall"), False),
        # A whole environment leaves out nothing.
        (Subject(FACTS, 2, 8, "allreduce"), Subject(WHOLE, 1, 8, "allreduce"), True),
        (Subject(FACTS, 2, 8, "allreduce"), Subject(PlatformFacts(), 2, 8, "allreduce"), False),
    ],
)
def test_settings_that_are_left_out(one: Subject, other: Subject, differ: bool) -> None:
    assert bool(differences(one, other)) is differ
    assert bool(differences(other, one)) is differ


def test_hosts_of_several_scales() -> None:
    four = PlatformFacts(hosts=("a", "b", "c", "d"))
    two, others = PlatformFacts(hosts=("a", "b")), PlatformFacts(hosts=("a", "x"))
    assert not differences(Subject(four, 4, 32), Subject(two, 2, 16))
    assert differences(Subject(four, 4, 32), Subject(others, 2, 16))
    first = PlatformFacts(first_host="b")
    assert not differences(Subject(two, 2, 16), Subject(first, 2, 16))
    assert differences(Subject(two, 2, 16), Subject(PlatformFacts(first_host="x"), 2, 16))
    # The bench uses another hash for hosts.
    assert not differences(Subject(two, 2, 16), Subject(PlatformFacts(first_host="bench x"), 2, 16))


def test_facts_survive_the_study() -> None:
    raw = msgspec.json.encode(FACTS)
    assert msgspec.json.decode(raw, type=PlatformFacts) == FACTS


def facts(by: str | None, settings: dict[str, str], *commanded: str, line: bool) -> PlatformFacts:
    return PlatformFacts(
        settings=settings, settings_by=by, commanded=tuple(commanded) if line else None
    )


OFF = {"NCCL_P2P_DISABLE": "1"}


@pytest.mark.parametrize(
    ("loud", "silent", "differ"),
    [
        # Two command lines.
        (
            facts("command", OFF, "NCCL_P2P_DISABLE", line=True),
            facts("command", {}, line=True),
            True,
        ),
        # The other run has a log too, which lists nothing.
        (facts("command", OFF, "NCCL_P2P_DISABLE", line=True), facts("log", {}, line=True), True),
        (facts("command", OFF, "NCCL_P2P_DISABLE", line=True), facts("log", {}, line=False), True),
        # The environment may set what a log shows and a command line does not.
        (facts("log", OFF, line=False), facts("command", {}, line=True), False),
        (facts("log", OFF, line=True), facts("command", {}, line=True), False),
        # Nothing is known of the settings of the other run.
        (facts("command", OFF, "NCCL_P2P_DISABLE", line=True), facts(None, {}, line=False), False),
    ],
)
def test_settings_of_command_lines(
    loud: PlatformFacts, silent: PlatformFacts, differ: bool
) -> None:
    one, other = (Subject(item, 1, 8, "allreduce", True) for item in (loud, silent))
    assert bool(differences(one, other)) is differ
    assert bool(differences(other, one)) is differ
    # At another scale a command may need other settings.
    far = Subject(silent, 2, 16, "allreduce", True)
    assert differences(one, far) == []


def test_a_tuner_plugin_separates_only_runs_of_the_default() -> None:
    loaded, plain = PlatformFacts(tuner="libsite.so"), PlatformFacts(tuner="")
    (found,) = differences(Subject(loaded, free=True), Subject(plain, free=True))
    assert found.fact == "tuner plugin"
    assert differences(Subject(loaded, free=True), Subject(plain)) == []
    assert differences(Subject(loaded, free=True), Subject(PlatformFacts(), free=True)) == []


def test_registration_is_compared_between_registered_runs() -> None:
    plain, symmetric, none = (PlatformFacts(registration=how) for how in (1, 2, None))
    assert differences(Subject(plain), Subject(symmetric))
    assert differences(Subject(none), Subject(symmetric)) == []


def test_a_default_that_a_command_line_limits_is_another_platform(tmp_path: Path) -> None:
    command = "mpirun -np 4 {} ./all_reduce_perf -b 8 -f 2\n"
    free = put(tmp_path / "free.txt", command.format("-N 2") + measured(1, **TWO_NODES).text())
    limited = command.format("-N 2 -x NCCL_ALGO=^NVLS") + measured(2, **TWO_NODES).text()
    other = put(tmp_path / "limited.txt", limited)
    take(tmp_path / "s", free)
    assert "NCCL_ALGO: not set in " in refused(tmp_path / "s", other)
    take(tmp_path / "limited", other)
    assert Study.open(tmp_path / "limited").platform().settings == {"NCCL_ALGO": "^NVLS"}
    assert Study.open(tmp_path / "s").platform().settings == {}
    ring = put(tmp_path / "ring.txt", limited.replace("^NVLS", "Ring -x NCCL_PROTO=LL"))
    take(tmp_path / "forced", ring)
    assert Study.open(tmp_path / "forced").platform().settings == {}


def test_runs_of_one_file_that_differ_are_named_by_their_lines(tmp_path: Path) -> None:
    gpus = ("NVIDIA H100", "NVIDIA B200")
    made = [Made(points(1 << 20, 1 << 22), gpu=gpu).text() for gpu in gpus]
    page = put(tmp_path / "page.md", "\n".join(made))
    message = refused(tmp_path / "study", page)
    assert "GPU: NVIDIA H100 in page.md:" in message
    assert "; NVIDIA B200 in page.md:" in message
    logs = [put(tmp_path / f"{number}.log", text * 2) for number, text in enumerate(made)]
    message = refused(tmp_path / "study", *logs)
    assert "GPU: NVIDIA H100 in 0.log; NVIDIA B200 in 1.log" in message
