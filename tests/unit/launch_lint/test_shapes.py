# SPDX-License-Identifier: Apache-2.0
"""Launches as scripts, manifests, pages, recipes of make and Dockerfiles have them."""

from pathlib import Path

import pytest

from nccltune.app.lint import LintKind, LintRequest, lint, recognise
from nccltune.cli import run
from nccltune.launch_lint import source
from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.recipes import started_by
from nccltune.launch_lint.source import from_text
from tests.unit.launch_lint.judged import checked, ids, only, processes

TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"


@pytest.mark.parametrize("blanks", [" ", " \t", "  \r"])
def test_a_blank_after_a_backslash_ends_the_command(blanks: str) -> None:
    (one,) = checked(f"mpirun -np 16 \\{blanks}\n -N 8 -H a:8,b:8 \\\n {TEST}\n")
    assert "line-continuation" in ids(one)
    assert one.fixed == f"mpirun -np 16 -N 8 -H a:8,b:8 {TEST}"


@pytest.mark.parametrize(
    "text",
    [
        f"out=$(timeout 60 srun -N 2 --ntasks-per-node=8 {TEST} 2>&1)",
        f"if ! out=$(srun -N 2 --ntasks-per-node=8 {TEST}); then exit 1; fi",
        f"ssh head 'cd /opt && srun -N 2 --ntasks-per-node=8 {TEST}'",
        f"salloc -N 2 --gpus-per-node=8 srun --ntasks-per-node=8 {TEST}",
        f"It's so:\n\n```bash\nmpirun -np 16 -H a:8,b:8 {TEST}\n```\n\ndon't.\n",
        f"command -v mpirun || exit 1\nmpirun -np 16 -H a:8,b:8 {TEST}",
        f"echo mpirun -np 4 {TEST}\nmpirun -np 16 -H a:8,b:8 {TEST}",
    ],
)
def test_the_started_command_is_found(text: str) -> None:
    assert [processes(one) for one in checked(text)] == [16]


def test_the_output_of_another_program_is_no_launch_of_a_test() -> None:
    script = f"ip=$(srun -N 1 -n 1 hostname -i)\nsrun -N 2 --ntasks-per-node=8 {TEST}"
    assert [processes(one) for one in checked(script)] == [16]


def test_the_script_of_a_container_is_read() -> None:
    assert only(f"docker run --gpus all image bash -c 'cd /opt && {TEST[:-1]}8'").gpus == 8


def test_an_unknown_sum_is_one_word() -> None:
    script = f"NP=$((NODES * 8))\nmpirun -np $NP -N 8 {TEST} --unknown"
    (one,) = checked(script)
    assert one.command.program[0].text == "all_reduce_perf"
    assert one.predictions[0][0].unknown == (
        "8 on each node are asked for, and the number of processes is '$((NODES * 8))'"
    )


@pytest.mark.parametrize("hosts", ["$HOSTS", "${HOSTS}", "$(paste -sd, hosts)", "`cat a,b`"])
@pytest.mark.parametrize("command", ["mpirun -np 16 -N 8 -H", "mpiexec.hydra -n 16 -ppn 8 -hosts"])
def test_hosts_in_a_variable_are_unknown(command: str, hosts: str) -> None:
    (one,) = checked(f"{command} {hosts} {TEST}")
    assert "the list of hosts" in (one.predictions[0][0].unknown or "")
    assert not one.is_wrong
    assert one.fixed is None


def test_hosts_with_slots_are_known_whatever_their_names() -> None:
    assert processes(only(f"mpirun -np 16 -H $A:8,$B:8 {TEST}")) == 16


@pytest.mark.parametrize("passed", ["-x $NAMES", "$FLAGS", "$(env | sed 's/=.*//;s/^/-x /')"])
def test_variables_that_a_hidden_list_may_pass_on_are_not_missed(passed: str) -> None:
    script = f"export NCCL_DEBUG=INFO\nmpirun -np 16 -H a:8,b:8 {passed} {TEST}"
    assert "env-not-exported" not in ids(only(script))


def test_an_option_overrides_what_the_script_sets() -> None:
    script = f"export NCCL_DEBUG=INFO\nmpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG=WARN {TEST}"
    assert not checked(script)[0].is_wrong
    twice = f"mpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG=INFO -x NCCL_DEBUG=WARN {TEST}"
    assert "env-twice" in ids(checked(twice)[0])


