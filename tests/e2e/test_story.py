# SPDX-License-Identifier: Apache-2.0
"""The main job through the command line: from raw measurements to what the plugin decides."""

import json
import math
import os
import random
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from nccltune.formats.tuner_config.csv_rules import config_hash
from tests.programs import completed, write_program

from .command_line import nccltune
from .page_snippets import ROOT, reader_folder, run

K, M, G = 1 << 10, 1 << 20, 1 << 30
WINNERS = ["tree/ll", "tree/ll128", "ring/ll128", "ring/simple"]
EDGES = [96 * K, 12 * M, 96 * M]
CSV_HEADER = (
    "collective,size_bytes,algorithm,protocol,channels,nodes,ranks,pipeOps,regBuff,"
    "bandwidth_gbps,latency_us"
)


def raw_csv(noise: float, seed: int = 1) -> str:
    """180 points: 30 sizes, 6 choices, 4 nodes, 32 ranks; the winner changes at EDGES."""
    random_ = random.Random(seed)
    lines = [CSV_HEADER]
    for power in range(3, 33):
        size = 1 << power
        lead = [0.0]
        for edge in EDGES:
            lead.append(lead[-1] + 0.35 * math.log(size / edge))
        base = 20 + size / 40e3
        times = {name: base * math.exp(-gain) for name, gain in zip(WINNERS, lead, strict=True)}
        times["ring/ll"] = 1.5 * times["tree/ll"]
        times["tree/simple"] = 1.4 * times["ring/simple"]
        for name, exact in times.items():
            time_us = exact * math.exp(random_.gauss(0, noise))
            algorithm, protocol = name.split("/")
            lines.append(
                f"allreduce,{size},{algorithm},{protocol},-1,4,32,1,0,"
                f"{size / time_us / 1e3:.9g},{time_us:.9g}"
            )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("noise", "factor"), [(0.0, 1.001), (0.05, 1.4)])
def test_a_raw_csv_gives_its_four_rules_and_the_plugin_takes_them(
    tmp_path: Path, noise: float, factor: float
) -> None:
    (tmp_path / "raw.csv").write_text(raw_csv(noise))
    nccltune("import", "raw.csv", "-o", "study", cwd=tmp_path)
    tuned = json.loads(nccltune("tune", "study", "--json", cwd=tmp_path).stdout)
    (group,) = tuned["groups"]
    rules = [item["rule"] for item in group["rules"]]
    assert [f"{r['choice']['algorithm']}/{r['choice']['protocol']}" for r in rules] == WINNERS
    assert (rules[0]["min_bytes"], rules[-1]["max_bytes"]) == (8, 4 * G)
    for rule, edge in zip(rules, EDGES, strict=False):
        assert 1 / factor <= rule["max_bytes"] / edge <= factor
    explained = json.loads(
        nccltune("explain", "study", "--sizes", "8-4G", "--json", cwd=tmp_path).stdout
    )
    ranges = explained["explained"][0]["collectives"]["allreduce"]
    assert [(r["min_bytes"], r["max_bytes"], r["decides"]) for r in ranges] == [
        (r["min_bytes"], r["max_bytes"], name) for r, name in zip(rules, WINNERS, strict=True)
    ]
    assert "default was not measured" in nccltune("analyze", "study", cwd=tmp_path).stdout
    nccltune("lint", "study", cwd=tmp_path)


def test_the_steps_of_a_raw_csv_say_what_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text(raw_csv(0.03))
    assert (
        "next: nccltune analyze s" in nccltune("import", "raw.csv", "-o", "s", cwd=tmp_path).stderr
    )
    assert "next: nccltune tune s" in nccltune("analyze", "s", cwd=tmp_path).stderr
    tuned = nccltune("tune", "s", cwd=tmp_path)
    rows = [line for line in tuned.stdout.splitlines() if "  candidate  " in line]
    assert [line.split()[5] for line in rows] == WINNERS
    assert all("best of 6, " in line and "against the default unknown" in line for line in rows)
    assert "Wrote s/tuner.conf (4 candidates, none proven)." in tuned.stdout
    assert "eft alone" not in tuned.stdout
    passed = "-x NCCL_TUNER_PLUGIN -x NCCL_TUNER_CONFIG_FILE -x NCCL_DEBUG -x NCCL_DEBUG_SUBSYS"
    verify = (
        f"nccltune verify s -- mpirun -n 32 -H HOSTS {passed} -x NCCL_DEBUG_FILE "
        "all_reduce_perf -b 8 -e 4G -f 2 -g 1"
    )
    assert f"next: prove them: {verify}" in tuned.stderr
    conf = (tmp_path / "s" / "tuner.conf").read_text().splitlines()
    marks = [above for above, row in pairwise(conf) if row.startswith("allreduce,")]
    assert len(marks) == 4
    assert all(mark.startswith("# candidate: best of 6, ") for mark in marks)
    deployed = nccltune("env", "s", cwd=tmp_path)
    assert "NCCL_TUNER_CONFIG_FILE=" in deployed.stdout
    assert "warning: 4 of 4 rules are candidates, not proven" in deployed.stderr
    explained = nccltune("explain", "s", "--sizes", "8-4G", cwd=tmp_path).stdout
    assert explained.count("  candidate\n") == 4
    report = nccltune("report", "s", cwd=tmp_path)
    assert report.stdout.startswith("4 candidates for all-reduce, none proven: the gain is unknown")
    assert "expected" not in report.stdout
    assert f"next: {verify}" in report.stderr


