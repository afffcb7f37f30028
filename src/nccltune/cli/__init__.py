# SPDX-License-Identifier: Apache-2.0
"""The command line: a lazy group of verbs, and the one place that turns errors into exit codes.

0 ok, 1 a finding, 2 usage or bad input, 3 this environment cannot run it, 4 the launched job
failed, 70 our bug, 128 + n a signal.
"""

import importlib
import io
import keyword
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

import nccltune

VERBS = {
    "demo": "the whole story on a recording of 4 x H200, in seconds and without a GPU",
    "auto": "sweep, analyze, tune, verify and report in one command: the main job",
    "doctor": "check a node, or many, for what makes NCCL slow or fail, and say the remedy",
    "sweep": "measure NCCL's choices where a decision is open, or replay a recording",
    "launch": "start a test with the launcher a cluster has, and keep its table in a study",
    "import": "read measurements (nccl-tests, NCCL logs, CSV) into a study",
    "analyze": "S-curves, bad crossovers, plateaus, dips: what the measurements show",
    "tune": "turn a study into a few rules that beat the default beyond noise",
    "verify": "prove the rules: default and tuned in turn, at and between the sizes measured",
    "try": "a proposed setting against how it is, in turn; kept only if it helps beyond noise",
    "lint": "check a tuner configuration: gaps, overlaps, rules that never apply",
    "lint-launch": "what an mpirun or srun line really starts, and what is wrong with it",
    "explain": "what any tuner plugin decides, size by size, without a GPU",
    "report": "one HTML file (or a terminal page) that a person understands",
    "env": "the lines that deploy the rules, the network plugin: shell, nccl.conf, job file",
    "topo": "the machine as NCCL sees it: show, lint, what-if, and files to write",
    "calibrate": "what this platform's links reach, for the flow model of `topo what-if`",
    "net-stats": "what the network plugin's connections carry right now, flow by flow",
}
"""Every verb with its one-line help, in the order of the work; each lives in the file of its name.
Kept here so that `nccltune --help` imports no verb."""

_OTHER_WORDS = {"run": "launch"}
"""What people call a verb."""


class LazyGroup(click.Group):
    """Shows `verbs` (name and one-line help) in their order and imports none to do so.

    A verb's `command` is in the module `nccltune.cli.` + `prefix` + its name, with `_` behind one
    that Python keeps for itself. `meant` has what people call a verb.
    """

    def __init__(
        self,
        *args: Any,
        verbs: Mapping[str, str],
        prefix: str = "",
        meant: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._verbs = verbs
        self._prefix = prefix
        self._meant = meant or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Verbs in the order of the work."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, imported now."""
        if cmd_name not in self._verbs:
            return None
        module = cmd_name.replace("-", "_")
        module += "_" if not self._prefix and keyword.iskeyword(cmd_name) else ""
        command = importlib.import_module(f"nccltune.cli.{self._prefix}{module}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verb in the error."""
        if args and args[0] not in self._verbs and not args[0].startswith("-"):
            from nccltune.model.errors import InputError
            from nccltune.model.names import nearest

            word = args[0]
            group = "" if ctx.parent is None else f"{ctx.info_name} "
            hint = nearest(self._meant.get(word, word), self._verbs)
            raise InputError(f"no such verb: {group}{word!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """One line a verb, without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(self._verbs.items()))


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    meant=_OTHER_WORDS,
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
        # A locale that lacks a character costs that character and not the whole result.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code. Every error ends here and nowhere else."""
    try:
        result = cli.main(args=args, prog_name="nccltune", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as asked:
        # A group of verbs alone is a question, not a mistake.
        print(asked.format_message())
        return 0
    except click.ClickException as error:
        return _usage(error)
    except (KeyboardInterrupt, click.Abort) as stop:
        print("interrupted; everything written so far is kept", file=sys.stderr)
        # click raises its own, from the interruption that says which signal it was.
        return 128 + _number(stop.__cause__ or stop)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): Python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:  # noqa: BLE001 - the roof: what arrives here is ours to explain
        return _failure(error)
    return result if isinstance(result, int) else 0


def _number(stop: BaseException) -> int:
    from nccltune.launch.process import signal_of

    return signal_of(stop) if isinstance(stop, KeyboardInterrupt) else signal.SIGINT


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context and context.parent else None
    return _say(error.format_message(), hint or "nccltune --help", 2)


def _failure(error: Exception) -> int:
    from nccltune.model.errors import NccltuneError

    if isinstance(error, NccltuneError):
        return _say(str(error), error.hint, error.exit_code)
    if isinstance(error, MemoryError):
        return _say("out of memory", "import fewer files at once", 3)
    import traceback

    traceback.print_exception(error)
    return _say(
        f"{type(error).__name__}: {error}", "this is a bug of nccltune; please report it", 70
    )


def _say(message: str, hint: str | None, code: int) -> int:
    from nccltune.cli.output import error_lines

    print(error_lines(message, hint), file=sys.stderr)
    return code
