# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from nccltune.guard.jobs import is_across_nodes, job_of
from nccltune.guard.sources import (
    COMMUNICATOR,
    UNKNOWN,
    AuditedSetting,
    ConfigurationFile,
    configuration_files,
    winners,
)
from nccltune.model.nccl_variables import is_same
from tests.unit.guard.process_trees import ProcessTree

USER = ConfigurationFile("/home/ann/.nccl.conf", [(1, "NCCL_A", "2"), (3, "NCCL_A", "3")])
SYSTEM = ConfigurationFile("/etc/nccl.conf", [(1, "NCCL_A", "4"), (2, "NCCL_B", "5")])


def one(name: str, environment: dict[str, str], **more: object) -> AuditedSetting:
    found = winners(environment, [USER, SYSTEM], **more)  # type: ignore[arg-type]
    return next(each for each in found if each.name == name)


@pytest.mark.parametrize(
    ("environment", "more", "value", "source", "overridden"),
    [
        # The order of NCCL: environment, the first line of the user's file, the system's.
        ({"NCCL_A": "1"}, {}, "1", "environment", ["2", "3", "4"]),
        ({}, {}, "2", "/home/ann/.nccl.conf:1", ["3", "4"]),
        # An empty variable hides the files: setenv() without overwriting.
        ({"NCCL_A": ""}, {}, "", "environment", ["2", "3", "4"]),
        ({"NCCL_A": "2"}, {}, "2", "environment", ["3", "4"]),
        ({"NCCL_A": "0x2"}, {"logged": {"NCCL_A": "2"}}, "0x2", "environment", ["3", "4"]),
        # What NCCL logged is in force, whatever the sources have now.
        ({"NCCL_A": "1"}, {"logged": {"NCCL_A": "9"}}, "9", UNKNOWN, ["1", "2", "3", "4"]),
        # The env plugin decides alone; only the log has its answer.
        ({"NCCL_A": "1"}, {"plugin": "/p.so"}, None, "env plugin /p.so", ["1", "2", "3", "4"]),
        (
            {"NCCL_A": "1"},
            {"plugin": "/p.so", "logged": {"NCCL_A": "9"}},
            "9",
            "env plugin /p.so",
            ["1", "2", "3", "4"],
        ),
        (
            {"NCCL_A": "1"},
            {"plugin": "/p.so", "logged": {"NCCL_A": "1"}},
            "1",
            "environment",
            ["2", "3", "4"],
        ),
    ],
)
def test_the_winner_of_a_setting(
    environment: dict[str, str],
    more: dict[str, object],
    value: str | None,
    source: str,
    overridden: list[str],
) -> None:
    found = one("NCCL_A", environment, **more)
    assert (found.value, found.wins) == (value, source)
    assert [claim.value for claim in found.overrides] == overridden


def test_what_images_with_cuda_set_is_no_setting_of_nccl() -> None:
    assert [
        found.name for found in winners({"NCCL_VERSION": "2.28.3-1", "NCCL_TESTS_DEVICE": "0"}, [])
    ] == []


@pytest.mark.parametrize(
    "name", ["NCCL_CONF_FILE", "NCCL_ENV_PLUGIN", "NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_STALE"]
)
def test_some_variables_never_reach_an_env_plugin(name: str) -> None:
    assert one(name, {name: "x"}, plugin="/p.so").wins == "environment"


@pytest.mark.parametrize(
    ("environment", "communicator", "source", "overridden"),
    [
        ({"NCCL_MIN_CTAS": "4"}, {"Min CTAs": "8"}, "environment", ["8"]),
        ({"NCCL_MIN_CTAS": "8"}, {"Min CTAs": "8"}, "environment", []),
        ({}, {"Min CTAs": "8"}, COMMUNICATOR, []),
        # The exception: a communicator's traffic class replaces NCCL_IB_TC.
        ({"NCCL_IB_TC": "106"}, {"Traffic class": "41"}, COMMUNICATOR, ["106"]),
        # 1 of the variable is 2 of the property: nothing is claimed.
        ({"NCCL_GRAPH_MIXING_SUPPORT": "1"}, {"graphUsageMode": "2"}, "environment", []),
    ],
)
def test_the_environment_wins_over_a_communicator(
    environment: dict[str, str], communicator: dict[str, str], source: str, overridden: list[str]
) -> None:
    found = winners(environment, [], communicator=communicator)
    assert [each.wins for each in found] == [source]
    assert [claim.value for claim in found[0].overrides] == overridden


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("22", "0x16", True),
        ("010", "8", True),
        ("010", "10", False),
        ("Ring", "ring", True),
        (" 1", "1", True),
        ("1M", "1", False),
        ("", "0", False),
        ("09", "9", False),
    ],
)
def test_values_are_compared_as_nccl_reads_them(first: str, second: str, same: bool) -> None:
    assert is_same(first, second) is same


def test_files_are_those_of_the_process(tmp_path: Path) -> None:
    tree = ProcessTree(tmp_path)
    folder = tree.process(100, {})
    tree.write("/etc/nccl.conf", "#NCCL_A=0\nNCCL_A=1\r\nnot a setting\nNCCL_B=x=y\n")
    tree.write("/home/ann/.nccl.conf", "NCCL_A=2\n")
    tree.write("/home/ann/site.conf", "NCCL_A=3\n")
    user, system = configuration_files(folder, None, "/home/ann")
    assert user.lines == [(1, "NCCL_A", "2")]
    assert system.lines == [(2, "NCCL_A", "1"), (4, "NCCL_B", "x=y")]
    # NCCL_CONF_FILE replaces ~/.nccl.conf, and is relative to the folder of the process.
    named, _ = configuration_files(folder, "site.conf", "/home/ann")
    assert (named.path, named.lines) == ("/home/ann/site.conf", [(1, "NCCL_A", "3")])
    missing, _ = configuration_files(folder, "/none.conf", "/home/ann")
    assert (missing.lines, missing.problem) == ([], "no such file")


def test_links_lead_into_the_root_of_the_process(tmp_path: Path) -> None:
    """An absolute link of a container means the container's file, not this machine's."""
    tree = ProcessTree(tmp_path)
    folder = tree.process(100, {})
    tree.write("/site/own.conf", "NCCL_A=1\n")
    (tree.root / "etc" / "nccl.conf").symlink_to("/../site/own.conf")
    assert configuration_files(folder, None, None)[0].lines == [(1, "NCCL_A", "1")]


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
