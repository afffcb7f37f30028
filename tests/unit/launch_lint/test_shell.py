# SPDX-License-Identifier: Apache-2.0
"""Shell text: what is known is computed, what is not stays, and fixes keep what the script has."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.shell import ShellScope, ShellValue, expanded
from nccltune.launch_lint.words import rewritten, split
from nccltune.model.errors import InputError
from tests.unit.launch_lint import test_commands, test_guide
from tests.unit.launch_lint.judged import checked, only, processes

SIZES = "-b 1G -e 8G -f 2 -g 1"
HEAD = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n"


@pytest.mark.parametrize(
    ("number", "total"),
    [
        ("$((2*8))", 16),
        ("$((SLURM_NNODES * 8))", 16),
        ("$(( $SLURM_JOB_NUM_NODES*SLURM_NTASKS_PER_NODE ))", 16),
        ("$(expr $SLURM_NNODES \\* 8)", 16),
        ("`expr 4 \\* 4`", 16),
        ('$(echo "$SLURM_NNODES*8" | bc)', 16),
        ("$SLURM_NTASKS", 16),
        ("${SLURM_NTASKS}", 16),
        ("${NP:-16}", 16),
        ("${NP:-$SLURM_NTASKS}", 16),
        ("$(( $(scontrol show hostnames $SLURM_JOB_NODELIST | wc -l) * 8 ))", 16),
        ("$(( $(nvidia-smi -L | wc -l) * 2 ))", 16),
        ("$((17 / 2 * 2))", 16),
        ("$((-7 % 4 + 19))", 16),
        ("$NP", None),
        ("$(count-gpus)", None),
        ("$((2**4))", None),
        ("$((1/0))", None),
        ("$((08))", None),
        ("${NP%x}", None),
        ("$(( 9999999999999999999 * 9999999999999999999 ))", None),
    ],
)
def test_the_number_of_processes_is_computed_where_it_can_be(
    number: str, total: int | None
) -> None:
    (judged,) = checked(f"{HEAD}mpirun -np {number} -N 8 all_reduce_perf {SIZES}")
    assert processes(judged) == total
    assert not judged.is_wrong


@pytest.mark.parametrize(
    ("value", "part", "total"),
    [
        *(("x-16", part, 16) for part in ("##*-", "#x-", ":2", ": -2", ":2:2", "/x-", "//[x-]/")),
        *(("16-x-16", part, 16) for part in ("%%-*", "%-x*", "##*-", "::-5", "/-x-16")),
        *(("116", part, 16) for part in ("/#1", "/#11/1")),
        *(("161", part, 16) for part in ("/%1", "/%61/6")),
        ("16", "/#6/x", 16),
        pytest.param("1" * 5000, "%1", None, id="too long"),
        *(("/a/b/16", part, 16) for part in ("##*/", "#/a/b/", "//[ab\\/]")),
        ("16", "%8", 16),
        ("$N-16", "##*-", None),
        ("16", ":x", None),
    ],
)
def test_parts_of_a_value(value: str, part: str, total: int | None) -> None:
    (judged,) = checked(f"V={value}\n{HEAD}mpirun -np ${{V{part}}} -N 8 all_reduce_perf {SIZES}")
    assert processes(judged) == total


@pytest.mark.parametrize("count", ["wc -l", "tr , '\\n' | wc -l", "tr ',' \"\\n\" | wc -w"])
def test_the_number_of_words_in_a_variable(count: str) -> None:
    hosts = "HOSTS='a\nb'" if count == "wc -l" else "HOSTS=a,b"
    script = f'{hosts}\nN=$(echo "$HOSTS" | {count})\n'
    assert processes(only(f"{script}mpirun -np $((N*8)) -N 8 all_reduce_perf {SIZES}")) == 16


@pytest.mark.parametrize(
    ("number", "assumed"),
    [
        ("${NP:-16}", "NP is not set: ${NP:-16} is 16"),
        ("$(($(nvidia-smi -L | wc -l)*2))", "a node has 8 GPUs: --gpus"),
        ("$(($(wc -l < hosts)*8))", "hosts has 2 lines, as here"),
    ],
)
def test_what_is_assumed_is_stated(
    number: str, assumed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("a\nb\n")
    (judged,) = checked(f"{HEAD}mpirun -np {number} -N 8 all_reduce_perf {SIZES}")
    assert processes(judged) == 16
    assert judged.predictions[0][0].assumed == assumed


def test_an_assumption_stays_with_the_commands_that_rest_on_it() -> None:
    first, second = checked(
        f"{HEAD}NP=${{NP:-16}}\nmpirun -np $NP -N 8 all_reduce_perf {SIZES}\n"
        f"mpirun -np 16 -N 8 all_reduce_perf {SIZES}\n"
    )
    assert first.predictions[0][0].assumed == "NP is not set: ${NP:-16} is 16"
    assert second.predictions[0][0].assumed is None


def test_variables_with_several_words_and_arrays_are_split() -> None:
    script = (
        f'{HEAD}n=${{of["${{host}}"]}}\n'
        f'OPTS="-x NCCL_DEBUG=INFO -N 8"\nARGS=(\n  -np 16  # all\n  --bind-to "none"\n)\n'
        f'ARGS+=(-x "A=b c")\nmpirun $OPTS "${{ARGS[@]}}" all_reduce_perf {SIZES}\n'
    )
    (judged,) = checked(script)
    assert processes(judged) == 16
    assert not judged.is_wrong
    assert [option.name for option in judged.command.options] == ["x", "N", "np", "bind-to", "x"]
    assert judged.command.options[-1].value == "A=b c"


def test_options_in_an_unknown_variable_make_the_number_unknown() -> None:
    (judged,) = checked(f'mpirun $OPTS "${{MORE[@]}}" all_reduce_perf {SIZES}')
    assert judged.predictions[0][0].unknown == (
        "the options in $OPTS, ${MORE[@]} are not known here"
    )
    assert not judged.is_wrong
    assert processes(only(f"mpirun $OPTS -np 16 -H a:8,b:8 all_reduce_perf {SIZES}")) == 16


def test_a_variable_of_a_branch_or_a_loop_is_unknown() -> None:
    (judged,) = checked(
        f"NP=8\nif test -f x; then\nNP=16\nfi\nmpirun -np $NP all_reduce_perf {SIZES}"
    )
    assert processes(judged) is None
    (judged,) = checked(f"for n in $N; do mpirun -np $((n*8)) all_reduce_perf {SIZES}; done")
    assert processes(judged) is None


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ('IMG="$(realpath -s images)/t.sqsh"\n', '--container-image="$IMG"'),
        ("", "--container-image=$(realpath -s images)/t.sqsh"),
        ("", '--container-image="$PWD/t 1.sqsh"'),
        ("", "--container-image=~/images/t-?.sqsh"),
        ("", "--container-image='t$1.sqsh'"),
        ("", '--container-image="${DIR:-$(pwd)}/"t.sqsh'),
        ("", "--container-image=`pwd`/t.sqsh"),
    ],
)
def test_a_fixed_line_keeps_what_the_script_has(before: str, kept: str) -> None:
    command = f"srun --mpi=pmix {kept} /opt/all_reduce_perf -b 1G -e 10G -f 2 -g 1 | tee $OUT/log"
    assert only(f"{HEAD}{before}{command}\n").fixed == command.replace("-e 10G", "-e 8G")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("$HOME/build/allreduce_perf", "$HOME/build/all_reduce_perf"),
        ("~/build/allreduce_perf", "~/build/all_reduce_perf"),
        ("'$MY DIR/allreduce_perf'", "'$MY DIR/all_reduce_perf'"),
        ('"$DIR/a b/allreduce_perf"', '"$DIR/a b/all_reduce_perf"'),
        ("-x NCCL_ALG=$ALGO all_reduce_perf", "-x NCCL_ALGO=$ALGO all_reduce_perf"),
        ('-x NCCL_IB_HCAS="$HCA" all_reduce_perf', '-x "NCCL_IB_HCA=$HCA" all_reduce_perf'),
        (
            "-x NCCL_TOPO_FILES=/t/[ab]?.xml all_reduce_perf",
            "-x NCCL_TOPO_FILE=/t/[ab]?.xml all_reduce_perf",
        ),
        ("all_reduce_perf -x DIR=$(pwd)/a", "-x DIR=$(pwd)/a all_reduce_perf"),
    ],
)
def test_an_edited_word_stays_open_to_the_shell(wrong: str, right: str) -> None:
    name, _, behind = wrong.partition(" -x DIR")
    text = f"mpirun -np 8 {name} {SIZES}{' -x DIR' if behind else ''}{behind}"
    assert only(text, LaunchContext(nodes=1)).fixed == f"mpirun -np 8 {right} {SIZES}"


TEXT = st.text(st.sampled_from("ab $`'\"\\(){}[]*~=-\n;&|<>#0"), max_size=30)


@given(TEXT)
def test_any_text_is_read_and_written_again(text: str) -> None:
    try:
        lines = split(text)
    except InputError:
        return
    scope = ShellScope({"a": ShellValue("b c")}, {"b": ("x", "y z")})
    for line in lines:
        for word in expanded(line.words, scope)[0]:
            assert isinstance(word.text, str)
        for word in line.words:
            assert rewritten(word.text, [word]).text == word.text


OCI = """\
NUM_GPUS=8
NUM_HOSTS=$(sed -n '$=' {file})
NP=$(($NUM_HOSTS*$NUM_GPUS))
while ! (for host in $(awk '{{print $1}}' {file}); do ssh $host exit || exit 1; done); do
  sleep 5
