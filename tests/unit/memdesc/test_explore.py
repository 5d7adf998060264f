from __future__ import annotations

import sys
from html import escape
from typing import Any

import pytest

import memdesc
from memdesc import MemdescError


@pytest.fixture
def form() -> Any:
    pytest.importorskip("ipywidgets")
    return memdesc.explore((2, 17, 5, 4), "f32", "nChw8c")


def test_a_form_shows_the_page_of_the_layout(form: Any) -> None:
    fields, page = form.children
    assert [field.value for field in fields.children] == ["nChw8c", "2x17x5x4", "f32"]
    desc = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    assert escape(desc.show().html()) in page.value


def test_a_changed_field_draws_the_layout_again(form: Any) -> None:
    (tag, dims, dtype), page = form.children[0].children, form.children[1]
    tag.value = "nhwc"
    dims.value = "(1, 3, 2, 2)"
    dtype.value = "bf16"
    desc = memdesc.memory_desc((1, 3, 2, 2), "bf16", "nhwc")
    assert escape(desc.show().html()) in page.value
    tag.value = "in_out_channel"
    assert escape(memdesc.image_desc((1, 3, 2, 2), "bf16", "in_out_channel").show().html()) in (
        page.value
    )


def test_a_wrong_field_shows_its_message(form: Any) -> None:
    (tag, dims, _), page = form.children[0].children, form.children[1]
    tag.value = "nChw8d"
    assert "no dim is called" in page.value
    tag.value = "nchw"
    dims.value = "2xtwo"
    assert "two" in page.value
    assert page.value.startswith("<pre")
    dims.value = "2x17x5x4"
    assert page.value.startswith("<iframe")


def test_a_layout_that_cannot_be_described_is_refused() -> None:
    pytest.importorskip("ipywidgets")
    with pytest.raises(MemdescError, match="unknown format"):
        memdesc.explore((2, 17, 5, 4), "f32", "nChw8d")


def test_the_absence_of_ipywidgets_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)  # as where it is not installed
    with pytest.raises(MemdescError, match="pip install ipywidgets"):
        memdesc.explore((2, 3), "f32", "ab")
