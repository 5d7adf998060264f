"""Compile Python functions of integers: the pool, scratch, and the fast call.

This module is imported when such a function has no file yet. A function is read as Python's syntax
tree, and emitted statement by statement in the notation of kernels. It may use what its module
names, if that is an integer or a function of ours; arithmetic and comparisons; `and`, `or`, `not`;
conditions, `while`, and loops over ranges. Numbers are int64, and what is divided is not negative.
All functions that it calls are emitted too, and LLVM makes them part of it.
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from reorder.cpu.kernels.intrinsics import EMITTERS
from reorder.cpu.llvm.emit import I64, Builder, Number, Value, Variable, loop
from reorder.cpu.runtime import intrinsics

_BIT = ir.IntType(1)
_RESULTS: Mapping[str, Any] = MappingProxyType({"int": I64, "bool": _BIT, "None": ir.VoidType()})
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.BitAnd: operator.and_,
        ast.RShift: operator.rshift,
        ast.USub: operator.sub,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
    }
)


def text_of(function: Callable[..., int | None]) -> tuple[str, str]:
    """Return LLVM's text of a function of int64, and the name of the C function in it."""
    module = ir.Module()
    emitted = _emit(module, function)
    for called in module.functions:
        if called is not emitted and called.blocks:
            called.attributes.add("alwaysinline")
    return str(module), emitted.name


