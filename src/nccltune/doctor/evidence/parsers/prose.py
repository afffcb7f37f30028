# SPDX-License-Identifier: Apache-2.0
"""Read what a person writes beside a log: that a job hangs, and how far NCCL's log came; that its
ranks are in containers of one node; that a program works with a setting of NCCL, or without one."""

import re

from nccltune.doctor.facts.log import LogHang, LogWorkaround

_LOGGED = r"NCCL (?:INFO|WARN)|\d\d:\d\d:\d\d|\b(?:ERROR|WARN|INFO)\b"
"""Signs of a line that a program printed."""
_LONGEST = 300
_MOST = 1 << 20

# These words mean a hang only of a program, not of the person who writes or of a table.
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
_NO_HANG = re.compile(
    r"(?:\b(?:no|not|never|without|longer|fix(?:es|ed)?|gone|solved|resolved|avoids?|if)|n['’]t)\b"
    rf"[^:;.]{{0,60}}{_WORD}|\b(?:may|might|can|could)\b.{{0,15}}{_WORD}"
    rf"|--[\w-]{{0,30}}{_WORD}|(?:hang|stuck|stall).{{0,40}}\b(?:gone|fixed|solved)\b"
    # Of the past, or of what somebody asks about.
    rf"|\b(?:would|used to|previously) (?:\w+ )?{_WORD}"
    rf"|\b(?:whether|in case|make sure|ensure|rather than|instead of|what happens (?:when|if))"
    rf" (?:\w+ ){{0,2}}{_WORD}"
    rf"|{_WORD}.*\b(?:now (?:(?:it|this|that|they|everything|(?:the|our|my) \w+) )?"
    r"(?:(?:is|are|all) )?|(?:new|current|latest)(?: [\w.]+){1,2} )(?:works|work|ok(?:ay)?|fine)\b"
    rf"(?! (?:only|with|if|when|on|for)\b)(?!.*{_WORD})",
    re.IGNORECASE,
)
_PRINTED = re.compile(rf"{_LOGGED}|^\s*[\[(<$|]|\w\(\)|^\S+: ")
_MESSAGE = re.compile(r"NCCL INFO (?P<text>.{1,200})")
# How far a rank is that logged such a message last. The first match decides.
_STAGES = (
    (r"Init COMPLETE|Launch mode|opCount|Init timings|AllReduce:|Broadcast:", "after its start"),
    (r" via P2P| via direct pointer", "while GPUs of a node are joined (P2P)"),
    (r" via SHM| via direct shared", "while ranks of a node are joined (shared memory)"),
    (r" via NET|Connected all|NET/", "while nodes are joined (network)"),
    (r"Bootstrap|Using network|cudaDriverVersion|set by env|Init START", "before the ranks met"),
)
_RINGS = "Connected all rings"
_MANY = r"(?:two|2|both|several|multiple|different|separate|each|between|across|four|4|eight|8)"
_BOXES = rf"\b{_MANY} (?:\w+ )?(?:docker|container|pod)s?\b"
_ONE_NODE = r"\b(?:same|one|single) (?:\w+ )?(?:host|node|machine|server|box)\b"
_APART = re.compile(rf"{_BOXES}.{{0,80}}{_ONE_NODE}|{_ONE_NODE}.{{0,80}}{_BOXES}", re.IGNORECASE)
# A negation of the place, not of what works there; a condition; hosts that are compared.
_NOT_APART = re.compile(
    r"(?:\b(?:not|never|no(?: longer)?|nor|cannot|avoid\w*|without|instead of|rather than"
    r"|prevent\w*|forbid\w*|stop\w*)|n['’]t) "
    r"(?:(?:to|be|been|ever|from|yet|we|the|any|all|our|more than) ){0,2}"
    r"(?:(?:run|put|plac|start|launch|schedul|hav|deploy|us|shar|want|need|allow|co-?locat)\w* "
    r"(?:(?:any|the|our|these|more than) )?)?(?:on |in |at )?(?:the )?"
    rf"(?:{_BOXES}|{_ONE_NODE})|\boff (?:the )?{_ONE_NODE}"
    r"|\b(?:if|whether|should|would|(?:can|could|may) (?:I|we|you|one))\b"
    r"|\b(?:on|across|over|between) (?:different|separate|other|two|2|both|several|multiple)"
    r" (?:\w+ )?(?:hosts|nodes|machines|servers|boxes)\b",
    re.IGNORECASE,
)


