# SPDX-License-Identifier: Apache-2.0
"""Look up the meaning of each argument of nccl-tests and of nccltune-bench."""

from nccltune.launch.job import Job
from nccltune.launch.program import Program, read_program

_FLAGS = {
    "b": "the smallest size",
    "e": "the largest size; the last one measured may be smaller",
    "f": "each size is this times the one before",
    "i": "each size is so much more than the one before",
    "n": "calls that are timed, for each size (behind the program: no processes)",
    "w": "calls before that, which are not timed",
    "m": "calls put together into one launch",
    "N": "passes over all sizes; 0 is for ever",
    "t": "threads of each process",
    "g": "GPUs of each thread, so that ranks = processes x threads x this",
    "c": "checks the results; 0 leaves it out, and wrong answers can be fast",
    "o": "the operation of a reduction",
    "d": "the type of an element",
    "r": "the rank that sends or gets",
    "z": "waits for each call, or puts a barrier between them",
    "G": "captures the calls in a CUDA graph, replayed so often",
    "R": "registers the buffers: 1 local, 2 symmetric (NCCL 2.27)",
    "a": "whose time is printed: 0 rank 0, 1 the mean, 2 the least, 3 the most",
    "T": "seconds after which a test is given up",
    "J": "a JSON file beside the table; its name must end in .json",
    "I": "times each call, and prints the least, most and 99th percentile",
}
"""The meaning of nccl-tests' arguments, by the letter of the option."""
_BENCH = {
    "--gpus-per-process": "GPUs that each process drives",
    "--rendezvous": "HOST:PORT where the processes meet: rank 0 listens there",
}
_UNKNOWN = "as the job has it"


def meanings(job: Job) -> list[tuple[str, str]]:
    """Return each argument of the program with its meaning, or with a general text if unknown."""
    words = job.words
    program = read_program(words)
    found = _others(words) if program is None else _nccl_tests(words, program)
    # `Job.words` ends with the number of GPUs of a process, which the job itself adds.
    shown, meaning = found.pop()
    return [*found, (shown, f"{meaning}; it follows from processes = {job.processes!r}")]


def _nccl_tests(words: list[str], program: Program) -> list[tuple[str, str]]:
    known = {a.at: (a.length, _FLAGS.get(a.flag, _UNKNOWN)) for a in program.arguments}
    found = [(" ".join(words[: program.at + 1]), "the program")]
    at = program.at + 1
    while at < len(words):
        length, meaning = known.get(at, (1, _UNKNOWN))
        found.append((" ".join(words[at : at + length]), meaning))
        at += length
    return found


def _others(words: list[str]) -> list[tuple[str, str]]:
    options: list[list[str]] = []
    for word in words[1:]:
        if word.startswith("-") or not options:
            options.append([])
        options[-1].append(word)
    names = ((" ".join(option), option[0].partition("=")[0]) for option in options)
    known = _BENCH | {"-g": _FLAGS["g"]}
    return [(words[0], "the program"), *((all_, known.get(name, _UNKNOWN)) for all_, name in names)]


def variable_meanings(job: Job) -> list[tuple[str, str]]:
    """Return each variable of a job with its effect on NCCL, or with a general text if unknown."""
    known = {
        "NCCL_SOCKET_IFNAME": "the network interfaces that NCCL meets over, by the start of a name",
        "NCCL_IB_HCA": "the InfiniBand or RoCE adapters that NCCL uses, by the start of a name",
        "NCCL_NVLS_ENABLE": "NVLink SHARP, reductions inside NVSwitch: 0 off, 1 where it can be",
        "NCCL_DEBUG": "how much NCCL logs",
    }
    return [
        (f"{name}={value}", known.get(name, "as the job has it"))
        for name, value in job.variables.items()
    ]
