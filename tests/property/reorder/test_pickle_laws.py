"""Damaged pickles raise an error or give a valid value: they never crash, then or later."""

import copy
import io
import pickle
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import (
    RUNTIME,
    Axis,
    Block,
    DataType,
    Extra,
    ImageDesc,
    Layout,
    MemdescError,
    MemoryDesc,
    RuntimeDesc,
)
from memdesc.record import Field, RecordDesc
from memdesc.tags import FormatTag
from tests.reorders import few_boxes, move_guarded, random_bytes
from tests.work import limited_memory

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
# what reading a damaged pickle may allocate: indices of its memo are lengths of a table
_MAX_READ_NBYTES = 1 << 28
# larger tensors are only described
_MAX_NBYTES = 1 << 14


@cache
def values() -> dict[str, Any]:
    """Return a value of each kind that can be pickled, some of them several times."""
    small = memdesc.memory_desc((3, 17, 2), "f32", "aBc8b")
    plain = memdesc.memory_desc((3, 17, 2), "f32", "abc")
    weights = memdesc.memory_desc((3, 5, 2, 2), "s8", "ABcd4b16a4b")
    attr = reorder.Attr(
        dst_scale=np.linspace(0.5, 2, 17).astype(np.float32), dst_scale_mask=2, dst_zero_point=3
    )
    swizzled = Layout(
        (11, 3),
        (Axis((0,), 11), Axis((1,), 4)),
        (Block(0, 4, 3, 24), Block(0, 2, 2, 3), Block(0, 1, 2, 12), Block(1, 1, 4, 100)),
        5,
    )
    s8 = memdesc.memory_desc((3, 17, 2), "s8", "aBc8b")
    record = memdesc.record.record_desc((2, 64), "q4_0")
    with few_boxes():
        looked_up = reorder.plan_reorder(
            memdesc.memory_desc((5, 100), "u8", "aB48b"),
            memdesc.memory_desc((5, 100), "u8", "aB32b"),
        )
    x = np.linspace(-1, 1, 102).astype(np.float32).reshape(3, 17, 2)
    unknown = (RUNTIME, 17, 2)
    plan = reorder.plan_reorder(small, plain)
    log = "onednn_verbose,primitive,exec,cpu,reorder,jit:uni,undef,"
    log += "src_f32::blocked:abc::f0 dst_f32::blocked:aBc8b::f0,,,3x17x2,0.01\n"
    return {
        "DataType": small.dtype,
        "Layout": small.layout,
        "swizzled Layout": swizzled,
        "fused Layout": memdesc.memory_desc((3, 2, 5), "u8", "(ab)c").layout,
        "FormatTag": memdesc.tags.parse_tag("A(bc)4a"),
        "Extra": Extra(s8s8_mask=1, asymmetric_mask=3, scale_adjust=0.5),
        "MemoryDesc": small,
        "MemoryDesc with compensation": weights.with_extra(Extra(s8s8_mask=1)),
        "ImageDesc": memdesc.image_desc((1, 5, 3, 4), "f16", "in_out_channel"),
        "RuntimeDesc": memdesc.runtime_desc(unknown, "f32", "aBc8b"),
        "RecordDesc": record,
        "Field": record.field("qs"),
        "Index": small.index(20),
        "VerbosePrimitive": reorder.logs.read_verbose(io.StringIO(log)).entries[0].primitive,
        "Attr": attr,
        "ReorderPlan": plan,
        "ReorderPlan with conversion": reorder.plan_reorder(small, s8, attr),
        "ReorderPlan with indirection tables": looked_up,
        "RuntimePlan": reorder.plan.plan_runtime(
            memdesc.runtime_desc(unknown, "f32", "abc"),
            memdesc.runtime_desc(unknown, "s8", "aBc8b"),
            reorder.Attr(dst_scale=0.5),
        ),
        "Memory": reorder.reorder(x, "aBc8b"),
        "Record": reorder.records.Record(record, random_bytes(record.nbytes, 0)),
        "Quantized": reorder.quantize(x, "s8", axis=1, dst="aBc8b"),
        "prepared call": reorder.prepare(plan, threads=1),
    }


def check_damaged(kind: str, seed: int, count: int) -> Counter[str]:
    """Change bytes of the pickles of a value, read and use them; return what came of it."""
    rng = np.random.default_rng([seed, *kind.encode()])
    value = values()[kind]
    pickles = [pickle.dumps(value, protocol) for protocol in PROTOCOLS]
    outcomes: Counter[str] = Counter()
    for _ in range(count):
        data = _damaged(pickles[rng.integers(len(pickles))], rng)
        found: Any
        try:
            with limited_memory(_MAX_READ_NBYTES):
                found = pickle.loads(data)
        except Exception:  # noqa: BLE001 - pickle may raise anything
            outcomes["not read"] += 1
            continue
        try:
            use(found, rng)
        except MemdescError:
            outcomes["refused"] += 1
        except Exception as error:
            error.add_note(f"{kind}: {data!r}")
            raise
        else:
            outcomes["used"] += 1
    return outcomes


