# SPDX-License-Identifier: Apache-2.0
"""`nccltune launch`: tests with the launcher of a cluster.

run.py             start a job and store its results
render.py          print the command or file that starts a job
run_screen.py      a rendered job, meanings of its options, and the result of a run
"""

import click

from nccltune.cli.lazy_group import LazyGroup

EPILOG = """\b
Examples:
  nccltune launch run job.toml --set hosts=node1,node2 -o studies/a
  nccltune launch render --nodes 2 --launcher slurm -- all_reduce_perf -e 8G
"""
SECTIONS = {
    "Verbs": {
        "run": "start a test on one node or many, follow it, keep its table in a study",
        "render": "print the command or file that starts a test, or what each option means",
    }
}
"""Every verb with its one-line help."""


class _LaunchGroup(LazyGroup):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb. If a job file was given instead, the error names `launch run`."""
        if args and args[0].endswith(".toml"):
            from nccltune.model.errors import InputError

            raise InputError(
                f"no such verb: launch {args[0]!r}", hint=f"nccltune launch run {args[0]}"
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LaunchGroup,
    sections=SECTIONS,
    package="nccltune.cli.launch",
    moved={"sweep": "launch run --choice CHOICE -- PROGRAM"},
    epilog=EPILOG,
)
def command() -> None:
    """Start tests with Open MPI, MPICH, Intel MPI, Slurm or Kubernetes."""
