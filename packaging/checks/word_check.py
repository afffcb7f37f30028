# SPDX-License-Identifier: Apache-2.0
"""Find the phrases and the names that words.toml forbids."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from source_text import passages

WORDS = Path(__file__).with_name("words.toml")
_CPP_CLASS = re.compile(r"^\s*(?:class|struct|enum class|enum)\s+(\w+)[^;]*\{", re.MULTILINE)


class Phrase(NamedTuple):
    """A forbidden phrase, the words to write instead, and longer phrases in which it is allowed."""

    pattern: re.Pattern[str]
    instead: str
    allowed: re.Pattern[str] | None


class WordList(NamedTuple):
    """The content of words.toml. `exempt` maps the name of a check to the paths that it skips."""

    phrases: list[Phrase]
    bare_names: frozenset[str]
    exempt: dict[str, list[str]]


def read_words(path: Path = WORDS) -> WordList:
    """Read the list of words."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    phrases = []
    for item in data["phrase"]:
        # A line may end between two words of a phrase.
        words = item["pattern"].replace(" ", r"\s+")
        allow = "|".join(text.replace(" ", r"\s+") for text in item.get("allow", []))
        allowed = re.compile(allow, re.IGNORECASE) if allow else None
        phrases.append(
            Phrase(re.compile(rf"\b(?:{words})\b", re.IGNORECASE), item["instead"], allowed)
        )
    return WordList(phrases, frozenset(data["names"]["bare"]), data.get("exempt", {}))


def find_words(path: Path, words: WordList) -> Iterator[tuple[int, str]]:
    """Yield the line and the complaint for each forbidden phrase in the prose of a file."""
    for start, text in passages(path):
        for phrase in words.phrases:
            kept = list(phrase.allowed.finditer(text)) if phrase.allowed else []
            for match in phrase.pattern.finditer(text):
                if any(one.start() <= match.start() < one.end() for one in kept):
                    continue
                found = " ".join(match[0].split())
                line = start + text.count("\n", 0, match.start())
                yield line, f"{found!r}: write {phrase.instead}"


def find_names(path: Path, bare: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield a line and a complaint for each module, class or function with a forbidden name.

    A name is forbidden if it is one of the words `bare`, and not if it only contains such a word.
    """
    bare = frozenset(bare)
    if path.stem.strip("_").lower() in bare:
        yield 1, f"file {path.name}: the name must state its subject, not {path.stem!r}"
    for line, name in _names(path):
        if name.strip("_").lower() in bare:
            yield line, f"name {name!r}: use the field's noun or verb"


def _names(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.lineno, node.name
    elif path.suffix in {".cc", ".h"}:
        for match in _CPP_CLASS.finditer(text):
            yield text.count("\n", 0, match.start(1)) + 1, match[1]
