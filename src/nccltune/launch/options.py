# SPDX-License-Identifier: Apache-2.0
"""What the arguments of nccl-tests and of nccltune-bench mean, in words."""

from nccltune.launch.job import Job

_FLAGS = {
    "-b": ("--minbytes", "the smallest size"),
    "-e": ("--maxbytes", "the largest size; the last one measured may be smaller"),
    "-f": ("--stepfactor", "each size is this times the one before"),
    "-i": ("--stepbytes", "each size is so much more than the one before"),
    "-n": ("--iters", "calls that are timed, for each size (behind the program: no processes)"),
    "-w": ("--warmup_iters", "calls before that, which are not timed"),
    "-m": ("--agg_iters", "calls put together into one launch"),
    "-N": ("--run_cycles", "passes over all sizes; 0 is for ever"),
    "-t": ("--nthreads", "threads of each process"),
    "-g": ("--ngpus", "GPUs of each thread, so that ranks = processes x threads x this"),
    "-c": ("--check", "checks the results; 0 leaves it out, and wrong answers can be fast"),
    "-o": ("--op", "the operation of a reduction"),
    "-d": ("--datatype", "the type of an element"),
    "-r": ("--root", "the rank that sends or gets"),
    "-z": ("--blocking", "waits for each call, or puts a barrier between them"),
    "-G": ("--cudagraph", "captures the calls in a CUDA graph, replayed so often"),
    "-R": ("--local_register", "registers the buffers: 1 as they are, 2 symmetric (NCCL 2.27)"),
    "-a": ("--average", "whose time is told: 0 rank 0, 1 the mean, 2 the least, 3 the most"),
    "-T": ("--timeout", "seconds after which a test is given up"),
    "-J": ("--output_file", "a JSON file beside the table; its name must end in .json"),
    "-I": ("--iteration_time", "times each call, and tells the least, most and 99th percentile"),
    "--gpus-per-process": ("--gpus-per-process", "GPUs that each process drives"),
    "--rendezvous": ("--rendezvous", "HOST:PORT where the processes meet: rank 0 listens there"),
    "--replay": ("--replay", "draws timings from a recording, without a GPU"),
}
_LONG = {long: short for short, (long, _) in _FLAGS.items()}
_FROM_JOB = ("-g", "--gpus-per-process")


def meanings(job: Job) -> list[tuple[str, str]]:
    """Each argument of the program with what it means; unknown ones are told as they are."""
    found: list[tuple[str, str]] = [(job.program[0], "the program")]
    words = job.words[1:]
    index = 0
    while index < len(words):
        word, _, value = words[index].partition("=")
        flag = _LONG.get(word, word)
        takes = not value and index + 1 < len(words) and not words[index + 1].startswith("-")
        shown = f"{word} {words[index + 1]}" if takes else words[index]
        meaning = _FLAGS[flag][1] if flag in _FLAGS else "as the job has it"
        if flag in _FROM_JOB:
            meaning += f"; it follows from processes = {job.processes!r}"
        found.append((shown, meaning))
        index += 2 if takes else 1
    return found


def variable_meanings(job: Job) -> list[tuple[str, str]]:
    """What the variables that a job has words for do to NCCL."""
    known = {
        "NCCL_SOCKET_IFNAME": "the network interfaces that NCCL meets over, by the start of a name",
        "NCCL_IB_HCA": "the InfiniBand or RoCE adapters that NCCL uses, by the start of a name",
        "NCCL_NVLS_ENABLE": "NVLink SHARP, reductions inside NVSwitch: 0 off, 1 where it can be",
        "NCCL_DEBUG": "how much NCCL says of what it does",
    }
    return [
        (f"{name}={value}", known.get(name, "as the job has it"))
        for name, value in job.variables.items()
    ]
