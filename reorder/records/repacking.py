"""Repack a record: write exactly the same numbers in another format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memdesc import MemdescError
from memdesc.errors import short_repr
from memdesc.record import RecordDesc, record_desc
from memdesc.record.names import read_name
from reorder.records.convert_numbers import convert_numbers
from reorder.records.record import Record
from reorder.threads import checked_threads, current_limit
from reorder.values.formats import FLOATS

# formats whose zero points usually are all the middle code: by default, a target gets none
_MOSTLY_SYMMETRIC = ("gptq",)


def repack(
    record: Record,
    dst: str | RecordDesc,
    *,
    exact: bool = True,
    threads: int | None = None,
    **options: Any,
) -> Record:
    """Write the numbers of a record in another format, exactly.

    *Law*: ``dequantize(repack(r, t))`` equals ``dequantize(r)``, transposed if the target has its
    dims in the other order; 0.0 and -0.0 count as equal.

    Codes and scales are moved. The only factor that cannot be moved is the global scale of NVFP4:
    compressed-tensors divides by it and ModelOpt multiplies, so it becomes the nearest reciprocal.

    Parameters
    ----------
    record : Record
        What to repack.
    dst : str or RecordDesc
        The format, as for `record_desc`. If the formats order their dims differently, (in, out)
        becomes (out, in).
    exact : bool
        Whether a reciprocal is refused if it changes a product of scales. If not, each product
        may have a relative error of at most 2**-23, in f32.
    threads : int, optional
        As for `reorder`.
    **options
        As for `record_desc`. Width, group and types default to those of `record`.

    Raises
    ------
    MemdescError
        If the target cannot hold a number exactly; the message names the field and the place.

    Examples
    --------
    >>> blocks = np.zeros((8, 4, 18), np.uint8)    # 8 outputs, 128 inputs: d of f16, 16 bytes
    >>> blocks[:, :, :2] = np.array([0.5], np.float16).view(np.uint8)
    >>> r = reorder.records.Record(memdesc.record.record_desc((8, 128), "q4_0"), blocks)
    >>> p = reorder.records.repack(r, "awq")
    >>> p.desc
    record_desc((128, 8), 'awq', group=32, scales='f16')
    >>> bool((reorder.dequantize(p).numpy().T == reorder.dequantize(r).numpy()).all())
    True
    """
    if not isinstance(record, Record):
        raise MemdescError(f"repack takes a Record, not {short_repr(record)}")
    source = record.desc
    if isinstance(dst, RecordDesc):
        desc = dst
        if dims_in(source, dst.letters) != dst.dims or options:
            raise MemdescError(
                f"{source!r} has dims {source.dims} ({source.letters}), and dst {dst!r} "
                f"({dst.letters}); it must have the same, and no further options"
            )
    else:
        desc = target_desc(source, dst, options)
    threads = current_limit() if threads is None else checked_threads(threads)
    out = Record(desc)
    if 0 not in desc.dims:
        perm = dim_order(source, desc.letters)
        convert_numbers(record, out, perm, threads, None if exact else [])
    return out


def target_desc(source: RecordDesc, target: str, options: Mapping[str, Any]) -> RecordDesc:
    """Return the descriptor of the format `target` for the numbers of `source`."""
    name, letters, legal = read_name(target, len(source.dims))
    found = _defaults(source, name, legal) | dict(options)
    return record_desc(dims_in(source, letters), name, **found)


def dim_order(source: RecordDesc, letters: str) -> tuple[int, ...]:
    """Return the target dim of each source dim, matched by letters if both have the same ones."""
    ndims = len(source.dims)
    old, new = source.letters[:ndims], letters[:ndims]
    if sorted(old) != sorted(new):
        return tuple(range(ndims))
    return tuple(new.index(letter) for letter in old)


def dims_in(source: RecordDesc, letters: str) -> tuple[int, ...]:
    """Return the dims of a record in the order of the given letters."""
    order = dim_order(source, letters)
    return tuple(source.dims[order.index(dim)] for dim in range(len(order)))


def _defaults(source: RecordDesc, name: str, legal: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the target that follow from the format of the source."""
    scale, code, held = source.scales, source.codes, dict(source.options)
    sizes = dict(zip(source.letters, zip(scale.groups, source.dims, strict=True), strict=False))
    found: dict[str, Any] = {"g_idx": bool(held.get("g_idx"))}
    if "i" in sizes:
        group, size = sizes["i"]
        found["group"] = -1 if group >= size else group
    if "o" in sizes:
        rows, size = sizes["o"]
        found["rows"] = -1 if 1 < rows >= size else rows
    if "bits" in held:
        found["bits"] = held["bits"]
    if code.kind in FLOATS:
        found["codes"] = code.kind
    # exponents, which few formats have as scales, stay exponents only in the same format
    if scale.kind in {"f16", "bf16", "f32"} or name == source.name:
        found["scales"] = scale.kind
    if isinstance(legal.get("zeros"), bool):
        found["zeros"] = not source.rule.is_symmetric and source.name not in _MOSTLY_SYMMETRIC
    return {key: value for key, value in found.items() if key in legal}
