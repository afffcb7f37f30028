# SPDX-License-Identifier: Apache-2.0
"""Elements of a list in a large JSON object."""

import io
import json

import pytest

from nccltune.formats.text.json_stream import JsonStream


def _read(text: str) -> list[tuple[object, int]]:
    stream = JsonStream(io.BytesIO(text.encode()), frozenset({"list"}))
    return [(json.loads(item.raw or b""), item.line) for item in stream if item.key == "list"]


@pytest.mark.parametrize("depth", range(1, 10))
def test_elements_of_any_depth(depth: int) -> None:
    element: object = 'a "quoted" ] }, text \\'
    for level in range(depth):
        element = {"in": element} if level % 2 else [element, 1, {}]
    text = json.dumps({"first": 1, "list": [element, 3, element, "x"], "last": [2]}, indent=1)
    lines = text.split("\n")
    found = _read(text)
    assert [item for item, _ in found] == [element, 3, element, "x"]
    assert [lines[line - 1].strip(" ,") for _, line in found][1] == "3"


def test_a_list_that_is_cut_off_keeps_whole_elements() -> None:
    text = json.dumps({"list": [{"a": [1, {"b": "]"}]}] * 5})
    for end in range(len(text)):
        assert all(item == {"a": [1, {"b": "]"}]} for item, _ in _read(text[:end]))
