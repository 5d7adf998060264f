"""The tables on pages that are made from the code, written into the files of the pages.

python docs/_ext/tables.py writes them; a test says when they are not current. On a page, a table
stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import memdesc
from memdesc import MemdescError, UnsupportedFormatError
from memdesc.dtypes import ALIASES as DTYPE_ALIASES
from memdesc.dtypes import DATA_TYPES
from memdesc.exchange import written
from memdesc.names import dim_letters, images, known_names, resolve, weights
from memdesc.names.weights import EXPERTS
from memdesc.names.weights import VOCABULARY as WEIGHTS
from memdesc.record.rows import SCHEMES, known_records
from memdesc.tags import LETTERS
from reorder.checkpoints.convert.targets import TARGETS
from reorder.values.formats import FORMATS, ONEDNN_TYPES, FloatFormat, IntegerFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Row = tuple[object, ...]

_TABLE = re.compile(r"(<!-- table: ([^>]*) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_VOCABULARIES = {"onednn": "oneDNN", "cldnn": "OpenVINO", "mace": "MACE", "weights": "packings"}
_OTHERS = {
    "tensorrt": "TensorRT",
    "acl": "Compute Library",
    "ascend": "Ascend",
    "ncnn": "ncnn",
    "mnn": "MNN",
    "tflite_gpu": "TFLite GPU",
    "executorch": "ExecuTorch",
    "kvcache": "KV caches",
}
_WIDTHS = (8, 16, 32)
# layouts that the tables of notations show: a name, sizes, a data type
_SHOWN = (
    ("nchw", (2, 17, 5, 4), "f32"),
    ("nhwc", (2, 17, 5, 4), "f32"),
    ("hwio", (32, 17, 3, 3), "f32"),
    ("nChw16c", (2, 17, 5, 4), "f32"),
    ("OIhw16i16o", (32, 17, 3, 3), "f32"),
    ("OIhw4i16o4i", (32, 17, 3, 3), "s8"),
    ("AB8a128b", (20, 200), "f32"),
    ("ABcd4a/1.8b8a/4.4b", (64, 64, 1, 1), "s8"),
    ("aB(CD)8b16(cd)", (1, 12, 5, 5), "f16"),
)


def _vocabulary() -> Iterator[Row]:
    """Return every layout that two systems or more have a name for."""
    yield ("memdesc", *_VOCABULARIES.values(), "others")
    rows: dict[str, dict[str, list[str]]] = {}
    for name in known_names():
        try:
            tag = str(resolve(name.text, (), 32))
        except MemdescError:
            continue  # refused, with the reason
        names = rows.setdefault(tag, {})
        if name.text != tag:
            names.setdefault(name.vocabulary, []).append(name.text)
    for tag, names in rows.items():
        if len(names) > 1:
            others = [text for vocabulary in _OTHERS for text in names.get(vocabulary, [])]
            yield ([tag], *(names.get(vocabulary, []) for vocabulary in _VOCABULARIES), others)


def _systems() -> Iterator[Row]:
    """Return the names of systems that have a table of them, with the tag for each width."""
    yield ("system", "names", "dims", "memdesc")
    rows: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for name in known_names():
        if name.vocabulary in _VOCABULARIES:
            continue
        tags: dict[str, list[str]] = {}
        for bits in _WIDTHS:
            try:
                tags.setdefault(str(resolve(name.text, (), bits)), []).append(str(bits))
            except MemdescError:
                continue
        shown = tuple(
            tag if len(widths) == len(_WIDTHS) else f"{tag} ({', '.join(widths)} bits)"
            for tag, widths in tags.items()
        )
        if shown:
            key = _OTHERS[name.vocabulary], shown, dim_letters(name.text) or ""
            rows.setdefault(key, []).append(name.text)
    for (system, tags_of, letters), names in rows.items():
        yield (system, names, ", ".join(letters), list(tags_of))


def _images() -> Iterator[Row]:
    """Return the image types, those of the same pixels together, as slices, rows and columns."""
    yield ("image type", "dims", "slice z", "row y", "column x", "lane", "memdesc")
    rows: dict[tuple[str, str], list[str]] = {}
    for name, row in images.IMAGES.items():
        rows.setdefault((row.letters, row.parts), []).append(name)
    for (letters, text), names in rows.items():
        own = str.maketrans(
            LETTERS[: len(letters)] + LETTERS[: len(letters)].upper(), letters + letters.upper()
        )
        *slices, y, x, lane = [part.translate(own) or "1" for part in text.split("|")]
        yield (names, ", ".join(letters), slices, [y], [x], [lane], [text])


def _notations(*systems: str) -> Iterator[Row]:
    """Return layouts in the notations of systems, and why others have none there."""
    yield ("memdesc", "tensor", *systems)
    for name, dims, dtype in _SHOWN:
        desc = memdesc.memory_desc(dims, dtype, name)
        cells: list[object] = [[name], f"{dtype}, {'x'.join(map(str, dims))}"]
        for system in systems:
            try:
                cells.append(list(written(desc, system)[:1]))
            except UnsupportedFormatError as refused:
                cells.append(f"no: {str(refused).partition(': ')[2]}")
        yield tuple(cells)


def _records() -> Iterator[Row]:
    """Return every format of records, with its tensors and its rule."""
    yield ("record", "fields", "rule", "bits each", "tensors")
    for name in known_records():
        desc = memdesc.record.record_desc((256, 256), name)
        fields = [f"{part.name}: {part.kind}" for part in desc.fields]
        bits = f"{desc.bits_per_element:.4g}"
        yield ([name], fields, [str(desc.rule)], bits, list(desc.tensors))


def packing_families() -> dict[str, list[str]]:
    """Group the names by family, without those of experts: only a size differs within one."""
    found: dict[str, list[str]] = {}
    for name in WEIGHTS.rows:
        if not name.endswith(EXPERTS):
            sized = "<" in name or name.startswith(("mlas", "trtllm_s"))
            family = re.sub("[0-9]+>?(?=_|$)", "", name) if sized else name
            found.setdefault(family, []).append(name)
    return found


def _packings() -> Iterator[Row]:
    """Return all packings, without those of experts."""
    yield ("names", "holds", "layout", "blocks", "used by")
    for names in packing_families().values():
        row = WEIGHTS.rows[names[0]]
        aliases = [alias for alias, meant in WEIGHTS.aliases.items() if meant in names]
        dims = ", ".join(_dim(row, letter) for letter in row.letters)
        widths = " or ".join(f"{bits}" if bits else "any" for bits in row.tags)
        tags = [tag for name in names for tag in WEIGHTS.rows[name].tags.values()]
        holds = f"{row.domain} ({dims}), {widths} bits"
        yield ([*names, *aliases], holds, tags, _blocks(names), row.source)


def _dim(row: weights.Packing, letter: str) -> str:
    """Return what a dim is called: a letter, where there are spatial dims."""
    return letter if "h" in row.letters else WEIGHTS.dims[letter]


def _blocks(names: list[str]) -> str:
    """Return the block of each dim, for each width and name, and whether it is padded."""
    row = WEIGHTS.rows[names[0]]
    found: dict[str, list[str]] = {}
    for tag in (resolve(name, (), bits or 8) for name in names for bits in row.tags):
        for letter, block, align in zip(row.letters, tag.block_sizes, tag.align, strict=True):
            counts = found.setdefault(letter, [])
            if max(block, align) > 1 and str(max(block, align)) not in counts:
                counts.append(str(max(block, align)))
    return ", ".join(
        f"{_dim(row, letter)} {' or '.join(counts)}" + ("" if letter in row.whole else " (padded)")
        for letter, counts in found.items()
        if counts
    )


def _options() -> Iterator[Row]:
    """Return the options of records, those of the same values together."""
    yield ("option", "values", "default", "records")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for name, scheme in SCHEMES.items():
        for option in scheme.options.values():
            count = "a count, -1 for all" if option.has_all else "a count"
            count = "a count, or one each for rows and columns" if option.is_block else count
            legal = ", ".join(map(str, option.legal)) or count
            rows.setdefault((option.name, legal, str(option.usual)), []).append(name)
    for (option, legal, usual), names in sorted(rows.items()):
        yield ([option], legal, usual, names)


def _dtypes() -> Iterator[Row]:
    """Return every data type, its names, and what numbers beyond the largest one become."""
    yield ("type", "bits", "numpy, torch", "also read", "oneDNN", "largest", "beyond it")
    for name, dtype in DATA_TYPES.items():
        form, numpy = FORMATS[name], dtype.numpy.name
        others = [a for a, of in DTYPE_ALIASES.items() if of == name and a != numpy]
        beyond = "the largest"
        if isinstance(form, IntegerFormat):
            largest = f"2^{form.high.bit_length()} - 1"
        elif isinstance(form, FloatFormat):
            largest = f"{form.max:.5g}"
            if form.has_inf:
                beyond = "infinite"
            elif form.has_nan:
                beyond = "NaN"
        else:
            largest, beyond = ("2^127", "NaN") if name == "e8m0" else ("1", "1")
        in_onednn = "yes" if name in ONEDNN_TYPES else ""
        yield ([name], dtype.bits, [numpy], others, in_onednn, largest, beyond)


def _targets() -> Iterator[Row]:
    """Return the records that targets of checkpoints take; only some have codes of every type."""
    names = [name for name, target in TARGETS.items() if target.ways]
    yield ("record", *([name] for name in names))
    rows: dict[tuple[str, ...], list[str]] = {}
    for record in known_records():
        cells = []
        for name in names:
            ways = [way for way in TARGETS[name].ways if record in way.sources]
            codes = sorted({way.codes for way in ways} - {""})
            cells.append(f"only {', '.join(codes)}" if codes else "yes" if ways else "")
        if any(cells):
            rows.setdefault(tuple(cells), []).append(record)
    for found, records in rows.items():
        yield (records, *found)


TABLES: dict[str, Callable[..., Iterator[Row]]] = {
    "vocabulary": _vocabulary,
    "systems": _systems,
    "images": _images,
    "notations": _notations,
    "records": _records,
    "packings": _packings,
    "dtypes": _dtypes,
    "options": _options,
    "targets": _targets,
}


def _cell(cell: object) -> str:
    """Return a cell as Markdown; a list becomes pieces of code."""
    texts = [f"`{text}`" for text in cell] if isinstance(cell, list) else [str(cell)]
    return " ".join(texts).replace("|", "\\|")


def markdown(rows: Iterable[Row]) -> str:
    """Return a table as Markdown; the first row is its head."""
    head, *body = ([_cell(cell) for cell in row] for row in rows)
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def current(text: str) -> str:
    r"""Return a page with its tables made anew.

    >>> print(current("<!-- table: images -->\n<!-- end -->")[:60].splitlines()[1])
    | image type | dims | row y |
    """

    def made(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}{markdown(TABLES[name](*arguments))}"

    return _TABLE.sub(made, text)


if __name__ == "__main__":
    for page in Path(__file__).parents[1].glob("*.md"):
        page.write_text(current(page.read_text(encoding="utf-8")), encoding="utf-8")
