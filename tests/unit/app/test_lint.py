# SPDX-License-Identifier: Apache-2.0
"""Recognise inputs of `lint` by content and check each kind."""

import io
from pathlib import Path

import pytest

from nccltune.app.lint import LintKind, LintRequest, lint, recognise
from nccltune.model.errors import InputError
from nccltune.model.finding import Severity
from tests.unit.builders import measure, study_of
from tests.unit.topology.samples import FOLDER, MATRIX

CONFIGURATION = "allreduce,0,1024,ring,ll,-1,4,32\n"
MANIFEST = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: a
    command: [mpirun, -n, "2", all_reduce_perf, -g, "1"]
"""
OUTPUT = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 128 step: 2(factor) warmup iters: 5 iters: 20
# Using devices
#  Rank  0 Group  0 Pid   5 on a device  0 [0x04] NVIDIA H100
"""
SCRIPT = "#!/bin/bash\n#SBATCH --nodes=2\nsrun -N 2 --ntasks-per-node=8 all_reduce_perf -g 1\n"


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CONFIGURATION, LintKind.CONFIGURATION),
        ("# rules of node a\n" + CONFIGURATION, LintKind.CONFIGURATION),
        ("alreduce,64K,1M,ring,ll,-1,4,32\n", LintKind.CONFIGURATION),
        ("# nccltune: nccl=2.28.9\n", LintKind.CONFIGURATION),
        ((FOLDER / "dgx.xml").read_bytes(), LintKind.TOPOLOGY),
        ((FOLDER / "flat-vm-graph.xml").read_bytes(), LintKind.TOPOLOGY),
        ((FOLDER / "dgx.xml").read_text().encode("utf-16"), LintKind.TOPOLOGY),
        ("<system>\n<cpu", LintKind.TOPOLOGY),
        (MATRIX, LintKind.TOPOLOGY),
        ("Flags: fpu vme de pse\n" * 99 + MATRIX, LintKind.TOPOLOGY),
        (MANIFEST, LintKind.LAUNCH),
        (OUTPUT, LintKind.LAUNCH),
        (SCRIPT, LintKind.LAUNCH),
        ("mpirun -n 2 all_reduce_perf -b 8\n", LintKind.LAUNCH),
        ("#!/bin/sh\npython train.py\n", LintKind.LAUNCH),
    ],
)
def test_the_content_decides_the_kind(tmp_path: Path, text: str | bytes, kind: LintKind) -> None:
    for name in ("a", "a.xml", "a.conf", "a.sh"):
        assert recognise(written(tmp_path, name, text)) is kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "is empty"),
        (b"roses are red\n", "is of no known kind"),
        (b'{"schema_version": 1}\n', "is of no known kind"),
        (b"\x7fELF\x00\x01", "is a binary file"),
        ((CONFIGURATION + SCRIPT).encode(), "rows of a configuration and commands of a script"),
    ],
)
def test_unknown_and_ambiguous_files_are_errors_with_a_hint(
    tmp_path: Path, text: bytes, message: str
) -> None:
    path = written(tmp_path, "thing", text)
    with pytest.raises(InputError, match=message) as error:
        recognise(path)
    assert error.value.where == str(path)
    assert "‹kind›" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        ("# rules\ncommunicator_configs {\n  node_range: { min: 2 }\n}\n", "Google's tuner"),
        ("# runtime tuning\nallgather,[0,16384],ring,ll128,-1,*,*\n", "NCCLX's tuner"),
        ("reduce, 4096, tree, ll, -1, 2, 8\n", "NCCLX's tuner"),
        ("collective,bytesPerRank,algorithm,protocol,channels\n", "NCCLX's tuner"),
        ('{"rules": [{"filter": {"collective": "allreduce"}}]}\n', "NCCLX's tuner"),
    ],
)
def test_a_configuration_of_another_tuner_is_named(tmp_path: Path, text: str, reader: str) -> None:
    with pytest.raises(InputError, match=f"is a configuration of {reader} ") as error:
        recognise(written(tmp_path, "rules", text))
    assert "collective,minBytes" in (error.value.hint or "")


