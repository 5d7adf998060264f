"""Schemes without sizes: what `bind` finds is what was stored, all of it, and nothing else."""

from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest

from memdesc.dtypes import DATA_TYPES
from memdesc.errors import MemdescError
from memdesc.record import RecordDesc, record_desc
from memdesc.record.bind import Stored, bind, difference
from memdesc.record.rows import SCHEMES

_DIMS = [(256, 512), (64, 96), (128, 64), (300, 130), (1, 32), (40, 96), (3, 64, 128), (2, 96, 64)]
# options beside the usual ones
_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "gptq": [{"group": 32}, {"group": -1, "bits": 8, "zeros": "v2", "g_idx": True}],
    "awq": [{"group": -1, "scales": "f32"}, {"group": 32}],
    "fp8_tensor": [{"scale_inv": True, "codes": "f8_e5m2"}],
    "fp8_channel": [{"scales": "bf16"}],
    "fp8_block": [{"block": "125x100"}, {"block": 1}, {"block": 64, "scales": "e8m0"}],
    "mlx": [{"bits": bits, "group": 32} for bits in (1, 2, 3, 5, 6, 8)],
    "pack_quantized": [{"zeros": True, "group": 32, "bits": 8}, {"rows": -1, "group": -1}],
    "int_quantized": [{"rows": 4, "group": 16}, {"zeros": True}, {"rows": -1}],
    "hqq": [{"bits": bits, "group": 32} for bits in (1, 2, 8)],
    "bnb_nf4": [{"block": 32, "dtype": "float16"}],
    "ocp_mxfp4": [{"swizzled": False}],
    "torch_int4_cpu": [{"group": 32}],
}
_CASES = [(name, options) for name in SCHEMES for options in ({}, *_OPTIONS.get(name, []))]


def stored(desc: RecordDesc) -> dict[str, Stored]:
    """Return the tensors of a record as a file without descriptors has them."""
    data = {each.tensor: each.data for each in desc.constants}
    return {
        name: Stored(
            f"fc.{name}",
            words.dtype,
            words.shape,
            words.nbytes,
            None,
            is_described=False,
            read=lambda name=name: data[name],  # type: ignore[misc] # bound at once
        )
        for name, words in SCHEMES[desc.name].words(desc).items()
    }


def records(name: str, options: dict[str, Any]) -> list[RecordDesc]:
    """Return the records of a scheme with dims that it can have."""
    found = []
    for dims in _DIMS:
        try:
            found.append(record_desc(dims, name, **options))
        except MemdescError:
            continue
    assert found
    return found


@pytest.mark.parametrize(("name", "options"), _CASES)
def test_a_record_is_found_in_its_tensors(name: str, options: dict[str, Any]) -> None:
    """*Law*: told all options, there is exactly one record: the one that was stored.

    Told nothing but what no tensor shows, that one is among those that are found.
    """
    scheme = SCHEMES[name]
    hidden = {name for name, option in scheme.options.items() if option.means}
    for desc in records(name, options):
        held = stored(desc)
        assert bind(scheme, held, dict(desc.options)).descs == (desc,)
        said = {key: value for key, value in desc.options if key in hidden}
        found = bind(scheme, held, said).descs
        assert desc in found or len(found) > 3
        assert len({*found}) == len(found)
        # the shape of the words times their width is what the fields and constants take
        for role, words in scheme.words(desc).items():
            assert prod(words.shape) * DATA_TYPES[words.dtype].bits == 8 * desc.tensors[role]
            assert words.nbytes == desc.tensors[role]


@pytest.mark.parametrize("name", ["pack_quantized", "hqq", "bnb_nf4"])
def test_constants_with_other_values_are_of_no_record(name: str) -> None:
    desc = record_desc((64, 128), name)
    for tensor, data in ((each.tensor, each.data) for each in desc.constants):
        held = stored(desc)
        for other in {bytes([data[0] ^ 1]) + data[1:], bytes(len(data)), b"\xff" * len(data)}:
            held[tensor] = held[tensor]._replace(read=partial(bytes, other))
            assert other == data or desc not in bind(SCHEMES[name], held, {}).descs, tensor


# the words of these are only in another order, which descriptors alone tell
_ALIKE = {"torch_int4_cpu", "torch_int4_cpu_avx2", "torch_int4_cpu_default"}


