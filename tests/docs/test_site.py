"""The built pages, as a reader's browser shows them."""

import functools
import html
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import pytest

import memdesc
import reorder
from tests.browser import Browser, missing, opened

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, built with warnings as errors."""
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "-n", "-q", "-d", str(out / ".doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(_ROOT / "docs"), str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the pages are served."""

    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Silent, directory=str(site))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if lacking := missing():
        pytest.skip(f"{lacking} is not installed (Debian: chromium, chromium-driver)")
    with opened() as found:
        yield found


Ask = Callable[..., Any]


@pytest.fixture
def learn(address: str, browser: Browser) -> Ask:
    """Open the chapter with the forms in a window of a size, and return what a script says."""

    def ask(script: str, width: int = 1280, height: int = 900) -> Any:
        browser.resize(width, height)
        browser.open(f"{address}/learn.html")
        return browser.run(f"{_FORM}{{{script}}}")

    return ask


def pages(site: Path) -> list[str]:
    return sorted(page.name for page in site.glob("*.html"))


def test_the_pages_build_without_a_warning_and_draw_their_pictures(site: Path) -> None:
    named = "index", "start", "tags", "vocabulary", "api", "limits", "learn"
    assert {f"{name}.html" for name in named} <= set(pages(site))
    desc = memdesc.memory_desc((1, 5, 2, 3), "f32", "nChw4c")
    page = (site / "index.html").read_text(encoding="utf-8")
    parts = re.findall(r"<svg.*?</svg>", desc.show().fragment, re.DOTALL)
    assert len(parts) > 1
    for part in parts:
        assert re.sub(r"<style>.*?</style>", "", part) in re.sub(r"<style>.*?</style>", "", page)
    assert "b_fs_yx_fsv16" in (site / "vocabulary.html").read_text(encoding="utf-8")
    assert max(page.stat().st_size for page in site.glob("*.html")) < 600_000


# pixels, as shown: letters of pictures scale with them
_SMALLEST = """
    const size = (e) => parseFloat(getComputedStyle(e).fontSize)
        * (e.closest('svg') ? e.getScreenCTM().a : 1);
    return Math.min(...[...document.querySelectorAll('article *')].filter(
        (e) => e.getClientRects().length && [...e.childNodes].some((n) => n.nodeType === 3)
    ).map(size), 99);
"""


def test_no_page_complains_and_every_picture_is_seen(
    site: Path, address: str, browser: Browser
) -> None:
    browser.resize(390, 900)
    seen = 0
    for page in pages(site):
        browser.open(f"{address}/{page}")
        assert browser.complaints() == [], page
        sizes = browser.run(
            "return [...document.querySelectorAll('.memdesc-half svg, article img')]"
            ".map(e => [e.getBoundingClientRect().width, e.getBoundingClientRect().height])"
        )
        assert all(width > 100 and height > 50 for width, height in sizes), page
        assert browser.run(_SMALLEST) >= 11, f"{page} has text that is too small to read"
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), (
            f"{page} scrolls sideways"
        )
        seen += len(sizes)
    assert seen >= 8


def test_every_link_leads_somewhere(site: Path, address: str, browser: Browser) -> None:
    targets: dict[str, set[str]] = {}
    links: list[tuple[str, str]] = []
    for page in pages(site):
        browser.open(f"{address}/{page}")
        ids, found = browser.run(
            "return [[...document.querySelectorAll('[id]')].map(e => e.id),"
            " [...document.querySelectorAll('a[href]')].map(e => e.href)]"
        )
        targets[page] = set(ids)
        links += [(page, link) for link in found]
    for page, link in links:
        where = f"{page}: {link}"
        assert link.startswith((f"{address}/", "https://", "http://www.sphinx-doc.org")), where
        if link.startswith(address):
            url, fragment = urldefrag(link)
            name = url.removeprefix(f"{address}/") or "index.html"
            assert (site / name).is_file(), where
            assert not fragment or name not in targets or fragment in targets[name], where


