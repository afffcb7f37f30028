# SPDX-License-Identifier: Apache-2.0
"""What people paste: placeholders, prompts, Markdown, prose, and a table below the command."""

import pytest

from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.pasted import unnumbered
from nccltune.launch_lint.source import from_lines, from_text
from nccltune.model.errors import InputError
from tests.unit.launch_lint.judged import checked, ids, only, said

TEST = "./all_reduce_perf -b 8 -e 1G -f 2 -g 1"
ROW = (
    "\n#  size count type redop root time algbw busbw #wrong\n"
    "  8388608  2097152  float  sum  -1  201.5  41.63  82.60  0  200.1  41.9  83.2  0\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"mpirun -np 8 --hostfile <path-to-hostfile> {TEST}", "8 processes, 1 GPU each = 8 ranks"),
        (f"mpirun -np 32 -H <hosts> {TEST}", "32 processes, 1 GPU each = 32 ranks"),
        (f"mpirun -np 16 -H <host1>:8,<host2>:8 {TEST}", "16 processes, 8 on each of 2 nodes"),
        (f"mpirun -np <number of processes> {TEST}", "not known: the number of processes is '<nu"),
        (f"mpirun -np {{{{ mul .Values.hosts 8 }}}} {TEST}", "not known: the number of processes"),
        ("mpirun -np 8 ./all_reduce_perf -b 8 -e 1G -f 2 -g <ngpus>", "8 processes, all on one"),
        (f"mpirun -np [num processes] -hostfile [hostfile] {TEST}", "not known: the number of pro"),
        (f"mpirun -n {{n_ranks}} -N {{per_node}} {TEST}", "not known: the number of processes"),
        (f"mpirun -np 8 {TEST} -d <float|half> -o <sum|avg|max>", "8 processes, all on one"),
    ],
)
def test_a_placeholder_is_one_word_whose_value_is_unknown(text: str, expected: str) -> None:
    (one,) = checked(text)
    assert said(one).startswith(expected)
    assert ids(one) & {"placeholder", "no-program", "option-value", "too-few-slots"} == {
        "placeholder"
    }
    assert one.fixed is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"mpirun -np N {TEST}", "not known: the number of processes is 'N'"),
        (f"mpirun -np NUM_GPUS {TEST}", "not known: the number of processes is 'NUM_GPUS'"),
        (f"mpiexec -n num_ranks -ppn M {TEST}", "not known: the number of processes is 'num_"),
        (f"srun -N X --ntasks-per-node=8 {TEST}", "not known: the number of nodes is 'X'"),
        ("torchrun --nproc_per_node NGPUS t.py", "not known: the number of processes per node"),
        ("deepspeed --num_gpus N t.py", "not known: the number of GPUs of a node is 'N'"),
        ("./all_reduce_perf -b 8 -e 1G -f 2 -g N", "1 process, on one node"),
    ],
)
def test_a_letter_in_place_of_a_number_is_a_placeholder(text: str, expected: str) -> None:
    (one,) = checked(text)
    assert said(one).startswith(expected)
    (found,) = {f.finding.fix for f in one.findings if f.finding.id != "program-unknown"}
    assert found == "put the number there"
    assert "ranks" not in said(one).replace("num_ranks", "")
    assert one.fixed is None


def test_a_word_that_names_no_number_is_an_error() -> None:
    (one,) = checked(f"mpirun -np eight {TEST}")
    assert [f.finding.fix for f in one.findings] == ["write a whole number"]


@pytest.mark.parametrize("text", [f"{TEST} < in.txt > out.txt", f"{TEST} <in.txt >out.txt"])
def test_a_redirection_is_no_placeholder(text: str) -> None:
    assert "placeholder" not in ids(only(text))


@pytest.mark.parametrize(
    "text",
    [
        f"[mpirun -np 16 -H a:8,b:8 {TEST} ](url)",
        f"mpirun -np 16 -H [a](http://a):8,[b](http://b):8 {TEST}",
        f"[root@host ~]# mpirun -np 16 -H a:8,b:8 {TEST}",
        f"(base) me@host-1:~/nccl-tests$ mpirun -np 16 -H a:8,b:8 {TEST}",
        f"I run it so:\n```\nme@host:/tmp$ mpirun -np 16 -H a:8,b:8 \\\n  {TEST}\n```\n",
        f"It didn't get better.\n\nmpirun -np 16 -H a:8,b:8 {TEST}\nWhat's wrong?\n",
        f"It doesn't run: `mpirun -np 16 -H a:8,b:8 {TEST}`",
        f"It doesn't run:\n`mpirun -np 16 \\\n -H a:8,b:8 {TEST}\n`\n",
        f"1. mpirun -np 16 -H a:8,b:8 {TEST}\n",
        f"!mpirun -np 16 -H a:8,b:8 {TEST}\n",
        f"shell$ mpirun -np 16 -H a:8,b:8 {TEST}\n",
        f"A\n~~~\nIt's ``mpirun``:\n\n.. code:: sh\n\n  $ mpirun -np 16 -H a:8,b:8 {TEST}\n\n~~~\n",
        f"```\nmpirun -np 16 -H a:8,b:8 \\\n  {TEST}\n```\n```\ndon't\n```\n",
        f'COMMAND="mpirun -np 16 -H a:8,b:8 {TEST}" make run',
        f"make run CMD='mpirun -np 16 -H a:8,b:8 {TEST}'",
        f"if [ $A ]; then CMD=(mpirun -np 16 -H a:8,b:8 {TEST}); fi\n$B ${{CMD[@]}}",
        f"Please run mpirun -np 16 -H a:8,b:8 {TEST} and tell me",
        f"We start it with mpirun -np 16 -H a:8,b:8 {TEST}, and it hangs.",
        f"the job (mpirun -np 16 -H a:8,b:8 {TEST}) hangs",
        f"mpirun -np 16 -H a:8,b:8 {TEST} is what I ran.",
    ],
)
def test_a_command_is_found_in_what_surrounds_it(text: str) -> None:
    (one,) = checked(text)
    assert said(one) == "16 processes, 8 on each of 2 nodes (a, b), 1 GPU each = 16 ranks"
    assert not one.command.lead
    assert "argument-ignored" not in ids(one)
    assert "argument-not-a-number" not in ids(one)