@pytest.mark.parametrize("name", SCHEMES)
def test_what_was_cut_is_no_record_and_the_tensors_of_a_scheme_are_of_no_other(name: str) -> None:
    """*Law*: schemes with tensors of the same names do not take each other's, or mean the same.

    Without a column of words, the codes are not those of the same record.
    """
    desc = record_desc((256, 256), name)
    held = stored(desc)
    for other, scheme in SCHEMES.items():
        if other == name or not {*scheme.tensors()} <= held.keys() or {name, other} <= _ALIKE:
            continue
        # one scale of all is one of a block of all
        assert all(found == desc for found in bind(scheme, held, {}).descs), other
    first, codes = next(iter(held.items()))
    *outer, columns = codes.shape
    nbytes = codes.nbytes // columns * (columns - 1)
    held[first] = codes._replace(shape=(*outer, columns - 1), nbytes=nbytes)
    assert desc not in bind(SCHEMES[name], held, dict(desc.options)).descs


def test_another_thread_may_forget_what_was_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(dict[object, object]):
        def __contains__(self, key: object) -> bool:
            is_known = super().__contains__(key)
            self.clear()
            return is_known

    monkeypatch.setattr("memdesc.record.bind._known", Forgetful())
    held = stored(desc := record_desc((64, 128), "fp8_tensor"))
    for _ in range(2):
        assert bind(SCHEMES["fp8_tensor"], held, {}).descs == (desc,)


def test_what_no_shape_shows_is_asked_for_and_found() -> None:
    bound = bind(SCHEMES["mlx"], stored(record_desc((64, 256), "mlx", bits=4, group=64)), {})
    text, names = difference(bound.descs)
    assert text.startswith("mlx fits with group=128, bits=2, dims=(64, 512); or group=64, bits=4,")
    assert (text.count("; or "), names) == (2, ("group", "bits"))
    for block in ("125x100", "128x64", "100x65"):
        desc = record_desc((300, 130), "fp8_block", block=block)
        bound = bind(SCHEMES["fp8_block"], stored(desc), {})
        assert len(bound.descs) > 3
        text, names = difference(bound.descs)
        assert (text[-8:], names) == (" or more", ("block",))
        assert bind(SCHEMES["fp8_block"], stored(desc), {"block": block}).descs == (desc,)
    # flat codes say nothing, and a size that is rounded up is read as it is
    held = stored(desc := record_desc((256, 128), "ocp_mxfp4"))
    held["data"] = held["data"]._replace(shape=(held["data"].nbytes,))
    assert bind(SCHEMES["ocp_mxfp4"], held, {"swizzled": True}).descs == (desc,)
    # a range of blocks that another tensor rules out is not tried through
    held = stored(record_desc((1 << 20, 1 << 40), "fp8_block", block="1x549755813888"))
    held["weight"] = held["weight"]._replace(dtype="f32", nbytes=1 << 62)
    assert len(bind(SCHEMES["fp8_block"], held, {}).tried) <= 64


@pytest.mark.parametrize(
    ("block", "wanted"), [(np.array(64), 64), (np.int64(64), 64), (np.str_("64x32"), "64x32")]
)
def test_blocks_of_numpy_are_those_of_python(block: Any, wanted: Any) -> None:
    """What is bound is kept, so it must not depend on who asked first."""
    desc = record_desc((300, 130), "fp8_block", block=wanted)
    (found,) = bind(SCHEMES["fp8_block"], stored(desc), {"block": block}).descs
    assert repr(found) == repr(desc)


def test_a_size_that_does_not_fit_is_named_with_what_was_tried() -> None:
    held = stored(record_desc((128, 64), "gptq", group=32))
    held["scales"] = held["scales"]._replace(shape=(3, 64), nbytes=384)
    assert bind(SCHEMES["gptq"], held, {}).tried[0] == (
        "'fc.scales' of f16 has the shape (3, 64) and 384 bytes, not (4, 64) of f16 and 512 bytes, "
        "so it does not fit record_desc((128, 64), 'gptq', group=32, zeros='v1', bits=4, "
        "scales='f16', g_idx=False)"
    )
    held.pop("scales")
    assert bind(SCHEMES["gptq"], held, {}).tried == (
        "no tensor 'scales'; gptq has the tensors qweight, qzeros, scales",
    )
