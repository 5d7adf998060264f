"""The mutants of a source: each is one small change of one expression or statement.

Messages, annotations, decorators and `__all__` are left as they are: people read what they say.
So are `strict=True` of zip, which states what holds anyway, and large numbers: a limit of work or
memory may be any number near it.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from copy import copy
from typing import NamedTuple

_OPPOSITE = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    (ast.In, ast.NotIn),
]
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **dict(_OPPOSITE),
    **{other: one for one, other in _OPPOSITE},
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_DROPPED = {"abs": "", "sorted": "list"}
_NO_CONTEXT = "__import__('contextlib').nullcontext()"
_MAX_CONSTANT = 1024
_NAMES = ast.Name | ast.Attribute | ast.Subscript


class Key(NamedTuple):
    """What names a mutant: its function, its lines before and after, and which of equal ones."""

    function: str
    before: str
    after: str
    nth: int


class Mutant(NamedTuple):
    """A changed source; `line` counts from 1."""

    key: Key
    line: int
    text: str


def mutants_of(text: str) -> list[Mutant]:
    """Return all mutants of a source, in its order.

    >>> for mutant in mutants_of("def f(x):\\n    return x < 1\\n"):
    ...     print(mutant.key.after)
    return None
    return (x <= 1)
    return x < 2
    return x < 0
    """
    found = []
    count: Counter[tuple[str, str, str]] = Counter()
    lines = text.splitlines()
    for function, node, replacement in _changes(ast.parse(text), ""):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = lines[first].encode()[: node.col_offset].decode()
        tail = lines[last].encode()[node.end_col_offset :].decode()
        changed = head + replacement + tail
        before = " ".join(line.strip() for line in lines[first : last + 1])
        names = function, before, changed.strip()
        count[names] += 1
        mutated = [*lines[:first], changed, *lines[last + 1 :], ""]
        found.append(Mutant(Key(*names, count[names]), node.lineno, "\n".join(mutated)))
    return found


def _changes(node: ast.AST, function: str) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Return the changes of a node and of all inside it: the function, the node, its new text."""
    if isinstance(node, ast.expr | ast.stmt):
        for replacement in _statements(node) if isinstance(node, ast.stmt) else _expressions(node):
            yield function, node, replacement
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for at, condition in _conditions(node):
        yield from ((function, at, text) for text in condition)
    for part in _parts(node):
        yield from _changes(part, function)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Return the parts of a node that may be changed."""
    match node:
        case ast.FunctionDef():
            yield from (default for default in node.args.kw_defaults if default)
            yield from [*node.args.defaults, *node.body]
        case ast.ClassDef():
            yield from node.body
        case ast.AnnAssign():
            yield from [node.value] if node.value else []
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.JoinedStr():
            pass
        case ast.Assign(targets=[ast.Name("msg" | "__all__")]):
            pass
        case ast.Expr(ast.Constant(str())) | ast.keyword("strict"):
            pass
        case _:
            yield from ast.iter_child_nodes(node)


def _statements(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield "pass"
        case ast.AugAssign():
            yield "pass"
            if new := _COMPUTED.get(type(node.op)):
                changed = copy(node)
                changed.op = new()
                yield ast.unparse(changed)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "pass"
        case ast.Return(None):
            yield "pass"
        case ast.Return(ast.Constant(None)):
            pass
        case ast.Return():
            yield "return None"


def _expressions(node: ast.expr) -> Iterator[str]:
    changed = copy(node)
    match changed:
        case ast.Compare():
            ops = changed.ops
            for k, op in enumerate(ops):
                changed.ops = [*ops[:k], _COMPARED[type(op)](), *ops[k + 1 :]]
                yield f"({ast.unparse(changed)})"
        case ast.BinOp() if type(changed.op) in _COMPUTED:
            changed.op = _COMPUTED[type(changed.op)]()
            yield f"({ast.unparse(changed)})"
        case ast.BoolOp(op, values):
            changed.op = ast.And() if isinstance(op, ast.Or) else ast.Or()
            yield f"({ast.unparse(changed)})"
            for k in range(len(values)):
                changed = ast.BoolOp(op, values[:k] + values[k + 1 :])
                yield f"({ast.unparse(changed)})"
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value)) if value <= _MAX_CONSTANT:
            yield from (str(n) for n in (value + 1, value - 1) if n >= 0)
        case ast.Call(ast.Name(name), [first]) if name in _DROPPED:
            yield f"{_DROPPED[name]}({ast.unparse(first)})"
        case ast.Call(ast.Name(name)) if name in _CALLED:
            changed.func = ast.Name(_CALLED[name])
            yield ast.unparse(changed)


def _conditions(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, list[str]]]:
    """Return what decides between two ways, and what it is forced to.

    Both forced ways are harder to notice than a negation, which takes the wrong way always.
    """
    match node:
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            pass
        case ast.If(test) | ast.IfExp(test):
            yield test, ["True", "False"]
            yield from _counts(test)
        case ast.While(test):
            yield test, ["False"]
        case ast.comprehension():
            for test in node.ifs:
                yield test, ["True", "False"]
                yield from _counts(test)
        case ast.With(items):
            for item in items:
                if item.optional_vars is None:
                    yield item.context_expr, [_NO_CONTEXT]
        case ast.ExceptHandler(body=[ast.stmt() as first, *_] as body):
            # the error is not handled
            whole = ast.Pass()
            whole.lineno, whole.col_offset = first.lineno, first.col_offset
            whole.end_lineno, whole.end_col_offset = body[-1].end_lineno, body[-1].end_col_offset
            yield whole, ["raise"]


def _counts(test: ast.expr) -> Iterator[tuple[ast.expr, list[str]]]:
    """Return conditions that a number other than 0 fulfils, with 1 left out."""
    parts = test.values if isinstance(test, ast.BoolOp) else [test]
    for part in parts:
        if isinstance(part, _NAMES):
            yield part, [f"({ast.unparse(part)} > 1)"]
