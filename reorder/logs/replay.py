"""Reorders of a log as cases, to measure them here."""

from __future__ import annotations

from memdesc import MemdescError, MemoryDesc
from reorder.bench.cases import Case, attr_of
from reorder.logs.primitive import VerbosePrimitive, VerboseTensor
from reorder.logs.reorders import why_not_understood

# attribute arguments and the options of a case; oneDNN 2 multiplies by its output scale
_SCALES = {"src": "src-scale", "src0": "src-scale", "dst": "scale", "": "src-scale"}
_ZERO_POINTS = {"src": "src-zero-point", "src0": "src-zero-point", "dst": "zero-point"}
# Stand-ins for values, which a log does not contain.
_SCALE, _ZERO_POINT = "0.5", "1"


def logged_case(primitive: VerbosePrimitive) -> Case:
    """Return a reorder of a log as a case.

    A log does not contain scales and zero points: stand-ins with the same masks replace them.
    Fails if a case cannot express it.
    """
    if primitive.attributes.not_understood:
        raise MemdescError(why_not_understood(primitive))
    src, dst = (_described(primitive.tensors[side]) for side in ("src", "dst"))
    return Case(primitive.problem, src, dst, attr_of(src.dims, _options(primitive)))


def _described(tensor: VerboseTensor) -> MemoryDesc:
    if not isinstance(tensor.desc, MemoryDesc):
        raise MemdescError(tensor.why or "some sizes are known only at execution")
    return tensor.desc


def _options(primitive: VerbosePrimitive) -> dict[str, str]:
    attributes = primitive.attributes
    options = {}
    for parameters, names, value in (
        (attributes.scales, _SCALES, _SCALE),
        (attributes.zero_points, _ZERO_POINTS, _ZERO_POINT),
    ):
        for given in parameters:
            if given.argument not in names:
                raise MemdescError(
                    f"it has a scale or a zero point of {given.argument!r}, which no reorder takes"
                )
            groups = f":{'x'.join(map(str, given.groups))}" if given.groups else ""
            options[names[given.argument]] = f"mask:{given.mask}{groups}" if given.mask else value
    for operation in attributes.post_ops:
        if operation.kind != "sum" or len(operation.parameters) > 1:
            raise MemdescError(f"it has the post-op {operation.kind}, which memdesc does not have")
        options["beta"] = str(operation.parameters[0]) if operation.parameters else "1"
    return options