def described_hang(text: str) -> list[LogHang]:
    """Return the first sentence that describes a hang, at most one, with the end of NCCL's log."""
    messages = list(_MESSAGE.finditer(text, max(0, len(text) - _MOST)))
    if not messages:
        return []
    for line in text[:_MOST].split("\n"):
        # Without the signs of a quotation, a title or a list.
        words = _TITLE.sub("", line[:_LONGEST].lstrip(">#*- \t"))
        if _HANGS.search(words) and not _NO_HANG.search(words) and not _PRINTED.search(words):
            last = messages[-1]["text"].strip()
            stages = (stage for mark, stage in _STAGES if re.search(mark, last))
            stage = next(stages, "during its start")
            if stage != _STAGES[0][1] and any(_RINGS in one["text"] for one in messages):
                stage = "after the rings were connected"
            return [LogHang(text=words.strip(), last=last[:120], stage=stage)]
    return []


def containers_of_a_node(text: str) -> str | None:
    """Return the first words that the ranks are in several containers of one node."""
    lines = (line[:_LONGEST].strip() for line in text[:_MOST].split("\n"))
    found = (x for x in lines if _APART.search(x) and not _PRINTED.search(x))
    return next((x for x in found if not _NOT_APART.search(x)), None)


_SETTING = re.compile(
    r"\b(?P<name>(?:NCCL|GLOO)_[A-Z][A-Z0-9_]{2,60})"
    r"(?:[\"'`]?(?: ?= ?| to )[\"'`]?(?P<value>[\w^=.:,-]{1,80}))?"
)
_WORKS = re.compile(
    r"\b(?:works?|worked|(?:it|this|(?:hang|error|problem|issue|crash|bug|deadlock|failure|timeout)s?)"
    r" (?:(?:can|is|are|was|were|be|been|has|have|now) ){1,3}"
    r"(?:bypassed|avoided)(?! by (?:the|an?)\b)"
    r"|fix(?:es|ed)|solve[sd]|resolve[sd]|succeed(?:s|ed)?"
    r"|pass(?:es|ed)?(?= with\b| when\b| if\b|\W*$)"
    r"|(?:runs?|ran|trains?|starts?|went|goes) (?:fine|well|ok|normally|smoothly|correctly|through"
    r"|without|successfully|at \d+)|goes away|went away|(?:is|was|are) gone|disappear(?:s|ed)"
    r"|no longer (?:hangs?|fails?|crash\w*)|workaround (?:is|was)"
    r"|(?:had|needed) to (?:\w+ )?(?:set|use|add|specify|export))\b",
    re.IGNORECASE,
)
_NOT_WORKS = re.compile(
    r"\?|^\W*(?:does|did|do) (?:it|this|that|the|your|you|any\w*)\b"
    r"|\b(?:not|never|cannot|still|neither|nor|unless|would|will|should|could|might|may"
    r"|can(?! be (?:bypassed|avoided))|please|whether|hope|expect\w*|suppose\w*"
    r"|no (?:effect|luck|difference|change|success)|except)\b"
    r"|n['’]t\b|\b(?:see|check|test|know|try(?:ing)?|wonder\w*) if\b|\bhow\b.{0,40}\bworks?\b"
    r"|\bworks? (?:group|dir|queue|fifo|load|space|item|by|like|only for)"
    r"|\bwithout (?:setting )?NCCL_|\b(?:bypassed|avoided) only\b|\bfor you\b"
    # What fails, or works no longer, and what is mended is the setting's own handling.
    r"|(?<!\bthe )(?<!this )(?<!\bmy )(?<!\bour )(?<!longer )\b(?:fail|hang|hung|crash|freez|stuck)"
    r"|\b(?:until|before|since|slower|worse|fewer|nothing|no (?:job|run|one)|gloo works?|broken?"
    r"|breaks?|stop(?:s|ped)|used to)\b|\b(?:fix|solv|resolv)\w+ [\"'`]?(?:NCCL|GLOO)_"
    r"|\band [\"'`]?(?:NCCL|GLOO)_",
    re.IGNORECASE,
)
_REMOVED = re.compile(
    r"\b(?:remov(?:e|es|ed|ing)|unset(?:ting)?|delet(?:e|ed|ing)|drop(?:ped|ping)?"
    r"|comment(?:ed|ing)? out|tak(?:e|ing) away|took away)\b",
    re.IGNORECASE,
)
_AFTER = re.compile(r"\b(?:after|once|when|if|by)\b", re.I)
_SET = re.compile(r"\b(?:set|setting|specify\w*|specified|defin\w+|add\w*|export\w*)\b", re.I)
_PLAIN = re.compile(r"[01]|LOC|SYS|Socket|IB|none", re.I)
_LISTS = ("_IFNAME", "_HCA", "_GID_INDEX")
_COMMAND = re.compile(
    rf"{_LOGGED}|\bset by environment|^\s*(?:export|set|echo|#|//) "
    r"|^\s*\S{0,80}(?:Error|Exception):"
)
# Clauses: "it works with A but is slow", "I set A, but it still hangs".
_CLAUSE = re.compile(
    r"[;!\n]|\.(?=\s|$)|,? (?:but|however|though|although|otherwise|or else)\b|(?<=\?)"
)


