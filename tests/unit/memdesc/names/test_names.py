"""All names: they are known, found in every vocabulary, and refused with the reason of one."""

import gc
import re

import pytest

from memdesc import (
    RUNTIME,
    UnsupportedFormatError,
    image_desc,
    known_names,
    memory_desc,
    runtime_desc,
)
from memdesc.names import resolve
from memdesc.names.registry import vocabularies
from memdesc.names.vocabulary import Vocabulary
from memdesc.tags import parse_tag
from tests.tables import CLDNN, ONEDNN_ALIASES, ONEDNN_CANONICAL


def test_the_known_names_are_those_of_the_published_tables() -> None:
    names: dict[str, list[str]] = {}
    for name in known_names():
        names.setdefault(name.vocabulary, []).append(name.text)
    onednn = {*ONEDNN_CANONICAL, *ONEDNN_ALIASES}
    assert len(names["onednn"]) == len(onednn) == 873 + 798
    assert {*names["onednn"]} == onednn
    assert {*names["cldnn"]} == {*CLDNN}
    assert names["mace"] == ["NCHW", "NHWC", "OIHW", "HWOI", "MIHW", "HWIM", "W"]


def test_every_canonical_name_reads_back_as_itself_and_every_alias_is_its_tag() -> None:
    assert [str(parse_tag(name)) for name in ONEDNN_CANONICAL] == ONEDNN_CANONICAL
    for alias, tag in ONEDNN_ALIASES.items():
        dims = (35, 37, 39, 41, 43, 45)[: parse_tag(tag).ndims]
        assert memory_desc(dims, "s8", alias) == memory_desc(dims, "s8", tag)


def test_aliases_have_a_domain_and_canonical_names_have_any() -> None:
    domains = {name.text: name.domain for name in known_names() if name.vocabulary == "onednn"}
    assert {domains[name] for name in ONEDNN_CANONICAL} == {"any"}
    assert "any" not in {domains[name] for name in ONEDNN_ALIASES}
    for domain, names in {
        "data": ("nc", "nCdhw16c"),
        "weights": ("oi", "OIhw4i16o4i"),
        "grouped weights": ("goiw", "gOIdhw4i16o4i"),
        "sequence": ("tnc", "ntc"),
        "rnn states": ("ldnc",),
        "rnn weights": ("ldgOi32o", "ldio"),
        "rnn bias": ("ldgo",),
        "vector": ("x",),
    }.items():
        assert {domains[name] for name in names} == {domain}


def test_every_known_name_is_a_layout_or_refused_with_a_reason() -> None:
    refused = {}
    for name in known_names():
        reasons = []
        for bits in (4, 8, 16, 32):
            try:
                resolve(name.text, (), bits)
            except UnsupportedFormatError as error:
                reasons.append(str(error))
        if len(reasons) == 4:
            refused[name.text] = reasons[0]
    assert len(refused) == 13 + 15 + 3 + 1 + 4
    assert all(
        reason.startswith(f"{text!r} cannot be described: it") for text, reason in refused.items()
    )


def test_every_vocabulary_is_registered() -> None:
    found = [found for found in gc.get_objects() if isinstance(found, Vocabulary)]
    assert {id(vocabulary) for vocabulary in found} == {id(one) for one in vocabularies()}


def test_the_number_of_dims_is_checked_before_the_sizes_a_name_exists_for() -> None:
    for name in ("iy_xs_os_xsv2_osv8__ao32", "os_is_osv32_isv32_swizzled_by_4", "dw_conv2d_filter"):
        make = image_desc if name == "dw_conv2d_filter" else memory_desc
        with pytest.raises(
            ValueError, match=re.escape(f"dims (2, 3, 5) have 3 sizes, but '{name}' is for 4")
        ):
            make((2, 3, 5), "f32", name)


def test_a_name_has_letters_for_the_dims() -> None:
    letters = {"byxf": "bfyx", "os_is_yx_isv16_osv16": "oiyx", "HWOI": "oihw", "aBcd16b": None}
    for name, wanted in (letters | {"nhwc": "nchw", "OIhw16i16o": "oihw"}).items():
        assert memory_desc((2, 3, 4, 5), "f32", name).letters == wanted


def test_a_tag_may_stand_for_any_number_of_dims() -> None:
    for meta, tag in {
        "plain": "abcd",
        "abx": "abcd",
        "axb": "acdb",
        "xba": "cdba",
        "ABx16b16a": "ABcd16b16a",
    }.items():
        assert memory_desc((17, 19, 5, 4), "s8", meta) == memory_desc((17, 19, 5, 4), "s8", tag)
    dims = (RUNTIME, 3, 4)
    assert runtime_desc(dims, "f32", "aBx8b") == runtime_desc(dims, "f32", "aBc8b")
