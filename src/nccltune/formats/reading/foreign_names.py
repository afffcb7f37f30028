# SPDX-License-Identifier: Apache-2.0
"""Translate the names of columns in tables that are not in English."""

import re

_NAMES = {
    "algbw": "算法带宽 演算法頻寬",
    "busbw": "总线带宽 匯流排頻寬",
    "out-of-place": "非原地 非就地 异地",
    "in-place": "原地 就地",
    "type": "数据类型 資料型別 类型 データ型 тип",
    "size": "消息大小 数据大小 数据量 訊息大小 資料量 大小 尺寸 サイズ 크기 размер"
    " größe taille tamaño tamanho",
    "bytes": "字节数 字节 位元組 バイト 바이트 байт octets",
    "us": "微秒 마이크로초 мкс",
    "ms": "毫秒 밀리초 мс",
    "avg": "平均 평균 средняя среднее",
    "min": "最小",
    "max": "最大",
    "time": "时间 時間 耗时 耗時 延迟 时延 延遲 レイテンシ 所要時間 시간 지연 время задержка"
    " zeit latenz temps latence tiempo latencia tempo",
    "throughput": "吞吐量 吞吐",
    "bandwidth": "带宽 頻寬 帯域幅 帯域 대역폭 bandbreite débit",
    "count": "元素数量 元素数 元素個數 数量",
    "operation": "操作 演算 연산 операция",
    "collective": "集合通信 集合操作 集体操作 通信原语",
    "redop": "归约操作 归约",
    "algorithm": "算法 演算法 アルゴリズム 알고리즘 алгоритм",
    "protocol": "协议 協定 プロトコル 프로토콜 протокол",
    "channels": "通道数 通道",
    "nodes": "节点数 節點數 ノード数 노드",
    "ranks": "进程数 卡数",
    "wrong": "错误数 错误",
    "(": "（", ")": "）",
}  # fmt: skip
"""Words of headers in other languages. A longer one is replaced before its parts."""
_ENGLISH = {word: name for name, words in _NAMES.items() for word in words.split()}
_FOREIGN = re.compile(
    "|".join(
        re.escape(word) if not word.isascii() and ord(word[0]) > 0x2E7F else rf"\b{word}\b"
        for word in sorted(_ENGLISH, key=len, reverse=True)
    ),
    re.IGNORECASE,
)


def in_english(name: str) -> str:
    """Return the name of a column with known words of other languages in English.

    >>> in_english("\u65f6\u95f4 (us)")
    'time  (us)'
    """
    return _FOREIGN.sub(lambda found: f" {_ENGLISH[found[0].lower()]} ", name).strip()


def has_foreign_name(line: str) -> bool:
    """Return whether a line, not all of it ASCII, has such a word."""
    return not line.isascii() and _FOREIGN.search(line) is not None


_HAN = {"单": "1", "一": "1", "双": "2", "两": "2", "兩": "2", "四": "4", "八": "8"}
# A list such as `2,4,8卡` counts nothing.
_COUNTED = re.compile(
    rf"(?<![\d.,，、/~和与至-])(?P<number>\d{{1,5}}|[{''.join(_HAN)}])\s?[个個台张張块塊]?\s?"
    r"(?:(?P<node>机器|服务器|节点|節點|主机|机)|(?:显卡|GPU|gpu|卡)(?!\d))"
)
_PER_NODE = re.compile(r"每[个個台]?(?:机器?|服务器|节点|節點)")


def counts_in_english(text: str) -> str:
    """Return a text with Chinese counts of GPUs and nodes in English.

    >>> counts_in_english("\u5355\u673a8\u5361")
    ' 1 nodes with  8 GPUs '
    """
    if text.isascii():
        return text

    def count(found: re.Match[str]) -> str:
        number = _HAN.get(found["number"], found["number"])
        return f" {number} nodes with " if found["node"] else f" {number} GPUs "

    return _PER_NODE.sub(" each node ", _COUNTED.sub(count, text))
