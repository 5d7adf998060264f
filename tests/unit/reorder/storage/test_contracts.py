"""Contracts: what rules say and refuse, and which causes explain values that differ."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import reorder
from memdesc import MemdescError, memory_desc, record_desc
from memdesc.record.gguf import GGUF_TYPES
from reorder.cli.main import main
from tests.checkpoints import awq_layer, fp8_layer, gptq_layer, write_config, write_safetensors
from tests.records import plain_scales, random_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_DIMS = (64, 128)
_TAG = "BA16a64b4a"


def _codes(seed: int = 0) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-128, 128, _DIMS, np.int8)


def _saved(
    path: Path, x: Any, layout: str = _TAG, *, data: Any = None, name: str = "layers.0.up.weight"
) -> Path:
    """Save a tensor; `data` are other bytes under the same descriptor."""
    memory = reorder.reorder(x, layout)
    if data is not None:
        memory = reorder.Memory(memory.desc, np.ascontiguousarray(data).view(np.uint8).reshape(-1))
    reorder.save(path, {name: memory})
    return path


def _refusal(path: Path, rules: Any) -> str:
    with pytest.raises(MemdescError) as error:
        reorder.check(path, rules)
    return str(error.value)


def _keys(path: Path, rules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [breach.key for breach in reorder.check(path, rules).breaches]


def test_a_model_holds_the_contract_written_from_it(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    packed = reorder.reorder(_codes(), _TAG)
    padded = reorder.reorder(np.ones((5, 3), np.float32), "AB8b8a")
    odd = memory_desc((4, 6), "f16", strides=(16, 2))
    tensors = {f"layers.{k}.weight": packed for k in range(3)}
    reorder.save(
        path,
        {
            **tensors,
            'odd"name': reorder.Memory(odd),
            "padded[0]": padded,
            "turned": reorder.reorder(np.ones((8, 3), np.float32), "ba"),
            "scales": reorder.reorder(np.ones((2, 64), np.float16), "marlin_scales"),
            "scalar": np.array(3.0),
            "q": reorder.quantize(np.ones((4, 8), np.float32), "s8", axis=0),
        },
    )
    rules = reorder.contract_of(path)
    assert rules["layers.*.weight"] == {
        "layout": _TAG,
        "dims": [64, 128],
        "dtype": "s8",
        "count": 3,
    }
    assert rules["padded[[]0]"]["padding"] == "zero"
    # floats have a packing's name only if oneDNN has none
    assert rules["turned"]["layout"] == "ba"
    assert rules["scales"]["layout"] == "marlin_scales"
    assert rules["q"]["scales"] == ["q_scale", "q_zero_point"]
    assert tomllib.loads(reorder.contract_to_toml(rules)) == rules
    report = reorder.check(path, rules, reference=path)
    assert report.holds
    assert not report.without_rule
    assert len(report.compared) == len(reorder.open_checkpoint(path))


def test_a_contract_notices_that_tensors_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    tensors = {f"layers.{k}.w": np.zeros((2, 3)) for k in range(3)} | {"embed": np.zeros(3)}
    reorder.save(path, tensors)
    rules = reorder.contract_of(path)
    reorder.save(path, {name: tensors[name] for name in ("layers.0.w", "layers.2.w")})
    assert [each[:4] for each in reorder.check(path, rules).breaches] == [
        ("layers.*.w", "count", "is 2, not 3", "layers.*.w"),
        ("embed", "count", "is 0, not 1", "embed"),
    ]


def test_a_contract_notices_that_the_scales_of_a_layer_are_missing(tmp_path: Path) -> None:
    tensors = {f"layers.{k}.fc.{name}": x for k in range(3) for name, x in fp8_layer().items()}
    model = _quantised(tmp_path / "m", tensors, quant_method="fp8", **_SIZES["fp8"])
    rules = reorder.contract_of(model)
    assert reorder.check(model, rules).holds
    del tensors["layers.1.fc.weight_scale_inv"]
    write_safetensors(model / "model.safetensors", tensors)
    found = [each[:3] for each in reorder.check(model, rules).breaches]
    assert found == [
        ("layers.*.fc", "count", "is 2, not 3"),
        ("layers.1.fc.weight", "others", "are refused: no rule applies to it"),
    ]


def test_tensors_without_a_rule_are_refused_if_the_contract_says_so(tmp_path: Path) -> None:
    path, extra = tmp_path / "model.npz", tmp_path / "extra.npz"
    reorder.save(path, {"others": np.zeros(3)})
    reorder.save(extra, {"others": np.zeros(3), "b": np.zeros(3)})
    rules = reorder.contract_of(path)
    (breach,) = reorder.check(extra, rules).breaches
    assert breach[:3] == ("b", "others", "are refused: no rule applies to it")
    assert reorder.check(extra, {"others": {"dims": [3]}}).holds
    assert 'others must be "refused", not' in _refusal(path, {"others": "allowed"})


def test_layers_that_differ_get_rules_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    reorder.save(path, {f"layers.{k}.w": np.zeros((k + 1, 2)) for k in range(2)})
    assert [*reorder.contract_of(path)] == ["others", "layers.0.w", "layers.1.w"]


def test_a_contract_written_from_padding_that_is_not_zero_is_refused(tmp_path: Path) -> None:
    memory = reorder.reorder(np.ones((5, 3), np.float32), "AB8b8a")
    memory.data[-1] = 1
    reorder.save(tmp_path / "x.npz", {"w": memory})
    with pytest.raises(MemdescError, match="is not right: w: padding"):
        reorder.contract_of(tmp_path / "x.npz")
    assert _keys(tmp_path / "x.npz", {"w": {"padding": "zero"}}) == ["padding"]


def test_each_key_is_checked(tmp_path: Path) -> None:
    path = _saved(tmp_path / "x.safetensors", _codes())
    right = {"layout": _TAG, "dims": [*_DIMS], "dtype": "s8", "padding": "zero", "scales": []}
    assert _keys(path, {"*.up.weight": right}) == []
    assert _keys(path, {"*": {**right, "layout": "ab"}}) == ["layout"]
    assert _keys(path, {"*": {**right, "dims": [32, 256]}}) == ["dims"]
    assert _keys(path, {"*": {**right, "dtype": "u8"}}) == ["dtype"]
    assert _keys(path, {"*": {"dtype": "u8", "dims": [1, 2]}}) == ["dims", "dtype"]
    assert _keys(path, {"*": {"scales": ["*.scale"]}}) == ["scales"]
    assert _keys(path, {"layers.*.up.weight": {"like": "layers.*.gate.weight"}}) == ["like"]


def test_a_tensor_is_like_another_one_as_far_as_the_file_says_it(tmp_path: Path) -> None:
    packed, rows = reorder.reorder(_codes(), _TAG), reorder.reorder(_codes(), "ab")
    path, raw = tmp_path / "x.safetensors", tmp_path / "raw.safetensors"
    reorder.save(path, {"a.k": packed, "a.v": rows, "b.k": packed, "b.v": packed})
    found = reorder.check(path, {"*.k": {"like": "*.v"}})
    assert [(each.name, each.key) for each in found.breaches] == [("a.k", "like")]
    assert found.unconfirmed == ()
    # the first one is like itself, and the others are like the first one
    assert reorder.check(path, {"b.*": {"like": "b.k"}}).holds
    for pattern, like in (("b.*", "b.*"), ("b.k", "b.k")):
        assert "compares each tensor with itself only" in _refusal(path, {pattern: {"like": like}})
    # without descriptors only types and sizes are known to be alike
    write_safetensors(raw, {"a.k": packed.data.view(np.int8).reshape(_DIMS), "a.v": _codes()})
    found = reorder.check(raw, {"*.k": {"like": "*.v"}})
    assert (found.breaches, found.unconfirmed) == ((), ("a.k",))
    kinds = {"layout": _TAG, "dims": [*_DIMS], "dtype": "s8"}
    assert _keys(raw, {"*.k": {"like": "*.v"}, "a.*": kinds}) == []
    assert _keys(raw, {"a.k": {"like": "a.v", **kinds}}) == ["like"]
    assert reorder.check(raw, {"*.k": {"like": "*.v"}}, reference=raw).unconfirmed == ()


def test_a_layout_that_only_the_size_supports_is_said_to_be_unconfirmed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"w": _codes()})
    report = reorder.check(path, {"w": {"layout": _TAG, "dims": [*_DIMS], "dtype": "s8"}})
    assert report.holds
    assert report.unconfirmed == ("w",)
    assert _keys(path, {"w": {"layout": _TAG, "dims": [64, 256], "dtype": "s8"}}) == ["layout"]
    assert _keys(path, {"w": {"layout": _TAG, "dims": [*_DIMS], "dtype": "u8"}}) == ["dtype"]
    assert _keys(path, {"w": {"layout": "plain", "dims": [128, 64], "dtype": "s8"}}) == ["dims"]


def test_a_record_that_is_only_in_one_checkpoint_is_listed_with_its_name_as_floats(
    tmp_path: Path,
) -> None:
    record, floats = tmp_path / "record.safetensors", tmp_path / "floats.safetensors"
    awq = reorder.Record(record_desc((128, 64), "awq"))
    reorder.save(record, {"layer": awq})
    reorder.save(floats, {"layer": reorder.dequantize(awq)})
    for model, other, text in ((record, floats, "not in the"), (floats, record, "in the")):
        problems = {each.problem for each in reorder.check(model, reference=other).breaches}
        named = "(a record, which is called 'layer.weight' as floats)"
        assert any(f"are {text} reference" in each and named in each for each in problems)


@pytest.mark.parametrize(
    ("dtype", "dims", "word", "shapes"),
    [
        ("s4", (2, 4, 1, 16), np.uint8, [(2, 32), (2, 4, 8), (64,), (8, 1, 8), (2, 1, 4, 8)]),
        ("u4", (2, 1, 4, 16), np.int32, [(2, 8), (8, 2), (2, 1, 4, 2), (16, -1)]),
        ("s8", (2, 4, 1, 16), np.int32, [(2, 16), (8, 4), (32, 1), (1, 32, 1), (2, 16, 1)]),
        ("f16", (2, 4, 1, 16), np.uint8, [(2, 128), (8, 32)]),
    ],
)
def test_words_of_row_major_elements_may_merge_dims_but_not_move_them(
    tmp_path: Path,
    dtype: str,
    dims: tuple[int, ...],
    word: type[np.generic],
    shapes: list[tuple[int, ...]],
) -> None:
    # FlashInfer's NHD is row-major if there is one token or one head
    held = reorder.Memory(memory_desc(dims, dtype, "NHD"))
    reorder.save(tmp_path / "said.safetensors", {"w": held})
    written = reorder.contract_of(tmp_path / "said.safetensors")
    for number, shape in enumerate([*shapes, (4, -1), (4, -1, 1), (16, -1)]):
        path = tmp_path / f"{number}.safetensors"
        write_safetensors(path, {"w": held.data.view(word).reshape(shape)})
        expected = [] if shape in shapes else ["dims"]
        assert _keys(path, written) == expected
        for layout in ("NHD", "plain"):
            rule = {"layout": layout, "dims": [*dims], "dtype": dtype}
            assert _keys(path, {"w": rule}) == expected


def _raw_model(path: Path, x: NDArray[Any], shape: Any = _DIMS) -> Path:
    """Save codes as programs do that store no layout."""
    write_safetensors(path, {"w": np.ascontiguousarray(x).view(np.int8).reshape(shape)})
    return path


_RULES = {"w": {"layout": _TAG, "dims": [*_DIMS], "dtype": "s8"}}


def test_a_reference_without_descriptors_is_what_the_caller_says(tmp_path: Path) -> None:
    x = _codes()
    packed = reorder.reorder(x, _TAG).data.view(np.int8).reshape(_DIMS)
    twice = reorder.reorder(packed, _TAG).data
    model, flat = (_raw_model(tmp_path / f"{k}.safetensors", packed, k) for k in (_DIMS, -1))
    described = _saved(tmp_path / "said.safetensors", x, name="w")
    for reference in (model, flat):
        for one in (model, flat, described):
            report = reorder.check(one, _RULES, reference=reference, reference_is="packed")
            assert (report.holds, report.unconfirmed) == (True, ())
        bad = _raw_model(tmp_path / "bad.safetensors", twice)
        report = reorder.check(bad, _RULES, reference=reference, reference_is="packed")
        assert [each.causes for each in report.breaches] == [("it is packed twice",)]
    for shape in (_DIMS, -1):
        rows = _raw_model(tmp_path / "rows.safetensors", x, shape)
        for one in (model, flat, described):
            assert reorder.check(one, _RULES, reference=rows, reference_is="plain").holds
        report = reorder.check(rows, _RULES, reference=rows, reference_is="plain")
        assert [each.causes for each in report.breaches] == [("it is not packed",)]
        assert report.unconfirmed == ("w",)
    # a reference that says it needs nobody else to
    assert reorder.check(model, _RULES, reference=described).unconfirmed == ()


def test_values_that_are_equal_in_one_reading_of_a_reference_are_unconfirmed(
    tmp_path: Path,
) -> None:
    x = _codes()
    packed = reorder.reorder(x, _TAG).data.view(np.int8).reshape(_DIMS)
    rows = _raw_model(tmp_path / "rows.safetensors", x)
    model = _raw_model(tmp_path / "model.safetensors", packed)
    bad = _raw_model(tmp_path / "bad.safetensors", reorder.reorder(packed, _TAG).data)
    for one, reference, equal, cause in (
        (model, model, "packed", "it is not packed"),
        (model, rows, "plain", "it is packed twice"),
        (rows, rows, "packed", "it is not packed"),
        (bad, model, "plain", "it is packed twice"),
    ):
        report = reorder.check(one, _RULES, reference=reference)
        (breach,) = report.breaches
        assert (breach.key, breach.causes) == ("reference", (cause,))
        assert f"equal if it is {equal}; if it is" in breach.problem
        assert (report.holds, report.unconfirmed, report.compared) == (False, ("w",), ("w",))
    # both readings differ, or both are equal
    report = reorder.check(bad, _RULES, reference=rows)
    assert [each.key for each in report.breaches] == ["values"]
    same = _raw_model(tmp_path / "same.safetensors", np.full(_DIMS, 7, np.int8))
    assert reorder.check(same, _RULES, reference=same).unconfirmed == ()


def test_how_a_reference_is_read_is_said_in_one_of_two_words(tmp_path: Path) -> None:
    path = _raw_model(tmp_path / "x.safetensors", _codes())
    with pytest.raises(MemdescError, match="must be 'packed' or 'plain', not 'rows'"):
        reorder.check(path, _RULES, reference=path, reference_is="rows")
    with pytest.raises(MemdescError, match="and there is none"):
        reorder.check(path, _RULES, reference_is="plain")
    with pytest.raises(MemdescError, match="must be 'packed' or 'plain', not "):
        reorder.check(path, _RULES, reference=path, reference_is=["packed"])  # type: ignore[arg-type] # wrong


def test_a_record_without_a_descriptor_is_compared_by_the_rule(tmp_path: Path) -> None:
    data = random_record(record_desc((8, 64), "q4_0"), np.random.default_rng(0)).tensors
    (blocks,) = data.values()
    path, bad = tmp_path / "x.safetensors", tmp_path / "bad.safetensors"
    write_safetensors(path, {"w": blocks.reshape(8, -1)})
    write_safetensors(bad, {"w": np.roll(blocks.reshape(8, -1), 4, 0)})
    rules = {"w": {"record": "q4_0", "dims": [8, 64]}}
    assert reorder.check(path, rules, reference=path).holds
    (breach,) = reorder.check(bad, rules, reference=path).breaches
    assert breach.causes == ("the halves of dim 0 are swapped",)


def test_a_rule_of_a_record_is_about_its_tensors(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    tensors = {f"fc.{name}": x for name, x in awq_layer(0, (128, 16)).items()}
    write_safetensors(model, tensors)
    rules: dict[str, dict[str, Any]] = {"fc": {"record": "awq", "dims": [128, 16]}}
    assert reorder.check(model, rules, reference=model).compared == ("fc",)
    assert reorder.check(model, rules).holds
    assert _keys(model, {"fc": {"record": "awq", "dims": [16, 128]}}) == ["dims"]
    assert _keys(model, {"fc": {"record": "awq(group=32)"}}) == ["record"]
    assert _keys(model, {"f*": {"padding": "zero"}, "fc": {"record": "awq"}}) == []
    moved = tensors | {"fc.qweight": tensors["fc.qweight"].view(np.uint32).byteswap().view("<i4")}
    write_safetensors(tmp_path / "bad.safetensors", moved)
    report = reorder.check(tmp_path / "bad.safetensors", rules, reference=model)
    (breach,) = report.breaches
    assert breach.causes == ("the bytes of each 4 are reversed",)
    assert "in qweight" in breach.problem
    del tensors["fc.scales"]
    write_safetensors(tmp_path / "less.safetensors", tensors)
    found = reorder.check(tmp_path / "less.safetensors", rules, reference=model).breaches
    assert [(each.key, each.causes) for each in found] == [("record", ()), ("values", ())]


def test_wrong_rules_are_refused_by_name(tmp_path: Path) -> None:
    path = _saved(tmp_path / "x.safetensors", _codes())
    assert "'layuot' is not a key" in _refusal(path, {"*": {"layuot": "ab"}})
    assert "rule '*.down': it matches no tensor" in _refusal(path, {"*.down": {"dtype": "s8"}})
    odd = _saved(tmp_path / "y.npz", _codes(), name="x[0]")
    assert "did you mean 'x[[]0]'?" in _refusal(odd, {"x[0]": {"dtype": "s8"}})
    assert "it matches no record" in _refusal(path, {"layers.1": {"record": "awq"}})
    both = {"*": {"dtype": "s8"}, "layers.*": {"dtype": "u8"}}
    assert "rule 'layers.*': it says dtype = u8, and the rule '*' says" in _refusal(path, both)
    assert "both record and layout" in _refusal(path, {"*": {"record": "awq", "layout": "ab"}})
    assert "'awk' is not a record" in _refusal(path, {"*": {"record": "awk"}})
    assert "dims" in _refusal(path, {"*": {"dims": [1.5]}})
    assert "padding must be" in _refusal(path, {"*": {"padding": "one"}})
    assert "scales must be a list" in _refusal(path, {"*": {"scales": "x"}})
    assert "it is empty" in _refusal(path, {"*": {}})
    assert "no rules" in _refusal(path, {})
    wrong = {"*": {"layout": "nChx16c", "dims": [1, 2, 3, 4], "dtype": "s8"}}
    assert "nChx16c" in _refusal(path, wrong)
    file = tmp_path / "rules.toml"
    file.write_text('[layers.0]\ndtype = "s8"\n')
    assert "quote patterns that have dots" in _refusal(path, file)
    file.write_text("dtype = ")
    assert "is not TOML" in _refusal(path, file)
    with pytest.raises(MemdescError, match="what to expect"):
        reorder.check(path)


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (5, "is a mapping of patterns to rules, not 5"),
        ("rules.toml", "is a mapping of patterns to rules, not 'rules.toml'"),
        ({}, "no rules"),
        ({"a": 5}, "rule 'a': it must be a table"),
        ({5: {"dims": [3]}}, "rule '5': it must be a table"),
        ({"a": {"dtype": np.float32}}, "dtype must be a string"),
        ({"others": "allowed", "a": {"dims": [3]}}, "others must be"),
    ],
)
def test_a_contract_that_no_file_can_have_is_not_written(rules: Any, problem: str) -> None:
    with pytest.raises(MemdescError, match=problem):
        reorder.contract_to_toml(rules)


def test_any_sequence_of_sizes_is_written_as_a_list() -> None:
    for dims in ((3, 4), np.array([3, 4])):
        assert reorder.contract_to_toml({"a": {"dims": dims}}) == '["a"]\ndims = [3, 4]\n'


def _twice(x: NDArray[Any]) -> NDArray[Any]:
    once = reorder.reorder(x, _TAG)
    return reorder.reorder(once.data.view(np.int8).reshape(_DIMS), _TAG).data


_X = _codes()
_PACKED = reorder.reorder(_X, _TAG).data
_TRANSPOSED = "dims 0 and 1 are transposed"
_DAMAGED = {
    "it is packed twice": _twice(_X),
    "it is not packed": _X,
    _TRANSPOSED: reorder.reorder(
        np.ascontiguousarray(_X.T), memory_desc(_DIMS[::-1], "s8", _TAG)
    ).data,
    "the halves of dim 0 are swapped": reorder.reorder(np.roll(_X, 32, 0), _TAG).data,
    "the halves of each 8 along dim 1 are swapped": reorder.reorder(
        np.ascontiguousarray(_X.reshape(64, 16, 2, 4)[:, :, ::-1]).reshape(_DIMS), _TAG
    ).data,
    "the rows of the halves of dim 0 are interleaved": reorder.reorder(
        _X.reshape(2, 32, 128).swapaxes(0, 1).reshape(_DIMS), _TAG
    ).data,
    "the even and the odd rows of dim 0 are in halves": reorder.reorder(
        np.concatenate([_X[0::2], _X[1::2]]), _TAG
    ).data,
    "the nibbles of each byte are reversed": (_PACKED << 4) | (_PACKED >> 4),
    "the bytes of each 8 are reversed": _PACKED.reshape(-1, 8)[:, ::-1].copy(),
}


@pytest.mark.parametrize("cause", _DAMAGED)
def test_a_cause_that_predicts_every_byte_is_named(tmp_path: Path, cause: str) -> None:
    good = _saved(tmp_path / "good.safetensors", _X)
    bad = _saved(tmp_path / "bad.safetensors", _X, data=_DAMAGED[cause])
    (breach,) = reorder.check(bad, reference=good).breaches
    assert breach.causes == (cause,)
    plain = _saved(tmp_path / "plain.safetensors", _X, "ab")
    (breach,) = reorder.check(bad, reference=plain).breaches
    assert breach.causes == (cause,)
    # one more byte that differs, and nothing is explained
    data = np.ascontiguousarray(_DAMAGED[cause]).view(np.uint8).reshape(-1).copy()
    data[1000] ^= 1
    worse = _saved(tmp_path / "worse.safetensors", _X, data=data)
    (breach,) = reorder.check(worse, reference=good).breaches
    assert (breach.key, breach.causes) == ("values", ())


@pytest.mark.parametrize(
    ("layout", "dtype", "dims", "causes"),
    [
        ("nvfp4_scales", "u8", (256, 32), ["the scales are plain instead of swizzled"]),
        ("ba", "u8", (16, 16), ["it is not packed", "it is packed twice", _TRANSPOSED]),
        # also bca, as dim b is 1: names that differ for other dims explain no transposition
        ("cab", "s8", (4, 1, 2), ["it is not packed", "dims 0 and 2 are transposed"]),
        # codes of 4 bits and padding take as many bytes as codes in a byte each
        ("Ab8a", "u4", (4, 64), ["it is not packed"]),
    ],
)
def test_all_causes_that_predict_the_bytes_of_plain_rows_are_named(
    tmp_path: Path, layout: str, dtype: str, dims: tuple[int, ...], causes: list[str]
) -> None:
    x = np.random.default_rng(0).integers(1, 8, dims, np.uint8)
    good = reorder.reorder(reorder.reorder(x, dtype=dtype), layout)
    bad = reorder.Memory(good.desc)
    rows = reorder.reorder(x, dtype=dtype).data
    bad.data[: len(rows)] = rows
    assert _causes(tmp_path, good, bad) == causes


def test_a_name_that_pads_other_dims_hides_no_transposition(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 8, (16, 16, 4, 4), np.int8)
    good = reorder.reorder(x, "nhwc")  # also kHWC16
    bad = reorder.Memory(good.desc, reorder.reorder(x.swapaxes(1, 2), "nhwc").data)
    assert _causes(tmp_path, good, bad) == ["dims 1 and 2 are transposed"]


def _causes(folder: Path, good: reorder.Memory, bad: reorder.Memory) -> list[str]:
    reorder.save(folder / "good.npz", {"w": good})
    reorder.save(folder / "bad.npz", {"w": bad})
    (breach,) = reorder.check(folder / "bad.npz", reference=folder / "good.npz").breaches
    return [*breach.causes]


@pytest.mark.parametrize(
    ("one", "other"), [("u8", "s8"), ("bf16", "f16"), ("f32", "s32"), ("f32", "f16"), ("s8", "s8")]
)
def test_equal_numbers_in_different_layouts_and_types_differ_nowhere(
    tmp_path: Path, one: str, other: str
) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in ("a", "b", "c")]
    x = (_X & 127).astype(np.float32)
    for path, dtype, layout, numbers in zip(
        paths, (one, other, other), ("AB8b8a", "ba", "ba"), (x, x, -x), strict=True
    ):
        reorder.save(path, {"w": reorder.reorder(numbers, layout, dtype=dtype)})
    a, b, negative = paths
    assert reorder.check(a, reference=b).holds
    assert reorder.check(b, reference=a).holds
    assert not reorder.check(a, reference=negative).holds


def test_tensors_of_one_side_only_are_breaches(tmp_path: Path) -> None:
    one, other = tmp_path / "one.npz", tmp_path / "other.npz"
    reorder.save(one, {"a": np.ones(3), "b": np.ones(3)})
    reorder.save(other, {"a": np.ones(3), "c": np.ones(3)})
    found = {breach.name for breach in reorder.check(one, reference=other).breaches}
    assert found == {"b", "c"}


def test_packing_a_packed_tensor_again_copies_it(tmp_path: Path) -> None:
    path = _saved(tmp_path / "packed.safetensors", _X)
    report = reorder.convert(path, tmp_path / "again.safetensors", [f"*: {_TAG}"])
    assert (report.converted, report.copied) == (0, 1)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def _quantised(folder: Path, layer: Mapping[str, NDArray[Any]], **section: Any) -> Path:
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", layer)
    write_config(folder, **section)
    return folder


def _experts() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "e.down_blocks": rng.integers(0, 256, (3, 40, 2, 16), np.uint8),
        "e.down_scales": rng.integers(120, 130, (3, 40, 2), np.uint8),
    }


_SIZES = {"fp8": {"weight_block_size": [128, 128]}}
_MODELS: dict[str, Any] = {
    "gptq": {f"fc.{name}": x for name, x in gptq_layer()[0].items()},
    "square gptq": {f"fc.{name}": x for name, x in gptq_layer(dims=(128, 128))[0].items()},
    "mxfp4": _experts(),
    "fp8": {"e.up" + name.removeprefix("weight"): x for name, x in fp8_layer().items()},
}


@pytest.mark.parametrize("name", _MODELS)
def test_a_record_and_the_floats_that_it_becomes_are_equal(tmp_path: Path, name: str) -> None:
    method = name.removeprefix("square ")
    model = _quantised(
        tmp_path / "model", _MODELS[name], quant_method=method, **_SIZES.get(method, {})
    )
    options = reorder.ConvertOptions(threads=1)
    reorder.convert(model, tmp_path / "bf16", (), options, to="bf16")
    with reorder.open_checkpoint(model) as held, reorder.open_checkpoint(tmp_path / "bf16") as made:
        (weight,) = made
        prefix = weight.removesuffix(".weight")
        numbers = reorder.dequantize(held.record(prefix)).numpy()
    turned = {"gptq": (1, 0), "mxfp4": (0, 2, 1)}.get(method, (0, 1))
    floats = np.ascontiguousarray(numbers.transpose(turned))
    assert floats.shape == reorder.open_checkpoint(tmp_path / "bf16")[weight].shape
    right, wrong = tmp_path / "right.safetensors", tmp_path / "wrong.safetensors"
    reorder.save(right, {weight: floats})
    floats[..., 0, 1] += 1
    reorder.save(wrong, {weight: floats})
    for one, other in ((model, right), (right, model)):
        assert reorder.check(one, reference=other).breaches == ()
    for one, other in ((model, wrong), (wrong, model)):
        (breach,) = reorder.check(one, reference=other).breaches
        assert breach.problem.startswith(f"differ in {floats[..., 0, 1].size} of {floats.size} ")


def test_other_weights_show_the_order_of_a_square_one(tmp_path: Path) -> None:
    sizes = {"square": (128, 128), "other": (128, 256)}
    layers = {name: gptq_layer(dims=dims)[0] for name, dims in sizes.items()}
    tensors = {f"{name}.{role}": x for name, each in layers.items() for role, x in each.items()}
    model = _quantised(tmp_path / "model", tensors, quant_method="gptq")
    with reorder.open_checkpoint(model) as held:
        numbers = {name: reorder.dequantize(held.record(name)).numpy() for name in sizes}
    floats = {f"{name}.weight": x.T for name, x in numbers.items()}
    right, wrong = tmp_path / "right.safetensors", tmp_path / "wrong.safetensors"
    reorder.save(right, floats)
    reorder.save(wrong, floats | {"square.weight": floats["square.weight"].T})
    for one, other in ((model, right), (right, model)):
        assert reorder.check(one, reference=other).breaches == ()
    for one, other in ((model, wrong), (wrong, model)):
        (breach,) = reorder.check(one, reference=other).breaches
        assert breach.name.startswith("square")
        assert breach.problem.startswith("differ in ")
    for name, code in (("right", 0), ("wrong", 1)):
        assert main(["compare", str(model), str(tmp_path / f"{name}.safetensors")]) == code


def test_blocks_of_gguf_and_the_floats_that_they_become_are_equal(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    blocks = plain_scales(random_record(record_desc((64, 256), "q4_0"), rng), rng)
    reorder.convert(_saved_blocks(tmp_path / "x.npz", blocks), tmp_path / "q.gguf", ())
    next(iter(blocks.tensors.values()))[2] ^= 1  # a bit of a code
    reorder.convert(_saved_blocks(tmp_path / "y.npz", blocks), tmp_path / "bad.gguf", ())
    for name in ("f.safetensors", "f.gguf"):
        reorder.convert(tmp_path / "q.gguf", tmp_path / name, ("*: plain, f32",))
        for one, other in (("q.gguf", name), (name, "q.gguf")):
            assert reorder.check(tmp_path / one, reference=tmp_path / other).breaches == ()
        for one, other in (("bad.gguf", name), (name, "bad.gguf")):
            (breach,) = reorder.check(tmp_path / one, reference=tmp_path / other).breaches
            assert breach.problem.startswith("differ in ")


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_rows_of_blocks_that_were_swapped_are_named(tmp_path: Path, name: str) -> None:
    desc = record_desc((4, 256), name)
    blocks = random_record(desc, np.random.default_rng(0))
    good = _saved_blocks(tmp_path / "good.npz", blocks)
    (data,) = blocks.tensors.values()
    data[:] = np.roll(data.reshape(4, -1), 2, 0).reshape(-1)
    bad = _saved_blocks(tmp_path / "bad.npz", blocks)
    (breach,) = reorder.check(bad, reference=good).breaches
    assert breach.causes == ("the halves of dim 0 are swapped",)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("dims", [(8, 128), (2, 8, 128)])
def test_rows_of_planes_that_were_swapped_are_named(
    tmp_path: Path, bits: int, dims: tuple[int, ...]
) -> None:
    record = random_record(record_desc(dims, "mlx", bits=bits), np.random.default_rng(0))
    good = _saved_blocks(tmp_path / "good.npz", record)
    dim = len(dims) - 2
    for change, cause in (
        (lambda x: np.roll(x, 4, dim), "the halves of dim {} are swapped"),
        (
            lambda x: np.concatenate([x[..., 0::2, :], x[..., 1::2, :]], dim),
            "the even and the odd rows of dim {} are in halves",
        ),
    ):
        tensors = {
            role: np.ascontiguousarray(change(x.reshape(*dims[:-1], -1))).reshape(-1)
            for role, x in record.tensors.items()
        }
        bad = _saved_blocks(tmp_path / "bad.npz", reorder.Record(record.desc, tensors))
        (breach,) = reorder.check(bad, reference=good).breaches
        assert breach.causes == (cause.format(dim),)


def test_rows_that_share_blocks_are_not_taken_for_rows_of_bytes(tmp_path: Path) -> None:
    record = random_record(record_desc((16, 64), "q4_0_r8"), np.random.default_rng(0))
    good = _saved_blocks(tmp_path / "good.npz", record)
    (data,) = record.tensors.values()
    data[:] = np.roll(data.reshape(16, -1), 1, 0).reshape(-1)
    bad = _saved_blocks(tmp_path / "bad.npz", record)
    (breach,) = reorder.check(bad, reference=good).breaches
    assert breach.causes == ()


def _saved_blocks(path: Path, blocks: reorder.Record) -> Path:
    reorder.save(path, {"w": blocks})
    return path


def test_padding_of_codes_is_not_a_value(tmp_path: Path) -> None:
    good = reorder.Record(record_desc((4, 36), "pack_quantized", group=36))
    codes = good.tensors["weight_packed"].reshape(4, 20)
    _saved_blocks(tmp_path / "good.npz", good)
    codes[:, 18:] = 0x88  # what compressed-tensors may write after 36 codes
    _saved_blocks(tmp_path / "same.npz", good)
    codes[1, :3] = 1
    _saved_blocks(tmp_path / "bad.npz", good)
    assert reorder.check(tmp_path / "same.npz", reference=tmp_path / "good.npz").holds
    (breach,) = reorder.check(tmp_path / "bad.npz", reference=tmp_path / "good.npz").breaches
    assert breach.problem == "differ in 3 of 144 elements, in weight_packed"


def test_tensors_that_were_swapped_as_a_whole_are_told(tmp_path: Path) -> None:
    layers = [fp8_layer(seed) for seed in range(3)]
    models = []
    for names in (("gate", "up", "down"), ("up", "gate", "down")):
        tensors = {
            f"{name}.{role}": x
            for name, layer in zip(names, layers, strict=True)
            for role, x in layer.items()
        }
        for k, name in enumerate(names):
            tensors[f"norm.{k}"] = np.full(8, len(name), np.float32)
        folder = tmp_path / names[0]
        models.append(_quantised(folder, tensors, quant_method="fp8", **_SIZES["fp8"]))
    report = reorder.check(models[1], reference=models[0])
    assert {each.name: each.causes for each in report.breaches} == {
        "gate": ("it holds up.weight, up.weight_scale_inv of the reference",),
        "up": ("it holds gate.weight, gate.weight_scale_inv of the reference",),
        "norm.0": ("it holds norm.1 of the reference",),
        "norm.1": ("it holds norm.0 of the reference (others with the same bytes: 1)",),
    }


def test_a_plain_tensor_beside_a_record_hides_no_difference(tmp_path: Path) -> None:
    layer = _MODELS["gptq"] | {"fc.weight": np.ones((4, 4), np.float32)}
    good = _quantised(tmp_path / "good", layer, quant_method="gptq")
    layer = layer | {"fc.qweight": layer["fc.qweight"] + 1}
    bad = _quantised(tmp_path / "bad", layer, quant_method="gptq")
    assert reorder.check(good, reference=good).compared == ("fc", "fc.weight")
    (breach,) = reorder.check(bad, reference=good).breaches
    assert (breach.name, breach.problem.rpartition(", ")[2]) == ("fc", "in qweight")


def test_experts_in_one_tensor_are_a_record_of_the_contract(tmp_path: Path) -> None:
    model = _quantised(tmp_path / "m", _MODELS["fp8"], quant_method="fp8", **_SIZES["fp8"])
    rules = reorder.contract_of(model)
    assert rules.pop("others") == "refused"
    assert [(name, rule["dims"]) for name, rule in rules.items()] == [("e.up", [256, 128])]
    assert rules["e.up"]["record"].startswith("fp8_block(")
    assert reorder.check(model, rules, reference=model).without_rule == ()
    # a rule about the tensor of the codes says nothing of the other one
    report = reorder.check(model, {"e.up": {"dtype": "f8_e4m3", "dims": [256, 128]}})
    assert (report.holds, report.without_rule) == (True, ("e.up_scale_inv",))
    assert _keys(model, {"e.up": {"dtype": "f32"}}) == ["dtype"]


@pytest.mark.parametrize("rule", [{"dims": [1, 1]}, {"padding": "zero"}])
def test_a_rule_about_a_weight_that_nothing_declares_does_not_hold(
    tmp_path: Path, rule: dict[str, Any]
) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, _MODELS["gptq"])
    (breach,) = reorder.check(path, {"fc": rule}).breaches
    assert (breach.key, breach.rule) == (next(iter(rule)), "fc")
    assert "nothing declares what 'fc' holds" in breach.problem
    assert reorder.check(path, {"*": {"padding": "zero"}}).holds  # of the tensors


def test_a_long_rule_is_named_in_short(tmp_path: Path) -> None:
    path = _saved(tmp_path / "x.safetensors", _codes())
    assert len(_refusal(path, {"*a" * 2000: {"dtype": "s8"}})) < 500
    assert len(_refusal(path, {"*": {"layout": "x" * 5000}})) < 500


def test_a_layout_that_no_notation_reads_is_a_mistake_in_the_rule(tmp_path: Path) -> None:
    path = _saved(tmp_path / "x.safetensors", _codes())
    for layout, reason in (("AB16q", "no dim is called 'q'"), ("blokced", "unknown format")):
        assert reason in _refusal(path, {"*": {"layout": layout}})
    # these are layouts, but not of this tensor
    for layout in ("abcd", "nChw8c", "marlin"):
        assert _keys(path, {"*": {"layout": layout, "dims": [64, 120]}}) == ["layout"]
