# SPDX-License-Identifier: Apache-2.0
"""Loops, branches, functions, and texts behind `<<`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.flow import nodes_of
from nccltune.launch_lint.source import from_text
from nccltune.launch_lint.words import split
from nccltune.model.errors import InputError
from nccltune.model.names import listed
from tests.unit.launch_lint.judged import checked, only

TEST = "all_reduce_perf -b 8 -e 8G -f 2 -g 1"
SRUN = f"srun -N $n --ntasks-per-node=8 {TEST}"


def processes(text: str) -> list[int | None]:
    starts = [one.predictions[0][0] for one in checked(text)]
    return [one.placement.processes if one.placement else one.processes for one in starts]


@pytest.mark.parametrize(
    "text",
    [
        f"for n in 1 2 4; do {SRUN}; done",
        f"for n in 1 2 4\ndo\n  {SRUN} | tee $n.log\ndone > all.log",
        f"for ((n=1; n<=4; n*=2)); do {SRUN}; done",
        f"for (( n = 1 ; n < 5 ; n *= 2 ))\ndo\n{SRUN}\ndone",
        f'for e in 1 2 4; do n="$e"; {SRUN}; done',
        f'N=(1 2 4)\nfor n in "${{N[@]}}"; do if [ -f x ]; then {SRUN}; fi; done',
        f"run() {{\n  local n=$1\n  {SRUN}\n}}\nrun 1\nrun 2\nrun 4",
        f"function run {{ n=$1; {SRUN}; }}\nfor k in 1 2 4; do run $k; done",
        f"run() {{ {SRUN.replace('$n', '$1')}; }}\nfor k in 1 2 4; do NCCL_DEBUG=WARN run $k; done",
    ],
)
def test_each_round_is_followed(text: str) -> None:
    assert processes(text) == [8, 16, 32]


RUN = f"run() {{ srun -N $1 --ntasks-per-node=8 $2 {TEST}; }}\n"


@pytest.mark.parametrize(
    "text",
    [
        "run 2",
        "NCCL_DEBUG=WARN run 2",
        "A=1 NCCL_DEBUG='WARN' run 2 > log 2>&1 &\nwait",
        "time run 2",
        "nohup run 2 &",
        "out=$(run 2)",
        'echo "result: $(run 2 | tail -1)"',
        "if ! run 2; then exit 1; fi",
        "run 2 || exit 1",
        "(run 2) | tee log",
        'eval "run 2"',
        "CMD='run 2'\n$CMD",
        'main() { run 2; }\nmain "$@"',
        "main() { run 2; }\ntrap main EXIT",
        "case $1 in a) run 2;; esac",
    ],
)
def test_the_body_of_a_called_function_is_no_command_of_its_own(text: str) -> None:
    # The body alone, with an unknown $1, would be a second command.
    assert processes(RUN + text) == [16]
    assert sorted(map(str, processes(f"{RUN}{text}\nrun 4"))) == ["16", "32"]


@pytest.mark.parametrize("text", ["", "echo run", "trap run EXIT", "./run 2"])
def test_a_function_that_no_line_calls_is_followed_with_unknown_arguments(text: str) -> None:
    assert "-N $1 is not known here" in (only(RUN + text).predictions[0][0].assumed or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('run() { srun -n 2 a "${@:2}"; }\nrun 1 -w 3', "-w 3"),
        ('run() { srun -n 2 a "${@:2:1}"; }\nrun 1 2 3', "2"),
        ('run() { srun -n 2 a "${@:3}"; }\nrun 1 2', ""),
        ("run() { srun -n 2 a ${*:2}; }\nrun 1 2 3", "2 3"),
        ('run() { srun -n 2 a "$@"; }\nrun 1 "2 3"', '1 "2 3"'),
        ('run() { srun -n 2 a "${#@}" $#; }\nrun 1 2', "2 2"),
        ('A=(1 2 3)\nsrun -n 2 a "${A[@]:1}"', "2 3"),
        ('A=(1 2 3)\nsrun -n 2 a "${A[@]:0:2}"', "1 2"),
        ('A=(1 2 3)\nsrun -n 2 a "${A[@]::2}"', '"${A[@]::2}"'),
        ('A=()\nsrun "${A[@]}" -n 2 a "${A[@]}" ""', '""'),
        ('run() { srun -n 2 a "$@" "x$*"; }\nrun', "x"),
        ('srun -n 2 a "${B[@]:1}"', '"${B[@]:1}"'),
    ],
)
def test_parts_of_arrays_and_arguments(text: str, words: str) -> None:
    (found,) = from_text(text, LaunchContext())
    (line,) = split(f"srun -n 2 a {words}")
    assert [word.text for word in found.line.words] == [word.text for word in line.words]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'A=(-n 2)\nfor v in X=1 Y=2; do A+=(-x "$v"); done\nsrun "${A[@]}" a',
            "-n 2 -x X=1 -x Y=2",
        ),
        ('O=\nfor v in X=1 Y=2; do O+=" -x $v"; done\nsrun $O a', "-x X=1 -x Y=2"),
        ("n=1\nfor i in 1 2 3; do n=$((n*2)); done\nsrun -n $n a", "-n 8"),
        ("n=1\nfor i in 1 2 3; do n=$i; done\nsrun -n $n a", "-n 3"),
        # How many rounds run is unknown, or what they leave.
        ("n=1\nfor i in $L; do n=2; done\nsrun -n $n a", "-n $n"),
        ("n=1\nfor i in 1 2; do [ $i = $X ] && break; n=$i; done\nsrun -n $n a", "-n $n"),
        ("n=1\nfor i in 1 2; do if [ $X ]; then n=$i; fi; done\nsrun -n $n a", "-n $n"),
    ],
)
def test_what_known_rounds_of_a_loop_leave_is_known(text: str, words: str) -> None:
    (found,) = from_text(text, LaunchContext())
    assert [word.text for word in found.line.words] == ["srun", *words.split(), "a"]
    assert found.site.assumed == ()


@pytest.mark.parametrize(
    "text",
    [
        f"for n in $SIZES; do {SRUN}; done",
        f"while read n; do {SRUN}; done < sizes",
        f"n=1\nwhile [ $n -le 4 ]; do {SRUN}; n=$((n*2)); done",
        f"case $1 in\n small) n=1 ;;\n large|huge) n=4 ;;\nesac\n{SRUN}",
        f"n=2\nif [ $1 ]; then n=4; fi\n{SRUN}",
        f"run() {{ {SRUN.replace('$n', '$1')}; }}",
    ],
)
def test_what_a_loop_or_branch_decides_is_not_assumed(text: str) -> None:
    start = only(text).predictions[0][0]
    assert start.placement is None or (start.assumed or "").startswith("1 node assumed, as -N")


@pytest.mark.parametrize(
    "text",
    [
        f"case $1 in\n small) n=1; {SRUN} ;;\n large|huge) n=4; {SRUN} ;;\nesac",
        f"case $1 in small) n=1\n{SRUN};; *) n=4\n{SRUN};; esac",
        f"if [ $1 ]; then n=1; {SRUN}; else n=4; {SRUN}; fi",
        f"if [ $1 ]; then\n n=1\n {SRUN}\nelif [ $2 ]; then\n n=4\n {SRUN}\nfi",
    ],
)
def test_a_branch_knows_what_it_assigns(text: str) -> None:
    assert processes(text) == [8, 32]


def test_rounds_with_one_outcome_are_one() -> None:
    (one,) = checked(f"for i in 1 2 3; do mpirun -np 16 -H a:8,b:8 {TEST} -n $i; done")
    assert one.predictions[0][0].assumed is None


@pytest.mark.parametrize(
    ("sign", "is_said"), [(" &", True), (" > log$i 2>&1 &", True), ("", False)]
)
def test_rounds_side_by_side_are_several(sign: str, is_said: bool) -> None:
    line = (
        "srun -N 1 -n 1 torchrun --nnodes 2 --nproc-per-node 4 --node-rank $i --master-addr a t.py"
    )
    (one,) = checked(f"for i in 0 1; do\n{line}{sign}\ndone\nwait")
    assert ("one of several starts" in (one.predictions[0][0].assumed or "")) is is_said


def test_a_line_is_not_fixed_where_its_rounds_differ() -> None:
    wrong = "mpirun -np $n -H a:8,b:8 allreduce_perf -b 8 -e 8G -f 2"
    assert [one.fixed for one in checked(f"for n in 8 16; do {wrong}; done")] == [None, None]
    assert checked(f"for n in 16; do {wrong}; done")[0].fixed is not None


def test_a_list_of_hosts_has_no_known_length() -> None:
    script = "N=($(cat hosts))\nmpirun -np $(( ${#N[@]} * 8 )) -N 8 " + TEST
    assert processes(script) == [None]
    of_slurm = "#SBATCH --nodes=2\nN=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )\n"
    assert processes(f"{of_slurm}mpirun -np $(( ${{#N[@]}} * 8 )) -N 8 {TEST}") == [16]


JOB = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n"


@pytest.mark.parametrize(
    "text",
    [
        f"sbatch <<EOF\n{JOB}srun \\\\\n  {TEST}\nEOF\n",
        f"N=2\nsbatch -N $N <<'EOF'\n#!/bin/bash\n#SBATCH --ntasks-per-node=8\nsrun {TEST}\nEOF\n",
        f"cat > job.sh <<EOF\n{JOB}srun {TEST}\nEOF\nsbatch job.sh\n",
        f"cat <<EOF > job.sh\n{JOB}srun {TEST}\nEOF\n",
        f"bash <<EOF\n{JOB}srun {TEST}\nEOF\n",
        f"ssh head <<EOF\n{JOB}srun {TEST}\nEOF\n",
        f"cat <<EOF\nDon't stop.\nEOF\nsrun -N 2 --ntasks-per-node=8 {TEST}\n",
        f"n=2\nsbatch <<EOF\n#SBATCH --nodes=$n --ntasks-per-node=8\nsrun {TEST}\nEOF\n",
    ],
)
def test_texts_behind_a_command_are_scripts_of_their_own(text: str) -> None:
    assert processes(text) == [16]


@pytest.mark.parametrize(
    ("head", "slots"),
    [
        ("#PBS -l select=2:ncpus=64:ngpus=8:mpiprocs=8\n", 16),
        ("#PBS -l nodes=2:ppn=8:gpus=8\n", 16),
        ("#BSUB -n 16\n#BSUB -R span[ptile=8]\n", 16),
    ],
)
def test_schedulers_give_mpirun_its_slots(head: str, slots: int) -> None:
    assert processes(f"{head}mpirun {TEST}") == [slots]


def test_the_node_file_of_a_job_has_its_lines() -> None:
    script = "#PBS -l select=2:mpiprocs=8\nN=$(sort -u $PBS_NODEFILE | wc -l)\n"
    assert processes(
        f"{script}NP=$(wc -l < $PBS_NODEFILE)\nmpirun -np $NP -N $((NP/N)) {TEST}"
    ) == [16]


def test_a_prompt_is_no_word() -> None:
    assert processes(f"```\n$ mpirun -np 16 -H a:8,b:8 {TEST}\n```\n") == [16]
    # Lines of equal outcome are no rounds of one line.
    shown = [f"$ mpirun -n 1 ./a{n}\nNumber of devices: 6\nHello from a.\n" for n in range(8)]
    assert processes("".join(shown)) == [1] * 8


@pytest.mark.parametrize(
    ("end", "number", "expected"),
    [("EOF", "$((N*8))", 16), ("'EOF'", "$((N*8))", None), ("EOF", r"\$((N*8))", None)],
)
def test_a_text_behind_the_sign_gets_the_values_of_its_script(
    end: str, number: str, expected: int | None
) -> None:
    script = f"N=2\nsbatch <<{end}\n#!/bin/bash\nmpirun -np {number} -N 8 {TEST}\nEOF\n"
    assert processes(script) == [expected]


WORDS = st.sampled_from(
    (
        *listed("if then elif else fi for n in 1 2 do done while until case esac a) a|b) ;; { }"),
        *listed("f() function ; ! ( ) ((n=1; $n echo srun"),
        *("\n", "<<EOF\n", "EOF\n"),
    )
)


@given(st.lists(WORDS, max_size=40))
def test_any_sequence_of_keywords_has_an_end(words: list[str]) -> None:
    text = " ".join(words)
    try:
        nodes_of(split(text))
        from_text(f"{text}\n{TEST}", LaunchContext())
    except InputError:
        return


SHIFTS = """
run() {
  local exe="$1"; shift
  local np="$1"; shift
  mpirun -np "$np" ./build/$exe -b 8 -e 1G -f 2 -g 1
}
"""


@pytest.mark.parametrize(
    ("body", "calls", "expected"),
    [
        (SHIFTS, "run all_reduce_perf 2\nrun all_gather_perf 4", [2, 4]),
        (SHIFTS, "for n in 2 4; do run all_reduce_perf $n; done", [2, 4]),
        (SHIFTS.replace("; shift\n  local np", "; shift 2\n  local np"), "run a x 8", [8]),
        ('run() { shift; srun -n $1 all_reduce_perf "$@" -g 1; }', "run x 8 -b 8 -e 1G", [8]),
        ("run() { srun -n $# all_reduce_perf -b 8 -e 1G -f 2; }", "run a b c", [3]),
        ('run() { set -- 8 "$@"; srun -n $1 all_reduce_perf -b 8 -e 1G -f 2; }', "run x", [8]),
        ("run() { srun -n ${1:-8} all_reduce_perf -b 8 -e 1G -f 2; }", 'run "$@"', [8]),
        ("run() { srun -n $1 all_reduce_perf -b 8 -e 1G -f 2; }", 'run "$@"', [None]),
        ("run() { srun -n $1 all_reduce_perf -b 8 -e 1G -f 2; }", 'run 8 "${A[@]}"', [8]),
        ("run() { shift $N; srun -n $1 all_reduce_perf -b 8 -e 1G -f 2; }", "run 4 8", [None]),
        ("run() { if a; then shift; fi; srun -n $1 all_reduce_perf -g 1; }", "run 4 8", [None]),
    ],
)
def test_shift_moves_the_arguments_of_a_function(
    body: str, calls: str, expected: list[int | None]
) -> None:
    assert processes(f"{body}\n{calls}\n") == expected


BRANCHES = 'if [ -z "$E" ]; then P={}; else P={}; fi\nsrun -n 8 $P -b 8 -e 1G -f 2 -g 1\n'


def test_a_program_that_every_branch_sets_is_known() -> None:
    (one,) = checked(BRANCHES.format("/b/all_reduce_perf", "/b/$E"))
    assert one.gpus == 1
    assumed = one.predictions[0][0].assumed or ""
    assert assumed.startswith("P is /b/all_reduce_perf, one of 2")
    assert only(BRANCHES.format("/b/all_reduce_perf", "/c/all_reduce_perf")).gpus == 1
    (usual,) = checked(
        "P=./all_reduce_perf\nif a; then P=/x/all_reduce_perf; fi\nsrun -n 8 $P -g 2"
    )
    assert usual.gpus == 2
    (case,) = checked(
        "case $1 in a) P=./all_reduce_perf;; *) P=./all_gather_perf;; esac\n"
        "srun -n 8 $P -b 8 -e 1G -f 2 -g 1\n"
    )
    assert case.gpus == 1
    (same,) = checked(BRANCHES.format("/b/all_reduce_perf", "/b/all_reduce_perf"))
    assert same.gpus == 1
    assert "P is" not in (same.predictions[0][0].assumed or "")


@pytest.mark.parametrize(
    "text",
    [
        BRANCHES.format("/b/all_reduce_perf", "/other/$E"),
        BRANCHES.format("/b/$F", "/b/$E"),
        BRANCHES.replace("else P={}; ", "").format("/b/all_reduce_perf"),
    ],
)
def test_a_program_that_a_branch_leaves_open_is_unknown(text: str) -> None:
    assert only(text).gpus is None


def test_a_file_that_a_loop_writes_has_a_line_for_each_known_round() -> None:
    write = 'for i in {}; do echo "h$i slots=4" | tee -a /tmp/none/h; done\n'
    run = "mpirun --hostfile /tmp/none/h all_reduce_perf -b 8 -e 1G -f 2\n"
    assert processes(write.format("1 2") + run) == [8]
    assert processes(write.format("$LIST") + run) == [None]