# what the tests say to a form
_FORM = """
    const form = [...document.querySelectorAll('.memdesc-lesson')].at(-1);
    const type = (name, text) => {
        form.querySelector('form')[name].value = text;
        form.querySelector('form')[name].dispatchEvent(new Event('input', {bubbles: true}));
    };
    const error = () => form.querySelector('.lesson-error').textContent;
    const texts = (query) => [...form.querySelectorAll(query)].map(e => e.textContent);
    const [grid, memory] = [0, 1].map(k => `.lesson-half:nth-child(${k + 1})`);
    const point = (cell, type, kind) => cell.dispatchEvent(
        new PointerEvent(type, {bubbles: true, pointerType: kind}));
    const press = (key, form) => form.querySelector('.lesson-halves').dispatchEvent(
        new KeyboardEvent('keydown', {key, bubbles: true}));
"""


def test_forms_that_teach_mark_both_sides_and_write_the_arithmetic(
    learn: Ask, browser: Browser
) -> None:
    count, errors, undrawn, smallest = learn(
        """
        const all = [...document.querySelectorAll('.memdesc-lesson')];
        const texts = [...document.querySelectorAll('.memdesc-lesson *')].filter(
            e => e.textContent);
        return [all.length, all.map(e => e.querySelector('.lesson-error').textContent).join(''),
                all.filter(e => !e.querySelector('.total')).length,
                Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize)))];
        """,
        390,
    )
    assert browser.complaints() == []
    assert (count >= 12, errors, undrawn, smallest >= 11) == (True, "", 0, True)
    hover, tap, kept, walked = learn(
        """
        const form = [...document.querySelectorAll('.memdesc-lesson')].find(
            e => e.dataset.tag === 'nChw4c' && e.dataset.dims === '1x5x2x3');
        const cells = () => [...form.querySelectorAll('td.cell')];
        const seen = () => cells().filter(c => c.classList.contains('marked'))
            .map(c => c.textContent).concat(form.querySelector('.total').lastChild.textContent);
        const at = (text) => cells().find(c => c.textContent === text);
        point(at('14'), 'pointerover', 'mouse');
        const hover = seen();
        point(at('2,1,1'), 'pointerover', 'touch');
        at('2,1,1').dispatchEvent(new MouseEvent('click', {bubbles: true}));
        const tap = seen();
        point(at('0'), 'pointerover', 'mouse');
        const kept = seen();
        press('ArrowRight', form);
        return [hover, tap, kept, seen()];
        """,
        390,
    )
    assert hover == ["14", "2,1,0", "= 14"]
    assert tap == kept == ["18", "2,1,1", "= 18"]
    assert walked == ["19", "3,1,1", "= 19"]


def test_a_form_says_what_is_wrong_with_a_tag_and_draws_what_is_typed(learn: Ask) -> None:
    wrong, right, company = learn("""
        const form = document.querySelector('.memdesc-lesson');
        const type = (field, text) => {
            field.value = text;
            field.dispatchEvent(new Event('input', {bubbles: true}));
        };
        const [tag, dims] = form.querySelectorAll('input');
        type(tag, 'aBc8b');
        const wrong = form.querySelector('.lesson-error').textContent;
        type(dims, '2x16x3');
        const right = form.querySelectorAll('td.cell').length;
        type(form.querySelectorAll('select')[1], 'b');
        return [wrong, right, form.querySelector('.lesson-company').textContent];
    """)
    assert "3 dims (a, b, c), not 2" in wrong
    assert right == 2 * 2 * 16 * 3
    assert company == "Along b: 16 elements in 2 runs of adjacent elements, 2 cache lines."


def test_a_form_draws_an_image_as_pixels_and_derives_x_and_y(learn: Ask) -> None:
    heads, lanes, totals, said = learn("""
        type('tag', 'in_out_channel');
        type('dims', '1x6x2x3');
        [...form.querySelectorAll(memory + ' td.cell')].find(
            c => c.textContent === '5,1,2').click();
        const rows = [...form.querySelectorAll(memory + ' tr')];
        return [[...rows[0].children].map(e => e.textContent).slice(1),
                rows.slice(1).map(row => row.children.length - 1),
                texts('.total'), form.querySelector('.lesson-sum').textContent];
    """)
    assert heads == [f"x = {x}" for x in range(6)]
    assert lanes == [6] * 8  # four lanes in each of two rows
    image = memdesc.image_desc((1, 6, 2, 3), "f16", "in_out_channel")
    assert image.pixel((0, 5, 1, 2)) == (5, 1, 1)
    assert totals == ["y= 1", "x= 5", "lane= 1"]
    assert "+ lane = 45" in said


