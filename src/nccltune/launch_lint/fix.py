# SPDX-License-Identifier: Apache-2.0
"""Apply the edits of findings to a command."""

from collections.abc import Iterable, Sequence

from nccltune.launch.program import read_program
from nccltune.launch_lint.command import LaunchCommand, Option
from nccltune.launch_lint.finding import (
    AppendOption,
    Edit,
    Replace,
    ReplaceArgument,
    ReplaceLead,
    SetArgument,
    SetLead,
)
from nccltune.launch_lint.words import Word, quoted, rewritten

_SETS_VARIABLE = ("-e", "--env")
"""Options of a container engine whose value is NAME=VALUE."""


def apply_edits(command: LaunchCommand, edits: Iterable[Edit]) -> LaunchCommand:
    """Return `command` with `edits` applied.

    If two edits change the same option, or set the same argument, the first edit wins.
    """
    done: set[int] = set()
    replaced: dict[int, tuple[str, ...]] = {}
    options: list[Option | None] = list(command.options)
    lead, program = list(command.lead), list(command.program)
    everything = command.words
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
                pool = [*edit.option.words, *everything]
                options[at] = _option(edit.words, pool) if edit.words else None
        elif isinstance(edit, AppendOption):
            if edit.words not in added:
                added.append(edit.words)
        elif isinstance(edit, SetLead):
            lead = _set_lead(lead, edit, everything)
        elif isinstance(edit, ReplaceLead):
            by_place = {n: edit.words for n, word in enumerate(lead) if word.text == edit.word}
            lead = _replaced(lead, by_place, everything)
        elif isinstance(edit, ReplaceArgument):
            replaced |= dict.fromkeys(range(edit.first, edit.first + edit.length), ())
            replaced[edit.first] = edit.words
        else:
            arguments.append(edit)
    program = _replaced(program, replaced, everything)
    set_already: set[str] = set()
    for argument in arguments:
        if argument.flag not in set_already:
            set_already.add(argument.flag)
            program = _set(program, argument)
    kept = [option for option in options if option is not None]
    kept += [_option(words, everything) for words in added]
    return command._replace(lead=tuple(lead), options=tuple(kept), program=tuple(program))


def _replaced(
    words: list[Word], by_place: dict[int, tuple[str, ...]], pool: Sequence[Word]
) -> list[Word]:
    result: list[Word] = []
    for at, word in enumerate(words):
        new = by_place.get(at)
        result += [word] if new is None else [rewritten(text, [word, *pool]) for text in new]
    return result


def _option(words: tuple[str, ...], pool: Sequence[Word]) -> Option:
    """Return the option of `words`, each written as the words in `pool` are."""
    written = tuple(rewritten(word, pool) for word in words)
    return Option(written, words[0].lstrip("-"), words[1:], None)


def _set_lead(lead: list[Word], edit: SetLead, pool: Sequence[Word]) -> list[Word]:
    result: list[Word] = []
    found = False
    for word in lead:
        name, sign, value = word.text.partition("=")
        if name != edit.name or not sign or edit.old not in (None, value):
            result.append(word)
            continue
        found = True
        if edit.text is not None:
            result.append(_assignment(edit.text, pool))
        elif result and result[-1].text in _SETS_VARIABLE:
            result.pop()
    if not found and edit.add and edit.text is not None:
        result.append(_assignment(edit.text, pool))
    return result


def _assignment(text: str, pool: Sequence[Word]) -> Word:
    """Return NAME=VALUE with quotes around VALUE only. A shell needs the name unquoted."""
    name, _, value = text.partition("=")
    values = [
        Word(w.text.partition("=")[2], w.raw.partition("=")[2]) for w in pool if "=" in w.text
    ]
    return Word(text, f"{name}={rewritten(value, [*values, *pool]).raw if value else ''}")


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