def test_an_assumed_number_of_slots_proves_no_uneven_nodes() -> None:
    assert not checked(f"mpirun -np 12 {TEST}")[0].is_wrong
    assert "uneven-nodes" in ids(checked(f"mpirun -np 12 -H a:8,b:8 {TEST}")[0])
    # No fix needs more slots than the line gives its hosts.
    (one,) = checked(f"mpirun -np 4 -H a:1,b:1,c:2 {TEST}")
    assert "uneven-nodes" in ids(one)
    assert one.fixed is None
    assert "idle-nodes" not in ids(checked(f"mpirun -np 8 {TEST[:-1]}8")[0])
    assert "idle-nodes" in ids(checked(f"mpirun -np 8 -H a:8,b:8 {TEST}")[0])


def test_a_lost_continuation_is_named() -> None:
    (one, *_) = checked(f"mpirun -np 16 -H a:8,b:8  # two nodes\n -x NCCL_DEBUG=INFO {TEST}")
    (fix,) = (held.finding.fix for held in one.findings if held.finding.id == "no-program")
    assert "end this line with a backslash" in fix
    assert {p.fails for p, _ in one.predictions} == {"the command names no program"}


def test_a_script_with_a_list_of_numbers_is_no_configuration(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"export CUDA_VISIBLE_DEVICES=2,3,0,1,6,7,4,5\nmpirun -np 8 {TEST}\n")
    assert recognise(script) is LintKind.LAUNCH


MANIFEST = f"""apiVersion: v1
kind: Pod
metadata: {{name: test}}
spec:
  containers:
  - name: test
    image: test
    command: [mpirun, -np, "16", -N, "8", {TEST.replace("8G", "10G").replace(" ", ", ")}]
"""
CONFIG_MAP = f"""apiVersion: v1
kind: ConfigMap
metadata: {{name: scripts}}
data:
  run.sh: |
    #!/bin/bash
    mpirun -np 16 -H a:8,b:8 {TEST.replace("8G", "10G")}
"""
RAY_JOB = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: test}
spec:
  entrypoint: mpirun -np 16 -H a:8,b:8 all_reduce_perf -b 8 -e 10G -f 2 -g 1