def test_dims_of_one_element_are_not_rows_or_columns(learn: Ask) -> None:
    tables, rows, title = learn("""
        type('tag', 'ABcd4b8a2b');
        type('dims', '8x8x1x1');
        return [form.querySelectorAll(grid + ' table').length,
                form.querySelectorAll(grid + ' tr').length, texts('.lesson-title')[0]];
    """)
    assert (tables, rows) == (1, 8)
    assert "rows a, columns b" in title


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1280, 800)])
def test_the_arithmetic_is_in_sight_of_every_cell(learn: Ask, width: int, height: int) -> None:
    hidden, covered = learn(
        """
        document.documentElement.style.scrollBehavior = 'auto';
        const sight = (element) => {
            const box = element.getBoundingClientRect();
            return box.top >= 0 && box.bottom <= innerHeight;
        };
        const hidden = [...document.querySelectorAll('.lesson-halves')].flatMap(halves => {
            const cells = [...halves.querySelectorAll('.cell')];
            return [cells[0], cells.at(-1)].filter(cell => {
                cell.scrollIntoView({block: 'center'});
                const sum = halves.parentElement.querySelector('.lesson-sum');
                return !sight(cell) || !sight(sum);
            }).map(cell => halves.closest('.memdesc-lesson').dataset.tag);
        });
        return [hidden, [...document.querySelectorAll('.memdesc-lesson')].filter(form => {
            const [tag, sum] = ['input', '.lesson-sum'].map(each => form.querySelector(each));
            tag.scrollIntoView({block: 'end'});
            return sum.getBoundingClientRect().top < tag.getBoundingClientRect().bottom;
        }).map(form => form.dataset.tag)];
        """,
        width,
        height,
    )
    assert (hidden, covered) == ([], [])


def test_a_form_fits_a_phone_and_shows_the_marked_element_in_both_halves(learn: Ask) -> None:
    tall, hidden = learn(
        """
        const inSight = (cell) => {
            const [own, half] = [cell, cell.closest('.lesson-scroll')].map(
                each => each.getBoundingClientRect());
            return own.top >= half.top - 1 && own.bottom <= half.bottom + 1;
        };
        const forms = [...document.querySelectorAll('.memdesc-lesson')];
        const hidden = [];
        for (const form of forms) {
            const cells = [...form.querySelectorAll('.lesson-half:nth-child(1) .cell')];
            for (const cell of [cells.at(-1), cells[0]]) {
                cell.click();
                if (![...form.querySelectorAll('.marked')].every(inSight))
                    hidden.push(form.dataset.tag);
            }
        }
        return [forms.filter(form => form.offsetHeight > innerHeight).map(
            form => form.dataset.tag), hidden];
    """,
        390,
        844,
    )
    assert (tall, hidden) == ([], [])


def test_a_form_says_the_way_out_and_dims_a_picture_that_is_out_of_date(learn: Ask) -> None:
    fresh, stale, strides, other, again = learn("""
        const dimmed = () => ['halves', 'sum'].map(
            part => +getComputedStyle(form.querySelector('.lesson-' + part)).opacity < 1);
        type('dims', '3x4');
        type('tag', 'ab');
        const fresh = dimmed();
        type('tag', 'strides 6');
        const [stale, strides] = [dimmed(), error()];
        type('tag', 'b_fs_yx_fsv16');
        const other = error();
        type('tag', 'ab');
        return [fresh, stale, strides, other, dimmed()];
    """)
    assert fresh == again == [False, False]
    assert stale == [True, True]
    assert "such as strides 4 1" in strides
    assert "memdesc show --draw 'b_fs_yx_fsv16' 3x4" in other


def test_escape_releases_a_held_element(learn: Ask) -> None:
    held, released = learn("""
        type('tag', 'ab');
        type('dims', '3x4');
        const cells = [...form.querySelectorAll(grid + ' .cell')];
        const seen = () => form.querySelector(grid + ' .marked').textContent;
        cells[5].click();
        point(cells[7], 'pointerover');
        const held = [seen(), texts('.lesson-sum > p')[0]];
        press('Escape', form);
        point(cells[7], 'pointerover');
        return [held, [seen(), texts('.lesson-sum > p')[0]]];
    """)
    assert held[0] == "5"
    assert "Escape" in held[1]
    assert released[0] == "7"
    assert "Escape" not in released[1]


