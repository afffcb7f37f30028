# SPDX-License-Identifier: Apache-2.0
"""Find words of a person that a job hangs, and how far NCCL's log beside them came."""

import re

from nccltune.doctor.facts.log import LogHang

# These words tell of a hang only of a program, not of the person who writes or of a table.
_WHO = (
    r"(?:^\W*(?=stall|never)|\b(?:it|this|that|they|job|training|run|rank|process|program|script"
    r"|[NR]CCL|node|GPU|worker|test|call|allreduce|collective|model|everything|command)(?:e?s)?\b"
    r"(?:(?!\b(?:I|we|you)\b)[^.;:!?]){0,40}?\b)"
)
_HANGS = re.compile(
    rf"{_WHO}(?:stall(?:s|ed|ing)?(?=\W*$|[,.;:!)]| (?:at|after|on|in|during|when|for|with|here"
    r"|before|until|once|and|but|forever|indefinitely)\b)"
    r"|never (?:returns?|ends?|completes?|finish(?:es)?)"
    r"|(?:wait|block)s? (?:forever|indefinitely|endlessly)"
    r"|(?:does|do|did)(?: not|n['’]t) "
    r"(?:progress|proceed|continue|complete|finish|move on|go (?:on\b(?=\W*$)|any further)))\b"
    r"|\b(?:(?:hangs?|hanging|hung|stuck|dead ?lock(?:s|ed)?)(?![- ]?(?:free|detect|check|timeout))"
    r"|no (?:further )?progress(?! bar| on)|stops? responding|(?:becomes?|is) unresponsive"
    r"|(?:freezes|frozen) (?:at|after|during|here|in|on|when))\b"
    r"|卡住|卡死|挂起|ハング|固ま|멈(?:춤|춥|췄|추)",
    re.IGNORECASE,
)
_TITLE = re.compile(r"^\[[A-Za-z][A-Za-z /]{2,20}\]:? ?(?=\S)")
"""What titles of issues begin with: [Bug]: and the like, not [rank0]."""
_WORD = r"(?:hang|hung|stuck|stall|free?z|dead ?lock)"
_NOT = re.compile(
    r"(?:\b(?:no|not|never|without|longer|fix(?:es|ed)?|gone|solved|resolved|avoids?|if)|n['’]t)\b"
    rf"[^:;.]{{0,60}}{_WORD}|\b(?:may|might|can|could)\b.{{0,15}}{_WORD}"
    rf"|--[\w-]{{0,30}}{_WORD}|(?:hang|stuck|stall).{{0,40}}\b(?:gone|fixed|solved)\b",
    re.IGNORECASE,
)
_BY_PROGRAM = re.compile(
    r"NCCL (?:INFO|WARN)|^\s*[\[(<$|]|\d\d:\d\d:\d\d|\b(?:WARN|ERROR|INFO)\b|\w\(\)|^\S+: "
)
_MESSAGE = re.compile(r"NCCL INFO (?P<text>.{1,200})")
# How far a rank is that logged such a message last. The first match decides.
_STAGES = (
    (r"Init COMPLETE|Launch mode|opCount|Init timings|AllReduce:|Broadcast:", "after its start"),
    (r" via P2P| via direct pointer", "while GPUs of a node are joined (P2P)"),
    (r" via SHM| via direct shared", "while ranks of a node are joined (shared memory)"),
    (r" via NET|Connected all|NET/", "while nodes are joined (network)"),
    (r"Bootstrap|Using network|cudaDriverVersion|set by environment", "before the ranks met"),
)
_LONGEST = 300
_MOST = 1 << 20


def told_hang(text: str) -> list[LogHang]:
    """Return the first sentence that tells of a hang, at most one, with the end of NCCL's log."""
    messages = list(_MESSAGE.finditer(text, max(0, len(text) - _MOST)))
    if not messages:
        return []
    for line in text[:_MOST].split("\n"):
        # Without the signs of a quotation, a title or a list.
        words = _TITLE.sub("", line[:_LONGEST].lstrip(">#*- \t"))
        if _HANGS.search(words) and not _NOT.search(words) and not _BY_PROGRAM.search(words):
            last = messages[-1]["text"].strip()
            stages = (stage for mark, stage in _STAGES if re.search(mark, last))
            stage = next(stages, "during its start")
            return [LogHang(text=words.strip(), last=last[:120], stage=stage)]
    return []
