# SPDX-License-Identifier: Apache-2.0
"""From the traces of a job to what rules are worth to it, and the page that shows this."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workload.recordings import LOG_START, event, log_call, nccl_kernel, trace

from .command_line import nccltune
from .page_snippets import ROOT

PAGE = (ROOT / "docs" / "reference" / "workload.md").read_text(encoding="utf-8")
STUDY = "h200x4-as-4-nodes"


def _events() -> list[dict[str, Any]]:
    """Two steps of 100 ms: 40 all-reduces of 64 KiB, and 6 all-gathers of 32 MiB, mostly hidden."""
    events = []
    for step in range(2):
        at = 1e5 * step
        events.append(event(f"ProfilerStep#{step}", "user_annotation", at, 1e5))
        for _ in range(40):
            events.append(nccl_kernel("allreduce", 32 << 10, at, 240.0))
            at += 500.0
        more = {"Process Group Name": "0", "Process Group Description": "fsdp"}
        for _ in range(6):
            size = {"In msg nelems": 4 << 20, "Out msg nelems": 16 << 20}
            events.append(event("gemm", "kernel", at, 8000.0))
            events.append(nccl_kernel("_allgather_base", 0, at, 9000.0, **size, **more))
            at += 12_000.0
    return events


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / STUDY, tmp_path / STUDY)
    (tmp_path / "traces").mkdir()
    for rank in range(4):
        path = tmp_path / "traces" / f"rank{rank}.pt.trace.json.gz"
        path.write_bytes(gzip.compress(trace(_events(), rank).encode()))
    return tmp_path


def test_the_page_shows_what_is_printed(folder: Path) -> None:
    shown = nccltune("workload", "show", "traces", cwd=folder).stdout
    assert shown.rstrip() in PAGE
    done = nccltune("tune", STUDY, "--workload", "traces", cwd=folder)
    tuned = done.stdout
    assert done.stderr.endswith(f"nccltune verify {STUDY} --workload traces\n")
    assert tuned[tuned.index("job  ") : tuned.index("Wrote ")].rstrip() in PAGE


def test_the_worth_is_kept_with_the_rules(folder: Path) -> None:
    nccltune("tune", STUDY, "--workload", "traces", cwd=folder)
    worth = json.loads((folder / STUDY / "tuning.json").read_text())["worth"]
    assert (worth["basis"], worth["total_us"], worth["recorders"]) == ("step", 1e5, 4)
    used = [item for item in worth["rules"] if item["calls"]]
    assert [item["calls"] for item in used] == [40]
    assert used[0]["saved_low_us"] <= used[0]["saved_us"] <= used[0]["saved_high_us"]
    assert not worth["whole"]["advised_against"]
    report = json.loads(nccltune("report", STUDY, "--json", cwd=folder).stdout)
    assert "--workload traces" in report["commands"]["rebuild"]


def test_a_job_that_rules_do_not_touch_is_advised_against(folder: Path) -> None:
    start = LOG_START.replace("nRanks 8 nNodes 2", "nRanks 4 nNodes 4")
    calls = log_call("AllReduce", 8 << 20) * 9
    (folder / "nccl.log").write_text(start + calls.replace("nranks=8", "nranks=4"))
    (folder / "notes.txt").write_text("see the wiki\n")
    words = ("--workload", "nccl.log", "--workload", "notes.txt", "--dry-run")
    out = nccltune("tune", STUDY, *words, cwd=folder).stdout
    assert "(1 remark: see nccltune workload show)" in out
    assert "9 of 9 calls without a time: " in out
    assert "estimated from the measured times of the default" in out
    assert "verdict    advised against for this job: none of its recorded calls" in out
    assert "nccltune verify" not in out


def test_a_job_of_another_scale_gets_no_advice(folder: Path) -> None:
    start = LOG_START.replace("nRanks 8 nNodes 2", "nRanks 4 nNodes 1")
    call = log_call("AllReduce", 16 << 10).replace("nranks=8", "nranks=4")
    (folder / "nccl.log").write_text(start + call)
    result = nccltune("tune", STUDY, "--workload", "nccl.log", "--dry-run", cwd=folder)
    assert "next: nccltune auto --workload nccl.log --gpus 4 -o NEW" in result.stderr
    out = result.stdout
    rule = "the rule is for 4 nodes, 4 ranks; the job's calls in this range are on 1 node, 4 ranks"
    assert rule in out
    words = "no advice for this job: it runs on 1 node, 4 ranks, which was not measured"
    assert words in out
    assert "advised against" not in out


def test_weights_and_a_workload_exclude_each_other(folder: Path) -> None:
    (folder / "weights.csv").write_text("1K,1\n")
    words = ("tune", STUDY, "--workload", "traces", "--weights", "weights.csv")
    err = nccltune(*words, cwd=folder, code=2).stderr
    assert "--weights and --workload exclude each other" in err


def test_a_recording_that_cannot_be_read(folder: Path) -> None:
    (folder / "notes.txt").write_text("see the wiki\n")
    err = nccltune("tune", STUDY, "--workload", "notes.txt", cwd=folder, code=2).stderr
    assert "notes.txt: is no recording of a job's communication" in err
    assert "NCCL_DEBUG_SUBSYS=INIT,COLL" in err
    assert not (folder / STUDY / "tuner.conf").exists()


def test_a_sweep_leaves_out_what_cannot_be_measured(folder: Path) -> None:
    start = LOG_START.replace("nRanks 8 nNodes 2", "nRanks 4 nNodes 4")
    calls = log_call("AllReduce", 16 << 10) * 9 + log_call("Broadcast", 16 << 10)
    (folder / "nccl.log").write_text(start + calls.replace("nranks=8", "nranks=4"))
    words = ("--replay", STUDY, "--workload", "nccl.log")
    left_out = "left out   broadcast: 10 % of the job's bytes at this scale; not measured here"
    shown = {v: nccltune(v, *words, "-o", v, cwd=folder).stdout for v in ("sweep", "auto")}
    assert all(left_out in text for text in shown.values())
    assert "verdict    all rules together: saves " in shown["auto"]
    only = start + log_call("Broadcast", 64).replace("nranks=8", "nranks=4")
    (folder / "nccl.log").write_text(only)
    error = nccltune("sweep", *words, "-o", "none", cwd=folder, code=2).stderr
    assert "--workload: nothing that the job calls on 4 nodes, 4 ranks can be measured" in error
    assert "--collectives" not in error


def test_a_study_for_the_job_alone(folder: Path) -> None:
    run = ("--replay", STUDY, "--workload", "traces", "-o", "own")
    whole = nccltune("sweep", "--replay", STUDY, "-o", "all", "--json", cwd=folder)
    auto = json.loads(nccltune("auto", *run, "--json", cwd=folder).stdout)
    samples = (folder / "own" / "samples.jsonl").read_text().splitlines()
    swept = [line for line in map(json.loads, samples) if "purpose" not in line["source"]]
    assert {(line["collective"], line["bytes"]) for line in swept} == {
        ("allreduce", 64 << 10),
        ("allgather", 32 << 20),
    }
    assert len(swept) < json.loads(whole.stdout)["sweep"]["points"] / 3
    (rule,) = auto["proof"]["rules"]
    assert (rule["verdict"], rule["rule"]["collective"]) == ("holds", "allreduce")
    assert auto["proof"]["workload"] == ["traces"]
    assert "proven" in (conf := (folder / "own" / "tuner.conf").read_text())
    assert "at the sizes of a job" in conf
    assert auto["tuning"]["worth"]["whole"]["calls"] == 40
    error = nccltune("sweep", *run, "--exhaustive", cwd=folder, code=2).stderr
    assert "--workload: the full grid is not that of a job" in error
