# SPDX-License-Identifier: Apache-2.0
"""The reference of the command line, a page for each verb, made of the parser at build time."""

import inspect
import re
from collections.abc import Iterator

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from nccltune.cli import SECTIONS, VERBS, cli
from nccltune.cli.verb import option_rows

FOLDER = "reference/cli"
# Of a help text that keeps its lines, as click marks it.
_AS_WRITTEN = "\b"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages where the navigation names their folder."""
    pages = [{"Overview": f"{FOLDER}/index.md"}, *({verb: _page(verb)} for verb in VERBS)]
    _replace(config.nav or [], f"{FOLDER}/", pages)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    files.append(File.generated(config, f"{FOLDER}/index.md", content="\n".join(overview())))
    context = click.Context(cli, info_name="nccltune", **cli.context_settings)
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        lines = command_page(command, click.Context(command, parent=context, info_name=verb))
        files.append(File.generated(config, _page(verb), content="\n".join(lines)))
    return files


def overview() -> Iterator[str]:
    """The page that lists the verbs."""
    yield "# Command line"
    yield ""
    yield from _text(cli.help or "")
    yield ""
    yield "| section | verb | meaning |"
    yield "| --- | --- | --- |"
    for title, verbs in SECTIONS.items():
        for number, (verb, meaning) in enumerate(verbs.items()):
            section = title if number == 0 else ""
            yield f"| {section} | [`nccltune {verb}`]({verb}.md) | {_escaped(meaning)} |"
    yield ""
    yield "| exit code | meaning |"
    yield "| --- | --- |"
    yield "| 0 | ok |"
    yield "| 1 | a finding |"
    yield "| 2 | usage or bad input |"
    yield "| 3 | this environment cannot run it |"
    yield "| 4 | the launched job failed |"
    yield "| 70 | a bug of nccltune |"
    yield "| 128 + n | ended by signal n |"


def command_page(command: click.Command, context: click.Context, level: int = 1) -> Iterator[str]:
    """Usage, description, options and examples of a command, then of those inside it."""
    yield f"{'#' * level} {context.command_path}"
    yield ""
    yield from _block([command.get_usage(context).removeprefix("Usage: ")])
    yield from _text(command.help or "")
    yield ""
    yield from _options(command, context)
    if command.epilog:
        lines = inspect.cleandoc(command.epilog).removeprefix(_AS_WRITTEN).strip("\n").splitlines()
        title, *examples = lines
        yield f"**{title.rstrip(':')}**"
        yield ""
        yield from _block(inspect.cleandoc("\n".join(examples)).splitlines())
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            child = click.Context(inner, parent=context, info_name=name)
            yield from command_page(inner, child, level + 1)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    """A row an option, as `--help` has it; then those of `--help-advanced`."""
    plain, advanced = option_rows(command, context)
    yield from _table("option", plain)
    if advanced:
        yield from _table("advanced option", advanced)


def _table(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    yield f"| {title} | meaning |"
    yield "| --- | --- |"
    for names, meaning in rows:
        yield f"| `{names.replace('|', chr(92) + '|')}` | {_escaped(meaning)} |"
    yield ""


def _text(help_text: str) -> Iterator[str]:
    """Paragraphs of a help text; those that keep their lines become blocks."""
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        if paragraph.startswith(_AS_WRITTEN):
            yield from _block(paragraph.removeprefix(_AS_WRITTEN).strip("\n").splitlines())
        else:
            yield _escaped(paragraph)
            yield ""


def _block(lines: list[str]) -> Iterator[str]:
    yield "```text"
    yield from lines
    yield "```"
    yield ""


def _escaped(text: str) -> str:
    """Return a help text with its markup escaped, except code between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _page(verb: str) -> str:
    return f"{FOLDER}/{verb}.md"


def _replace(entries: list[object], placeholder: str, pages: list[dict[str, str]]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        for title, value in entry.items():
            if value == placeholder:
                entry[title] = pages
            elif isinstance(value, list):
                _replace(value, placeholder, pages)
