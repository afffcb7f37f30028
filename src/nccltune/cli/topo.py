# SPDX-License-Identifier: Apache-2.0
"""`nccltune topo`: a machine's hardware as NCCL sees it; a group of verbs, one file each."""

import importlib

import click

EPILOG = """\b
Examples:
  nccltune topo show                        this machine
  nccltune topo show topo.xml --svg topo.svg
  nccltune topo lint node*.xml --json
  nccltune topo what-if topo.xml --nodes 2 --gdr-read off
  nccltune topo write topo.txt -o vm.xml    from nvidia-smi topo -m > topo.txt
"""
VERBS = {
    "show": "the machine as a tree and a picture: links, bandwidths, NCCL's paths",
    "lint": "what is wrong with topology and graph files, and between nodes",
    "write": "a topology file for NCCL, for a virtual machine that shows no tree",
    "what-if": "what a setting, a NIC elsewhere or more nodes would do to the bandwidth",
}
"""Every verb with its one-line help; each lives in `topo_NAME.py`."""


class TopoGroup(click.Group):
    """Imports a verb when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Verbs in the order of the work."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The verb's command, imported now."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"nccltune.cli.topo_{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest verb in the error."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from nccltune.model.errors import InputError
            from nccltune.model.names import nearest

            raise InputError(f"no such verb: topo {args[0]!r}", hint=nearest(args[0], VERBS))
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """One line a verb, without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=TopoGroup, epilog=EPILOG)
def command() -> None:
    """Read, draw, check and write what NCCL takes a machine's hardware to be."""
