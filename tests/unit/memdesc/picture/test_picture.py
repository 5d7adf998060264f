"""Pictures as values: their forms, and the files they are saved as."""

import re
import sys
from pathlib import Path

import pytest

from memdesc import MemdescError, memory_desc
from memdesc.picture import Picture, check_font


def test_notebooks_draw_and_terminals_print() -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    assert picture._repr_html_() == picture.fragment
    assert Picture(picture.svg, picture.text)._repr_html_() == picture.svg
    assert str(picture) == repr(picture) == picture.text


def test_the_ending_of_a_name_chooses_the_form_of_a_saved_picture(tmp_path: Path) -> None:
    picture = memory_desc((2, 3), "f32", "ab").show()
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == f"{picture.svg}\n"
    picture.save(tmp_path / "a.TXT")
    assert (tmp_path / "a.TXT").read_text(encoding="utf-8") == f"{picture.text}\n"
    picture.save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert page == picture.html()
    assert picture.fragment in page
    # it loads nothing, and names no other site
    sites = re.findall('https?://[^"]*', page)
    assert sites == ["http://www.w3.org/2000/svg"] * page.count("<svg ")
    assert not re.search("(src|href|url|import) *[=(]|&#x27;[^<]*</text", page)
    assert "<title>memory_desc((2, 3), &#x27;f32&#x27;, &#x27;ab&#x27;)</title>" in page
    (tmp_path / "loop.svg").symlink_to("loop.svg")
    for path in (tmp_path / "none" / "a.svg", tmp_path, tmp_path / "loop.svg", "a\0b", "\ud800"):
        with pytest.raises(MemdescError, match="cannot be written"):
            picture.save(path)
    (tmp_path / "loop.svg").unlink()
    for unnamed in (3, None, b"x.svg", "", "-"):
        with pytest.raises(MemdescError, match="a picture is written to a named file, not to"):
            picture.save(unnamed)  # type: ignore[arg-type] # callers without types
    with pytest.raises(MemdescError, match=r"\.svg, \.png, \.html or \.txt, not as '\.pdf'"):
        picture.save(tmp_path / "a.pdf")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.TXT", "a.html", "a.svg"]


def test_a_png_is_made_by_resvg_and_its_absence_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resvg = pytest.importorskip("resvg_py")
    picture = memory_desc((2, 3), "f32", "ab").show()
    picture.save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert f'width="{width // 2}" height="{height // 2}"' in picture.svg
    with pytest.raises(MemdescError, match="no font was found"):
        check_font(resvg, skip_system_fonts=True)
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # as where it is not installed
    with pytest.raises(MemdescError, match="pip install resvg_py"):
        picture.save(tmp_path / "b.png")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