def test_the_commands_that_replace_the_forms_draw_their_layouts(site: Path) -> None:
    page = (site / "learn.html").read_text(encoding="utf-8")
    commands = re.findall(r'memdesc-lesson".*?<code>(.*?)</code>', page)
    assert len(commands) >= 12
    for command in commands:
        name, *arguments = shlex.split(html.unescape(command))
        assert name == "memdesc"
        ran = subprocess.run(
            [sys.executable, "-m", name, *arguments], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, (command, ran.stderr)
        assert "logical: " in ran.stdout, command


_SHOWN = {
    "blocked": "memory_desc((1, 5, 2, 3), 'f32', 'nChw4c').show('nchw')",
    "large": "memory_desc((32, 250, 56, 56), 'f32', 'nChw16c').show('nchw')",
    "4 bits": "memory_desc((5, 7), 's4', 'Ab4a').show()",
    "swizzled": "memory_desc((35, 37, 1, 1), 's8', "
    "'os_is_yx_osa4_isa8_osv8_isv4_swizzled_by_4').show()",
    "fused": "memory_desc((1, 3, 5, 5), 'f32', 'bf8_xy16').show()",
    "gaps": "memory_desc((3, 4), 'f32', strides=(6, 1), offset0=3).show()",
    "image": "image_desc((1, 6, 2, 9), 'f16', 'in_out_channel').show()",
    "six dims": "memory_desc((2, 3, 2, 2, 2, 2), 'f32', 'aBcdef2b').show()",
    "long words": "memory_desc((123, 1000, 17), 'f64', strides=(2 * 10**9, 10**6, 50001)).show()",
    "empty": "memory_desc((0, 4), 'f32', 'ab').show()",
    "highlighted": "memory_desc((5, 17, 9, 9), 'f32', 'nChw8c').show("
    "highlight=[(2, 9, 4, 7), (4, 23, 8, 8)])",
    "beside": "memory_desc((2, 9, 4, 4), 'f32', 'nchw').show("
    "beside=memory_desc((2, 9, 4, 4), 'f32', 'nChw4c'))",
    "plan": "plan_reorder(memory_desc((1, 5, 2, 3), 'f32', 'nhwc'), 'nChw4c').show()",
}  # fmt: skip


@pytest.fixture
def draw(tmp_path: Path, browser: Browser) -> Ask:
    """Open a picture in a file, and return what a script says."""

    def ask(name: str, script: str, file: str = "picture.svg") -> Any:
        path = tmp_path / file
        eval(_SHOWN[name], {**vars(memdesc), "plan_reorder": reorder.plan_reorder}).save(path)
        browser.open(path.as_uri())
        assert browser.complaints() == []
        return browser.run(script)

    return ask


@pytest.mark.parametrize("name", _SHOWN)
def test_a_picture_keeps_its_text_in_its_cells_and_everything_apart_on_the_paper(
    name: str, draw: Ask
) -> None:
    outside = draw(
        name,
        """
        const paper = document.documentElement.getBoundingClientRect();
        const beyond = (box, frame) => box.left < frame.left - 1 || box.right > frame.right + 1
                                    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
        const bad = [];
        for (const text of document.querySelectorAll('text'))
            if (beyond(text.getBoundingClientRect(), paper)) bad.push(text.textContent);
        for (const cell of document.querySelectorAll('.memdesc-cell'))
            for (const text of cell.querySelectorAll('text')) {
                const rect = cell.querySelector('rect').getBoundingClientRect();
                if (beyond(text.getBoundingClientRect(), rect)) bad.push(text.textContent);
            }
        const boxes = [...document.querySelectorAll('text')].map(
            text => [text.textContent, text.getBoundingClientRect()]);
        boxes.forEach(([one, a], k) => boxes.slice(k + 1).forEach(([other, b]) => {
            // lines of text overlap by the height of accents
            const meet = a.left < b.right - 1 && b.left < a.right - 1
                && a.top < b.bottom - 4 && b.top < a.bottom - 4;
            if (meet) bad.push(one + ' on ' + other);
        }));
        return bad;
        """,
    )
    assert outside == []


def test_a_picture_follows_the_colour_scheme_of_the_reader(draw: Ask, browser: Browser) -> None:
    script = """
        const fill = (query) => getComputedStyle(document.querySelector(query)).fill;
        const colour = (query) => fill(query).match(/[0-9]+/g).map(Number);
        return [colour('.memdesc-paper'), colour('.memdesc-ink'), colour('.memdesc-cell text')];
    """
    browser.prefer("light")
    paper, ink, number = draw("blocked", script)
    assert min(paper) > 200
    assert max(ink) < 60
    browser.prefer("dark")
    dark_paper, dark_ink, dark_number = browser.run(script)
    assert max(dark_paper) < 60
    assert min(dark_ink) > 200
    assert number == dark_number  # cells keep light colours and dark numbers
    browser.prefer("light")


def test_pictures_on_a_page_follow_the_button_for_its_colour_scheme(
    address: str, browser: Browser
) -> None:
    browser.open(f"{address}/images.html")
    found = {}
    for preferred in ("light", "dark"):
        browser.prefer(preferred)
        for _ in range(3):
            chosen, page, paper, shadow = browser.run(
                """
                document.querySelector('.theme-toggle').click();
                const style = (query, part) => getComputedStyle(
                    document.querySelector(query), part);
                const numbers = (colour) => colour.match(/[0-9]+/g).slice(0, 3).map(Number);
                return [document.body.dataset.theme, numbers(style('body').backgroundColor),
                        numbers(style('.memdesc-picture .memdesc-paper').fill),
                        numbers(style('.memdesc-sheet', '::after').backgroundColor)];
                """
            )
            found[preferred, chosen] = {max(each) > 128 for each in (page, paper, shadow)}
    browser.prefer("light")
    light = {("light", "auto"), ("light", "light"), ("dark", "light")}
    assert found == {each: {each in light} for each in found}
    assert len(found) == 6


def test_the_pointer_shows_index_offset_and_byte(draw: Ask) -> None:
    shown = draw(
        "blocked",
        """
        const cell = [...document.querySelectorAll('.memdesc-cell')].find(
            c => c.querySelector('text').textContent === '14');
        const box = cell.querySelector('rect').getBoundingClientRect();
        const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
        return hit.closest('.memdesc-cell').querySelector('title').textContent;
        """,
    )
    assert shown == "index (0, 2, 1, 0)\noffset 14\nbyte 56"


def test_a_page_marks_the_element_under_the_pointer_in_both_halves_and_zooms(
    draw: Ask, browser: Browser
) -> None:
    linked = """
        const point = (type, cell) => cell.dispatchEvent(new PointerEvent(type, {bubbles: true}));
        const at = (half, text) => [...half.querySelectorAll('.memdesc-cell')].find(
            cell => cell.querySelector('text').textContent === text);
        const [grid, memory] = document.querySelectorAll('.memdesc-half');
        const linked = () => [...document.querySelectorAll('.linked')];
        point('pointerover', at(grid, '14'));
        const first = linked().map(cell => cell.querySelector('text').textContent);
        const halves = linked().map(cell => cell.closest('.memdesc-half') === memory);
        at(memory, '3').dispatchEvent(new MouseEvent('click', {bubbles: true}));
        point('pointerover', at(grid, '14'));
        return [first, halves, linked()[0].querySelector('text').textContent,
                document.getElementById('shown').textContent];
    """
    first, halves, kept, said = draw("blocked", linked, "page.html")
    assert first == ["14", "14"]
    assert halves == [False, True]
    assert kept == "3"
    assert said.split("   ")[1:] == ["offset 3", "byte 12"]
    wide = """
        document.getElementById(arguments[0] || 'more').click();
        return document.querySelector('.memdesc-half svg').getBoundingClientRect().width;
    """
    assert browser.run(wide.replace("arguments[0] || ", "")) > browser.run(
        wide.replace("arguments[0] || 'more'", "'fit'")
    )
    assert browser.complaints() == []


def test_halves_stand_below_each_other_where_it_is_narrow(draw: Ask, browser: Browser) -> None:
    tops = "return [...document.querySelectorAll('.memdesc-half')].map(e => e.offsetTop)"
    for width, beside in ((390, False), (2300, True)):
        browser.resize(width, 900)
        left, right = draw("large", tops, "page.html")
        assert (left == right) == beside
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
