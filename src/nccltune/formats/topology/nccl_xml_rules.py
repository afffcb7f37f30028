# SPDX-License-Identifier: Apache-2.0
"""Check well-formed XML for content that NCCL's own parser refuses (`graph/xml.cc`, 2.19 to 2.31).

NCCL's parser accepts no XML declaration, and no tab or line end between attributes. It has fixed
limits.
"""

import re
from typing import NamedTuple, Protocol

from nccltune.formats.topology.xml_tree import blank_comments

MAX_VALUE = 253
"""Limit of a value in bytes. NCCL's `MAX_STR_LEN` is 255, and two bytes are used for the last
character read and the end of the string."""
MAX_ATTRIBUTES = 16
MAX_CHILDREN = 640
MAX_TOPOLOGY_ELEMENTS = 255
MAX_GRAPH_ELEMENTS = 65535
"""Limits of elements in a file: one less than `NCCL_TOPO_XML_MAX_NODES` and
`NCCL_GRAPH_XML_MAX_NODES`, because NCCL's parser needs one place for the end."""

_TAG = re.compile(r"""<(?:[^<>"']|"[^"]*"|'[^']*')*>""")
_VALUE = re.compile(r"""("[^"]*"|'[^']*')""")
_READ_BELOW = {
    "": ("system", "graphs"),
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "c2c"),
    "nic": ("net",),
    "graphs": ("graph",),
    "graph": ("channel",),
    "channel": ("net", "gpu"),
}


class Refusal(NamedTuple):
    """Something that NCCL refuses (`fatal`) or reads differently, with its line number."""

    line: int
    id: str
    message: str
    hint: str
    fatal: bool = True


class ReportRefusal(Protocol):
    """A function that records a refusal at an offset in the text."""

    def __call__(self, at: int, kind: str, message: str, hint: str, *, fatal: bool = True) -> None:
        """Record a refusal if it is the first of its kind."""


def refusals(text: str) -> list[Refusal]:
    """Return the refusals in a text, in the order of the file.

    Only the first of each kind is returned.
    """
    text = blank_comments(text)
    found: dict[str, Refusal] = {}

    def add(at: int, kind: str, message: str, hint: str, *, fatal: bool = True) -> None:
        if kind not in found:
            found[kind] = Refusal(text.count("\n", 0, at) + 1, kind, message, hint, fatal)

    if text.lstrip("\ufeff").startswith("<?xml"):
        add(0, "xml-header", "begins with <?xml ...?>, which NCCL's parser refuses",
            "remove that line")  # fmt: skip
    if text.startswith("\ufeff"):
        add(0, "byte-order-mark", "begins with a byte order mark, which NCCL's parser refuses",
            "save it as UTF-8 without one")  # fmt: skip
    end = 0
    elements = 0
    names: list[str] = []
    children: list[int] = [0]
    for tag in _TAG.finditer(text):
        between = text[end : tag.start()]
        if "\t" in between:
            add(end + between.index("\t"), "tab", "has a tab before a tag; NCCL's parser takes "
                "blanks and line ends only", "indent with blanks: expand FILE")  # fmt: skip
        words = between.strip()
        if words:
            add(
                end + between.index(words[0]),
                "words",
                "has words between tags; NCCL's parser expects < there",
                "put them into a comment: <!-- ... -->",
            )
        end = tag.end()
        _check_tag(tag.group(), tag.start(), add)
        word = re.match(r"</?([^\s/>]*)", tag.group())
        name = word.group(1) if word else ""
        if name.startswith(("?", "!")):
            continue
        if tag.group().startswith("</"):
            if names:
                names.pop()
                children.pop()
            continue
        if name in _READ_BELOW.get(names[-1] if names else "", ()):
            elements += 1
            children[-1] += 1
            if children[-1] == MAX_CHILDREN + 1:
                add(tag.start(), "children", f"has more than {MAX_CHILDREN} elements in one",
                    "NCCL reads no more than that")  # fmt: skip
        if not tag.group().endswith("/>"):
            names.append(name)
            children.append(0)
    most = MAX_GRAPH_ELEMENTS if "<graphs" in text[:4096] else MAX_TOPOLOGY_ELEMENTS
    if elements > most and len(set(re.findall(r'host_hash="([^"]*)"', text))) < 2:
        add(0, "elements", f"has {elements} elements; NCCL reads {most} of a host",
            "leave out what no GPU or NIC hangs on")  # fmt: skip
    return sorted(found.values(), key=lambda refusal: refusal.line)


def _check_tag(tag: str, start: int, add: ReportRefusal) -> None:
    """Check the white space, the lengths and the number of attributes of one tag."""
    place = start
    count = 0
    if re.match(r"</\S+\s", tag):
        add(start, "closing-space", "has a blank in a closing tag, which NCCL's parser refuses",
            "write </name>")  # fmt: skip
    for number, part in enumerate(_VALUE.split(tag)):
        if number % 2:
            count += 1
            if len(part.encode()) - 2 > MAX_VALUE:
                add(place, "long-value", f"has a value of {len(part) - 2} characters; NCCL refuses "
                    f"more than {MAX_VALUE}", "shorten it")  # fmt: skip
        elif "\t" in part or "\n" in part:
            add(place, "tag-space", "has a tab or a line end inside a tag; NCCL's parser takes "
                "one blank between attributes", "write the tag in one line")  # fmt: skip
        elif re.search(r"\s=|=\s", part):
            add(place, "equals-space", "has a blank beside =, which NCCL's parser does not take",
                'write name="value"')  # fmt: skip
        place += len(part)
    if count > MAX_ATTRIBUTES:
        add(start, "attributes", f"has an element of {count} attributes; NCCL ignores all after "
            f"{MAX_ATTRIBUTES}", "leave out what is not needed", fatal=False)  # fmt: skip