@pytest.mark.parametrize(
    "text",
    [
        "It doesn't start with mpirun or srun.",
        "mpirun isn't found.",
        "Use mpirun to start all_reduce_perf on all nodes",
        "all_reduce_perf is slow on my machine",
        "make test ARGS='-np 8'",
        "We tried `all_reduce_perf` and it didn't help.",
        "BINARIES=(sacct salloc)\ncomplete -F _x sacct salloc srun\n",
        "mpi_command: >-\n  mpirun\n  -n {ranks}\n",
        "NCCL_DEBUG=info starter -np 4 -H a:2,b:2 ./all_reduce_perf -b 8 -g 2",
    ],
)
def test_prose_that_names_a_launcher_is_no_command(text: str) -> None:
    with pytest.raises(InputError, match="no launch command"):
        checked(text)


def test_what_options_take_is_no_prose() -> None:
    (one,) = checked("docker run --name this -e NCCL_ALGO=Ring img mpirun -np 8 --tag-output a.sh")
    assert one.command.lead[0].text == "docker"


def test_a_command_whose_table_is_below_has_started() -> None:
    command = f"mpirun -n 256 -npernode 16 --oversubscribe -H a:8,b:8 {TEST}"
    for text in (command.replace("--oversubscribe ", ""), f"mpirun -n 32 -H a:8,b:8 {TEST}"):
        (alone,) = checked(text)
        (ran,) = checked(text + ROW)
        assert all(one.fails for one, _ in alone.predictions)
        assert all(one.fails is None for one, _ in ran.predictions)
        assert "too-few-slots" not in ids(ran)


def test_the_number_of_a_command_without_one_is_unknown_above_a_table() -> None:
    for command in (f"srun --mpi=pmix {TEST}", f"mpirun {TEST}", TEST):
        (one,) = checked(command + ROW)
        assert said(one).startswith("not known")
        assert "one-rank" not in ids(one)
    (known,) = checked("./all_reduce_perf -b 8 -e 1G -f 2 -g 8" + ROW)
    assert said(known).endswith("8 GPUs each = 8 ranks")


def test_the_lines_of_an_output_are_commands_only_where_one_begins() -> None:
    text = f"+ srun -n 8 {TEST}\n# nThread 1 nGpus 1 minBytes 8\nmpirun noticed that a rank died\n"
    assert [one.line.words[0].text for one in from_lines(text, LaunchContext())] == ["srun"]


def test_a_command_that_prose_repeats_is_one() -> None:
    (one,) = checked(f"It isn't `mpirun -np 8 {TEST}`.\n\nmpirun -np 8 {TEST}\n")
    assert said(one).startswith("8 processes")


@pytest.mark.parametrize(
    "name", ["nccl_alltoall_perf", "allreduce_test_perf", "alltoall_test_perf", "allreduce_perf,"]
)
def test_a_program_of_another_project_is_not_misspelt(name: str) -> None:
    assert "binary-unknown" not in ids(only(f"mpirun -np 8 ./{name} -b 8 -e 1G"))


def test_each_job_of_a_page_has_its_own_directives() -> None:
    job = "```bash\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=4\nsrun {}\n```\n"
    page = job.format(2, TEST) + job.format(3, TEST) + f"or\n```\nsrun -n 2 {TEST}\n```\n"
    assert sorted(said(one).partition(",")[0] for one in checked(page)) == [
        "12 processes",
        "2 processes",
        "8 processes",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\u2022 Launches torchrun --standalone so there\u2019s no rendezvous",
        "It reads the number to build torchrun --nproc_per_node=$NGPUS.",
        "Write `torchrun --nproc_per_node=4` if the node has four.",
    ],
)
def test_a_sentence_that_names_options_is_no_command(text: str) -> None:
    with pytest.raises(InputError):
        from_text(text, LaunchContext())


def test_a_listing_has_numbers_of_lines() -> None:
    lines = ["#!/bin/sh", "#SBATCH -N 2", "#SBATCH -n 16", "", "srun \\", f"  {TEST}"]
    for form in ("{:2}{}", "{:6}\t{}", "{}: {}", "{} | {}"):
        text = "\n".join(form.format(n, line) for n, line in enumerate(lines, 1))
        assert said(*checked(unnumbered(text))).startswith("16 processes, 8 on each of 2 nodes")
    table = "\n".join(f"{size} 2 float sum -1" for size in (8, 16, 32, 64, 128))
    assert unnumbered(table) == table
    assert not unnumbered("1\n2\n3\n4\n5\n").strip()
