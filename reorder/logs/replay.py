"""Reorders of a log as cases of `memdesc bench`, so that they are measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memdesc import MemdescError, MemoryDesc, memory_desc
from reorder.bench.processes import run_workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memdesc.verbose import VerbosePrimitive, VerboseTensor
    from reorder.logs.reorders import LoggedReorder

__all__ = ["case_words", "replay"]

# arguments of an attribute, and the options of a case; oneDNN 2 multiplies by its output scale
_SCALES = {"src": "src-scale", "src0": "src-scale", "dst": "scale", "": "src-scale"}
_ZERO_POINTS = {"src": "src-zero-point", "src0": "src-zero-point", "dst": "zero-point"}
# Values that a log does not hold.
_SCALE, _ZERO_POINT = "0.5", "1"


def replay(
    reorders: Sequence[LoggedReorder], threads: int, peers: Sequence[str], seconds: float
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Measure reorders; yield the number of each, and what was measured or why it was not.

    Scales and zero points get values of the same masks, as a log does not hold them.

    Parameters
    ----------
    reorders : sequence of LoggedReorder
        What to measure.
    threads : int
        How many threads run each.
    peers : sequence of str
        What to measure beside, as `memdesc bench` takes it.
    seconds : float
        Time for each candidate of a case.
    """
    words: list[str] = []
    for number, logged in enumerate(reorders):
        try:
            words += case_words(logged.primitive, str(number))
        except MemdescError as error:
            yield number, str(error)
    if words:
        for _, message in run_workers(words, [threads], peers, seconds):
            if "case" in message:
                yield int(message["case"]["name"]), message["case"]


def case_words(primitive: VerbosePrimitive, name: str) -> list[str]:
    """Return a reorder in the notation of `memdesc bench`.

    Raises
    ------
    MemdescError
        If that cannot express it; with the reason.

    Examples
    --------
    >>> from memdesc.verbose import VerbosePrimitive
    >>> descs = "src:f32::blocked:ab::f0 dst:s8::blocked:ba::f0"
    >>> logged = VerbosePrimitive("cpu", "reorder", "jit:uni", "undef", descs, "", "", "2x3")
    >>> " ".join(case_words(logged, "x"))
    '--reset --sdt=f32 --ddt=s8 --stag=ab --dtag=ba 2x3n"x"'
    """
    words = ["--reset"]
    strides = []
    for side in ("src", "dst"):
        desc = _described(primitive.tensors[side])
        tag = primitive.tensors[side].text.split(":")[3]
        words.append(f"--{side[0]}dt={desc.dtype}")
        if desc == memory_desc(desc.dims, desc.dtype, tag):
            words.append(f"--{side[0]}tag={tag}")
            strides.append("")
        elif len(desc.blocks) == desc.ndims:
            strides.append("x".join(map(str, desc.strides)))
        else:
            msg = f"{side} is a view of a blocked layout, which no case describes"
            raise MemdescError(msg)
    words[1:] = sorted(words[1:], key=lambda word: "tag" in word)
    words += [f"--strides={':'.join(strides)}"] if any(strides) else []
    return [*words, *_attribute_words(primitive), f'{primitive.problem}n"{name}"']


def _described(tensor: VerboseTensor) -> MemoryDesc:
    if not isinstance(tensor.desc, MemoryDesc):
        msg = tensor.why or "some sizes are known at execution only"
        raise MemdescError(msg)
    if tensor.desc.extra is not None:
        msg = f"{tensor.name} has compensation, which no case describes"
        raise MemdescError(msg)
    return tensor.desc


def _attribute_words(primitive: VerbosePrimitive) -> list[str]:
    attributes = primitive.attributes
    words = []
    for parameters, options, value in (
        (attributes.scales, _SCALES, _SCALE),
        (attributes.zero_points, _ZERO_POINTS, _ZERO_POINT),
    ):
        for each in parameters:
            if each.groups or each.argument not in options:
                what = f"groups of {each.groups}" if each.groups else f"of {each.argument!r}"
                msg = f"it has a scale or a zero point with {what}, which no case describes"
                raise MemdescError(msg)
            text = f"mask:{each.mask}" if each.mask else value
            words.append(f"--{options[each.argument]}={text}")
    for operation in attributes.post_ops:
        if operation.kind != "sum" or len(operation.parameters) > 1:
            msg = f"it has the post-op {operation.kind}, which no case describes"
            raise MemdescError(msg)
        words.append(f"--beta={operation.parameters[0] if operation.parameters else 1}")
    return words