"""


@pytest.mark.parametrize(
    "text", [CONFIG_MAP, RAY_JOB, f"#!/bin/bash\nkubectl apply -f - <<'EOF'\n{MANIFEST}EOF\n"]
)
def test_scripts_in_manifests_and_manifests_in_scripts_are_read(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job"
    path.write_text(text)
    assert run(["lint", str(path)]) == 1
    assert "10 GiB is never reached" in capsys.readouterr().out


def test_a_template_is_named_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST.replace("name: test}", 'name: {{ include "x" . }}-test}'))
    assert run(["lint", str(path)]) == 2
    assert "helm template" in capsys.readouterr().err


def test_nothing_is_called_right_beside_a_warning_for_its_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    command = f'[mpirun, -np, "8", {TEST.replace(" ", ", ")}]'
    resources = "resources: {limits: {nvidia.com/gpu: 8}}"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: test}\nspec:\n  containers:\n"
        f"  - {{name: test, image: test, command: {command}, {resources}}}\n"
    )
    assert run(["lint", str(path)]) == 1
    out = capsys.readouterr().out
    assert "warning" in out
    assert "nothing wrong" not in out


def test_a_script_behind_its_shell_runs_in_each_process() -> None:
    (one,) = checked(f"srun -N 2 --ntasks-per-node=8 bash <<'EOF'\nexport A=1\n{TEST}\nEOF\n")
    assert (processes(one), one.gpus, one.is_wrong) == (16, 1, False)


def test_the_text_of_eval_is_read() -> None:
    assert only(f'CMD="{TEST[:-1]}8"\neval "NCCL_DEBUG=INFO $CMD" | tee log\n').gpus == 8


def test_options_of_an_unknown_mpiexec_are_no_errors() -> None:
    (one,) = checked(f"mpiexec -n 8 --ppn 4 --depth=16 --cpu-bind depth {TEST}")
    assert (processes(one), one.flavors[0].words) == (8, "Cray PALS")
    assert processes(checked("torchrun --nproc-per-node=8 train.py --depth 12")[0]) == 8


def test_a_quote_without_end_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f'mpirun -np 16 -H "h1:8,h2:8 {TEST}\n')
    assert run(["lint", str(path)]) == 2
    assert "has no end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mpirun -np 8 all_reduce_perf -b 8 -e 1G -f 2 -g 8", True),
        ("mpiexec.hydra -n 2 all_reduce_perf -b 8 -e 1G -f 2 -g 8", True),
        ("mpirun -np 1 all_reduce_perf -b 8 -e 1G -f 2 -g 8", False),
        ("mpirun -np 16 -N 8 all_reduce_perf -b 8 -e 1G -f 2 -g 1", False),
        ("mpirun -np 2 -H a:1,b:1 all_reduce_perf -b 8 -e 1G -f 2 -g 8", False),
        ("mpirun -np 2 --hostfile h all_reduce_perf -b 8 -e 1G -f 2 -g 8", False),
        ("#SBATCH -N 2\nmpirun -np 2 all_reduce_perf -b 8 -e 1G -f 2 -g 8", False),
        ("mpirun -np 2 all_reduce_perf -b 8 -e 1G -f 2 -g 4", False),
    ],
)
def test_processes_without_hosts_start_on_one_node(text: str, said: bool) -> None:
    (found,) = from_text(text, LaunchContext())
    ids = [one.finding.id for one in check(found.line, found.site).findings]
    assert ("as-many-as-gpus" in ids) == said


@pytest.mark.parametrize("prefix", ["", "@", "-", "+", "@-", "- @"])
@pytest.mark.parametrize("assigned", ["NP ?= 16", "NP := 16  # all", "NP=16", "export NP = 16"])
def test_a_recipe_of_make_is_a_command(tmp_path: Path, prefix: str, assigned: str) -> None:
    path = tmp_path / "Makefile"
    path.write_text(
        f"{assigned}\n.PHONY: run\nrun: build\n\t{prefix}mpirun -np $(NP) -N 8 \\\n"
        "\t  ./all_reduce_perf -b 8 -e 1G -f 2\n"
    )
    (launch,) = lint(LintRequest([str(path)])).launches
    (one,) = launch.commands
    ((prediction, _),) = one.predictions
    assert [node.processes for node in prediction.placement.nodes] == [8, 8]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("\texport NCCL_ALGO=Tree\n\t@torchrun --nproc-per-node=8 t.py\n", ["export-lost"]),
        ("\t@export NCCL_ALGO=Tree && torchrun --nproc-per-node=8 t.py\n", []),
        ("\texport NCCL_ALGO=Tree; \\\n\ttorchrun --nproc-per-node=8 t.py\n", []),
        ("\ttorchrun --nproc-per-node=8 t.py\n\n.ONESHELL:\n", []),
    ],
)
def test_each_line_of_a_recipe_has_its_own_shell(
    tmp_path: Path, recipe: str, expected: list[str]
) -> None:
    path = tmp_path / "Makefile"
    path.write_text(f"run:\n{recipe}")
    (launch,) = lint(LintRequest([str(path)])).launches
    assert [one.id for one in launch.findings] == expected
    exported = dict(source.from_text(path.read_text(), LaunchContext())[0].site.exported)
    assert ("NCCL_ALGO" in exported) == ("; " in recipe or "&&" in recipe)


@pytest.mark.parametrize(
    ("lines", "started"),
    [
        ("ENTRYPOINT torchrun t.py\nCMD [b]", "torchrun t.py"),
        ('ENTRYPOINT ["a"]\nCMD ["b"]', "a b"),
        ('CMD ["b"]\nENTRYPOINT ["a"]', "a b"),
        ('CMD ["b"]\nFROM x', "export A=1\nb"),
        ('CMD ["b"]\nFROM X\nENTRYPOINT ["a"]', "export A=1\na"),
        ('ENTRYPOINT ["a"]\nFROM x\nENV B=2\nCMD ["b"]', "export A=1\nexport B=2\na b"),
        ('CMD ["b"]\nFROM x AS y\nENV B=2\nFROM x', "export A=1\nb"),
        ('CMD ["b"]\nFROM z\nCMD c', "c"),
    ],
)
def test_what_a_dockerfile_starts(lines: str, started: str) -> None:
    env = "ENV A=1\n" if "FROM" in lines else ""
    assert started_by(f"FROM i AS x\n{env}{lines}\n").strip("\n") == started
