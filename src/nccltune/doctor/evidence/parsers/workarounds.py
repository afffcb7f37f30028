# SPDX-License-Identifier: Apache-2.0
"""Find words of a person that a program works with a setting of NCCL, or without one."""

import re

from nccltune.doctor.facts.log import LogWorkaround

_SETTING = re.compile(
    r"\b(?P<name>(?:NCCL|GLOO)_[A-Z][A-Z0-9_]{2,60})"
    r"(?:[\"'`]?(?: ?= ?| to )[\"'`]?(?P<value>[\w^=.:,-]{1,80}))?"
)
_WORKS = re.compile(
    r"\b(?:works?|worked|fix(?:es|ed)|solve[sd]|resolve[sd]|succeed(?:s|ed)?"
    r"|pass(?:es|ed)?(?= with\b| when\b| if\b|\W*$)"
    r"|(?:runs?|ran|trains?|starts?|went|goes) (?:fine|well|ok|normally|smoothly|correctly|through"
    r"|without|successfully|at \d+)|goes away|went away|(?:is|was|are) gone|disappear(?:s|ed)"
    r"|no longer (?:hangs?|fails?|crash\w*)|workaround (?:is|was)"
    r"|(?:had|needed) to (?:\w+ )?(?:set|use|add|specify|export))\b",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\?|^\W*(?:does|did|do) (?:it|this|that|the|your|you|any\w*)\b"
    r"|\b(?:not|never|cannot|still|neither|nor|unless|would|will|should|could|can|might|may|please"
    r"|whether|hope|expect\w*|suppose\w*|no (?:effect|luck|difference|change|success)|except)\b"
    r"|n['’]t\b|\b(?:see|check|test|know|try(?:ing)?|wonder\w*) if\b|\bhow\b.{0,40}\bworks?\b"
    r"|\bworks? (?:group|dir|queue|fifo|load|space|item|by|like|only for)"
    r"|\bwithout (?:setting )?NCCL_"
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
_BY_PROGRAM = re.compile(
    r"NCCL (?:INFO|WARN)|\d\d:\d\d:\d\d|\b(?:ERROR|WARN|INFO)\b|\bset by environment"
    r"|^\s*(?:export|set|echo|#|//) |^\s*\S{0,80}(?:Error|Exception):"
)
# Clauses: "it works with A but is slow", "I set A, but it still hangs".
_CLAUSE = re.compile(
    r"[;!\n]|\.(?=\s|$)|,? (?:but|however|though|although|otherwise|or else)\b|(?<=\?)"
)
_LONGEST = 300
_MOST = 1 << 20


def workarounds(text: str) -> list[LogWorkaround]:
    """Return the settings with or without which somebody says that a program works, each once."""
    found: dict[str, LogWorkaround] = {}
    for line in text[:_MOST].split("\n"):
        if "_" not in line or not ("NCCL_" in line or "GLOO_" in line) or _BY_PROGRAM.search(line):
            continue
        for clause in _CLAUSE.split(line[: 4 * _LONGEST]):
            works = _WORKS.search(clause) if clause else None
            if works is None or _NOT.search(clause):
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
                    said = clause.strip(" \t>*-#,`")[:_LONGEST]
                    found.setdefault(
                        key, LogWorkaround(key=key, text=said, removed=removal is not None)
                    )
    return list(found.values())


def tells_workaround(data: bytes) -> bool:
    """Return whether a text has words of a workaround."""
    return b"NCCL_" in data and bool(workarounds(data.decode(errors="replace")))