def test_the_kind_that_the_user_names_is_used(tmp_path: Path) -> None:
    both = str(written(tmp_path, "both", CONFIGURATION + SCRIPT.partition("\n")[2]))
    as_table = lint(LintRequest([both], kind=LintKind.CONFIGURATION))
    assert as_table.configurations[0].rules == 1
    assert as_table.is_bad, "the other lines are no rows"
    as_script = lint(LintRequest([both], kind=LintKind.LAUNCH))
    assert len(as_script.launches[0].commands) == 1


def test_an_empty_configuration_is_recognised_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, "tuner.conf", "# nothing yet\n\n")
    assert recognise(path) is LintKind.CONFIGURATION
    assert lint(LintRequest([str(path)])).configurations[0].rules == 0


def test_folders_of_a_study_and_of_nodes(tmp_path: Path) -> None:
    study = study_of(tmp_path / "study", measure([1024], {"default": 1.0}))
    with pytest.raises(InputError) as error:
        recognise(study.path)
    assert "nccltune tune" in (error.value.hint or "")
    written(study.path, "tuner.conf", CONFIGURATION)
    written(study.path, "topology.xml", "<system>")
    assert recognise(study.path) is LintKind.CONFIGURATION
    nodes = tmp_path / "nodes" / "a"
    nodes.mkdir(parents=True)
    with pytest.raises(InputError, match="neither tuner.conf nor"):
        recognise(tmp_path / "nodes")
    written(nodes, "topo.xml", (FOLDER / "dgx.xml").read_bytes())
    assert recognise(tmp_path / "nodes") is LintKind.TOPOLOGY


def test_inputs_of_several_kinds_at_once(tmp_path: Path) -> None:
    things = [
        written(tmp_path, "a.conf", CONFIGURATION),
        written(tmp_path, "b.xml", (FOLDER / "dgx.xml").read_bytes()),
        written(tmp_path, "c.xml", (FOLDER / "virtual-switches.xml").read_bytes()),
        written(tmp_path, "d.sh", SCRIPT),
    ]
    linted = lint(LintRequest([*map(str, things), "mpirun -n 2 all_reduce_perf"]))
    assert [item.rules for item in linted.configurations] == [1]
    assert linted.topologies is not None
    assert linted.topologies.files == 2
    assert "nodes-differ" in {issue.id for issue in linted.topologies.issues}
    assert [launch.source for launch in linted.launches] == [str(things[3]), None]
    assert linted.is_bad


@pytest.mark.parametrize("words", [["mpirun", "-n", "2", "all_reduce_perf"], ["all_reduce_perf"]])
def test_a_command_in_words(words: list[str]) -> None:
    for request in (LintRequest([], command=words), LintRequest(words)):
        (launch,) = lint(request).launches
        assert len(launch.commands) == 1


def test_standard_input_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SCRIPT.encode())))
    (launch,) = lint(LintRequest(["-"])).launches
    assert (launch.source, len(launch.commands)) == (None, 1)


@pytest.mark.parametrize("text", ["", " \n\n"])
def test_a_text_without_a_word_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    blank = str(written(tmp_path, "a.sh", text))
    for thing, where in (("-", "standard input"), (blank, blank)):
        with pytest.raises(InputError, match="is empty") as error:
            lint(LintRequest([thing], kind=LintKind.LAUNCH))
        assert error.value.where == where


