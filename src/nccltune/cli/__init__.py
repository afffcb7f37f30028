# SPDX-License-Identifier: Apache-2.0
"""The command line: a lazy group of verbs, and `run`, which turns exceptions into exit codes.

0: success. 1: a finding. 2: usage or bad input (InputError, StudyError). 3: this environment cannot
run the verb (PlatformError). 4: the launched job failed (LaunchError). 70: a bug of nccltune.
128 + n: ended by signal n.

Verbs that end without an exception return 0, 1 or 2. A verb whose run signal n stopped may print a
partial result, and then chooses the code 128 + n itself.

The module of a verb defines the options, calls a function of `nccltune.app` and prints the result;
a long screen, such as verify_screen.py, is a module of its own. A verb imports `nccltune.app` and
Rich only when it runs, so that help is fast.

demo.py              analyze, tune, verify and report a recording
auto.py              sweep, analyze, tune, verify and report
auto_screen.py       each result of auto as soon as it is known
sweep.py             measure choices
sweep_screen.py      plan and result of a sweep
import_.py           read measurements into a study
import_screen.py     files read, lines not read, and flags
analyze.py           findings of a study
analyze_screen.py    curves in numbers, and findings
tune.py              rules of a study
verify.py            prove the rules
verify_screen.py     a proof, and the comparison of a program without and with the rules
report.py            write the report as a page, or print it
env.py               lines that deploy rules
env_screen.py        lines to deploy, in the form of a shell or a file
explain.py           list what a tuner plugin decides
status.py            what running jobs have loaded, and whose settings win
check.py             whether deployed rules still hold
check_screen.py      the verdict on a file, a platform and every rule
doctor.py            check nodes
ab.py                A/B-test a setting, or two libraries of NCCL
ab_screen.py         the verdict of such a test with its evidence
predict.py           NCCL's choices on a machine by its own model
predict_screen.py    choices by size, the model behind them, another version
compare.py           compare one measurement, two, or many runs
compare_screen.py    compare: verdicts, size by size, fleets
reference_screen.py  one measurement among published systems
lint.py              check files and launch commands
topo/                the group `topo`
net/                 the group `net`
sendrecv/            the group `sendrecv`
launch/              the group `launch`
workload/            the group `workload`

Modules that several verbs share:

lazy_group.py        a group that imports a verb when it runs, and help that fits the terminal
verb.py              --json, -q, -v, --dry-run and --help-advanced; the command that resumes a run
options.py           options that several verbs have, with the same meaning in each
requests.py          build arguments for functions of `nccltune.app` from options
verbosity.py         the level that -q and -v set
output.py            stdout and stderr, JSON, styles
progress.py          progress of a long run
measure_screen.py    progress and end of a run that measures
rule_screen.py       rules and proofs
workload_screen.py   what recordings of a job hold
"""

import io
import os
import signal
import sys
from collections.abc import Sequence

import click

import nccltune
from nccltune.cli.lazy_group import LazyGroup
from nccltune.cli.verbosity import is_verbose, reset_verbosity

SECTIONS = {
    "Start": {
        "demo": "the whole loop on a recording of 4 x H200, without a GPU",
        "auto": "sweep, analyze, tune, verify and report in one command",
    },
    "Step by step": {
        "sweep": "measure NCCL's choices where a decision is open, or replay a recording",
        "import": "read measurements (nccl-tests, NCCL logs, CSV) into a study",
        "analyze": "find bad crossovers, plateaus and dips in the measurements",
        "tune": "find the few rules that beat NCCL's default beyond noise",
        "verify": "prove the rules: default and tuned in alternating order in one run",
        "report": "write one HTML file with verdict, curves and evidence",
    },
    "Deploy and keep": {
        "env": "print the settings that deploy the rules: shell, nccl.conf, job file",
        "explain": "print what any tuner plugin decides, size by size, without a GPU",
        "status": "print what running jobs have loaded, whose settings win, and what conflicts",
        "check": "do deployed rules still hold? for a prolog, cron or an upgrade of NCCL",
    },
    "Find out why": {
        "doctor": "check a node, or many, for what makes NCCL slow or fail, with a remedy",
        "ab": "A/B-test a setting in alternating runs; keep it only if it helps beyond noise",
        "predict": "print what NCCL chooses on a machine by its own model, and why",
        "compare": "is a number normal? which of two is slower? which node of many is slow?",
        "lint": "check a configuration, topology, manifest, script or launch command",
    },
    "Groups": {
        "topo": "the machine as NCCL sees it: show, what-if, convert",
        "net": "the network plugin: the settings that load it, its live statistics",
        "sendrecv": "send/recv: compare copy engines with NCCL, deploy the library",
        "workload": "what a job sends, from logs, profiler traces and dumps",
        "launch": "start a test with the launcher of a cluster, or print the command",
    },
}
"""The verbs with their one-line help, by section and in the order of use. They are listed here so
that `nccltune --help` imports no verb."""

