"""Results do not depend on what ran before: caches keep apart what text shows apart.

Equality of descriptors is oneDNN's, so equal ones may be called and printed differently.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

import memdesc
import reorder
from memdesc import Extra, MemoryDesc, memory_desc
from memdesc.record import record_desc
from tests.records import bits_of, dequantize_reference

DIMS = (2, 9, 3, 2)
UNIT = (2, 3, 1, 1)
# Caches whose keys are descriptors, records, plans or attributes, and why none mixes up two that
# are equal: they are keyed by what equality ignores too, or their results follow from equality.
_KEYED = {
    "memdesc.desc._names_of": "spelling",
    "reorder.cli.inspect._layout_name": "spelling",
    "reorder.plan.plan._plan": "spelling",
    "reorder.checkpoints.compare._like": "spelling",
    "reorder.values.compensation.compensation_layout": "a Layout is compared exactly",
    "reorder.cpu.decoding.pattern.place_pattern": "numbers; tables are compared by their bits",
    "reorder.opencl.enqueue._has_gaps": "numbers",
    "reorder.plan.boxes.padding_boxes": "numbers",
    "reorder.checkpoints.moves.changes.copied": "numbers",
    "reorder.memory.arrays._physical": "spelling",
    "reorder.memory.arrays._plain": "numbers; the strides of unit dims are not used",
    "reorder.memory.arrays._whole_blocks": "numbers; the strides of unit dims are not used",
    "reorder.checkpoints.moves.pieces._piece": "the same bytes; only errors would show the change",
}
_KEYS = ("MemoryDesc", "RecordDesc", "ReorderPlan", "Attr", "Layout", "Change", "RuntimeDesc")


_SPELLED: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    (DIMS, ("nchw", "bfyx", "abcd")),
    (DIMS, ("nChw4c", "b_fs_yx_fsv4", "aBcd4b")),
    ((1, 3, 1, 1), ("nchw", "nhwc", "chwn", "oihw")),
    (UNIT, ("nchw", "nhwc")),
    ((2, 1, 3), ((3, 1, 1), (3, 77, 1))),
    ((2, 1, 3), ((3, 0, 1), (3, 1, 1))),
]
EQUAL = [
    *(
        [
            memory_desc(dims, "f32", each)
            if isinstance(each, str)
            else memory_desc(dims, "f32", strides=each)
            for each in spellings
        ]
        for dims, spellings in _SPELLED
    ),
    [
        memory_desc((3, 5, 2, 2), "s8", name).with_extra(Extra(1, scale_adjust=adjust))
        for name, adjust in (("oihw", 1), ("abcd", 1.0), ("oihw", np.float64(1)))
    ],
]


def _target(desc: MemoryDesc) -> MemoryDesc:
    return memory_desc(desc.dims, "f32" if desc.extra is None else "s8", "plain")


def _explained(desc: MemoryDesc) -> str:
    """Return all texts about the plans to and from a descriptor, and what runs and refuses them."""
    texts = []
    for pair in ((desc, _target(desc)), (_target(desc), desc)):
        if pair[0].extra is not None:
            continue
        plan = reorder.plan_reorder(*pair)
        run = reorder.prepare(plan, threads=1)
        texts += [str(plan), repr(plan), plan.source(), str(plan.show()), repr(run)]
        texts += [repr(plan.src), repr(plan.src.letters), repr(plan.dst), repr(plan.dst.letters)]
        texts.append(str(reorder.compare_layouts(*pair)))
        with pytest.raises(memdesc.MemdescError) as info:
            run(np.zeros(1, np.uint8), np.zeros(1, np.uint8))
        texts.append(str(info.value))
    return "\n".join(texts)


TEXTS: dict[str, Callable[[MemoryDesc], str]] = {
    "repr": repr,
    "tags": lambda desc: str(desc.names()),
    "verbose": memdesc.verbose.to_verbose,
    "json": memdesc.MemoryDesc.to_json,
    "source": lambda desc: desc.source(),
    "picture": lambda desc: str(desc.show()),
    "explained": _explained,
}


def _clear() -> None:
    """Forget what is cached by descriptors; results that are keyed by strings stay."""
    for name in _KEYED:
        module, _, function = name.rpartition(".")
        if module in sys.modules:
            getattr(sys.modules[module], function).cache_clear()


@pytest.mark.parametrize("what", TEXTS)
def test_text_about_a_descriptor_does_not_depend_on_an_equal_one(what: str) -> None:
    text = TEXTS[what]
    for group in EQUAL:
        assert len(set(group)) == 1
        fresh = []
        for each in group:
            _clear()
            fresh.append(text(each))
        for first in range(len(group)):
            _clear()
            text(group[first])
            assert [text(each) for each in group] == fresh


def test_attributes_that_are_equal_are_shown_alike() -> None:
    given: Any
    for given in (
        ({"beta": 0.0, "src_scale": 2}, {"beta": -0.0, "src_scale": 2.0}),
        [{"dst_scale": np.full(shape, 3.0), "dst_scale_mask": 1} for shape in ((2, 1), 2)],
        [{"src_zero_point": n, "src_zero_point_mask": np.int64(1)} for n in ([1, 2], (1, 2))],
    ):
        one, other = (reorder.Attr(**each) for each in given)
        assert (one == other) <= ((repr(one), str(one.beta)) == (repr(other), str(other.beta)))


@pytest.mark.parametrize("step", [1, -1])
def test_a_negative_zero_makes_another_record(step: int) -> None:
    """A table of integers is looked up in registers, where nothing is -0.0."""
    mx = record_desc((2, 64), "gguf_mxfp4")
    table = mx.rule.code.table
    descs = [
        replace(mx, rule=mx.rule._replace(code=mx.rule.code._replace(table=each)))
        for each in ((*table[:8], -0.0, *table[9:]), table)[::step]
    ]
    assert descs[0] != descs[1]
    for desc in descs:
        record = reorder.records.Record(desc, {"data": np.full(desc.nbytes, 0x80, np.uint8)})
        found = reorder.dequantize(record).numpy()
        assert (bits_of(found) == bits_of(dequantize_reference(record))).all()


def test_every_cache_that_is_keyed_by_a_descriptor_is_known() -> None:
    for package in (memdesc, reorder):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):  # of an optional package
                    import_module(module.name)
    found = {
        f"{name}.{each.__name__}"
        for name, module in list(sys.modules.items())
        if name.startswith(("memdesc", "reorder"))
        for each in vars(module).values()
        if hasattr(each, "cache_clear") and each.__module__ == name
        if any(
            key in str(kind)
            for argument, kind in each.__wrapped__.__annotations__.items()
            if argument != "return"
            for key in _KEYS
        )
    }
    assert found <= _KEYED.keys(), "say in _KEYED why equal keys give equal results"