_NO_RDMA = re.compile(
    r"\b(?:(?:has|have|got|is|are|there['’]s) no|lacks?|do(?:es)?(?:n['’]t| not) have(?: any)?)"
    r" (?:RDMA|InfiniBand|IB|RoCE)\b"
    r"(?= (?:at all|cards?|NICs?|devices?|hardware|HCAs?|adapters?|network|fabric|here|in|on)\b"
    r"|\W*(?:$|[.,;:!)]))",
    re.IGNORECASE | re.MULTILINE,
)


def workarounds(text: str) -> list[LogWorkaround]:
    """Return the settings with or without which somebody says that a program works, each once.

    Where the text says that there is no RDMA, settings that avoid it are none.
    """
    found: dict[str, LogWorkaround] = {}
    no_rdma = _NO_RDMA.search(text[:_MOST]) is not None
    for line in text[:_MOST].split("\n"):
        if "_" not in line or not ("NCCL_" in line or "GLOO_" in line) or _COMMAND.search(line):
            continue
        for clause in _CLAUSE.split(line[: 4 * _LONGEST]):
            works = _WORKS.search(clause) if clause else None
            if works is None or _NOT_WORKS.search(clause):
                continue
            matches = list(_SETTING.finditer(clause))
            # Of several, any may be the one that helps, or fail.
            for match in matches if len(matches) == 1 else ():
                before = clause[: match.start()]
                removal = _REMOVED.search(before)
                is_later = removal is not None and works.start() < removal.start()
                if is_later and not _AFTER.search(before, works.end()):
                    continue
                name, value = match["name"], (match["value"] or "").rstrip(".,:")
                if value or removal or _SET.search(before):
                    is_switch = _PLAIN.fullmatch(value) and not name.endswith(_LISTS)
                    key = f"{name}={value}" if is_switch and not removal else name
                    if no_rdma and key.startswith(("NCCL_IB_", "NCCL_NET=", "NCCL_NET_GDR")):
                        continue
                    said = clause.strip(" \t>*-#,`")[:_LONGEST]
                    found.setdefault(
                        key, LogWorkaround(key=key, text=said, removed=removal is not None)
                    )
    return list(found.values())


def has_workaround(data: bytes) -> bool:
    """Return whether a text names a workaround."""
    return b"NCCL_" in data and bool(workarounds(data.decode(errors="replace")))
