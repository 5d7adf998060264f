"""Write Python functions of integers as LLVM: the pool, scratch, and the fast call.

A function is read as the tree of its source. It may compute with int64, loop by `while` and over a
`range`, branch, and call other such functions and intrinsics, which become part of it; its
annotations say what it returns. Names that are not its own are constants. `//` and `%` are of
numbers that are not negative.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from itertools import pairwise
from textwrap import dedent
from types import FunctionType, MappingProxyType
from typing import Any

from llvmlite import ir

from memdesc.errors import MemdescError
from reorder.cpu.kernels.intrinsics import EMITTERS
from reorder.cpu.llvm.emit import I64, Builder, Number, Value, Variable
from reorder.cpu.runtime.intrinsics import is_intrinsic

_FLAG = ir.IntType(1)
_RESULTS = MappingProxyType({"int": I64, "bool": _FLAG, "None": ir.VoidType()})
_OPERATORS: Mapping[type[ast.AST], Callable[[Value, Value], Value]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.BitAnd: operator.and_,
        ast.BitOr: operator.or_,
        ast.RShift: operator.rshift,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
    }
)


def text_of(function: Callable[..., int | None]) -> tuple[str, str]:
    """Return LLVM's text of a function of int64, and its name there."""
    module = ir.Module()
    declared = _declared(module, function)
    declared.attributes.discard("alwaysinline")
    return str(module), declared.name


def _declared(module: ir.Module, function: Callable[..., Any]) -> Any:
    """Return a function of a module, written when it is first called."""
    name = f"{function.__module__}.{function.__qualname__}"
    if name not in module.globals:
        signature = inspect.signature(function)
        result = _RESULTS[str(signature.return_annotation)]
        kind = ir.FunctionType(result, [I64] * len(signature.parameters))
        declared = ir.Function(module, kind, name)
        declared.attributes.add("nounwind")
        declared.attributes.add("alwaysinline")
        _Writer(declared, function).write(_tree_of(function))
    return module.globals[name]