@pytest.fixture
def path_with_programs(tmp_path: Path) -> str:
    """A PATH with the programs that `tune` names: mpirun, all_reduce_perf and nccltune."""
    folder = tmp_path / "bin"
    folder.mkdir()
    root, stock = Path(__file__).parents[2], Path(__file__).with_name("stock_program.py")
    python = f"PYTHONPATH={root}:{root}/src exec {sys.executable}"
    scripts = {
        "mpirun": 'while case $1 in -*) ;; *) false;; esac; do shift 2; done; exec "$@"',
        "all_reduce_perf": f'{python} {stock} "$@" --slow tree/simple',
        "nccltune": f'{python} -m nccltune "$@"',
    }
    for name, line in scripts.items():
        write_program(folder / name, f"#!/bin/sh\n{line}\n")
    return f"{folder}:{os.environ['PATH']}"


def test_candidates_become_proven_by_the_command_that_tune_prints(
    tmp_path: Path, path_with_programs: str
) -> None:
    lines = [CSV_HEADER]
    for power in range(10, 21, 2):
        best = "tree/ll" if power < 15 else "tree/simple" if power < 17 else "ring/simple"
        for name in ("tree/ll", "tree/simple", "ring/simple", "ring/ll"):
            time_us = 20 + (1 << power) / 4e4 + (0 if name == best else 20)
            row = f"{name.replace('/', ',')},-1,4,4,1,0,{(1 << power) / time_us / 1e3},{time_us}"
            lines.append(f"allreduce,{1 << power},{row}")
    (tmp_path / "raw.csv").write_text("\n".join(lines) + "\n")
    nccltune("import", "raw.csv", "-o", "s", cwd=tmp_path)
    said = nccltune("tune", "s", cwd=tmp_path).stderr
    conf = tmp_path / "s" / "tuner.conf"
    assert conf.read_text().count("# candidate: ") == 3
    command = said.rpartition("next: prove them: ")[2].strip()
    assert command.endswith(" all_reduce_perf -b 1K -e 1M -f 4 -g 1")
    assert f"prove them first: {command}" in nccltune("env", "s", cwd=tmp_path).stderr
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NCCL")}
    done = completed(
        ["/bin/sh", "-c", command], cwd=tmp_path, env={**environment, "PATH": path_with_programs}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # The faster one is proven, the slower one is removed, and so is the one that changes nothing.
    assert "verify     1 of 3 rules hold · 2 removed" in done.stdout
    assert "equal to the default: NCCL runs ring/simple without the rule, too" in done.stdout
    # The guide shows this story.
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "importing.md").read_text()
    section = guide.partition("## Prove rules of imported")[2].partition("\n## ")[0]
    shown = [
        line
        for block in re.findall(r"```text\n(.*?)```", section, re.S)
        for line in block.splitlines()
    ]
    assert len(shown) == 5
    for line in shown:
        pattern = re.escape(line.replace("studies/csv", "s")).replace(re.escape("..."), ".*")
        assert re.search(f"^{pattern}$", said + done.stdout, re.MULTILINE), line
    text = conf.read_text()
    marks = [above.split(":")[0] for above, row in pairwise(text.splitlines()) if row[:3] == "all"]
    assert marks == ["# proven"]
    assert "removed by nccltune verify (slower: 0.80x at 64 KiB" in text
    tuning = json.loads((tmp_path / "s" / "tuning.json").read_text())
    assert [item["state"] for item in tuning["groups"][0]["rules"]] == ["proven"]
    assert "candidate" not in nccltune("env", "s", cwd=tmp_path).stderr
    explained = nccltune("explain", "s", cwd=tmp_path).stdout
    assert re.search("tree/ll .*proven", explained)
    report = nccltune("report", "s", cwd=tmp_path).stdout
    assert report.startswith("Proven: 1 rule makes all-reduce 1.32x faster between 1 and 16 KiB")
    again = nccltune("tune", "s", cwd=tmp_path).stdout
    assert conf.read_text().count("# proven: 1.32x faster than the default") == 1
    assert conf.read_text().count("\nallreduce,") == 1, "what did not hold is not offered again"
    assert "ring/simple did not hold in verify: equal to the default" in again


