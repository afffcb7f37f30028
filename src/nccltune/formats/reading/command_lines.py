# SPDX-License-Identifier: Apache-2.0
"""Read settings and options from command lines, shell traces and echoed settings in a text.

Forms that are read:

- assignments: `-x NCCL_ALGO=Tree`, `env`, `--export=ALL,NCCL_ALGO=Tree`
- forms of hydra and csh: `-genv NCCL_ALGO Tree`, `setenv NCCL_ALGO Tree`
- `export` and `unset`
- the options after the name of an nccl-tests program
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from nccltune.formats.reading.collective_names import collective_of_program, collective_of_title
from nccltune.formats.reading.command_scale import LAUNCHER, nodes_of, ranks_of
from nccltune.formats.reading.file_names import file_names
from nccltune.formats.reading.foreign_names import counts_in_english
from nccltune.formats.reading.named_version import MOST_PROSE, TITLE, VERSION
from nccltune.formats.reading.titles import CHOICE, LEVEL, OF_DEFAULT, forced_by
from nccltune.formats.text.redact import keep_setting
from nccltune.model.collective import Collective

_PRELOAD = "LD_PRELOAD"
_PLUGIN_FILE = ("NCCL_TUNER_CONFIG_FILE", "NCCLTUNE_CONFIG")
_ASSIGNMENT = re.compile(
    r"(?P<lead>(?:-g?env|setenv|--env)\s{1,8})?"
    r"(?<![\w$])(?P<name>[NR]CCL_[A-Z0-9_]{1,80}|NCCLTUNE_CONFIG|LD_PRELOAD)"
    r"(?:\s{0,3}[=:]\s{0,3}|(?(lead)\s{1,8}|(?!)))"
    r"(?:\"(?P<double>[^\"]{0,400})\"|'(?P<single>[^']{0,400})'"
    r"|(?P<bare>(?:(?!,\w+=)[^\s\"'`;)\]]){0,400}))"
)
# Headings of scripts between tables, such as `### ALGO=Ring size=1G`.
_SHORT = re.compile(
    r"(?<![\w.$-])(?P<name>ALGO|PROTO)(?:RITHM|COL)?\s?[=:]\s?"
    r"(?=ring|tree|coll|nvls|pat|ll|simple|all|reduce|broad)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:#{1,6}|[=*-]{2,8}|>{1,3}|\[)?\s?\w")
_UNSET = re.compile(r"\bunset(?:env)?\b(?P<names>[^;|&]{0,200})")
_PASSED = re.compile(r"(?:^|[\s`'\"])(?:-x|-genv|--env|-e)\s{1,4}NCCL_(?:ALGO|PROTO)=")
# A sentence such as "When I set NCCL_ALGO=Tree I get:".
_STATED = re.compile(
    r"\b(?:set(?:ting)?|with|us(?:e|ing)|forc(?:e|ing)) {1,4}[`'\"]?NCCL_(?:ALGO|PROTO)=", re.I
)
# Behind a prompt, too.
_PERSISTENT = re.compile(
    r"(?:\S{1,80}[$#%>] ?|\W{0,8})(?:export|setenv|declare -x|typeset -x|set -gx)\s"
)
_PROGRAM = re.compile(
    r"(?:^|[\s/;&|'\"`(\[])(?P<program>[a-z_]{3,20}_perf)(?:_\w{1,20})?(?=[\s'\"`;]|$)"
)
# mpirun starts several parts: `-np 1 A : -np 1 B`.
_PARTS = re.compile(r"\s:\s+-(?:np?|-np)\s")
_NODE_WORDS = ["", "single", "two", "three", "four", "five", "six", "seven", "eight"]
_NODE = (
    "(?:节点|節點|ノード|노드"
    r"|(?:knoten|n(?:\u0153|oe)uds?|nodos?|\u0443\u0437\u043b(?:\u0430|\u043e\u0432))\b)"
)
# A heading such as `### Two Nodes`, or a line that begins with the number.
_OF_NODES = re.compile(
    r"(?P<mark>#{1,6}\s|[=*-]{2,})?(?(mark).{0,120}?|)(?<![\w.-])"
    rf"(?P<nodes>one|{'|'.join(_NODE_WORDS[1:])}|\d{{1,4}})(?:[ -]nodes?\b|\s?{_NODE})",
    re.IGNORECASE,
)
# With words between, a singular is one of that many GPUs (`an 8 H100 server`), except after one.
_OF_HOSTS = (
    r"(?:(?:(?<=\d)|[ -])(?:node|host|instance|machine|server)s?"
    r"|(?:(?<=\bone)|(?<=\bsingle)|(?<=\b1)) (?!(?:\w+ )?(?:each|per|a|the)\b)"
    r"(?:[\w.-]{1,24} ){1,2}(?:node|host|instance|machine|server)"
    r"|[ -](?:(?!(?:gpus?|ranks?|each|per|every|in|of|and|an?|the|this|one)\b)[\w.-]{1,24} ){1,2}"
    r"(?:nodes|hosts|instances|machines|servers)"
    r"|(?: ?x)?[ -](?:nvidia )?(?:[dh]gx|p[3-6][a-z]{0,3}(?:\.\d{1,2}xlarge)?(?=[ ,.:]|$)))\b"
)
_COUNTED = re.compile(
    rf"\b(?P<nodes>one|{'|'.join(_NODE_WORDS[1:])}|\d{{1,4}})(?:{_OF_HOSTS}|\s?{_NODE})",
    re.IGNORECASE,
)
# A sentence about a test: `all_reduce_perf between 2 hosts`, `nccl-tests on two p4d instances`.
_TESTED_ON = re.compile(
    r".{0,120}?(?:\b(?:on|in|between|across|with|using|for|have"
    r"|(?:outputs?|results?|tests?|runs?) of)"
    r" (?:an? )?|\()"
    rf"(?P<nodes>one|{'|'.join(_NODE_WORDS[1:])}|\d{{1,4}}){_OF_HOSTS}",
    re.IGNORECASE,
)
_TEST = re.compile(
    r"\b(?:tests?|testing|tested|run|runs|running|ran|bench\w*|results?|bus ?bw)\b|_perf\b",
    re.IGNORECASE,
)
_MACHINE_WORD = re.compile(
    r"(?<![a-z])(?:node|host|instance|machine|server|[dh]gx|p[3-6][a-z]{0,3}\b)", re.IGNORECASE
)
# A paragraph that compares a setting may be about another table than the next one.
_COMPARES = re.compile(
    r"\b(?:default|instead|versus|vs|compar\w+|than|without|unset|both|either|or|but)\b",
    re.IGNORECASE,
)
# Such a sentence may be about another run than the table below it.
_CONTRAST = re.compile(
    r"\b(?:but|however|while|multi\w*|fine|ok|okay|works?|worked|expected?)\b", re.IGNORECASE
)
_LONGEST_TITLE = 160
_FIRST_SENTENCE = re.compile(r".*?(?:[.](?= [A-Z])|$)")
# A line such as `alltoall result` is a title, too.
_MOST_TITLE_WORDS = 4
# A script around nccl-tests that is named for its test, or is given it: `run.sh -t all_gather`.
_WRAPPER = re.compile(r"(?:^|[\s/])[\w.-]{1,60}\.(?:sh|py|sbatch|slurm)(?=\s|$)(?:\s.{0,300})?$")
# Titles of scripts, such as `[sweep] NP=8 NNODES=2`.
_NODES_SET = re.compile(
    r"(?<![\w.-])(?:n|num_?)?nodes\s?[=:]\s?(?P<nodes>\d{1,5})\b", re.IGNORECASE
)
_WORLD = re.compile(
    r"(?:(?<![\w-])(?:NP|TP)(?==\d)|world[ _-]?size|(?:total|number of) (?:ranks|gpus)|nranks)"
    r"\W{1,8}(?P<ranks>\d{1,6})\b",
    re.IGNORECASE,
)
_EACH = r"\s{0,2}(?:gpus?|ranks?|(?:nvidia |amd )?(?:[ABHVLTP]\d{1,3}|GB\d00|GH200|MI\d{3}|RTX))"
_OF_RANKS = re.compile(
    rf"(?<![\w.-])(?P<ranks>\d{{1,5}})\s?[x\u00d7]?{_EACH}(?!\w*\s(?:node|host|server|machine|system))",
    re.IGNORECASE,
)
# A program of PyTorch: `torchrun --nproc_per_node 8 --nnodes 2 bench.py`.
_TORCHRUN = re.compile(r"\s--?nproc[-_]per[-_]node[ =](\d{1,3})\b")
_TORCHRUN_NODES = re.compile(r"\s--?nnodes[ =](\d{1,5})(?![\d:])")
_PRODUCT = re.compile(
    rf"\b(?P<nodes>\d{{1,4}})[ -]?nodes?\s?[x\u00d7*]\s?(\d{{1,2}}){_EACH}", re.IGNORECASE
)
# `2 nodes with 8 GPUs` are 16, `2 nodes, 16 GPUs` and `16 GPUs on 2 nodes` are not 32.
_OF_EACH = re.compile(r"\b(?:with|of|having|x)\s\d|[x\u00d7*(/]\s?\d", re.IGNORECASE)
_EACH_NODE = re.compile(
    r"\b(?:per|each|every|a) node\b|/\s?node|(?<=[^\W_]) each(?=\W|$)(?! of\b)", re.IGNORECASE
)
_ON_EACH = re.compile(r"\b(?:per|each|every) node\b", re.IGNORECASE)
_MACHINES = (
    re.compile(
        r"\b(?:GB[23]00|GH200|[BH][123]00|H800|H20|A[138]00|A800|V100|P100|L40S?|L4|T4|A[134]0G?"
        r"|MI\d{3}X?|A[456]\d00|RTX ?\w{0,4} ?\d{4}(?: ?Ti)?)(?![A-Za-z])",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:p[3-6][a-z]{0,3}\.\d{0,2}xlarge|p4de?|p5en?|a[34][ -](?:high|mega|ultra)(?:gpu)?"
        r"|BM\.GPU[.\w]+|ND\w{0,16}_v\d)\b",
        re.IGNORECASE,
    ),
)
# Cards have other links than the usual board of their model.
_CARD = re.compile(r"\d[ -](?:\d{2,3} ?GB[ -])?(PCIe|NVL)\b", re.IGNORECASE)
# A line with nothing but a GPU, such as `H100 PCIe`, is a title, too.
_ONLY_MACHINE = re.compile(
    r"(?:\d{1,3} ?x )?(?:NVIDIA |AMD )?[A-Z]{1,3}\d{2,4}X?"
    r"(?:[ -](?:PCIe|SXM\d?|NVL\d{0,2}|\d{2,3} ?GB|HBM\d\w?))*",
    re.IGNORECASE,
)
_OF_VERSION = re.compile(rf"(?<![\w.])[NR]CCL[ =:-]{{1,2}}v?({VERSION})(?![\w.]*\d)", re.IGNORECASE)
_ONLY_VERSION = re.compile(
    rf"(?:#{{1,6}} |\*\*)?(?:[NR]CCL )?v?({VERSION})(?:\*\*)?:?", re.IGNORECASE
)
_IN_BRACKETS = re.compile(r"\((?:\s*NCCL_[A-Z_]+=[^\s,)]+,?)+\)")
_ASSIGNED = re.compile(r"[A-Za-z_]\w{0,80}=")
_BEFORE_ASSIGNMENTS = frozenset({"+", "++", "$", ">", "-x", "-e", "env", "export", "\\"})
_MOST_WORDS = 256
# A line of a printed script, such as `#export NCCL_ALGO=Ring`. With a blank, `#` may be a prompt.
_COMMENTED_OUT = re.compile(r"#{1,8}(?!SBATCH|PBS|BSUB)[A-Za-z]")
_ECHO = re.compile(r"[+$>\s]{0,8}(?:echo|printf)\s")
_END_OF_COMMAND = re.compile(r"[|;&>'\"`]|\s#")
_MOST_CHARACTERS = 1 << 16
_MOST_ARGUMENTS = 256


class CommandFound(NamedTuple):
    """The settings of a run in a command line, the number of that line, its ranks and nodes.

    - `unknown`: the settings that force a choice are unknown. Either they were set for an earlier
      run of the file, or a value is a shell variable.
    - `settings`: the other settings that may be stored; None if no line shows which ones the run
      had.
    - `preloaded`: the names of the files in `LD_PRELOAD`.
    - `tuner`: the value of NCCL_TUNER_PLUGIN. `configured`: a configuration of a tuner is set.
    - `arguments`: the words after the program's name. `collective`: what the program measures.
    - `titled`: the number of nodes in a heading, and the line of that. `worded`: the number of
      ranks in a line such as `World Size: 8`.
    - `headed`: the number of ranks in a heading; `each`: that of each node. `machine`: the GPU or
      kind of machine in one. `nccl`: the version of NCCL in one.
    - `earlier`: the ranks that the last command started, if an earlier table is between.
    - `elsewhere`: a setting that forces a choice under another heading, and its line.
    - `forced`: a command or a list of settings has the settings that force a choice, not a title.
    - `stated`: a sentence names the variable as set, such as `When I set NCCL_ALGO=Tree`.
    - `by_title`: a title names the choice by its words alone, `### Ring`.
    """

    algorithms: str | None
    protocols: str | None
    line: int
    unknown: bool = False
    ranks: int | None = None
    nodes: int | None = None
    settings: dict[str, str] | None = None
    preloaded: tuple[str, ...] = ()
    tuner: str | None = None
    configured: bool = False
    arguments: tuple[str, ...] = ()
    collective: Collective | None = None
    forced: bool = False
    stated: bool = False
    by_title: bool = False
    titled: tuple[int, int, int] | None = None
    worded: int | None = None
    headed: int | None = None
    each: int | None = None
    machine: str | None = None
    nccl: str | None = None
    earlier: int | None = None
    elsewhere: tuple[int, str] | None = None

    @property
    def limits(self) -> dict[str, str]:
        """Return NCCL_ALGO and NCCL_PROTO, without those that are not set."""
        values = zip(CHOICE, (self.algorithms, self.protocols), strict=True)
        return {name: value for name, value in values if value and not self.unknown}


class CommandLines:
    """The settings in force at the current line of one text."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Begin with the settings of `environment`, if that is known."""
        self._exported = dict(environment or {})
        self._block: dict[str, str] = {}
        self._line = 0
        self._used = False
        self._ranks: int | None = None
        self._nodes: int | None = None
        self._begun = ""
        self._arguments: tuple[str, ...] = ()
        self._collective: Collective | None = None
        self._commands = 0
        self._ambiguous = False
        self._forced = self._stated = self._by_title = False
        self._lines: dict[str, int] = {}
        self._elsewhere: tuple[int, str] | None = None
        self._block_level = self._section = 0
        self._scopes: dict[str, int] = {}
        self._titled: tuple[int, int, int] | None = None
        self._named: Collective | None = None
        self._level = self._named_level = 0
        self._worded: int | None = None
        self._fenced = False
        self._headed: int | None = None
        self._each: int | None = None
        self._machine: str | None = None
        self._machine_level = 0
        self._version: str | None = None
        self._version_level = 0
        self._last = 0
        self._paragraph: list[str] = []
        self._prose: list[str] = []

    def _note_title(self, text: str, number: int, *, heads: bool) -> None:
        """Keep the nodes and the collective that a heading names, until one of its level.

        `heads`: the line is directly above a table, so it is a title without a mark.
        """
        if number != self._last + 1 or text[:1] in "#|`":
            self._paragraph = []
        self._last = number
        self._paragraph.append(text[:MOST_PROSE])
        text = " ".join(counts_in_english(text).split())
        mark = LEVEL.match(text)
        level = len(mark[0]) if mark is not None else 0
        if level:
            self._end_section(level)
            self._headed = self._each = None
            self._titled = None if level <= self._level else self._titled
            self._named = None if level <= self._named_level else self._named
            self._machine = None if level <= self._machine_level else self._machine
        ends = self._used and self._version is not None and level <= self._version_level
        if ends and (level or (text[:1] != "#" and re.search(r"[A-Za-z]{2}", text))):
            # Words below a table begin another run, as `After:`.
            self._version = None
        self._fenced ^= text.startswith("```")
        if "nproc" in text and (each := _TORCHRUN.search(text)) is not None:
            several = _TORCHRUN_NODES.search(text)
            self._worded = int(each[1]) * (int(several[1]) if several else 1) or None
            self._titled = (int(several[1]), number, 0) if several and int(several[1]) else None
        if "." in text and (script := _WRAPPER.search(text)) is not None:
            self._named = collective_of_title(script[0]) or self._named
        if len(text) > _LONGEST_TITLE:
            text = _FIRST_SENTENCE.match(text)[0]  # type: ignore[index]
        if not text or len(text) > _LONGEST_TITLE or (self._fenced and text.startswith("# ")):
            return
        is_title = heads or TITLE.match(text) is not None or text.endswith((":", "："))
        self._note_version(text, level, is_title=is_title)
        short = len(text.split()) < _MOST_TITLE_WORDS and _TEST.search(text) is not None
        if (is_title or short) and (named := collective_of_title(text)) is not None:
            self._named, self._named_level = named, level
        if is_title or _ONLY_MACHINE.fullmatch(text):
            self._note_machine(text, level)
        self._note_scale(text, number, level, is_title=is_title, heads=heads)

    def _note_scale(
        self, text: str, number: int, level: int, *, is_title: bool, heads: bool
    ) -> None:
        """Keep the nodes and ranks that a title or a sentence about a test names."""
        if (world := _WORLD.search(text)) is not None:
            self._worded = int(world["ranks"]) or None
        if (said := _NODES_SET.search(text)) is not None and "," not in text[: said.start()]:
            self._titled, self._level = (int(said["nodes"]) or 1, number, 0), level
            return
        found = _OF_NODES.match(text)
        if found is None and (heads or level) and not _CONTRAST.search(text):
            found = _COUNTED.search(text)
        matches = _OF_RANKS.finditer(text) if is_title else ()
        ranks = {int(match["ranks"]) for match in matches}
        beside = min(ranks, default=0) if len(ranks) == 1 else 0
        nodes = _number_of(found["nodes"]) if found is not None else 1
        after = text[found.end("nodes") :] if found is not None else text
        each_node = _EACH_NODE.search(text) is not None
        plain = is_title or not (self._fenced or _CONTRAST.search(text))
        product = _PRODUCT.search(text) if plain else None
        if product is not None:
            self._headed, self._each = int(product[1]) * int(product[2]) or None, int(product[2])
        elif len(ranks) == 1 and not each_node and _are_all(after, nodes):
            self._headed, self._each = ranks.pop() or None, None
        elif is_title and (self._used or each_node) and not _ASSIGNMENT.search(text):
            self._headed = None
            self._each = ranks.pop() if len(ranks) == 1 and each_node else None
        machines = _MACHINE_WORD.search(text) is not None
        tested = machines and (text.endswith(":") or _TEST.search(text) is not None)
        if found is None and tested and not (self._fenced or _CONTRAST.search(text)):
            found = _TESTED_ON.match(text)
        found = found or product
        if found is None or len(set(_COUNTED.findall(text.lower()))) > 1:
            alone = machines and not _ON_EACH.search(text)
            if alone and self._used and not self._level:
                self._titled = None
            return
        nodes = _number_of(found["nodes"])
        self._titled = (nodes, number, beside) if nodes else None
        self._level = level

    def _end_section(self, level: int) -> None:
        """End what an earlier section of a document forced: a heading begins another one."""
        self._end_choice(self._exported)
        self._section = level
        for name in [name for name, scope in self._scopes.items() if level <= scope]:
            # Without a table in its section, a setting is for the sections that follow.
            self._scopes[name] = level - 1
            if self._used:
                del self._scopes[name]
                self._exported.pop(name, None)
        if 0 < level <= self._block_level:
            for name in CHOICE:
                self._block.pop(name, None)
        elif not (self._commands or self._block_level):
            self._end_choice(self._block)

    def _end_choice(self, settings: dict[str, str]) -> None:
        """Remove the settings for a choice, which may be those of another run; keep where."""
        for name in CHOICE:
            if name in settings and name in self._lines:
                self._elsewhere = (self._lines[name], f"{name}={settings.pop(name)}")

    def _note_version(self, text: str, level: int, *, is_title: bool) -> None:
        """Keep the only version of NCCL that a title names."""
        match = _ONLY_VERSION.fullmatch(text) or (_OF_VERSION.search(text) if is_title else None)
        if match is not None:
            several = len(set(re.findall(VERSION, text))) > 1
            self._version, self._version_level = None if several else match[1], level

    def _note_machine(self, text: str, level: int) -> None:
        """Keep the only kind of machine that a heading names."""
        for pattern in _MACHINES:
            names = {name.upper().replace(" ", "") for name in pattern.findall(text)}
            if names:
                card = " ".join({name.upper() for name in _CARD.findall(text)})
                self._machine = f"{names.pop()} {card}".strip() if len(names) == 1 else None
                self._machine_level = level
                return

    def observe(self, text: str, number: int, *, heads: bool = False) -> bool:
        """Process a line that is neither a log line nor a table row; `heads` a table directly.

        Return whether it has a setting or starts a program.
        """
        if "Collective test " in text or _COMMENTED_OUT.match(text) is not None:
            return False
        # A command that continues in the next line is processed as a whole at its end.
        if text.rstrip().endswith("\\"):
            if len(self._begun) < _MOST_CHARACTERS:
                self._begun += text.rstrip()[:-1] + " "
            return False
        text, self._begun = (self._begun + text)[:_MOST_CHARACTERS], ""
        self._note_title(text, number, heads=heads)
        named = ""
        if _HEADING.match(text) or text.startswith("//"):
            text = _SHORT.sub(lambda found: f"NCCL_{found['name'].upper()}=", text)
            if "NCCL_" not in text and OF_DEFAULT.match(text):
                # What a title or another heading named holds no longer.
                for name in CHOICE:
                    self._block.pop(name, None)
            text += (named := forced_by(text))
        if not any(mark in text for mark in ("_perf", "NCCL", "RCCL_", _PRELOAD)):
            return False
        unset = _UNSET.search(text)
        removed = re.findall(r"\w+", unset["names"]) if unset is not None else []
        program = _program(text)
        found = {} if removed else _assignments(text, program is not None)
        if not (removed or found or program):
            return False
        mark = LEVEL.match(text)
        level = len(mark[0]) if mark is not None else 0
        # `NCCL_CROSS_NIC=1` after a run with `NCCL_CROSS_NIC=0` changes that of its command.
        changes = program is None and self._commands == 1 and found.keys() <= self._block.keys()
        if self._used and not (found and changes):
            self._block, self._ranks, self._nodes = {}, None, None
            self._arguments, self._commands, self._ambiguous = (), 0, False
        self._used = False
        if program is not None:
            self._note_program(text, program, found)
        for name in removed:
            self._exported.pop(name, None)
            self._block.pop(name, None)
        none = found.keys().isdisjoint(CHOICE)
        self._by_title = self._by_title if none else bool(named)
        self._forced = (
            self._forced
            if none
            else (
                program is not None
                or bool(named)
                or _only_assigns(bare := text.strip("#=*->[] "))
                or _PERSISTENT.match(bare) is not None
                or (text.startswith(("#", "//")) and _IN_BRACKETS.search(text) is not None)
                or _PASSED.search(text) is not None
            )
        )
        self._stated = self._stated if none else _STATED.search(text) is not None
        self._prose = self._prose if none else [] if self._forced else self._paragraph
        self._lines.update(dict.fromkeys(found, number))
        self._block_level = level if found else self._block_level
        lasting = _PERSISTENT.match(text) is not None and program is None
        (self._exported if lasting else self._block).update(found)
        self._scopes.update(dict.fromkeys(found if lasting else (), self._section))
        if found or self._commands:
            self._line = number
        return True

    def _note_program(self, text: str, program: re.Match[str], found: dict[str, str]) -> None:
        options = _END_OF_COMMAND.split(text[program.end() :], maxsplit=1)[0]
        parts = _PARTS.search(text) is not None
        self._ranks = None if parts else ranks_of(text[: program.start() + 1], options)
        self._nodes = None if parts else nodes_of(text[: program.start()])
        arguments = tuple(options.split())
        # With `set -x`, each process may repeat its part of the command. Other commands without a
        # table between them leave open which one the table is of.
        others = self._commands and (
            arguments != self._arguments
            or any(self._block.get(name, value) != value for name, value in found.items())
        )
        self._ambiguous = self._ambiguous or bool(others)
        self._commands += 1
        self._arguments = arguments[:_MOST_ARGUMENTS]
        self._collective = collective_of_program(program["program"])

    def begin_run(self, *, again: bool) -> CommandFound | None:
        """Return the settings and the number of ranks of the run whose header starts now.

        None if no command line and no setting was seen.

        `again` means that an earlier run of the text has ended. Settings that are not exported
        apply to the next run only. Whether they apply to a later run is unknown.
        """
        if len(self._prose) > 1 and _COMPARES.search(" ".join(self._prose)):
            self._end_choice(self._block)  # the next table may be of another run
        self._prose = []
        stale = again and self._used and bool(self._block)
        ranks = None if again and self._used else self._ranks
        self._used = True
        values = {**self._exported, **self._block}
        values = {name: value for name, value in values.items() if value}
        algorithms, protocols = (values.get(name) for name in CHOICE)
        choice = [value for value in (algorithms, protocols) if value]
        title = CommandFound(None, None, self._line, titled=self._titled, machine=self._machine)
        title = title._replace(nccl=self._version, elsewhere=self._elsewhere, each=self._each)
        title = title._replace(collective=self._named, worded=self._worded, headed=self._headed)
        if not (values or self._commands):
            return title if any(title[3:]) else None
        known = not (stale or self._ambiguous)
        line = max((self._lines.get(name, 0) for name in CHOICE if name in values), default=0)
        return title._replace(
            algorithms=algorithms,
            protocols=protocols,
            line=line or self._line,
            unknown=bool(choice) and (stale or any("$" in value for value in choice)),
            ranks=ranks,
            nodes=self._nodes if known and not (again and ranks is None) else None,
            settings=_kept(values) if known else None,
            preloaded=file_names(values.get(_PRELOAD, "")),
            tuner=values.get("NCCL_TUNER_PLUGIN"),
            configured=any(name in values for name in _PLUGIN_FILE),
            arguments=() if self._ambiguous else self._arguments,
            collective=None if self._ambiguous else self._collective or self._named,
            forced=self._forced,
            stated=self._stated,
            by_title=self._by_title,
            earlier=self._ranks if ranks is None and not self._ambiguous else None,
        )