@pytest.mark.parametrize("data", [SCRIPT.encode("utf-16"), b"# \xff\n" + SCRIPT.encode("latin1")])
def test_standard_input_is_decoded_as_a_file(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    (launch,) = lint(LintRequest(["-"])).launches
    assert [one.is_wrong for one in launch.commands] == [False]


FAULT = b"n1:1:1 [0] x.cc:9 NCCL WARN Connect to 10.0.0.5<9> failed : Connection refused\n"


@pytest.mark.parametrize(
    ("below", "notes"),
    [
        (FAULT, ["faults-in-text"]),
        (b"it runs well\n", []),
        (b"#SBATCH -n 8\nA=1  # else: " + FAULT, []),
    ],
)
def test_faults_below_a_command_are_for_the_doctor(
    tmp_path: Path, below: bytes, notes: list[str]
) -> None:
    path = written(tmp_path, "post.txt", b"$ mpirun -np 8 ./all_reduce_perf -g 1\n" + below)
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [one.id for one in launch.findings] == notes
    assert all(one.fix == f"look for the cause: nccltune doctor {path}" for one in launch.findings)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"allreduce,0,1024,ring,ll,1,1,8\n", "is a configuration"),
        (b"\0\1\2", "is a binary file"),
        (b"Some words.\n", "is of no known kind"),
        (b"\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X\n" + FAULT, "state failures"),
        (FAULT, "state failures"),
        (b"", "is empty"),
    ],
)
def test_standard_input_that_is_no_launch(
    data: bytes, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(InputError, match=says) as error:
        lint(LintRequest(["-"]))
    assert error.value.where == "standard input"


@pytest.mark.parametrize("thing", ["tuner.cnf", "nodes/a.xml"])
def test_a_missing_file_is_not_taken_for_a_command(thing: str) -> None:
    with pytest.raises(InputError, match="no such file, and no launch command"):
        lint(LintRequest([thing]))


def test_hosts_of_the_site_reach_the_check() -> None:
    request = LintRequest(["mpirun -n 3 all_reduce_perf"], settings=["hosts=a:1,b:1"], gpus=1)
    assert lint(request).is_bad
    with pytest.raises(InputError, match="takes hosts=A,B alone"):
        lint(request._replace(settings=["image=a"]))


def test_the_text_of_a_spreadsheet_is_one_problem(tmp_path: Path) -> None:
    rows = CONFIGURATION.replace(",", "\t") * 3
    path = written(tmp_path, "rules.conf", rows)
    (configuration,) = lint(LintRequest([str(path)])).configurations
    assert [issue.kind for issue in configuration.issues] == ["separator"]
    path = written(tmp_path, "rules.conf", rows.encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        lint(LintRequest([str(path)]))
    path = written(tmp_path, "rules.conf", ("\ufeff" + CONFIGURATION).encode())
    (configuration,) = lint(LintRequest([str(path)])).configurations
    assert not configuration.is_bad
    assert "byte order mark" in configuration.issues[0].message


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("collective,min,max,algorithm,protocol,channels,nNodes,nRanks", Severity.WARNING),
        ("colltype,min,max,algo,proto,channels,2nodes,nRanks,ops", Severity.ERROR),
        ("collective,0,max,algo,proto,channels,nodes,ranks", Severity.ERROR),
        ("operation,min,max,algo,proto,channels,nodes,ranks", Severity.ERROR),
        ("collective,min,max,algo", Severity.ERROR),
        ("# collective,min,max,algo,proto,channels,nodes,ranks", None),
    ],
)
def test_names_of_columns_are_no_rule_that_harms(
    tmp_path: Path, line: str, severity: Severity | None
) -> None:
    path = written(tmp_path, "rules.conf", f"{line}\nallreduce,0,9,tree,ll,4,4,32\n")
    (configuration,) = lint(LintRequest([str(path)])).configurations
    found = [issue.severity for issue in configuration.issues if issue.kind == "unreadable"]
    assert found == ([severity] if severity else [])


def test_numbers_of_thousands_of_digits_are_problems_of_their_lines(tmp_path: Path) -> None:
    digits = "9" * 5000
    rows = f"allreduce,0,{digits},tree,ll,4,4,32\nallreduce,0,{digits}K,tree,ll,{digits},４,32\n"
    path = written(tmp_path, "rules.conf", rows)
    (configuration,) = lint(LintRequest([str(path)])).configurations
    assert {issue.line for issue in configuration.issues if issue.kind == "unreadable"} == {1, 2}
