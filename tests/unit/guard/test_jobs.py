# SPDX-License-Identifier: Apache-2.0
"""Which jobs are the same on several nodes, by what their launchers set."""

import pytest

from nccltune.guard.jobs import is_across_nodes, job_of

ELASTIC = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "is_across"),
    [
        ({"SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0", "MASTER_ADDR": "127.0.0.1"}, True),
        ({"PMIX_NAMESPACE": "prterun-a-12@1"}, True),
        ({"PMI_JOBID": "17"}, True),
        ({"PMI_JOBID": "0"}, False),
        ({}, False),
        *(
            ({**more, "MASTER_PORT": "29500", "MASTER_ADDR": address}, is_across)
            for more in ({}, ELASTIC)
            for address, is_across in [
                ("127.0.0.1", False),
                ("127.0.1.1", False),
                ("0.0.0.0", False),
                ("localhost", False),
                ("localhost.localdomain", False),
                ("localhost4", False),
                ("ip6-localhost", False),
                ("::1", False),
                ("[::1]", False),
                ("::", False),
                ("10.0.127.1", True),
                ("node-a", True),
                ("localhost-a", True),
                ("fd00::1", True),
            ]
        ),
    ],
)
def test_a_job_is_across_nodes_if_no_other_job_has_its_name(
    environment: dict[str, str], is_across: bool
) -> None:
    assert is_across_nodes(job_of(environment, "1000", "42")) == is_across


def test_a_log_names_its_processes_on_all_nodes() -> None:
    assert is_across_nodes("log nccl.log")
