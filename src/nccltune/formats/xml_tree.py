# SPDX-License-Identifier: Apache-2.0
"""Small XML files of others to a tree, whatever the file holds: no DTD, no entity, bounded size.

NCCL reads and writes XML with a parser of its own (`graph/xml.cc`), which knows elements,
attributes and comments and nothing else. This reads what it writes, and a little more.
"""

import re
import xml.parsers.expat
from dataclasses import dataclass, field

from nccltune.formats.lines import check_text, encoding_of, visible
from nccltune.model.errors import InputError

MAX_BYTES = 16 << 20
"""A topology of NCCL is some 10 KiB, the graphs of 64 channels by 72 GPUs under 1 MiB."""
MAX_DEPTH = 64
MAX_ELEMENTS = 1 << 17
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]+")
_INTEGER = re.compile(r"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_LONG_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Element:
    """An element: `line` is where its tag begins, `text` whether words stand in it."""

    name: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    text: bool = False

    def get(self, name: str) -> str | None:
        """The attribute's text as it stands in the file."""
        return self.attributes.get(name)


class _Builder:
    """Expat's handlers: builds the tree and stops at the limits."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Element | None = None
        self.declared = False
        self._open: list[Element] = []
        self._count = 0
        # Expat is handed text, and takes it for UTF-8 whatever a declaration says.
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
    """A file's root, and whether it began with `<?xml ...?>`, which NCCL's parser refuses."""

    root: Element
    declared: bool


def read_tree(data: bytes, source: str) -> Document:
    """The tree of an XML file. Raises InputError, with `source` and a line, where it is none."""
    text = _text_of(data, source)
    # NCCL's parser takes any text in a comment; XML forbids two hyphens there.
    text = _COMMENT.sub(lambda found: _NOT_NEWLINE.sub(" ", found.group()), text)
    builder = _Builder(source)
    try:
        builder.parser.Parse(text, True)
    except xml.parsers.expat.ExpatError as error:
        words = xml.parsers.expat.ErrorString(error.code)
        raise InputError(
            f"is no well-formed XML: {words} at column {error.offset + 1}",
            where=f"{source}:{error.lineno}",
            hint="dump it again (NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE) or mend that line",
        ) from None
    except (UnicodeEncodeError, ValueError) as error:
        raise InputError(
            f"is no text: {error}", where=source, hint="name an XML file in UTF-8"
        ) from None
    assert builder.root is not None
    return Document(builder.root, builder.declared)


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
    """How NCCL reads a number: `strtol(text, NULL, 0)`; `clean` where it was one number."""

    __slots__ = ("clean", "value")

    def __init__(self, text: str) -> None:
        found = _INTEGER.match(text)
        self.value = 0
        self.clean = found is not None and not text[found.end() :].strip()
        if found is None:
            return
        sign, digits = found.groups()
        base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
        # 64 digits are more than any long has; the rest only costs time.
        if len(digits) > 64:
            self.value, self.clean = _LONG_MAX, False
        else:
            self.value = int(digits, base) if digits != "0" else 0
        if self.value > _LONG_MAX:
            self.value, self.clean = _LONG_MAX, False
        if sign == "-":
            self.value = -self.value


def float_of(text: str) -> float | None:
    """The number that `text` begins with, as `strtof`; None where it begins with none."""
    found = _FLOAT.match(text)
    return float(found.group()) if found is not None else None


def shown(text: str) -> str:
    """A value of a file, for a message."""
    return f"'{visible(text, 60)}'"
