# SPDX-License-Identifier: Apache-2.0
"""Read the members of one large JSON object one at a time, in bounded memory.

The file may be truncated.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

from nccltune.formats.text.lines import CHUNK_BYTES, encoding_of

MAX_ITEM_BYTES = 32 << 20
"""Limit of a member or list element in bytes. For a larger one, `Item.raw` is None."""
_SHALLOW = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\],]', re.DOTALL)
_DEEP = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
# The part of a string up to its end or the end of the buffer. The pattern is possessive (no
# backtracking), so its time is linear.
_STRING_PART = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_LEVELS = 6


def _nested(levels: int) -> bytes:
    """Return the pattern of a list or an object with at most `levels` levels of brackets."""
    inside = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
    deeper = b"|" + _nested(levels - 1) if levels > 1 else b""
    return rb"[{\[](?:" + inside + deeper + rb")*+[}\]]"


# A whole element of a list. One match is much faster than one for each token. Elements with more
# levels, and elements of which the buffer has a part, are read token by token.
_ELEMENT = re.compile(rb"\s*+" + _nested(_LEVELS) + rb"\s*+(?=[,\]])", re.DOTALL)
_KEY = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"\s*:\s*')


class Item(NamedTuple):
    """A member of the object, or one element of a member that is read as a list.

    `raw` is the encoded value, or None if it is larger than MAX_ITEM_BYTES. `line` counts from 1.
    """

    key: str
    raw: bytes | None
    line: int


class JsonStream:
    """An iterator over the members of the JSON object in `file`.

    If the key of a member is in `lists`, the elements of the member are yielded one by one. A
    truncated file yields its complete items. After the iteration, `complete` is True if the object
    was closed. `progress` is called with the number of bytes read so far.
    """

    def __init__(
        self, file: BinaryIO, lists: frozenset[str], progress: Callable[[int], None] | None = None
    ) -> None:
        self.complete = False
        self._file = file
        self._lists = lists
        self._progress = progress
        self._decoder: codecs.IncrementalDecoder | None = None
        self._done = 0
        self._buffer = bytearray()
        self._start = 0
        self._line = 1
        self._counted = 0
        self._key = ""
        self._dropped = False
        self._depth = 0
        self._item_depth = 1

    def __iter__(self) -> Iterator[Item]:
        at = 0
        string_at: int | None = None
        while not self.complete and self._more():
            if string_at is not None:
                # The buffer ended inside a string: continue where the last match stopped.
                part = _STRING_PART.match(self._buffer, string_at)
                string_at = part.end() if part is not None else string_at
                if self._buffer[string_at : string_at + 1] != b'"':
                    if len(self._buffer) - at > MAX_ITEM_BYTES:
                        return  # the string has no end and is larger than MAX_ITEM_BYTES
                    continue
                at, string_at = string_at + 1, None
            at -= self._trim(at)
            while not self.complete:
                if self._depth == self._item_depth == 2 and at == self._start:
                    element = _ELEMENT.match(self._buffer, at)
                    at = element.end() if element is not None else at
                pattern = _SHALLOW if self._depth <= self._item_depth else _DEEP
                match = pattern.search(self._buffer, at)
                if match is None:
                    at = len(self._buffer)
                    break
                token = match.group()
                if token == b'"':
                    at = match.start()  # the end of this string is not in the buffer yet
                    part = _STRING_PART.match(self._buffer, at + 1)
                    string_at = part.end() if part is not None else at + 1
                    break
                at = match.end()
                yield from self._token(token, match.start(), at)
        # If the file is truncated right after a closing bracket, the item that the bracket closes
        # is complete.
        whole = self._depth == self._item_depth and self._buffer.rstrip().endswith((b"}", b"]"))
        if not self.complete and at == len(self._buffer) and whole:
            yield from self._item(at)

    def _token(self, token: bytes, start: int, end: int) -> Iterator[Item]:
        """Process one bracket or comma; yield the item that ends there, if any."""
        if token in (b"{", b"["):
            self._depth += 1
            if self._depth == 1:
                self._begin(end)
            elif self._depth == 2 and token == b"[" and self._opens_list(start):
                self._item_depth = 2
                self._begin(end)
        elif token in (b"}", b"]"):
            if self._depth == self._item_depth:
                yield from self._item(start)
            self._depth -= 1
            if self._item_depth == 2 and self._depth == 1:
                self._item_depth = 1
                self._begin(end)
            self.complete = self._depth <= 0
        elif token == b"," and self._depth == self._item_depth:
            yield from self._item(start)
            self._begin(end)

    def _more(self) -> bool:
        chunk = self._file.read(CHUNK_BYTES)
        if not chunk:
            return False
        self._done += len(chunk)
        if self._decoder is None:
            encoding = encoding_of(chunk[:4])
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._buffer += self._decoder.decode(chunk).encode()
        if self._progress is not None:
            self._progress(self._done)
        return True

    def _trim(self, at: int) -> int:
        """Drop the bytes before the current item from the buffer; return the number of these bytes.

        If the current item is larger than MAX_ITEM_BYTES, the scanned bytes of the item are also
        dropped.
        """
        keep = min(self._start, at)
        if at - self._start > MAX_ITEM_BYTES:
            self._dropped = True
            keep = at
        self._line_at(keep)
        del self._buffer[:keep]
        self._counted = max(self._counted - keep, 0)
        self._start = max(self._start - keep, 0)
        return keep

    def _line_at(self, at: int) -> int:
        """Return the line of a place in the buffer that is not before the last one asked for."""
        self._line += self._buffer.count(b"\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._line

    def _begin(self, at: int) -> None:
        self._start, self._dropped = at, False

    def _opens_list(self, bracket: int) -> bool:
        match = _KEY.match(self._buffer, self._start)
        if match is None or match.end() != bracket:
            return False
        self._key = match[1].decode()
        return self._key in self._lists

    def _item(self, end: int) -> Iterator[Item]:
        raw = bytes(self._buffer[self._start : end])
        line = self._line_at(self._start + len(raw) - len(raw.lstrip()))
        if self._item_depth == 2:
            if self._dropped or raw.strip():
                yield Item(self._key, None if self._dropped else raw.strip(), line)
            return
        match = _KEY.match(raw)
        if match is not None:
            yield Item(match[1].decode(), None if self._dropped else raw[match.end() :], line)
