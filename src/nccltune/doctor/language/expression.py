# SPDX-License-Identifier: Apache-2.0
"""Compile conditions: a subset of Python's expressions over facts.

An expression may contain:

- facts by name and record fields
- numbers and texts
- comparisons, membership, arithmetic
- and/or/not, `x if c else y`
- comprehensions over lists
- the functions of `functions.py`

Everything else is rejected.

Missing data gives UNKNOWN: a missing fact, field of a record, key or list member. Every operation
on UNKNOWN gives UNKNOWN, with two exceptions: and, or, not, any and all use Kleene's logic, and the
functions `known` and `default` test for UNKNOWN. A list is `Unsure` if its filter could not be
decided for some members. Such a list is true if it has members, else UNKNOWN.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from nccltune.doctor.facts import FactType, catalogue
from nccltune.doctor.language.comprehensions import Loop, collecting, deciding
from nccltune.doctor.language.evaluation import UNKNOWN, Env, Run, Unsure, truth
from nccltune.doctor.language.functions import FUNCTIONS
from nccltune.model.errors import InputError

_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ValueType(NamedTuple):
    """Type of an expression's value, as far as the compiler needs it.

    `record` is the name of a fact if the value is one record of that fact. `records` is the name of
    a fact if the value is a list of records of that fact. `many` is true for the records of a fact
    and for list comprehensions: each member is a separate finding.
    """

    record: str = ""
    records: str = ""
    many: bool = False


class Compiled(NamedTuple):
    """A compiled expression. `needs` names the facts in the expression. `kind` is its type."""

    run: Run
    needs: frozenset[str]
    kind: ValueType


class Scope(NamedTuple):
    """Names that an expression may use besides facts: `variables`, and constant `tables`.

    `pooled` is true for rules about all nodes. Then the records come from all nodes, and the field
    `node` of a record names its node.
    """

    variables: Mapping[str, ValueType] = {}
    tables: Mapping[str, Any] = {}
    pooled: bool = False


def compile_expression(text: str, scope: Scope | None = None) -> Compiled:
    """Return `text` compiled.

    Raises InputError that names what is not allowed or not known.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise InputError(f"not an expression: {error.msg}: {text!r}") from error
    compiler = _Compiler(scope or Scope(), text)
    run, kind = compiler.visit(tree.body, dict(compiler.scope.variables))
    return Compiled(run, frozenset(compiler.needs), kind)


_Variables = dict[str, ValueType]
_Made = tuple[Run, ValueType]
_PLAIN = ValueType()