VERBS = {name: words for verbs in SECTIONS.values() for name, words in verbs.items()}
"""Every verb and group directly below `nccltune`, with its one-line help."""

_MOVED = {
    "try": "ab NAME=VALUE ... [-- PROGRAM]",
    "calibrate": "topo what-if --calibration FILE",
    "net-stats": "net stats",
    "lint-launch": "lint -- COMMAND",
    "run": "launch run",
}
"""Former names and common synonyms of verbs, with the current name."""

_MOVED_OPTIONS = {
    "--p2p": "nccltune ab NCCL_MIN_P2P_NCHANNELS=64 --collectives sendrecv",
    "--sendrecv": "nccltune sendrecv sweep, nccltune sendrecv env",
    "--fairness": "nccltune ab NCCLTUNE_SENDRECV_CHUNK=67108864 -- COMMAND",
    "--with-nccl-tests": "nccltune launch run --choice CHOICE -- PROGRAM",
    "--policies": "nccltune ab NCCLTUNE_SENDRECV_POLICY=vccl -- COMMAND",
    "--cpus": "nccltune topo convert FILE, of the host's nvidia-smi topo -m or XML",
    "--switches": "nccltune topo convert FILE, of the host's nvidia-smi topo -m or XML",
    "--net": "nccltune net env",
    "--render": "nccltune launch render JOB",
    "--gpus-per-node": "--gpus",
    "--hosts": "--set hosts=A,B",
    "--processes": "--set processes=per-node",
    "--image": "--set image=IMAGE",
    "--namespace": "--set namespace=NAME",
    "--partition": "--set partition=NAME",
    "--account": "--set account=NAME",
    "--time-limit": "--set slurm.time=TIME",
    "--interface": "--set interface=NAME",
    "--hcas": "--set hcas=NAMES",
    "--nvls": "--set nvls=true",
    "--mpi": "--set slurm.mpi=NAME",
}
"""Former options, with their replacement."""


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    moved=_MOVED,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start here: nccltune demo",
)
@click.version_option(nccltune.__version__, message="nccltune %(version)s")
def cli() -> None:
    """Make collective communication as fast as the hardware allows, with stock NCCL.

    Measure what NCCL does, find where its choices cost time, fix them through a tuner plugin
    without touching NCCL or the application, and prove the fix.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the documented code."""
    for stream in (sys.stdout, sys.stderr):
        # If the locale lacks a character, replace that character and keep the rest of the result.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line; every exception becomes an error message and an exit code."""
    reset_verbosity()
    try:
        result = cli.main(args=args, prog_name="nccltune", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        # A group without a verb prints its help. This is no error.
        print(asked.format_message())
        return 0
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort) as stop:
        print("interrupted; everything written so far is kept", file=sys.stderr)
        # click replaces KeyboardInterrupt by Abort, whose cause has the number of the signal.
        return 128 + _number(stop.__cause__ or stop)
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). Redirect stdout, or Python raises the error again
        # when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - top level: report every error
        return _failure(error)
    return result if isinstance(result, int) else 0


def _number(stop: BaseException) -> int:
    from nccltune.native.child import signal_of

    return signal_of(stop) if isinstance(stop, KeyboardInterrupt) else signal.SIGINT


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    page = f"{context.command_path} --help" if context and context.parent else "nccltune --help"
    if isinstance(error, click.NoSuchOption):
        return _print_error(f"no such option: {error.option_name}", _option_hint(error, page), 2)
    return _print_error(error.format_message(), page, 2)


def _option_hint(error: click.NoSuchOption, page: str) -> str:
    """Return a hint for an unknown option: its replacement, a similar option, or the help page."""
    from difflib import get_close_matches

    name = error.option_name
    if name in _MOVED_OPTIONS:
        return f"it is now: {_MOVED_OPTIONS[name]}"
    valid = [
        option
        for parameter in (error.ctx.command.params if error.ctx else [])
        for option in parameter.opts
        if option.startswith("-")
    ]
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? {page}" if close else page


def _failure(error: Exception) -> int:
    from nccltune.model.errors import NccltuneError

    if isinstance(error, NccltuneError):
        if is_verbose():
            import traceback

            traceback.print_exception(error)
        return _print_error(str(error), error.hint, error.exit_code)
    if isinstance(error, MemoryError):
        return _print_error("out of memory", "import fewer files at once", 3)
    if isinstance(error, OSError) and error.filename is not None:
        # The operating system refused a path of the user: too long, no permission, a loop of links.
        where = os.fsdecode(error.filename)
        return _print_error(f"{where}: {error.strerror}", "check this path", 2)
    import traceback

    traceback.print_exception(error)
    return _print_error(
        f"{type(error).__name__}: {error}", "this is a bug of nccltune; please report it", 70
    )


def _print_error(message: str, hint: str | None, code: int) -> int:
    from nccltune.cli.output import print_error

    print_error(message, hint)
    return code
