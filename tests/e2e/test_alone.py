# SPDX-License-Identifier: Apache-2.0
"""Each verb once in a process of its own: most other tests run verbs within pytest's process."""

import json
import shutil
from pathlib import Path

import pytest

from nccltune.examples import examples
from nccltune.native import tuner_path
from tests.programs import completed
from tests.unit.cli.test_tree import ALL, DOCUMENTS
from tests.unit.workload.recordings import LOG_START, log_call

from .command_line import environment, line

EXAMPLE = examples()["h200x4-as-4-nodes"]
RECORDED = ["--replay", EXAMPLE, "--dry-run"]
WORDS = {
    **DOCUMENTS,
    "auto": ["-o", "s", *RECORDED],
    "check": ["study", *RECORDED],
    "explain": ["tuner.conf", "--nodes", "1", "--ranks", "8"],
    "launch run": ["--launcher", "local", "--gpus", "1", "--dry-run", "--", "all_reduce_perf"],
    "sendrecv sweep": ["-o", "s", *RECORDED],
    "status": [],
    "sweep": ["-o", "s", *RECORDED],
    "verify": ["study", *RECORDED],
    "workload show": ["job.log"],
}
NATIVE = {"check", "explain", "verify"}
STATUS = {"sendrecv sweep": 2, "compare": 1}
"""Statuses but 0: the example has no messages of pairs, and a slower second file is 1."""


@pytest.mark.parametrize("verb", sorted(found.name for found in ALL))
def test_a_verb_alone(verb: str, tmp_path: Path) -> None:
    if verb in NATIVE and not tuner_path().exists():
        pytest.skip("the tuner plugin is not built (make install)")
    rules = "allreduce,0,1024,ring,ll,-1,-1,-1\n"
    shutil.copytree(EXAMPLE, tmp_path / "study")
    for folder in (tmp_path, tmp_path / "study"):
        (folder / "tuner.conf").write_text(rules)
    (tmp_path / "job.log").write_text(LOG_START + log_call("AllReduce", 1024))
    words = line(*verb.split(), "--json", *WORDS[verb])
    done = completed(words, cwd=tmp_path, env=environment(), timeout=200)
    assert done.returncode == STATUS.get(verb, 0), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if verb != "sendrecv sweep":
        assert json.loads(done.stdout)["schema_version"] == 1