class _Compiler:
    def __init__(self, scope: Scope, text: str) -> None:
        self.scope = scope
        self.text = text
        self.needs: set[str] = set()

    def bad(self, what: str) -> InputError:
        return InputError(f"{what}: {self.text!r}")

    def visit(self, node: ast.AST, names: _Variables) -> _Made:
        method = _VISITORS.get(type(node))
        if method is None:
            raise self.bad(f"{type(node).__name__} is not allowed in an expression")
        return method(self, node, names)

    def runs(self, nodes: list[ast.expr], names: _Variables) -> list[Run]:
        return [self.visit(node, names)[0] for node in nodes]

    def constant(self, node: ast.Constant, _names: _Variables) -> _Made:
        value = node.value
        return (lambda _env: value), _PLAIN

    def sequence(self, node: ast.List | ast.Tuple, names: _Variables) -> _Made:
        parts = self.runs(node.elts, names)

        def run(env: Env) -> Any:
            values = [part(env) for part in parts]
            return UNKNOWN if UNKNOWN in values else values

        return run, _PLAIN

    def name(self, node: ast.Name, names: _Variables) -> _Made:
        word = node.id
        if word in names:
            return (lambda env: env.names[word]), names[word]
        if word == "table":
            raise self.bad("a table is named as table.NAME")
        return self.fact(word)

    def attribute(self, node: ast.Attribute, names: _Variables) -> _Made:
        dotted = _dotted(node)
        if dotted is not None and dotted.partition(".")[0] not in names:
            if dotted.startswith("table."):
                return self.table(dotted.removeprefix("table."))
            return self.fact(dotted)
        of, kind = self.visit(node.value, names)
        return self.field(of, kind, node.attr), _PLAIN

    def table(self, name: str) -> _Made:
        if name not in self.scope.tables:
            raise self.bad(f"no table is called {name!r}")
        value = self.scope.tables[name]
        return (lambda _env: value), _PLAIN

    def fact(self, name: str) -> _Made:
        known = catalogue().get(name)
        if known is None:
            raise self.bad(f"no fact is called {name!r}")
        is_records = known.type is FactType.RECORDS
        if self.scope.pooled and not is_records:
            raise self.bad(f"{name} is of one node; a rule about all nodes can name records only")
        self.needs.add(name)

        def run(env: Env) -> Any:
            value = env.facts.get(name)
            if value is None:
                env.missing.add(name)
                return UNKNOWN
            return value

        return run, ValueType(records=name, many=True) if is_records else _PLAIN

    def field(self, of: Run, kind: ValueType, field: str) -> Run:
        if not kind.record:
            raise self.bad(f".{field} of something that is no record")
        known = catalogue()[kind.record]
        if known.field(field) is None and not (self.scope.pooled and field == "node"):
            raise self.bad(f"{kind.record} has no field {field!r}")
        missing = f"{kind.record}.{field}"

        def run(env: Env) -> Any:
            record = of(env)
            if record is UNKNOWN:
                return UNKNOWN
            value = record.get(field)
            if value is None:
                env.missing.add(missing)
                return UNKNOWN
            return value

        return run

    def compare(self, node: ast.Compare, names: _Variables) -> _Made:
        first = self.visit(node.left, names)[0]
        rest = []
        for op, right in zip(node.ops, node.comparators, strict=True):
            function = _COMPARE.get(type(op))
            if function is None:
                raise self.bad(f"{type(op).__name__} is not allowed; compare with == or !=")
            rest.append((function, self.visit(right, names)[0]))

        def run(env: Env) -> Any:
            left = first(env)
            for function, part in rest:
                right = part(env)
                if left is UNKNOWN or right is UNKNOWN:
                    return UNKNOWN
                if not function(left, right):
                    return False
                left = right
            return True

        return run, _PLAIN

    def logic(self, node: ast.BoolOp, names: _Variables) -> _Made:
        parts = self.runs(node.values, names)
        # `and` ends at the first False, `or` at the first True. Otherwise one UNKNOWN gives
        # UNKNOWN.
        ends = isinstance(node.op, ast.Or)

        def run(env: Env) -> Any:
            found: Any = not ends
            for part in parts:
                value = truth(part(env))
                if value is UNKNOWN:
                    found = UNKNOWN
                elif value is ends:
                    return ends
            return found

        return run, _PLAIN

    def unary(self, node: ast.UnaryOp, names: _Variables) -> _Made:
        part = self.visit(node.operand, names)[0]
        if isinstance(node.op, ast.Not):

            def negated(env: Env) -> Any:
                value = truth(part(env))
                return UNKNOWN if value is UNKNOWN else not value

            return negated, _PLAIN
        if not isinstance(node.op, ast.USub):
            raise self.bad(f"{type(node.op).__name__} is not allowed in an expression")

        def minus(env: Env) -> Any:
            value = part(env)
            return UNKNOWN if value is UNKNOWN else -value

        return minus, _PLAIN

    def arithmetic(self, node: ast.BinOp, names: _Variables) -> _Made:
        function = _ARITHMETIC.get(type(node.op))
        if function is None:
            raise self.bad(f"{type(node.op).__name__} is not allowed in an expression")
        left, kind = self.visit(node.left, names)
        right, other = self.visit(node.right, names)
        lists = isinstance(node.op, ast.Add)

        def run(env: Env) -> Any:
            a, b = left(env), right(env)
            if a is UNKNOWN or b is UNKNOWN:
                return UNKNOWN
            if lists and isinstance(a, list) and isinstance(b, list):
                unsure = isinstance(a, Unsure) or isinstance(b, Unsure)
                return Unsure(a + b) if unsure else a + b
            if not isinstance(a, int | float) or not isinstance(b, int | float):
                raise TypeError("arithmetic is for numbers")
            try:
                return function(a, b)
            except ArithmeticError:
                return UNKNOWN

        return run, kind if lists and kind == other else _PLAIN

    def choice(self, node: ast.IfExp, names: _Variables) -> _Made:
        test = self.visit(node.test, names)[0]
        yes, kind = self.visit(node.body, names)
        no, other = self.visit(node.orelse, names)

        def run(env: Env) -> Any:
            decided = truth(test(env))
            if decided is UNKNOWN:
                return UNKNOWN
            return yes(env) if decided else no(env)

        return run, kind if kind == other else _PLAIN

    def subscript(self, node: ast.Subscript, names: _Variables) -> _Made:
        of, kind = self.visit(node.value, names)
        key = self.visit(node.slice, names)[0]
        missing = ast.unparse(node)

        def run(env: Env) -> Any:
            value, at = of(env), key(env)
            if value is UNKNOWN or at is UNKNOWN:
                return UNKNOWN
            try:
                return value[at]
            except (KeyError, IndexError):
                env.missing.add(missing)
                return UNKNOWN

        return run, ValueType(record=kind.records)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp, names: _Variables) -> _Made:
        loops, element, kind = self.loops(node, names)
        many = isinstance(node, ast.ListComp)
        return collecting(loops, element), ValueType(records=kind.record, many=many)

    def loops(
        self, node: ast.ListComp | ast.GeneratorExp, names: _Variables
    ) -> tuple[list[Loop], Run, ValueType]:
        inner = dict(names)
        loops: list[Loop] = []
        for generator in node.generators:
            if not isinstance(generator.target, ast.Name) or generator.is_async:
                raise self.bad("a comprehension has one plain variable")
            over, kind = self.visit(generator.iter, inner)
            variable = generator.target.id
            if variable in inner or variable in catalogue():
                raise self.bad(f"the variable {variable!r} is taken")
            inner[variable] = ValueType(record=kind.records)
            loops.append(Loop(variable, over, self.runs(generator.ifs, inner)))
        element, kind = self.visit(node.elt, inner)
        return loops, element, kind

    def call(self, node: ast.Call, names: _Variables) -> _Made:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.bad("only the functions of the language can be called, without keywords")
        function = FUNCTIONS.get(node.func.id)
        if function is None:
            raise self.bad(f"no function is called {node.func.id!r}")
        if node.func.id in ("any", "all") and len(node.args) == 1:
            (argument,) = node.args
            if isinstance(argument, ast.GeneratorExp):
                loops, element, _ = self.loops(argument, names)
                return deciding(loops, element, node.func.id == "any"), _PLAIN
        made = [self.visit(argument, names) for argument in node.args]
        constants = [
            argument.value if isinstance(argument, ast.Constant) else None for argument in node.args
        ]
        try:
            run = function.make([run for run, _ in made], constants)
        except ValueError as error:
            raise self.bad(f"{node.func.id}: {error}") from error
        self.needs.update(function.needs)
        return run, made[0][1] if function.keeps_kind and made else _PLAIN


def _dotted(node: ast.AST) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


_VISITORS: Final[dict[type[ast.AST], Callable[[_Compiler, Any, _Variables], _Made]]] = {
    ast.Constant: _Compiler.constant,
    ast.List: _Compiler.sequence,
    ast.Tuple: _Compiler.sequence,
    ast.Name: _Compiler.name,
    ast.Attribute: _Compiler.attribute,
    ast.Compare: _Compiler.compare,
    ast.BoolOp: _Compiler.logic,
    ast.UnaryOp: _Compiler.unary,
    ast.BinOp: _Compiler.arithmetic,
    ast.IfExp: _Compiler.choice,
    ast.Subscript: _Compiler.subscript,
    ast.ListComp: _Compiler.comprehension,
    ast.GeneratorExp: _Compiler.comprehension,
    ast.Call: _Compiler.call,
}