done
mpirun -np $NP -npernode $NUM_GPUS all_reduce_perf -b 1G -e 8G -f 2 -g 1
"""


@pytest.mark.parametrize(
    "count",
    [
        "$(sed -n '$=' {file})",
        "$(wc -l < {file})",
        "$(wc -l {file} | awk '{{print $1}}')",
        "$(cat {file} | wc -l)",
        "`less {file} | wc -l`",
        "$(grep -c slots {file})",
        "$(sort -u {file} | wc -l | tr -d ' ')",
        "$(awk 'END{{print NR}}' \"{file}\")",
    ],
)
@pytest.mark.parametrize("file", ["/etc/mpi/hostfile", "$OMPI_MCA_orte_default_hostfile"])
def test_lines_of_the_operators_hostfile_are_workers(count: str, file: str) -> None:
    script = OCI.format(file=file).replace(f"$(sed -n '$=' {file})", count.format(file=file))
    (judged,) = checked(script, LaunchContext(nodes=2, slots=8, workers=2))
    assert processes(judged) == 16
    assert judged.predictions[0][0].assumed == "/etc/mpi/hostfile has a line for each of 2 workers"
    assert processes(only(script, LaunchContext(nodes=2, slots=8))) is None


def test_the_program_of_a_script_is_read() -> None:
    srun = (
        "srun -N 2 --ntasks-per-node=8 bash -c 'source mpi.sh && all_reduce_perf -b 1G -e {} -f 2'"
    )
    (judged,) = checked(srun.format("8G"))
    assert judged.findings == ()
    assert judged.predictions[0][0].placement.ranks == 16
    (judged,) = checked(srun.format("10G"))
    assert [held.finding.id for held in judged.findings] == ["end-not-reached"]
    assert judged.fixed is None
    assert judged.command.text == srun.format("10G")


@pytest.mark.parametrize(
    "text", ["srun --help | grep pyxis", "mpirun --version", "horovodrun --check-build"]
)
def test_a_question_to_a_launcher_starts_nothing(text: str) -> None:
    with pytest.raises(InputError, match="nothing is started"):
        checked(text)
    assert len(checked(f"{text}\nmpirun -n 8 all_reduce_perf {SIZES}")) == 1


EVERY = sorted({text for text, _ in test_commands.WRONG} | {
    right.replace(old, new, 1) for right, old, new, _ in test_guide.SWAPS
})  # fmt: skip


@pytest.mark.parametrize("text", EVERY)
def test_a_fixed_line_is_clean_and_starts_something(text: str) -> None:
    for site in (LaunchContext(), LaunchContext(nodes=2)):
        for judged in checked(text, site):
            if judged.fixed is None:
                continue
            (again,) = checked(judged.fixed, site)
            assert not again.is_wrong, judged.fixed
            assert all(prediction.fails is None for prediction, _ in again.predictions)
            if processes(judged) is not None:
                assert processes(again) is not None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "number", ["${A:-'b}", '${A:-"b}', "$(" * 3000 + ")" * 3000, "${A:-" * 3000, "$((" * 3000]
)
def test_unclosed_and_deep_substitutions_are_unknown(number: str) -> None:
    try:
        (judged, *_) = checked(f"mpirun -np {number} all_reduce_perf {SIZES}")
    except InputError:
        return
    assert processes(judged) is None


def test_a_blank_behind_a_backslash_ends_the_command() -> None:
    script = f"mpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG \\ \n    all_reduce_perf {SIZES}\n"
    first, *_ = checked(script)
    assert [held.finding.id for held in first.findings] == ["line-continuation"]
    assert only(script.replace("\\ \n", "\\\n")).findings == ()