def test_only_the_default_is_not_called_left_alone_and_has_nothing_to_deploy(
    tmp_path: Path,
) -> None:
    rows = [
        f"allreduce,{1 << p},default,default,-1,4,32,1,0,{(1 << p) / (20 + p) / 1e3:.9g},{20 + p}"
        for p in range(10, 21)
    ]
    (tmp_path / "raw.csv").write_text("\n".join([CSV_HEADER, *rows]) + "\n")
    nccltune("import", "raw.csv", "-o", "s", cwd=tmp_path)
    tuned = nccltune("tune", "s", cwd=tmp_path)
    assert "(0 rules). Not compared: 11 of 11 sizes." in tuned.stdout
    assert "not compared: no whole choice was measured beside the default" in tuned.stdout
    assert "eft alone" not in tuned.stdout
    assert "next: measure other choices" in tuned.stderr
    report = nccltune("report", "s", cwd=tmp_path).stdout
    assert report.startswith("No rules: only NCCL's default was measured")
    done = nccltune("env", "s", cwd=tmp_path, code=1)
    assert done.stdout == ""
    assert "has no rule, so there is nothing to deploy" in done.stderr
    assert "nothing was compared with the default: measure other choices" in done.stderr


def test_the_demo_does_the_main_job(tmp_path: Path) -> None:
    out = nccltune("demo", cwd=tmp_path).stdout
    study = tmp_path / "studies" / "h200x4-as-4-nodes"
    for name in ("platform.json", "samples.jsonl", "findings.json", "tuning.json", "tuner.conf"):
        assert (study / name).stat().st_size > 0
    assert (study / "report.html").stat().st_size > 1_000_000  # plotly is inside
    assert "no GPU needed" in out
    order = [line.split(" ")[0] for line in out.splitlines() if line and line[0] != " "]
    assert order[:4] == ["platform", "replay", "analysis", "tune"]
    assert re.search(r"^verify     (\d+) of \1 rules hold", out, re.MULTILINE)
    assert re.search(r"^verdict    Proven in a replay: \d+ rules make ", out, re.MULTILINE)
    assert re.search(r"^took       [\d.]+ s$", out, re.MULTILINE)
    proof = json.loads((study / "proof.json").read_text())
    assert proof["replay"] == "h200x4-as-4-nodes"
    assert not re.search("^deploy", out, re.MULTILINE)
    assert "these rules are of the recording's" in out
    conf = (study / "tuner.conf").read_text()
    assert conf.count("# proven: ") == conf.count("\nall") + conf.count("\nreduces") > 0
    done = json.loads(nccltune("demo", "--json", cwd=tmp_path).stdout)
    assert done["plugin"]["as_predicted"] == done["plugin"]["asked"] == 51


def test_the_demo_names_the_recording_whatever_its_study_is_called(tmp_path: Path) -> None:
    out = nccltune("demo", "-o", "x40", cwd=tmp_path).stdout
    assert "replay     of h200x4-as-4-nodes, 2026-11-21: 2176 recorded timings" in out
    assert "recording  x40" not in out
    # As a replay it can be verified again without a GPU.
    assert "rules hold" in nccltune("verify", "x40", cwd=tmp_path).stdout


