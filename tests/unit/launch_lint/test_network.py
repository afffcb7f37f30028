# SPDX-License-Identifier: Apache-2.0
"""Settings of libfabric and its plugin, and a fix that keeps the number of processes."""

import pytest

from nccltune.launch_lint.check import LaunchCheck, check_all
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_text
from nccltune.model.errors import InputError

RUN = "mpirun -np 16 -H a:8,b:8"
TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"


def only(options: str) -> LaunchCheck:
    (judged,) = check_all(from_text(f"{RUN} {options} {TEST}", LaunchContext()))
    return judged


@pytest.mark.parametrize(
    ("options", "kind", "fixed"),
    [
        ("-x FI_PROVIDER=sockets", "fi-provider", None),
        ("-x FI_PROVIDER=tcp -x FI_EFA_FORK_SAFE=1", "settings-contradict", "FI_EFA_FORK_SAFE"),
        ("-x FI_EFA_USE_DEVICE_RDMA=0", "setting-left-over", None),
        ("-x FI_EFA_USE_DEVICE_RDMA=1", "efa-not-needed", None),
        ("-x FI_PROVIDER=efa -x RDMAV_FORK_SAFE=1", "efa-not-needed", None),
        ("-x OFI_NCCL_PROTCOL=RDMA", "variable-unknown", "OFI_NCCL_PROTOCOL=RDMA"),
        ("-x OFI_NCCL_PROTOCOL=fast", "variable-value", None),
        ("-x GLOO_SOCKET_IFNAME=eth0", "gloo-no-effect", None),
        ("-x UCX_NET_DEVICES=mlx5_0:1", "ucx-no-effect", None),
    ],
)
def test_a_setting_of_other_software(options: str, kind: str, fixed: str | None) -> None:
    judged = only(options)
    assert kind in [held.finding.id for held in judged.findings]
    assert (judged.fixed is None) == (fixed is None)
    assert fixed is None or fixed in (judged.fixed or "")


@pytest.mark.parametrize(
    "options",
    [
        "-x FI_PROVIDER=efa",
        "-x FI_PROVIDER=cxi",
        "-x OFI_NCCL_PROTOCOL=rdma -x OFI_NCCL_MADE_UP_LATER=1",
        "-x GLOO_SOCKET_IFNAME=eth0 -x NCCL_SOCKET_IFNAME=eth0",
        "-x RDMAV_FORK_SAFE=1",
        "-x HSA_NO_SCRATCH_RECLAIM=1 -x RCCL_MSCCL_ENABLE=0",
    ],
)
def test_right_settings_of_other_software(options: str) -> None:
    assert only(options).findings == ()


def test_variables_of_libfabric_and_rocm_before_mpirun_do_not_reach_other_nodes() -> None:
    for name in ("OFI_NCCL_PROTOCOL=RDMA", "HSA_NO_SCRATCH_RECLAIM=1", "RCCL_MSCCL_ENABLE=0"):
        (judged,) = check_all(from_text(f"{name} {RUN} {TEST}", LaunchContext()))
        assert [held.finding.id for held in judged.findings] == ["env-not-exported"]


def test_a_resource_that_open_mpi_does_not_have_is_not_guessed() -> None:
    judged = only("--map-by ppr:1:gpu")
    assert "option-value" in [held.finding.id for held in judged.findings]
    assert judged.fixed is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("python -m bench --tests all_reduce_perf --nodes 2", "python -m bench"),
        ("cd /opt\n./run_nccl.sh --nodes 2", "./run_nccl.sh"),
        ("NCCL_DEBUG=INFO bash tests/run.sh 2", "tests/run.sh"),
        ("make -C nccl run\nsudo ./x.sh", "./x.sh"),
        ("ansible-playbook -i hosts nccl.yml", "nccl.yml"),
    ],
)
def test_what_was_not_followed_is_named(text: str, named: str) -> None:
    with pytest.raises(InputError, match="not followed") as raised:
        from_text(text, LaunchContext())
    assert named in raised.value.message


def test_a_script_below_a_launcher_is_named() -> None:
    (judged,) = check_all(from_text(f"{RUN} python -m bench --all", LaunchContext()))
    (held,) = judged.findings
    assert held.finding.message.startswith("python -m bench was not followed")
