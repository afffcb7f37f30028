# SPDX-License-Identifier: Apache-2.0
"""A cluster that does not answer, through a stand-in for kubectl."""

import os
from pathlib import Path

import pytest

from nccltune.launch.follow import Follower
from nccltune.launch.job import Job, KubernetesOptions
from nccltune.launch.kubernetes.run import ClusterJob
from nccltune.model.errors import LaunchError
from tests.programs import write_program


def test_a_cluster_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nccltune.launch.kubernetes.run._CREATE_LIMIT_S", 0.1)
    kubectl = write_program(tmp_path / "kubectl", "#!/bin/sh\nexec sleep 3600\n")
    job = Job(program=["all_reduce_perf"], kubernetes=KubernetesOptions(image="image"))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    cluster = ClusterJob(job, tmp_path / "output", Follower(), lambda _: None, environment)
    with pytest.raises(LaunchError, match="no answer within"):
        cluster.run([str(kubectl), "create", "-f", "job.yaml"])
