# SPDX-License-Identifier: Apache-2.0
"""`nccltune report`: page, terminal, JSON, and outdated results."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nccltune.analyze import sort_samples
from nccltune.app.report import commands
from nccltune.app.study import OpenStudy
from nccltune.cli import run
from nccltune.examples import example
from nccltune.formats.tuner_config.csv_rules import config_hash
from nccltune.model.platform import Platform
from nccltune.prove.check_drops import keep_drops
from nccltune.prove.edit import remove_rules
from nccltune.prove.job import JobProof
from nccltune.prove.result import RemovedRule
from nccltune.report.data import Commands
from nccltune.study.files import Study
from nccltune.tune.result import TuneOptions, Tuning
from tests.unit.builders import measure, sizes, study_of
from tests.unit.runs import Cli
from tests.unit.workload.recordings import LOG_START, log_call

VERDICT = "1 rule is expected to make all-reduce 1.60x faster between 1 and 8 KiB"

LARGER = measure([1 << 16], {"default": 70.0, "tree/ll": 140.0})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Return a study of all-reduce whose default is 1.6x slower up to 8 KiB and best above."""

    def times(size: int) -> dict[str, float]:
        right = 10 + size / 1024
        return {
            "default": right * 1.6 if size <= 8 << 10 else right,
            "tree/ll": right if size <= 8 << 10 else right * 2,
        }

    samples = measure(sizes(1 << 10, 1 << 15), times, noise=0.01)
    return study_of(tmp_path / "a study", samples, nccl_version="2.28.9").path