def test_the_demo_again_keeps_what_verify_measured(tmp_path: Path) -> None:
    first = json.loads(nccltune("demo", "-o", "x", "--json", cwd=tmp_path).stdout)
    samples = (tmp_path / "x" / "samples.jsonl").read_bytes()
    again = json.loads(nccltune("demo", "-o", "x", "--json", cwd=tmp_path).stdout)
    assert (tmp_path / "x" / "samples.jsonl").read_bytes() == samples
    assert (first["proof"]["points"] > 0, again["proof"]["points"]) == (True, 0)
    assert again["proof"]["groups"] == first["proof"]["groups"]
    with (tmp_path / "x" / "samples.jsonl").open("ab") as file:
        file.write(samples.splitlines(keepends=True)[0])
    done = nccltune("demo", "-o", "x", cwd=tmp_path, code=2)
    assert "another study (samples.jsonl" in done.stderr


def test_the_lines_of_env_make_a_plugin_read_the_rules(tmp_path: Path) -> None:
    nccltune("demo", cwd=tmp_path)
    study = "studies/h200x4-as-4-nodes"
    deployed = nccltune("env", study, cwd=tmp_path)
    assert "measured in a replay of h200x4-as-4-nodes, with 4 emulated nodes" in deployed.stderr
    assert "candidate" not in deployed.stderr
    lines = deployed.stdout.splitlines()
    settings = dict(line.removeprefix("export ").split("=", 1) for line in lines)
    assert list(settings) == ["NCCL_TUNER_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_CONFIG_HASH"]
    paths = [Path(value) for value in list(settings.values())[:2]]
    assert all(path.is_absolute() and path.is_file() for path in paths)
    assert config_hash(paths[1].read_bytes()) == settings["NCCLTUNE_CONFIG_HASH"]
    conf = nccltune("env", study, "--format", "nccl.conf", cwd=tmp_path).stdout.splitlines()
    assert conf == [f"{name}={value}" for name, value in settings.items()]
    yaml = nccltune("env", study, "--format", "kubernetes", cwd=tmp_path).stdout
    assert yaml.startswith("env:\n- name: NCCL_TUNER_PLUGIN\n  value: ")


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    nccltune("demo", cwd=tmp_path)
    done = nccltune(
        "tune", "studies/h200x4-as-4-nodes", "-o", "/dev/full/tuner.conf", cwd=tmp_path, code=2
    )
    assert "cannot be written" in done.stderr


def test_weights_are_kept_with_the_rules(tmp_path: Path) -> None:
    nccltune("demo", cwd=tmp_path)
    study = "studies/h200x4-as-4-nodes"
    (tmp_path / "my weights.csv").write_text("1K,0\n64K,5\n128K,0\n")
    nccltune("tune", study, "--weights", "my weights.csv", cwd=tmp_path)
    report = json.loads(nccltune("report", study, "--json", cwd=tmp_path).stdout)
    assert "--weights 'my weights.csv'" in report["commands"]["rebuild"]


PAGE = ROOT / "docs" / "reference" / "tuner-plugin.md"
RECORDINGS = {"2-nodes": "h200x4-as-2-nodes", "4-nodes": "h200x4-as-4-nodes"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader is, with the studies that the page names."""
    folder = reader_folder(tmp_path_factory.mktemp("scales"))
    for name, recording in RECORDINGS.items():
        shutil.copytree(ROOT / "examples" / recording, folder / "studies" / name)
        tuned = run(f"nccltune tune studies/{name}", folder)
        assert tuned.returncode == 0, tuned.stderr
    return folder


def rules(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if not line.startswith("#")]


def test_joined_files_keep_the_rules_of_each_scale(folder: Path) -> None:
    block = re.search(
        r"^```sh\n(nccltune env .*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    assert block is not None
    # The recordings are of two scales, and `explain` asks the plugin about one of them.
    words = block[1].replace(" studies/8-nodes", "").replace("--ranks 32", "--ranks 4")
    done = run("set -e\n" + words, folder)
    assert done.returncode == 0, done.stderr
    parts = [rules(folder / "studies" / name / "tuner.conf") for name in RECORDINGS]
    assert rules(folder / "tuner.conf") == parts[0] + parts[1]
    assert all(parts)
    total = len(parts[0]) + len(parts[1])
    assert f"{len(parts[1])} of {total} rules apply to 4 nodes, 4 ranks" in done.stdout
    assert "TUNER/nccltune: " in done.stdout
    assert "given twice" not in done.stdout
    other = run("nccltune explain tuner.conf --nodes 2 --ranks 4", folder)
    assert f"{len(parts[0])} of {total} rules apply to 2 nodes, 4 ranks" in other.stdout
    none = run("nccltune explain tuner.conf --nodes 8 --ranks 8", folder)
    assert f"0 of {total} rules apply to 8 nodes, 8 ranks" in none.stdout
