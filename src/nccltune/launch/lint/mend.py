# SPDX-License-Identifier: Apache-2.0
"""A command with the edits of its findings made."""

from collections.abc import Iterable

from nccltune.launch.lint.command import Command, Option
from nccltune.launch.lint.finding import Add, DropArgument, DropLead, Edit, Replace, SetArgument
from nccltune.launch.lint.words import Word, quoted
from nccltune.launch.program import read_program


def mended(command: Command, edits: Iterable[Edit]) -> Command:
    """`command` with `edits`; the first edit of an option wins."""
    done: set[int] = set()
    dropped: set[int] = set()
    options: list[Option | None] = list(command.options)
    lead, program = list(command.lead), list(command.program)
    added: list[tuple[str, ...]] = []
    arguments: list[SetArgument] = []
    for edit in edits:
        if isinstance(edit, Replace):
            at = next(
                (n for n, o in enumerate(command.options) if o is edit.option and n not in done),
                None,
            )
            if at is not None:
                done.add(at)
                options[at] = _option(edit.words) if edit.words else None
        elif isinstance(edit, Add):
            if edit.words not in added:
                added.append(edit.words)
        elif isinstance(edit, DropLead):
            lead = [word for word in lead if word.text.partition("=")[0] != edit.name]
        elif isinstance(edit, DropArgument):
            dropped |= set(range(edit.first, edit.first + edit.length))
        else:
            arguments.append(edit)
    program = [word for at, word in enumerate(program) if at not in dropped]
    set_already: set[str] = set()
    for argument in arguments:
        if argument.flag not in set_already:
            set_already.add(argument.flag)
            program = _set(program, argument)
    kept = [option for option in options if option is not None]
    kept += [_option(words) for words in added]
    return command._replace(lead=tuple(lead), options=tuple(kept), program=tuple(program))


def _option(words: tuple[str, ...]) -> Option:
    return Option(tuple(quoted(word) for word in words), words[0].lstrip("-"), words[1:], None)


def _set(words: list[Word], edit: SetArgument) -> list[Word]:
    program = read_program([word.text for word in words])
    if program is None:
        return words
    found = [argument for argument in program.arguments if argument.flag == edit.flag]
    drop = {
        place for argument in found for place in range(argument.at, argument.at + argument.length)
    }
    result: list[Word] = []
    first = found[0].at if found else None
    for place, word in enumerate(words):
        if place == first and edit.value is not None:
            result += [Word(f"-{edit.flag}", f"-{edit.flag}"), quoted(edit.value)]
        if place not in drop:
            result.append(word)
    if first is None and edit.value is not None:
        result += [Word(f"-{edit.flag}", f"-{edit.flag}"), quoted(edit.value)]
    return result