def _emit(module: Any, function: Any) -> Any:
    """Return the function of LLVM's that a module has for a function of Python's."""
    name = f"{function.__module__}.{function.__qualname__}"
    if name in module.globals:
        return module.globals[name]
    signature = inspect.signature(function)
    result = _RESULTS[str(signature.return_annotation)]
    kind = ir.FunctionType(result, [I64] * len(signature.parameters))
    emitted = ir.Function(module, kind, name)
    emitted.attributes.add("nounwind")
    builder = Builder(emitted.append_basic_block("entry"))
    body = _Body(builder, function.__globals__)
    for parameter, argument in zip(signature.parameters, emitted.args, strict=True):
        body.assign(parameter, Number(builder, argument))
    (tree,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - for mypy
    body.run(tree.body)
    if not builder.block.is_terminated:
        if result is I64 or result is _BIT:
            builder.unreachable()
        else:
            builder.ret_void()
    return emitted


class _Body:
    """Statements and expressions of a function, emitted where its builder is."""

    def __init__(self, builder: Builder, names: Mapping[str, Any]) -> None:
        self._builder = builder
        self._names = names
        self._variables: dict[str, Variable] = {}

    def assign(self, name: str, value: Value) -> None:
        """Set a variable."""
        if name not in self._variables:
            self._variables[name] = Variable(self._builder)
        self._variables[name].value = self._integer(value)

    def run(self, statements: list[ast.stmt]) -> None:
        """Emit statements one after another."""
        for statement in statements:
            self._emitted(statement)

    def _emitted(self, node: ast.AST) -> Value:
        """Emit a statement, or an expression: returns its number, or a list of those of a tuple.

        There is a method for each kind of node, by its name.
        """
        return getattr(self, f"_{type(node).__name__.lower()}")(node)

    def _expr(self, statement: ast.Expr) -> None:
        if not isinstance(statement.value, ast.Constant):  # a docstring
            self._emitted(statement.value)

    def _assign(self, statement: ast.Assign) -> None:
        (target,) = statement.targets
        targets, values = [target], [statement.value]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            targets, values = target.elts, statement.value.elts
        found = [self._emitted(value) for value in values]
        for each, value in zip(targets, found, strict=True):
            self.assign(ast.unparse(each), value)

    def _annassign(self, statement: ast.AnnAssign) -> None:
        assert statement.value is not None  # noqa: S101 - for mypy
        self.assign(ast.unparse(statement.target), self._emitted(statement.value))

    def _augassign(self, statement: ast.AugAssign) -> None:
        name = ast.unparse(statement.target)
        changed = _OPERATORS[type(statement.op)](
            self._variables[name].value, self._emitted(statement.value)
        )
        self.assign(name, changed)

    def _return(self, statement: ast.Return) -> None:
        if statement.value is None:
            self._builder.ret_void()
            return
        value = self._emitted(statement.value)
        is_bit = self._builder.function.return_value.type is _BIT
        self._builder.ret((self._condition(value) if is_bit else self._integer(value)).raw)

    def _if(self, statement: ast.If) -> None:
        condition = self._condition(self._emitted(statement.test))
        with self._builder.if_else(condition.raw) as (then, otherwise):
            with then:
                self.run(statement.body)
            with otherwise:
                self.run(statement.orelse)

    def _while(self, statement: ast.While) -> None:
        builder = self._builder
        head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self._condition(self._emitted(statement.test)).raw, body, done)
        builder.position_at_end(body)
        self.run(statement.body)
        if not builder.block.is_terminated:
            builder.branch(head)
        builder.position_at_end(done)

    def _for(self, statement: ast.For) -> None:
        assert isinstance(statement.iter, ast.Call)  # noqa: S101 - a range
        *start, stop = (self._integer(self._emitted(bound)) for bound in statement.iter.args)
        with loop(start[0] if start else 0, stop) as k:
            self.assign(ast.unparse(statement.target), k)
            self.run(statement.body)

    def _constant(self, expression: ast.Constant) -> Number:
        assert isinstance(expression.value, int)  # noqa: S101 - for mypy
        return self._number(expression.value)

    def _name(self, expression: ast.Name) -> Number:
        variable = self._variables.get(expression.id)
        return variable.value if variable else self._number(self._named(expression))

    def _attribute(self, expression: ast.Attribute) -> Number:
        return self._number(self._named(expression))

    def _tuple(self, expression: ast.Tuple) -> list[Number]:
        return [self._integer(self._emitted(each)) for each in expression.elts]

    def _binop(self, expression: ast.BinOp) -> Value:
        left, right = self._emitted(expression.left), self._emitted(expression.right)
        return _OPERATORS[type(expression.op)](left, right)

    def _unaryop(self, expression: ast.UnaryOp) -> Value:
        operand = self._emitted(expression.operand)
        if isinstance(expression.op, ast.Not):
            return self._condition(operand).not_()
        return _OPERATORS[type(expression.op)](self._number(0), operand)

    def _boolop(self, expression: ast.BoolOp) -> Number:
        first, *rest = expression.values
        other = rest[0] if len(rest) == 1 else ast.BoolOp(expression.op, rest)
        if isinstance(expression.op, ast.And):
            return self._chosen(first, other, ast.Constant(0))
        return self._chosen(first, ast.Constant(1), other)

    def _ifexp(self, expression: ast.IfExp) -> Number:
        return self._chosen(expression.test, expression.body, expression.orelse)

    def _compare(self, expression: ast.Compare) -> Value:
        # unlike in Python, all operands are evaluated
        values = [self._emitted(each) for each in (expression.left, *expression.comparators)]
        found = [
            _OPERATORS[type(sign)](one, other)
            for sign, (one, other) in zip(expression.ops, pairwise(values), strict=True)
        ]
        return reduce(operator.and_, found)

    def _call(self, expression: ast.Call) -> Value:
        function = self._named(expression.func)
        given = [self._emitted(each) for each in expression.args]
        if function is bool:
            return self._condition(given[0])
        given = [self._integer(each) for each in given]
        if function.__module__ == intrinsics.__name__:
            return EMITTERS[function.__name__](self._builder, *given)
        called = _emit(self._builder.module, function)
        return Number(self._builder, self._builder.call(called, [each.raw for each in given]))

    def _chosen(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Number:
        """Emit a condition, and only one of two expressions; returns its number."""
        found = Variable(self._builder)
        condition = self._condition(self._emitted(test))
        with self._builder.if_else(condition.raw) as branches:
            for branch, expression in zip(branches, (then, otherwise), strict=True):
                with branch:
                    found.value = self._integer(self._emitted(expression))
        return found.value

    def _named(self, expression: ast.expr) -> Any:
        """Return what a name or an attribute is in Python."""
        if isinstance(expression, ast.Attribute):
            return getattr(self._named(expression.value), expression.attr)
        name = ast.unparse(expression)
        return bool if name == bool.__name__ else self._names[name]

    def _number(self, value: int) -> Number:
        return Number(self._builder, I64(int(value)))

    def _integer(self, value: Value) -> Value:
        """Return a number as an int64; those of a tuple are."""
        is_bit = not isinstance(value, list) and value.type is _BIT
        return value.zext(I64) if is_bit else value

    def _condition(self, value: Value) -> Value:
        """Return whether a number is not 0."""
        return value if value.type is _BIT else value != 0