def test_the_page_is_written_into_the_study_and_its_path_printed(study: Path, cli: Cli) -> None:
    out, err = cli("report", study)
    lines = out.splitlines()
    assert lines[0].startswith(VERDICT)
    assert lines[1] == f"report     {study}/report.html"
    # `tune` has not run yet, so it precedes `verify`.
    assert f"nccltune tune '{study}' && nccltune verify '{study}'" in err
    page = (study / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")


@pytest.mark.parametrize(
    ("scale", "reason"),
    [
        ((), "the number of nodes and ranks is unknown, and a rule needs it"),
        (("--ranks", "8"), "the number of nodes is unknown, and a rule needs it"),
        (("--nodes", "1", "--ranks", "8", "--choice", "ring"), "NCCL_ALGO=Ring, protocol chosen"),
    ],
)
def test_a_curve_that_no_rule_can_use_is_drawn(
    scale: tuple[str, ...], reason: str, tmp_path: Path, cli: Cli
) -> None:
    table, study = tmp_path / "table.txt", tmp_path / "study"
    heading = "| size | Ring (us) | Tree (us) |" if "--choice" in scale else "| size | time (us) |"
    rows = ["| 1024 | 12.5 |", "| 1048576 | 55.2 |"]
    rows = [row + " 14.5 |" if "--choice" in scale else row for row in rows]
    table.write_text("\n".join([heading, *rows]))
    options = scale[:4]
    cli("import", table, "--collective", "allreduce", "-o", study, *options)
    assert f"No rules: {reason}" in cli("report", study).out
    report = cli("report", study, "--json").document
    condition = report["conditions"][0]
    assert condition["series"][0]["time_us"] == [12.5, 55.2]
    assert (condition["bus_factor"] > 0) == ("--ranks" in scale)


def test_the_page_is_written_to_the_given_path(study: Path, tmp_path: Path) -> None:
    assert run(["report", str(study), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    assert not (study / "report.html").exists()


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    study: Path, tmp_path: Path, cli: Cli
) -> None:
    err = cli("report", study, "-o", tmp_path / "no" / "page.html", code=2).err
    assert "cannot be written" in err
    (tmp_path / "folder").mkdir()
    cli("report", study, "-o", tmp_path / "folder", code=2)
    assert [path.name for path in (tmp_path / "folder").iterdir()] == []


def test_the_terminal_form_writes_no_page(study: Path, cli: Cli) -> None:
    out = cli("report", study, "--terminal").out
    assert " ".join(out.split()).startswith(VERDICT)
    assert "bad crossover " in out
    assert "tree/ll  " in out
    assert f"deploy     nccltune tune '{study}' && nccltune env '{study}'" in out
    assert not (study / "report.html").exists()


def test_json_is_the_data(study: Path, cli: Cli) -> None:
    data = cli("report", study, "--json").document
    assert data["verdict"].startswith(VERDICT)
    assert data["groups"][0]["rules"][0]["choice"] == "tree/ll"
    assert data["conditions"][0]["series"][1]["role"] == "tuned"
    assert data["schema_version"] == 1


def test_the_rules_shown_are_those_that_tune_wrote(study: Path, cli: Cli) -> None:
    cli("tune", study, "--min-gain", "90%")
    out, err = cli("report", study)
    assert "No rules: no gain over NCCL's default is sure enough" in out
    assert "warning" not in err


def test_the_job_is_shown_with_what_the_rules_are_worth_to_it(
    study: Path, tmp_path: Path, cli: Cli
) -> None:
    start, log = LOG_START.replace("anks 8", "anks 4").replace("nNodes 2", "nNodes 4"), "job.log"
    calls = [log_call("AllReduce", 1024).replace("=8", "=4")] * 3
    (tmp_path / log).write_text(start + "".join(calls))
    cli("tune", study, "--workload", tmp_path / log)
    out, err = cli("report", study, "--terminal")
    assert "12 KiB a rank; no times: shares are shares of the bytes" in out
    assert "unnamed · 4 ranks · 4 nodes" in out
    data = cli("report", study, "--json").document["workload"]
    assert data["groups"] == [
        {
            "title": "unnamed · 4 ranks · 4 nodes",
            "rows": [
                {
                    "collective": "all-reduce",
                    "low": 4096,
                    "high": 4096,
                    "calls": 3.0,
                    "bytes": 12288.0,
                    "time_us": None,
                    "share": 1.0,
                }
            ],
            "more": 0,
        }
    ]
    leads = [line["lead"] for line in data["worth"]]
    assert leads[:3] == ["job", "worth", "verdict"]
    cli("report", study)
    page = (study / "report.html").read_text(encoding="utf-8")
    assert page.index('id="left"') < page.index('id="job"') < page.index('id="findings"')
    assert "12 KiB a rank" in page.replace("\xa0", " ")

    for change, reason in ((calls[0], "are not those that tune read"), (None, "job.log")):
        if change is None:
            (tmp_path / log).unlink()
        else:
            (tmp_path / log).write_text(start + change)
        out, err = cli("report", study, "--json")
        assert "what the job sends is not shown: " in " ".join(err.split())
        assert reason in " ".join(err.split())
        left = json.loads(out)["workload"]
        assert left == data | {"groups": [], "sent": ""}


def test_rules_that_were_removed_are_worth_nothing_to_the_job(
    study: Path, tmp_path: Path, cli: Cli
) -> None:
    start, log = LOG_START.replace("anks 8", "anks 4").replace("nNodes 2", "nNodes 4"), "job.log"
    calls = [log_call("AllReduce", count).replace("=8", "=4") for count in (256, 2048)]
    (tmp_path / log).write_text(start + "".join(calls))
    tune = ("tune", study, "--workload", tmp_path / log)
    assert cli(*tune, "--json").document["worth"]["whole"]["saved_us"] > 0
    opened = Study.open(study)
    (rule,) = opened.read_json(opened.tuning_path, Tuning).rules
    narrow = replace(rule, max_bytes=4096)
    remove_rules(opened.config_path, [RemovedRule(rule, "slower", narrow)], keep=None)
    first, second, *_ = cli("report", study, "--json").document["workload"]["worth"]
    assert (first["lead"], second["lead"]) == ("job", "worth")
    assert "all-reduce 1 KiB - 4 KiB tree/ll: " in second["words"]
    remove_rules(opened.config_path, [RemovedRule(narrow, "slower")], keep=None)
    keep_drops(opened, [RemovedRule(rule, "slower", by="check")], None, "2026-11-27T05:00")
    left = cli("report", study, "--json").document["workload"]
    assert "worth" not in [line["lead"] for line in left["worth"]]
    assert left["groups"]
    found = cli(*tune, "--json").document
    assert (found["worth"]["rules"], found["worth"]["whole"]["calls"]) == ([], 0)


def test_rules_older_than_the_samples_are_searched_anew_with_their_options(
    study: Path, cli: Cli
) -> None:
    cli("tune", study, "--min-gain", "20%")
    written = (study / "tuning.json").read_bytes()
    opened = Study.open(study)
    opened.append_lines(opened.samples_path, LARGER)
    out, err = cli("report", study, "--json")
    assert "tuning.json is older than the samples" in err
    data = json.loads(out)
    assert data["groups"][0]["sizes"][-1]["bytes"] == 1 << 16
    assert data["commands"]["deploy"] == (
        f"nccltune tune '{study}' --min-gain 20% && nccltune env '{study}'"
    )
    assert (study / "tuning.json").read_bytes() == written


def test_the_findings_shown_are_those_that_analyze_wrote(
    study: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("analyze", study)
    cli("tune", study)
    fresh = cli("report", study, "--json").document

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("what is stored is computed again")

    monkeypatch.setattr("nccltune.app.report.analyze_study", refuse)
    monkeypatch.setattr("nccltune.app.report.tune_study", refuse)
    out, err = cli("report", study, "--json")
    assert json.loads(out) == fresh
    assert "warning" not in err


@pytest.mark.parametrize("change", ["samples", "platform", "damage"])
def test_outdated_findings_are_computed_again_with_a_warning(
    study: Path, cli: Cli, change: str
) -> None:
    opened = Study.open(study)
    cli("analyze", study)
    written = opened.findings_path.read_bytes()
    if change == "samples":
        opened.append_lines(opened.samples_path, LARGER)
    elif change == "platform":
        opened.write_json(opened.platform_path, Platform(name="another"))
    else:
        opened.findings_path.write_bytes(b"{")
        written = b"{"
    out, err = cli("report", study, "--json")
    assert "findings.json" in err
    assert "the findings shown here are new" in err
    assert json.loads(out)["conditions"]
    assert opened.findings_path.read_bytes() == written, "a report writes no findings"


def test_commands_name_only_what_was_changed() -> None:
    def of(options: TuneOptions) -> Commands:
        tuning = Tuning("x", "2026-11-21", options, [], 0)
        opened = OpenStudy(Study(Path("x")), sort_samples([]))
        return commands(opened, tuning, written=True, proven=False)

    plain = of(TuneOptions())
    assert plain.rebuild == "nccltune tune x && nccltune report x"
    assert plain.deploy is None
    changed = of(TuneOptions(0.05, 0.1, 0.02, 0.01, extend=True, any_scale=True))
    assert changed.rebuild == (
        "nccltune tune x --min-gain 5% --penalty 0.1 --assume-noise 2% --channel-tolerance 1% "
        "--extend --any-scale && nccltune report x"
    )
    asked = of(TuneOptions(channels="any"))
    assert asked.rebuild.startswith("nccltune tune x --channels any && ")


def test_an_edited_configuration_makes_the_proof_outdated(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "demo"
    cli("demo", "-o", path)
    data = cli("report", path, "--json").document
    assert data["verdict"].startswith("Proven in a replay: ")
    assert {group["proven_gain"] is None for group in data["groups"]} == {False}
    assert data["commands"]["deploy"] == f"nccltune env {path}"
    study = Study(path)
    job = JobProof(
        study="demo",
        config_hash=config_hash(study.config_path.read_bytes()),
        program=["torchrun", "my train.py"],
        verdict="no",
        why="",
        gain=0.949,
        gain_low=0.946,
        gain_high=0.952,
    )
    study.write_json(path / "job-proof.json", job)
    slower = cli("report", path, "--json").document
    harmed = "job is slower with these rules, 0.949x as fast (95 % CI 0.946-0.952): "
    harmed += "do not deploy them for it: torchrun 'my train.py'"
    assert slower["verdict"] == f"A {harmed}. {data['verdict']}"
    assert (slower["tone"], slower["commands"]["deploy"]) == ("unknown", None)
    assert f"a {harmed}" in cli("env", path, "--json").document["warnings"]
    gain = msgspec.structs.replace(
        job, verdict="proven", gain=1.05, gain_low=1.04, gain_high=1.06, confidence=0.975
    )
    undecided = msgspec.structs.replace(job, verdict="not sure", gain=None, gain_high=None)
    for proof, words in (
        (gain, "A job is proven faster with these rules, 1.050x as fast (97.5 % CI 1.040-1.060)"),
        (undecided, "Whether a job is faster with these rules is not decided"),
    ):
        study.write_json(path / "job-proof.json", proof)
        shown = cli("report", path, "--json").document
        assert shown["verdict"] == f"{data['verdict']} {words}: torchrun 'my train.py'."
        assert (shown["tone"], shown["commands"]) == (data["tone"], data["commands"])
        warned = cli("env", path, "--json").document["warnings"]
        assert not any("a job" in warning for warning in warned)
    with (path / "tuner.conf").open("a") as file:
        file.write("allreduce,0,8,ring,ll,-1,4,4\n")
    out, err = cli("report", path, "--json")
    data = json.loads(out)
    assert data["proof"] is None
    assert " are expected to make " in data["verdict"]
    assert data["commands"]["deploy"].startswith("nccltune tune ")
    assert "proof.json is of another configuration" in err


def test_a_study_without_samples_is_an_error_with_a_hint(tmp_path: Path, cli: Cli) -> None:
    empty = study_of(tmp_path / "empty", [])
    assert "hint:  add measurements: nccltune import" in cli("report", empty.path, code=2).err


def test_the_default_is_placed_among_published_systems_as_compare_does(
    tmp_path: Path, cli: Cli
) -> None:
    study = example("h200x4-1-node")
    report = cli("report", study, "--json").document
    placed = cli("compare", study, "--json", code=None).document["tests"]
    alike = [test for test in placed if test["placement"]["bandwidth"]["systems"]]
    assert [row["title"] for row in report["published"]] == [test["title"] for test in alike]
    (row,), bandwidth = report["published"], alike[0]["placement"]["bandwidth"]
    assert row["sentences"][0] == bandwidth["sentence"]
    assert row["systems"] == bandwidth["systems"]
    page = tmp_path / "page.html"
    cli("report", study, "-o", page)
    section = page.read_text(encoding="utf-8").partition('<section id="published">')[2]
    section = section.partition("</section>")[0].replace("\xa0", " ")
    assert row["sentences"][0] in section
    assert row["systems"][0]["sources"][0] in section
    terminal = " ".join(cli("report", study, "--terminal").out.split())
    assert row["sentences"][0] in terminal


def test_without_a_system_that_is_alike_the_report_has_no_such_section(
    study: Path, cli: Cli
) -> None:
    assert cli("report", study, "--json").document["published"] == []
    cli("report", study)
    assert 'id="published"' not in (study / "report.html").read_text(encoding="utf-8")


def test_a_damaged_reference_file_leaves_the_report_whole(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    own = tmp_path / "nccltune" / "reference"
    own.mkdir(parents=True)
    (own / "lab.jsonl").write_text("{", encoding="utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    out, err = cli("report", study)
    assert out.startswith(VERDICT)
    assert "not placed among published systems: " in err
