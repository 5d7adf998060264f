"""Records with random bytes, and their numbers by definition."""

from typing import Any

import numpy as np

import reorder
from memdesc import memory_desc
from memdesc.record import BIT_PLANES, Field, Number, RecordDesc, Rule
from reorder.records import numbers

# what the numbers of a record are, in numpy
dequantize_reference = numbers.dequantize_reference


def random_record(desc: RecordDesc, rng: np.random.Generator) -> reorder.records.Record:
    """Return a record of random bits; padding of its fields is zero."""
    record = reorder.records.Record(desc)
    for name, nbytes in desc.bare.tensors.items():
        record.tensors[name][:nbytes] = rng.integers(0, 256, nbytes, np.uint8)
    for part in desc.fields:
        if part.layout.has_padding and part.kind not in BIT_PLANES:
            reorder.Memory(part.desc, record.tensors[part.tensor])
    return record


def plain_scales(
    record: reorder.records.Record, rng: np.random.Generator
) -> reorder.records.Record:
    """Write small multiples of 1/64 into all float fields that are not codes."""
    codes = {name for name, _ in record.desc.rule.code.parts}
    for part in record.desc.fields:
        if part.kind in {"f16", "bf16", "f32", "f8_e4m3", "e8m0"} and part.name not in codes:
            power = part.kind in {"f8_e4m3", "e8m0"}
            values = 2.0 ** rng.integers(-3, 3, part.layout.dims)
            values = values if power else rng.integers(1, 64, part.layout.dims) / 64
            record.set_field(part.name, values.astype(part.desc.dtype.numpy))
    return record


def bits_of(values: Any) -> Any:
    """Return the bits of f32, so that NaNs and zeros compare."""
    return np.asarray(values).view(np.uint32)


def by_hand(dims: tuple[int, ...], fields: str, name: str = "", **rule: Any) -> RecordDesc:
    """Return a record of fields such as ``q u4 ba; d f32 /1x32``, each in its own tensor.

    A field has a name, a type, its layout by default row-major, and its groups. By default `q` are
    codes, and `d` scales.
    """
    made = []
    for text in fields.split("; "):
        field, kind, *rest = text.split()
        groups = tuple(int(n) for each in rest if each[0] == "/" for n in each[1:].split("x"))
        groups = groups or (1,) * len(dims)
        sizes = tuple(-(-size // group) for size, group in zip(dims, groups, strict=True))
        tags = [each for each in rest if each[0] != "/"]
        stored = memory_desc(sizes, "u8" if kind in BIT_PLANES else kind, *tags)
        made.append(Field(field, kind, stored.layout, groups, field))
    whole = {"code": number("q"), "scale": (number("d"),)} | rule
    return RecordDesc(dims, tuple(made), Rule(**whole), name)


def number(field: str, *others: Any, **more: Any) -> Number:
    """Return a number of one field."""
    return Number(((field, 0),), *others, **more)