def _damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Change one byte, or a few: to any byte, by one bit, or to another byte of the pickle."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = int(rng.integers(len(data)))
        changed[at] = (
            int(rng.integers(256)),
            changed[at] ^ 1 << int(rng.integers(8)),
            data[rng.integers(len(data))],
        )[rng.integers(3)]
    return bytes(changed)


def use(value: Any, rng: np.random.Generator) -> None:  # noqa: PLR0912, PLR0915, C901 - a case for each type
    """Use a value for all that its type is for; of other types there is nothing to do."""
    match value:
        case DataType():
            use(memdesc.memory_desc((3, 5), value, "ab"), rng)
        case Layout():
            use(MemoryDesc(value.dims, "u8", value), rng)
        case FormatTag():
            str(value)
            use(memdesc.memory_desc((3,) * value.ndims, "u8", value), rng)
        case Extra():
            use(memdesc.memory_desc((3, 5), "s8", "ab").with_extra(value), rng)
        case MemoryDesc():
            _use_desc(value, rng)
        case ImageDesc():
            value.pixel((0,) * len(value.dims))
            use(value.desc, rng)
        case RuntimeDesc():
            str((value, value.padded_dims, value.strides))
            use(value.resolve([3 if size == RUNTIME else size for size in value.dims]), rng)
        case Field():
            str((value.bits, value.min_nbytes, value.dense))
            use(value.layout, rng)
        case RecordDesc():
            str((value, value.tensors, value.bits_per_element))
            if value.nbytes <= _MAX_NBYTES:
                use(reorder.records.Record(value), rng)
        case memdesc.index.Index():
            values()["MemoryDesc"].offset(value)
        case reorder.Attr():
            src, dst = (memdesc.memory_desc((3, 17, 2), kind, "abc") for kind in ("f32", "s8"))
            use(reorder.plan_reorder(src, dst, value), rng)
        case reorder.plan.ReorderPlan():
            str(value)
            value.show()
            if max(value.src.min_nbytes, value.dst.min_nbytes) <= _MAX_NBYTES:
                source, before = (random_bytes(of.min_nbytes, 0) for of in (value.src, value.dst))
                move_guarded(value, source, before, at_end=bool(rng.integers(2)))
        case reorder.plan.RuntimePlan():
            use(value.resolve([3 if size == RUNTIME else size for size in value.src.dims]), rng)
        case reorder.Memory():
            str(value)
            value.numpy()
            reorder.reorder(value, memdesc.memory_desc(value.desc.dims, value.dtype))
        case reorder.records.Record() | reorder.Quantized():
            str(value)
            reorder.dequantize(value).numpy()
        case _ if hasattr(value, "plan"):
            data = np.zeros(value.plan.dst.min_nbytes, np.uint8)
            value(np.zeros(value.plan.src.min_nbytes, np.uint8), data)
        case _ if hasattr(value, "aux_text"):
            str((value.attributes, value.aux, value.tensors))


def _use_desc(desc: MemoryDesc, rng: np.random.Generator) -> None:
    str((desc, desc.nbytes, desc.compensation_spans, desc.has_padding))
    if not desc.nelems or max(desc.nbytes, desc.min_nbytes) > _MAX_NBYTES:
        return
    offsets = desc.layout.offsets(padded=True)
    assert 0 <= offsets.min() <= offsets.max() == desc.layout.last
    last = desc.offset([size - 1 for size in desc.dims])
    assert desc.offset(desc.index(last)) == last
    use(reorder.plan_reorder(desc, memdesc.memory_desc(desc.dims, desc.dtype)), rng)


_HOLD_NUMBERS = {"Memory", "Record", "Quantized"}  # compared by identity, or arrays


def _numbers(value: Any) -> bytes:
    memory = value if isinstance(value, reorder.Memory) else reorder.dequantize(value)
    return memory.numpy().tobytes()


def test_copies_and_pickles_are_equal() -> None:
    for kind, value in values().items():
        copies = [copy.copy(value), copy.deepcopy(value)]
        copies += [pickle.loads(pickle.dumps(value, protocol)) for protocol in PROTOCOLS]
        for found in copies:
            assert type(found) is type(value)
            assert repr(found) == repr(value)
            if kind in _HOLD_NUMBERS:
                assert _numbers(found) == _numbers(value)
            elif kind == "prepared call":
                assert (found.plan, found.threads) == (value.plan, value.threads)
            else:
                assert found == value
                assert hash(found) == hash(value)


def test_a_damaged_pickle_raises_or_gives_a_valid_value() -> None:
    for kind in values():
        check_damaged(kind, 0, 60)


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(12))
def test_twenty_thousand_damaged_pickles_raise_or_give_a_valid_value(part: int) -> None:
    for kind in sorted(values())[part::12]:
        print(kind, dict(check_damaged(kind, 1, 20_000)))