class _Writer(ast.NodeVisitor):
    """Writes a function: what visits a statement returns nothing, and an expression, a number."""

    def __init__(self, declared: Any, function: Any) -> None:
        self._builder = Builder(declared.append_basic_block("entry"))
        # variables stay in the entry block, whatever becomes part of the function
        start = declared.append_basic_block("start")
        self._builder.branch(start)
        self._builder.position_at_end(start)
        self._result = declared.function_type.return_type
        self._globals = function.__globals__
        self._variables: dict[str, Variable] = {}
        parameters = inspect.signature(function).parameters
        for name, argument in zip(parameters, declared.args, strict=True):
            self._assign(name, Number(self._builder, argument))

    def write(self, tree: ast.FunctionDef) -> None:
        """Write the whole function; one without a result returns at its end."""
        self._run(tree.body)
        if not self._builder.block.is_terminated:
            is_void = isinstance(self._result, ir.VoidType)
            self._builder.ret_void() if is_void else self._builder.unreachable()

    def generic_visit(self, node: ast.AST) -> None:
        """Refuse what has no method below."""
        msg = f"compiled functions cannot have {ast.unparse(node)!r}"
        raise MemdescError(msg)

    def _run(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def _assign(self, name: str, value: Number) -> None:
        if name not in self._variables:
            self._variables[name] = Variable(self._builder, value.type)
        self._variables[name].value = value

    def visit_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            names, values = target.elts, self.visit(node.value)
        else:
            names, values = [target], [self.visit(node.value)]
        for name, value in zip(names, values, strict=True):
            self._assign(ast.unparse(name), value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(ast.unparse(node.target), self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        name = ast.unparse(node.target)
        old = self._variables[name].value
        self._assign(name, _OPERATORS[type(node.op)](old, self.visit(node.value)))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.visit(node.value)

    def visit_Pass(self, _node: ast.Pass) -> None:
        pass

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._builder.ret_void()
        else:
            get = self._flag if self._result == _FLAG else self.visit
            self._builder.ret(get(node.value))

    def visit_If(self, node: ast.If) -> None:
        test = self._flag(node.test)
        self._branch(test, lambda: self._run(node.body), lambda: self._run(node.orelse))

    def visit_While(self, node: ast.While) -> None:
        self._loop(lambda: self._flag(node.test), lambda: self._run(node.body))

    def visit_For(self, node: ast.For) -> None:
        assert isinstance(node.iter, ast.Call)  # noqa: S101 - of `range`
        *start, stop = map(self.visit, node.iter.args)
        following = Variable(self._builder)
        following.value = start[0] if start else 0

        def run() -> None:
            self._assign(ast.unparse(node.target), following.value)
            following.value += 1
            self._run(node.body)

        self._loop(lambda: following.value < stop, run)

    def _branch(
        self, condition: Number, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """Write both branches; code goes on where they do not return."""
        builder = self._builder
        blocks = [builder.append_basic_block(name) for name in ("then", "else", "done")]
        builder.cbranch(condition, *blocks[:2])
        for block, run in zip(blocks, (then, otherwise), strict=False):
            builder.position_at_end(block)
            run()
            self._go_to(blocks[-1])
        builder.position_at_end(blocks[-1])

    def _loop(self, condition: Callable[[], Value], run: Callable[[], None]) -> None:
        builder = self._builder
        head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(condition(), body, done)
        builder.position_at_end(body)
        run()
        self._go_to(head)
        builder.position_at_end(done)

    def _go_to(self, block: Any) -> None:
        if not self._builder.block.is_terminated:
            self._builder.branch(block)

    def _flag(self, node: ast.expr) -> Value:
        """Return whether an expression is true."""
        value = self.visit(node)
        return value if value.type == _FLAG else value != 0

    def visit_BoolOp(self, node: ast.BoolOp) -> Value:
        found = Variable(self._builder, _FLAG)
        first, *others = node.values
        found.value = self._flag(first)
        for other in others:
            # what follows only runs where it is needed
            goes_on = found.value if isinstance(node.op, ast.And) else ~found.value
            self._branch(goes_on, self._setting(found, self._flag, other), lambda: None)
        return found.value

    def visit_IfExp(self, node: ast.IfExp) -> Value:
        found = Variable(self._builder)
        branches = (self._setting(found, self.visit, each) for each in (node.body, node.orelse))
        self._branch(self._flag(node.test), *branches)
        return found.value

    @staticmethod
    def _setting(
        variable: Variable, get: Callable[[ast.expr], Value], node: ast.expr
    ) -> Callable[[], None]:
        """Return what sets a variable to an expression."""
        return lambda: setattr(variable, "value", get(node))

    def visit_BinOp(self, node: ast.BinOp) -> Value:
        return _OPERATORS[type(node.op)](self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Value:
        is_not = isinstance(node.op, ast.Not)
        return ~self._flag(node.operand) if is_not else -self.visit(node.operand)

    def visit_Compare(self, node: ast.Compare) -> Value:
        values = [*map(self.visit, (node.left, *node.comparators))]
        pairs = zip(node.ops, pairwise(values), strict=True)
        return reduce(operator.and_, [_OPERATORS[type(op)](*pair) for op, pair in pairs])

    def visit_Tuple(self, node: ast.Tuple) -> list[Number]:
        return [*map(self.visit, node.elts)]

    def visit_Call(self, node: ast.Call) -> Value:
        called = self._known(node.func)
        if called is bool:
            return self._flag(node.args[0])
        if is_intrinsic(called):
            return EMITTERS[called.__name__](self._builder, *map(self.visit, node.args))
        if not isinstance(called, FunctionType):
            self.generic_visit(node)
        made = _declared(self._builder.module, called)
        return Number(self._builder, self._builder.call(made, [*map(self.visit, node.args)]))

    def visit_Name(self, node: ast.Name) -> Value:
        variable = self._variables.get(node.id)
        return self.visit_Constant(node) if variable is None else variable.value

    def visit_Constant(self, node: ast.expr) -> Value:
        known = self._known(node)
        return Number(self._builder, (_FLAG if isinstance(known, bool) else I64)(int(known)))

    def visit_Attribute(self, node: ast.Attribute) -> Value:
        return self.visit_Constant(node)

    def _known(self, node: ast.expr) -> Any:
        """Return what is known before the function runs: a constant, a function, a field."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return {**vars(builtins), **self._globals}[name]
            case ast.Attribute(value=owner, attr=name):
                return getattr(self._known(owner), name)
        return self.generic_visit(node)


def _tree_of(function: Callable[..., Any]) -> ast.FunctionDef:
    try:
        (tree,) = ast.parse(dedent(inspect.getsource(function))).body
    except OSError as error:
        msg = (
            f"{function.__qualname__} of {function.__module__} cannot be compiled: {error}; "
            "install memdesc with its sources"
        )
        raise MemdescError(msg) from error
    assert isinstance(tree, ast.FunctionDef)  # noqa: S101 - it is the source of a function
    return tree
