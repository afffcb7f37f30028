# SPDX-License-Identifier: Apache-2.0
"""Compute the layout of a machine's picture: CPUs at the top, GPUs and NICs in one row."""

from dataclasses import dataclass, field

from nccltune.topology.files.tree import Branch
from nccltune.topology.hardware.links import Link, NodeKind, Vertex

LEAF_WIDTH = 104.0
LEAF_HEIGHT = 44.0
SWITCH_WIDTH = 128.0
SWITCH_HEIGHT = 38.0
CPU_WIDTH = 168.0
GAP = 14.0
LEVEL = 96.0
MARGIN = 28.0
STACK_FROM = 3
"""If a switch or CPU has at least this number of NICs, the NICs are drawn as a column."""


@dataclass(slots=True)
class Box:
    """A drawn vertex. `ports` are the links to the ports of a NIC. Ports have no boxes."""

    vertex: Vertex
    link: Link | None
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    children: list["Box"] = field(default_factory=list)
    stack: list["Box"] = field(default_factory=list)
    """The boxes of the column that begins with this box; empty if no column begins here."""
    ports: list[Link] = field(default_factory=list)
    depth: int = 0

    @property
    def centre(self) -> float:
        """Return the x coordinate of the box's middle."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """Return the y coordinate of the lower end of the box or of its column."""
        last = self.stack[-1] if self.stack else self
        return last.y + last.height

    @property
    def is_leaf(self) -> bool:
        """Return whether the box is in the lowest row."""
        return self.vertex.kind in (NodeKind.GPU, NodeKind.NIC) or (
            self.vertex.kind is NodeKind.PCI and not self.children
        )


@dataclass(slots=True)
class Picture:
    """Boxes with their positions. `floor` is the lower end of the lowest box."""

    roots: list[Box]
    boxes: dict[str, Box]
    width: float
    floor: float


def place(trees: tuple[Branch, ...], top: float) -> Picture:
    """Return the boxes of trees with positions. Trees are side by side, from `top` downwards."""
    boxes: dict[str, Box] = {}
    roots = [_box(tree, 0, boxes) for tree in trees]
    deepest = max((box.depth for box in boxes.values() if box.is_leaf), default=1)
    left = MARGIN
    for root in roots:
        left += _spread(root, left, top, deepest) + 3 * GAP
    floor = max((box.bottom for box in boxes.values()), default=top)
    return Picture(roots, boxes, left - 3 * GAP + MARGIN, floor)


def _box(branch: Branch, depth: int, boxes: dict[str, Box]) -> Box:
    kind = branch.vertex.kind
    is_leaf = kind in (NodeKind.GPU, NodeKind.NIC) or not branch.children
    width = CPU_WIDTH if kind is NodeKind.CPU else LEAF_WIDTH if is_leaf else SWITCH_WIDTH
    height = LEAF_HEIGHT if is_leaf and kind is not NodeKind.CPU else SWITCH_HEIGHT
    box = Box(branch.vertex, branch.link, width, height, depth=depth)
    boxes[branch.vertex.name] = box
    for child in branch.children:
        if child.vertex.kind is NodeKind.NET:
            if child.link is not None:
                box.ports.append(child.link)
        else:
            box.children.append(_box(child, depth + 1, boxes))
    alike = [child for child in box.children if child.is_leaf and _stacks(child)]
    if len(alike) >= STACK_FROM:
        alike[0].stack = alike
        box.children = [child for child in box.children if child not in alike[1:]]
    return box


def _stacks(box: Box) -> bool:
    return box.vertex.kind is not NodeKind.GPU


def _spread(box: Box, left: float, top: float, deepest: int) -> float:
    """Position a box and all boxes below it, starting at `left`. Return the width used."""
    level = deepest if box.is_leaf else box.depth
    box.y = top + level * LEVEL
    used = 0.0
    for child in box.children:
        used += _spread(child, left + used, top, deepest) + GAP
    used = max(used - GAP, 0.0)
    taken = max(used, box.width)
    if taken > used:
        # The box is wider than its children, so centre them below it.
        _move(box.children, (taken - used) / 2)
    box.x = left + (taken - box.width) / 2
    if box.children:
        middle = (box.children[0].centre + box.children[-1].centre) / 2
        box.x = min(max(left, middle - box.width / 2), left + taken - box.width)
    for place, other in enumerate(box.stack):
        other.x, other.y = box.x, box.y + place * (LEAF_HEIGHT + GAP / 2)
    return taken


def _move(boxes: list[Box], by: float) -> None:
    for box in boxes:
        box.x += by
        for other in box.stack[1:]:
            other.x += by
        _move(box.children, by)
