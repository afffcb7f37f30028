# SPDX-License-Identifier: Apache-2.0
"""Parse small XML files of any origin into a tree: no DTD, no entities, bounded size.

NCCL reads and writes XML with its own parser (`graph/xml.cc`), which supports only elements,
attributes and comments. This module reads the files that NCCL writes, and a little more.
"""

import re
import xml.parsers.expat
from dataclasses import dataclass, field

from nccltune.formats.text.lines import check_text, encoding_of, visible
from nccltune.model.errors import InputError

MAX_BYTES = 8 << 20
"""A topology of NCCL has about 10 KiB. The graphs of 64 channels and 72 GPUs have under 1 MiB."""
MAX_DEPTH = 64
MAX_ELEMENTS = 1 << 17
_NOT_NEWLINE = re.compile(r"[^\n]+")
_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_ENDS = re.compile(rb"^[ \t]*<(system|graphs)\b|</(system|graphs)>", re.M)
_LONG_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Element:
    """An element. `line` is the line where its tag begins; `text` is True if it contains words."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    text: bool = False

    def get(self, name: str) -> str | None:
        """Return the unconverted text of an attribute; None if the element does not have it."""
        return self.attributes.get(name)


class _Builder:
    """The handlers of the expat parser: they build the tree and stop at the limits."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Element | None = None
        self.declared = False
        self._open: list[Element] = []
        self._count = 0
        # Expat gets a str. It reads a str as UTF-8, whatever encoding the file declares.
        parser = xml.parsers.expat.ParserCreate()
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self.parser = parser

    def fail(self, message: str, *, hint: str | None = None) -> InputError:
        return InputError(
            message, where=f"{self.source}:{self.parser.CurrentLineNumber}", hint=hint
        )

    def _declaration(self, *_: object) -> None:
        self.declared = True

    def _doctype(self, *_: object) -> None:
        raise self.fail(
            "has a document type (<!DOCTYPE>), which files of NCCL never have",
            hint="remove it: entities are not expanded here",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise self.fail(
                f"has more than {MAX_ELEMENTS} elements",
                hint="NCCL itself reads at most 65,536: is this the right file?",
            )
        if len(self._open) >= MAX_DEPTH:
            raise self.fail(
                f"is nested deeper than {MAX_DEPTH} levels",
                hint="a tree of real switches has under 10: is this the right file?",
            )
        element = Element(name, attributes, self.parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, name: str) -> None:  # noqa: ARG002 - expat's signature
        self._open.pop()

    def _text(self, data: str) -> None:
        if data.strip():
            self._open[-1].text = True


@dataclass(slots=True)
class Document:
    """The root, and whether the file began with `<?xml ...?>`, which NCCL's parser refuses."""

    root: Element
    declared: bool


def read_tree(data: bytes, source: str) -> Document:
    """Return the tree of an XML file.

    Raises InputError, with `source`, if the file is empty, too large, no text, not well-formed, or
    has a document type. The error names the line, if one line is the cause.
    """
    text = _text_of(data, source)
    # NCCL's parser accepts any text in a comment, but XML forbids two hyphens there.
    text = blank_comments(text)
    builder = _Builder(source)
    try:
        builder.parser.Parse(text, True)
    except xml.parsers.expat.ExpatError as error:
        words = xml.parsers.expat.ErrorString(error.code)
        raise InputError(
            f"is no well-formed XML: {words} at column {error.offset + 1}",
            where=f"{source}:{error.lineno}",
            hint="dump it again (NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE) or fix that line",
        ) from None
    except (UnicodeEncodeError, ValueError) as error:
        raise InputError(
            f"is no text: {error}", where=source, hint="name an XML file in UTF-8"
        ) from None
    assert builder.root is not None
    return Document(builder.root, builder.declared)


def dumps_in(data: bytes) -> list[tuple[int, int]]:
    """Return the offsets of each topology and of each graphs in a text that people wrote around
    them, one for equal ones. A dump that was cut off before the next one begins is left out."""
    found: dict[bytes, tuple[int, int]] = {}
    begun = None
    for match in _ENDS.finditer(data):
        if match[1]:
            begun = match
        elif begun is not None and match[2] == begun[1]:
            span = (begun.start(), match.end())
            found.setdefault(data[slice(*span)].strip(), span)
            begun = None
    return list(found.values())


def cut_out(data: bytes) -> bytes:
    """Return the first topology or graphs in a text with words around them, on their lines."""
    spans = [] if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else dumps_in(data)
    for start, end in spans[:1]:
        return b"\n" * data.count(b"\n", 0, start) + data[start:end]
    return data


def blank_comments(text: str) -> str:
    """Return `text` with its comments replaced by blanks, so that positions do not change.

    A comment without an end is kept; the parser then reports it.
    """
    parts = []
    done = 0
    while (start := text.find("<!--", done)) >= 0:
        end = text.find("-->", start + 4)
        if end < 0:
            break
        parts += [text[done:start], _NOT_NEWLINE.sub(_blanks, text[start : end + 3])]
        done = end + 3
    return "".join([*parts, text[done:]])


def _blanks(found: "re.Match[str]") -> str:
    return " " * len(found.group())


def _text_of(data: bytes, source: str) -> str:
    if not data.strip():
        raise InputError(
            "is empty", where=source, hint="dump it again with NCCL_TOPO_DUMP_FILE=FILE"
        )
    if len(data) > MAX_BYTES:
        raise InputError(
            f"has {len(data)} bytes, more than {MAX_BYTES}",
            where=source,
            hint="a topology has some 10 KiB: is this the right file?",
        )
    try:
        check_text(data)
    except InputError as error:
        raise InputError(error.message, where=source, hint=error.hint) from None
    encoding = encoding_of(data[:4])
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"is not {encoding.removesuffix('-sig').upper()}: {error.reason} at byte {error.start}",
            where=f"{source}:{line}",
            hint="convert it: iconv -f LATIN1 -t UTF-8",
        ) from None


class Integer:
    """An integer as NCCL reads it: `strtol(text, NULL, 0)`.

    `value` is 0 if the text starts with no integer. `clean` is True if the text is one integer and
    nothing else.
    """

    __slots__ = ("clean", "value")

    def __init__(self, text: str) -> None:
        found = _INTEGER.match(text)
        self.value = 0
        self.clean = found is not None and not text[found.end() :].strip()
        if found is None:
            return
        sign, digits = found.groups()
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        # A C long has fewer than 64 digits. Converting more digits would only take time.
        if len(digits) > 64:
            self.value, self.clean = _LONG_MAX, False
        else:
            self.value = int(digits, base) if digits != "0" else 0
        if self.value > _LONG_MAX:
            self.value, self.clean = _LONG_MAX, False
        if sign == "-":
            self.value = -self.value


def float_of(text: str) -> float | None:
    """Return the number at the start of `text`, as `strtof` does; None if there is none."""
    found = _FLOAT.match(text)
    return float(found.group()) if found is not None else None


def shown(text: str) -> str:
    """Return a value of a file in quotes, for a message."""
    return f"'{visible(text, 60)}'"
