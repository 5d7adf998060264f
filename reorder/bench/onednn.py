"""The real oneDNN as a peer: its reorder of two descriptors on given buffers."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from memdesc.names import known_names
from reorder.bench.libdnnl import DnnlError, Engine, ExecArg, find_libraries
from reorder.bench.onednn_attr import onednn_arguments, onednn_attr
from reorder.bench.peers import Peer
from reorder.values.formats import ONEDNN_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from memdesc import MemoryDesc
    from reorder.bench.cases import Case

__all__ = ["onednn_peers"]

_SRC, _DST = 1, 17
# the enum of tags starts with undef and any, then come the canonical ones
_FIRST_TAG = 2


@cache
def _engine(version: str) -> Engine | None:
    """Return one oneDNN, None if it has no CPU engine."""
    with suppress(OSError, DnnlError):
        engine = Engine(find_libraries()[version])
        if engine.stream:
            return engine
    return None


@cache
def _tags() -> dict[str, int]:
    """Return the values of oneDNN's enum of tags without aliases: names are listed in its order."""
    texts = (name.text for name in known_names() if name.domain == "any")
    return {text: value for value, text in enumerate(texts, _FIRST_TAG)}


def onednn_peers(
    case: Case, src: NDArray[np.uint8], dst: NDArray[np.uint8], versions: Iterable[str] = ()
) -> Iterator[Peer]:
    """Return the reorder of each installed oneDNN that has it; of all versions, or of some."""
    for version in versions or find_libraries():
        engine = _engine(version)
        if engine is not None:
            with suppress(DnnlError):
                yield _onednn(f"onednn {version}", engine, case, (src, dst))


def _onednn(
    name: str, engine: Engine, case: Case, buffers: tuple[NDArray[np.uint8], NDArray[np.uint8]]
) -> Peer:
    descs = [_desc_handle(engine, desc) for desc in (case.src, case.dst)]
    cpu, stream = engine.engine, engine.stream
    try:
        attr = onednn_attr(engine, case.attr) if case.attr is not None else None
        primitive_desc = engine.new(
            "reorder_primitive_desc_create", descs[0], cpu, descs[1], cpu, attr
        )
        primitive = engine.new("primitive_create", primitive_desc)
        memories = [
            engine.new("memory_create", desc, cpu, x.ctypes.data)
            for desc, x in zip(descs, buffers, strict=True)
        ]
        values = onednn_arguments(engine, case.attr)
        count = 2 + len(values.arguments)
        arguments = (ExecArg * count)(
            ExecArg(_SRC, memories[0]), ExecArg(_DST, memories[1]), *values.arguments
        )
        memories += values.memories
        detail = engine.implementation(primitive_desc)
        engine.call("primitive_desc_destroy", primitive_desc)
    finally:
        for desc in descs:
            engine.call("memory_desc_destroy", desc)
    execute, wait = engine.c.dnnl_primitive_execute, engine.c.dnnl_stream_wait

    def call() -> None:
        execute(primitive, stream, count, arguments)
        wait(stream)

    return Peer(name, call, detail, _Owner(engine, primitive, memories, values.arrays), spins=True)


class _Owner:
    """Frees a primitive and its memories."""

    def __init__(
        self, engine: Engine, primitive: int, memories: list[int], arrays: list[Any]
    ) -> None:
        self.engine, self.primitive, self.memories, self.arrays = (
            engine,
            primitive,
            memories,
            arrays,
        )

    def __del__(self) -> None:
        self.engine.c.dnnl_primitive_destroy(self.primitive)
        for memory in self.memories:
            self.engine.c.dnnl_memory_destroy(memory)


def _desc_handle(engine: Engine, desc: MemoryDesc) -> int:
    """Return a new descriptor of oneDNN's.

    Raises
    ------
    DnnlError
        If it has none: no such tag, or no such dtype.
    """
    dims = (ctypes.c_int64 * desc.ndims)(*desc.dims)
    kind = ONEDNN_TYPES.get(desc.dtype.name, 0)
    if len(desc.blocks) == desc.ndims:
        strides = (ctypes.c_int64 * desc.ndims)(*desc.strides)
        return engine.new("memory_desc_create_with_strides", desc.ndims, dims, kind, strides)
    tags = _tags()
    tag = next((tags[name.text] for name in desc.tags() if name.text in tags), 0)
    return engine.new("memory_desc_create_with_tag", desc.ndims, dims, kind, tag)
