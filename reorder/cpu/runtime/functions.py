"""Compile Python functions of integers to LLVM: the pool, scratch, and the fast call.

This module is imported when such a function has no file yet. The functions have int64 parameters
and variables, and return an int, a bool or nothing. They assign, branch, loop and call each other,
whose code becomes part of theirs, and intrinsics, whose arguments may be tuples; constants are
names and fields of their modules. `//` and `%` are for numbers of 0 or more.
"""

import ast
import inspect
import operator
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from textwrap import dedent
from types import MappingProxyType
from typing import Any

from llvmlite import ir

from reorder.cpu.kernels.intrinsics import EMITTERS
from reorder.cpu.llvm.emit import I64, Builder, Number, Value, Variable, either, loop, when, where
from reorder.cpu.runtime import intrinsics

_OPERATORS: MappingProxyType[type[ast.AST], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.BitAnd: operator.and_,
        ast.RShift: operator.rshift,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)


def text_of(function: Callable[..., int | None]) -> tuple[str, str]:
    """Return LLVM's text of a function of int64, and the name of the C function in it."""
    module = ir.Module()
    made = _function_in(module, function)
    made.linkage = ""
    made.attributes.discard("alwaysinline")
    return str(module), made.name


def _function_in(module: Value, function: Any) -> Value:
    """Return a function of a module, compiled once, with all that it calls."""
    name = f"{function.__module__}.{function.__qualname__}"
    if name not in module.globals:
        (tree,) = ast.parse(dedent(inspect.getsource(function))).body
        signature = inspect.signature(function)
        result = ir.VoidType() if signature.return_annotation is None else I64
        kind = ir.FunctionType(result, [I64] * len(signature.parameters))
        made = ir.Function(module, kind, name)
        made.linkage = "internal"
        made.attributes.add("alwaysinline")
        made.attributes.add("nounwind")
        body = _Body(made, function.__globals__)
        for parameter, argument in zip(signature.parameters, made.args, strict=True):
            body.assign(parameter, Number(body.builder, argument))
        body.run(tree)
    return module.globals[name]


class _Body(ast.NodeVisitor):
    """Emits the body of a function; all values are int64, and conditions 0 or 1."""

    def __init__(self, function: Value, known: dict[str, Any]) -> None:
        self.builder = Builder(function.append_basic_block("entry"))
        self._known = known
        self._variables: dict[str, Variable] = {}

    def run(self, tree: Any) -> None:
        """Emit all of a function."""
        self._block(tree.body)
        if not self.builder.block.is_terminated:
            is_void = self.builder.function.return_value.type == ir.VoidType()
            (self.builder.ret_void if is_void else self.builder.unreachable)()

    def assign(self, name: str, value: Number) -> None:
        """Store the value of a variable."""
        self._variables.setdefault(name, Variable(self.builder)).value = value

    def generic_visit(self, node: ast.AST) -> None:
        """Refuse what no other method emits."""
        raise NotImplementedError(ast.unparse(node))

    def _block(self, statements: list[Any]) -> None:
        for statement in statements:
            self.visit(statement)

    def visit_Assign(self, node: Any) -> None:
        """Emit `name = value`, or `name, name = value, value`."""
        (target,) = node.targets
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple):
            pairs = [*zip(target.elts, node.value.elts, strict=True)]
        values = [self.visit(value) for _, value in pairs]
        for (name, _), value in zip(pairs, values, strict=True):
            self.assign(name.id, value)

    def visit_AnnAssign(self, node: Any) -> None:
        self.assign(node.target.id, self.visit(node.value))

    def visit_AugAssign(self, node: Any) -> None:
        self.assign(node.target.id, self.visit_BinOp(ast.BinOp(node.target, node.op, node.value)))

    def visit_Pass(self, _: Any) -> None:
        pass

    def visit_Expr(self, node: Any) -> None:
        if not isinstance(node.value, ast.Constant):  # the docstring
            self.visit(node.value)

    def visit_Return(self, node: Any) -> None:
        if node.value is None:
            self.builder.ret_void()
        else:
            self.builder.ret(self.visit(node.value).raw)

    def visit_If(self, node: Any) -> None:
        with either(self.visit(node.test) != 0) as branches:
            for branch, statements in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    self._block(statements)

    def visit_For(self, node: Any) -> None:
        """Emit a loop over a range of one or two limits."""
        first, last = [self._number(0), *map(self.visit, node.iter.args)][-2:]
        with loop(first, last) as step:
            self.assign(node.target.id, step)
            self._block(node.body)

    def visit_While(self, node: Any) -> None:
        builder = self.builder
        head, inside, done = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self.visit(node.test) != 0, inside, done)
        builder.position_at_end(inside)
        self._block(node.body)
        if not builder.block.is_terminated:
            builder.branch(head)
        builder.position_at_end(done)

    def _number(self, value: int) -> Number:
        return Number(self.builder, I64(int(value)))

    def visit_Constant(self, node: Any) -> Number:
        return self._number(node.value)

    def visit_Name(self, node: Any) -> Number:
        variable = self._variables.get(node.id)
        return self._number(self._known[node.id]) if variable is None else variable.value

    def visit_Attribute(self, node: Any) -> Number:
        return self._number(getattr(self._known[node.value.id], node.attr))

    def visit_Tuple(self, node: Any) -> list[Number]:
        return [*map(self.visit, node.elts)]

    def visit_UnaryOp(self, node: Any) -> Number:
        operand = self.visit(node.operand)
        return where(operand == 0, 1, 0) if isinstance(node.op, ast.Not) else -operand

    def visit_BinOp(self, node: Any) -> Number:
        result: Number = _OPERATORS[type(node.op)](self.visit(node.left), self.visit(node.right))
        return result

    def visit_Compare(self, node: Any) -> Number:
        values = [*map(self.visit, (node.left, *node.comparators))]
        results = (
            where(_OPERATORS[type(op)](*pair), 1, 0)
            for op, pair in zip(node.ops, pairwise(values), strict=True)
        )
        result: Number = reduce(operator.and_, results)
        return result

    def visit_BoolOp(self, node: Any) -> Value:
        """Emit conditions, of which each is computed only if those before it do not decide."""
        first, *others = node.values
        result = Variable(self.builder)
        result.value = self.visit(first)
        for other in others:
            is_open = result.value == 0 if isinstance(node.op, ast.Or) else result.value != 0
            with when(is_open):
                result.value = self.visit(other)
        return result.value

    def visit_IfExp(self, node: Any) -> Number:
        result = Variable(self.builder)
        with either(self.visit(node.test) != 0) as branches:
            for branch, value in zip(branches, (node.body, node.orelse), strict=True):
                with branch:
                    result.value = self.visit(value)
        return result.value

    def visit_Call(self, node: Any) -> Number:
        """Emit a call of an intrinsic, of another function, or of `bool`."""
        builder, arguments = self.builder, [*map(self.visit, node.args)]
        function = self._known.get(node.func.id, bool)
        if function is bool:
            return where(arguments[0] != 0, 1, 0)
        if function.__module__ != intrinsics.__name__:
            made = _function_in(builder.module, function)
            return Number(builder, builder.call(made, arguments))
        result = EMITTERS[function.__name__](builder, *arguments)
        if result is None:
            return self._number(0)
        return result if result.type == I64 else where(result, 1, 0)