def _number_of(word: str) -> int:
    """Return the number of nodes that a word names."""
    word = word.lower().replace("one", "single")
    return int(word) if word.isdecimal() else _NODE_WORDS.index(word)


def _are_all(text: str, nodes: int) -> bool:
    """Return whether the ranks in a title are those of all its nodes."""
    return nodes == 1 or _OF_EACH.search(text) is None


def _program(text: str) -> re.Match[str] | None:
    """Return the nccl-tests program that a line starts; None if a line only names one."""
    match = _PROGRAM.search(text)
    if match is None:
        return None
    before, after = text[: match.start("program")], text[match.end() :]
    starts = before.endswith("/") or after.lstrip("'\"").startswith(" -")
    return match if starts or LAUNCHER.search(before) is not None else None


def _assignments(text: str, has_program: bool) -> dict[str, str]:
    """Return the value of each setting that a line assigns; the last one counts, as in a shell.

    In a line that is no command, only NCCL_ALGO and NCCL_PROTO are read: prose may name settings
    that were not made.
    """
    command = has_program or _only_assigns(text)
    command = command or (not text.startswith("#") and _PERSISTENT.match(text) is not None)
    command = command or (text[:1] == "#" and _IN_BRACKETS.search(text) is not None)
    command = (command or LAUNCHER.search(text) is not None) and _ECHO.match(text) is None
    found: dict[str, str] = {}
    for match in _ASSIGNMENT.finditer(text):
        name = match["name"]
        if name in CHOICE or command:
            value = match["double"] or match["single"] or match["bare"] or ""
            value = value.strip().rstrip(",;:)]}.`")
            if not command and found.get(name, value) != value:
                return {}  # prose that lists the values of several runs
            found[name] = value
    return found


def _only_assigns(text: str) -> bool:
    """Return whether a line has only assignments, as `env | grep NCCL` or `set -x` print them."""
    words = [word for word in text.split(maxsplit=_MOST_WORDS) if word not in _BEFORE_ASSIGNMENTS]
    return 0 < len(words) < _MOST_WORDS and all(map(_ASSIGNED.match, words))


def _kept(values: dict[str, str]) -> dict[str, str]:
    """Return the settings that may be stored, without those that force a choice."""
    kept = {
        name: keep_setting(name, value)
        for name, value in values.items()
        if name not in CHOICE and "$" not in value
    }
    return {name: value for name, value in kept.items() if value is not None}
