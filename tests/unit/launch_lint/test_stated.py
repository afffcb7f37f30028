# SPDX-License-Identifier: Apache-2.0
"""Settings of NCCL in texts without a launch command, in every notation."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintRequest, lint
from nccltune.launch_lint.stated import judge_conf, judge_python, judge_stated, stated_settings
from nccltune.model.errors import InputError

ALG = ("NCCL_ALG", "Ring")
DEBUG = ("NCCL_DEBUG", "INFO")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("NCCL_ALG=Ring\nNCCL_DEBUG=INFO\n", [ALG, DEBUG]),
        ("NCCL_DEBUG='INFO' NCCL_ALG=\"Ring\" python train.py", [DEBUG, ALG]),
        ("if [ -z ${NCCL_ALG+x} ]; then export NCCL_ALG=Ring;fi", [ALG]),
        ("$ export NCCL_ALG=Ring  # a ring\n", [ALG]),
        ("setenv NCCL_ALG Ring", [ALG]),
        ("ENV NCCL_ALG=Ring \\\n    NCCL_DEBUG=INFO\n", [ALG, DEBUG]),
        ("ENV NCCL_ALG Ring", [ALG]),
        ("bash run_cluster.sh img --head -e NCCL_ALG=Ring \\\n -e NCCL_DEBUG=INFO", [ALG, DEBUG]),
        ("docker run --env NCCL_ALG=Ring --env=NCCL_DEBUG=INFO img", [ALG, DEBUG]),
        ("environment:\n- NCCL_ALG=Ring\n- 'NCCL_DEBUG=INFO'\n", [ALG, DEBUG]),
        ("env:\n  NCCL_ALG: Ring\n  NCCL_DEBUG: 'INFO'  # loud\n", [ALG, DEBUG]),
        ("env:\n- name: NCCL_ALG\n  value: Ring\n- {name: NCCL_DEBUG, value: INFO}", [ALG, DEBUG]),
        (
            'os.environ["NCCL_ALG"] = "Ring"\nos.environ.setdefault("NCCL_DEBUG", "INFO")',
            [ALG, DEBUG],
        ),
        ('{"env_vars": {"NCCL_ALG":"Ring", "NCCL_DEBUG":"INFO"}}', [ALG, DEBUG]),
        ("Use `NCCL_ALG=Ring`.", [ALG]),
        ("NCC_DEBUG=INFO\n", [("NCC_DEBUG", "INFO")]),
        ("NCCL_SOCKET_IFNAME==ens1f0\n", [("NCCL_SOCKET_IFNAME", "=ens1f0")]),
        ("export NCCL_IB_HCA=mlx5_0,mlx5_1\n", [("NCCL_IB_HCA", "mlx5_0,mlx5_1")]),
        # Sentences, comments, names of other software and of programs state nothing.
        ("I tried NCCL_ALG=Ring. It hung.", []),
        ("# NCCL_ALG=Ring\n  #export NCCL_ALG=Ring\n", []),
        ("cmake -DNCCL_ROOT=/usr ..", []),
        ("NCCL_SUM = 1", []),
        ("NCCL_ALG: not set in run1.txt; Ring in run2.txt\n", []),
        ("- NCCL_ALG: documented since 2.30\n", []),
        ("NCCL_ALG: Ring\r\nNCCL_DEBUG: INFO  # loud", [ALG, DEBUG]),
        ("LEVEL=5\nDEBUG: INFO\n", []),
    ],
)
def test_every_notation_is_read(text: str, settings: list[tuple[str, str]]) -> None:
    assert [one[:2] for one in stated_settings(text)] == settings


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NCCL_ALG=Ring\n", ["variable-unknown"]),
        ("NCC_DEBUG=INFO\n", ["variable-unknown"]),
        ("NCCL_IB_TIMEOUT=60\nNCCL_BUFFSIZE=8M\n", ["variable-value", "setting-not-a-number"]),
        ("NCCL_SOCKET_IFNAME=mlx5_0\n", ["interface"]),
        ("NCCL_IB_HCA=eth0\n", ["hca"]),
        ("NCCL_IB_HCA=mlx5_2:0,mlx5_3:0\n", ["hca"]),
        ("NCCL_IB_CUDA_SUPPORT=1\n", ["variable-removed"]),
        ("OFI_NCCL_PROTCOL=RDMA\nNCCL_DEBUG=INFO\n", ["variable-unknown"]),
        ("NCCL_IB_DISABLE=1\nNCCL_IB_HCA=mlx5_0\n", ["settings-contradict"]),
        ("NCCL_P2P_DISABLE=1\n", ["setting-left-over"]),
        # One of two values holds in each case, and both are right.
        ("NCCL_IB_DISABLE=1\nNCCL_IB_HCA=mlx5_0\nNCCL_IB_DISABLE=0\n", ["stated-twice"]),
        (
            "NCCL_DEBUG=INFO\nNCCL_P2P_DISABLE=1\nNCCL_DEBUG=WARN\n",
            ["setting-left-over", "stated-twice"],
        ),
        ("NCCL_NET_GDR_LEVEL=LOC\n", ["setting-left-over"]),
        ("RCCL_DEBUG=INFO\nNCCL_ALGO=Ring\nRCCL_MSCCL_ENABLE=1\n", ["variable-unknown"]),
        ("NCCL_DEBUG = \"debug\"\nNCCL_IB_HCA = 'hsn0',\n", ["variable-value", "hca"]),
        # A name that the text reads itself is its own, and no misspelt one of NCCL.
        ("NCCL_IFNAME=eth0\nexport NCCL_SOCKET_IFNAME=$NCCL_IFNAME\n", []),
        ("NCCL_ALGO=${ALGO}\nNCCL_IB_HCA=<devices>\n", []),
        ("NCCL_DEBUG: null\nNCCL_PROTO: ~\n", []),
        ('"NCCL_ALGO": ["ring", "tree"],\n', []),
        ("export NCCL_IB_DISABLE=<0 or 1>\n-e NCCL_DEBUG=INFO,OMPI_MCA_pml=^ucx\n", []),
        ("ENV OLD_LIBRARY_PATH=/stubs\nENV NCCL_NET_PLUGIN=none\n", []),
        ("SOCKET_IFNAME=eth0\nNCCL_DEBUG=INFO\n", []),
        # How many nodes there are is unknown.
        ("NCCL_SOCKET_IFNAME=lo\n", []),
        ("NCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME=eth0\n", ["setting-left-over"]),
        ('V(name="NCCL_CROSS_NIC", value="0"), V(name="NCCL_PROTO", value="Simple")\n', []),
        ("NCCL_IB_TIMEOUT=2\n", ["timeout-short"]),
        ("NCCL_IB_TIMEOUT=14\nNCCL_DEBUG=INFO\nNCCL_DEBUG_SUBSYS=NET\n", []),
        ("NCCL_DEBUG=WARN\nNCCL_DEBUG_SUBSYS=INIT,NET\n", ["subsystems-unused"]),
    ],
)
def test_settings_are_judged_without_a_command(text: str, found: list[str]) -> None:
    findings = list(judge_stated(stated_settings(text), alone=True))
    assert [finding.id for finding in findings] == found
    assert not any(finding.edits for finding in findings)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("NCCL_DEBUG = INFO", "write NCCL_DEBUG=INFO"),
        ("export NCCL_IB_HCA=mlx5_0:1,mlx5_1:1", "write NCCL_IB_HCA=mlx5_0:1,mlx5_1:1"),
        ('NCCL_DEBUG="WARN"', "write NCCL_DEBUG=WARN"),
        ("NCCL_DEBUG=WARN\r", "write NCCL_DEBUG=WARN"),
        ("NCCL_ALGO=Ring  # as of May", "write NCCL_ALGO=Ring"),
        ("NCCL_IB_TC=106 # a number ends at the blank", None),
        ("NCCL_IB_HCA==mlx5_0,mlx5_1", None),
        ("# NCCL_DEBUG = INFO", None),
        ("PATH = /bin", None),
    ],
)
def test_lines_of_nccl_conf(line: str, right: str | None) -> None:
    expected = [right] if right else []
    assert [one.fix for one in judge_conf(f"{line}\n", "a/nccl.conf")] == expected
    assert not list(judge_conf(f"{line}\n", "job.sh"))
    play = f"dest: /etc/nccl.conf\n    content: |\n      {line}\n  - name: NCCL_X = 3\n"
    for text in (f"tee <<'E' >/etc/nccl.conf\n{line}\nE\n", play):
        assert [one.fix for one in judge_conf(text, "job.sh")] == expected


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('os.environ["NCCL_P2P_DISABLE"] = 1\n', 1),
        ("os.environ.setdefault('NCCL_IB_DISABLE', True)\n", 1),
        ('os.environ["NCCL_P2P_DISABLE"] = "1"\n# os.environ["NCCL_ALGO"] = 1\n', 0),
        ('os.environ["NCCL_DEBUG"] = 1 if quiet else "INFO"\nx["NCCL_ALGO"] = 1\n', 0),
    ],
)
def test_numbers_in_the_environment_of_python(text: str, number: int) -> None:
    assert len(list(judge_python(text))) == number


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("nccl.env", "NCCL_ALG=Ring\n", "no launch command is in this text; checked"),
        ("serve.sh", "bash run_cluster.sh -e NCCL_ALG=Ring\n", "what run_cluster.sh starts"),
        ("ray.sh", "export NCCL_ALG=Ring\nray start --head\n", "ray starts its processes"),
        (
            "kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches:\n"
            "- patch: |-\n    - {op: add, path: /e, value: {name: NCCL_ALG, value: Ring}}\n",
            "this is a kustomization",
        ),
        (
            "deployment.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n"
            "    spec:\n      containers:\n"
            "      - image: vllm\n        env: [{name: NCCL_ALG, value: Ring}]\n",
            "no container of this manifest starts a launcher",
        ),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
            "  - command: [bash, -ex, -c, 'sleep 5; ./run.sh']\n"
            "    env: [{name: NCCL_ALG, value: Ring}]\n",
            "what ./run.sh starts was not followed",
        ),
    ],
)
def test_files_without_a_command_are_checked_for_their_settings(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    (launch,) = lint(LintRequest([str(path)])).launches
    assert launch.commands == []
    assert [finding.id for finding in launch.findings] == ["variable-unknown", "settings-alone"]
    assert why in launch.findings[-1].message
    assert launch.is_bad
    path.write_text(text.replace("NCCL_ALG", "NCCL_ALGO"))
    assert not lint(LintRequest([str(path)])).is_bad
    path.write_text(text.replace("NCCL_ALG", "ALG"))
    with pytest.raises(InputError):
        lint(LintRequest([str(path)]))


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  a:\n    environment:\n    - NCCL_ALG=Ring\n"
        "    command: srun -n 2 all_reduce_perf\n",
        "cat > a.env <<E\nNCCL_ALG=Ring\nE\ndocker run --gpus all --ipc=host --env-file a.env i"
        " all_reduce_perf -b 8 -g 8\n",
    ],
)
def test_settings_beside_a_command_are_checked_too(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a"
    path.write_text(text)
    (launch,) = lint(LintRequest([str(path)])).launches
    (command,) = launch.commands
    found = [*launch.findings, *(held.finding for held in command.findings)]
    assert [one.id for one in found if one.id.startswith("variable")] == ["variable-unknown"]


def test_a_fault_of_the_command_is_said_once() -> None:
    (launch,) = lint(LintRequest(["mpirun -n 8 -x NCCL_ALG=Ring all_reduce_perf"])).launches
    assert launch.findings == []
    assert [one.finding.id for one in launch.commands[0].findings] == ["variable-unknown"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--gpus all", ["container-shm", "container-infiniband"]),
        ("--gpus 1 --privileged", []),
        ("--gpus all --ipc=host --device=/dev/infiniband", []),
        ("--gpus all -v /dev/shm:/dev/shm -e NCCL_NET=Socket", []),
        ("--gpus all --ipc=host $DEVICES", []),
    ],
)
def test_a_container_whose_program_starts_nothing_is_checked(
    options: str, expected: list[str]
) -> None:
    text = f"docker run {options} -e NCCL_IB_HCA=mlx5 registry/server --model m"
    (launch,) = lint(LintRequest([text])).launches
    found = [one.id for one in launch.findings if one.id.startswith("container-")]
    assert found == expected


def test_a_container_in_the_host_s_network_may_lack_adapters() -> None:
    text = "docker run --gpus all --ipc=host --network=host -e NCCL_DEBUG=INFO -v $PWD:/w img bash"
    (launch,) = lint(LintRequest([text])).launches
    assert [one.id for one in launch.findings] == ["container-infiniband", "settings-alone"]
    assert not launch.is_bad


def test_settings_of_fastrak_are_google_s() -> None:
    text = "NCCL_PROTO=Simple\nNCCL_TUNER_PLUGIN=libnccl-tuner.so\nNCCL_FASTRAK_CTRL_DEV=eth0\n"
    (launch,) = lint(LintRequest([text])).launches
    assert not launch.is_bad


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("-it --ulimit memlock=-1 ulimit stack=67108864 --gpus=all img bash", "ulimit"),
        ("-v /a:/b -e A --rm ipc=host --gpus all img torchrun --nproc-per-node=8 t.py", "ipc"),
        ("--gpus all shm-size 8g -d img", "shm-size"),
    ],
)
def test_an_option_of_docker_without_dashes_is_its_image(
    tmp_path: Path, options: str, word: str
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"docker run {options}\n")
    for thing in (str(path), f"docker run {options}"):
        (launch,) = lint(LintRequest([thing])).launches
        of_commands = [held.finding for one in launch.commands for held in one.findings]
        found = [one for one in (*of_commands, *launch.findings) if one.id == "container-image"]
        assert [one.fix for one in found] == [f"write --{word} and its value"]
        assert all(one.fixed is None for one in launch.commands)


@pytest.mark.parametrize(
    "options",
    [
        "-it --ulimit memlock=-1 --gpus all img ulimit -a",
        "--name ulimit -p 80:80 --gpus all img env -u A bash",
        "$OPTIONS ulimit --gpus all",
    ],
)
def test_a_right_line_of_docker_has_no_such_finding(options: str) -> None:
    with pytest.raises(InputError, match="no launch command"):
        lint(LintRequest([f"docker run {options}"]))


@pytest.mark.parametrize(
    ("line", "costs"),
    [
        ("torchrun --nproc_per_node=1 t.py", False),
        ("torchrun --nnodes=2 --nproc-per-node=1 --rdzv-endpoint=a:1 t.py", False),
        ("deepspeed --num_gpus=1 t.py", False),
        ("torchrun --nproc_per_node=2 t.py", True),
        # How many GPUs the process uses is not known.
        ("srun -N 1 -n 1 python t.py", True),
        ("torchrun --nproc_per_node=1 t.py\ntorchrun --nproc_per_node=4 t.py", True),
    ],
)
def test_a_setting_between_gpus_of_a_node_costs_nothing_on_one(line: str, costs: bool) -> None:
    (launch,) = lint(LintRequest([f"NCCL_P2P_DISABLE=1 {line}"])).launches
    of_commands = [held.finding for one in launch.commands for held in one.findings]
    found = [one.message for one in (*of_commands, *launch.findings) if "P2P" in one.message]
    assert any("host memory" in message for message in found) == costs
    # What costs bandwidth between nodes is named all the same.
    (launch,) = lint(LintRequest([f"NCCL_NET_GDR_LEVEL=0 {line}"])).launches
    of_commands = [held.finding for one in launch.commands for held in one.findings]
    assert any("no NIC reaches" in one.message for one in (*of_commands, *launch.findings))
