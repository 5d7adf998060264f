"""`memdesc names`: known names of layouts, and every name and notation of one layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memdesc import ImageDesc, MemdescError, MemoryDesc, UnsupportedFormatError, known_names
from memdesc.exchange import SYSTEMS, no_system, written
from memdesc.names import Name, images, known_images, resolve
from memdesc.names.similar import meanings
from memdesc.record import known_records
from reorder.cli.command import (
    Command,
    Facts,
    Line,
    Options,
    Said,
    facts_of,
    is_wanted,
    lines,
    table,
)
from reorder.cli.layouts import buffer_of, label_of, layout_of, normal_form, with_merged_blocks

# Element widths in bits: a name without a layout at the first one is listed at the others.
_BITS = (32, 16, 8, 4)
_RECORD = "record"
_VOCABULARIES = (
    *dict.fromkeys(name.vocabulary for name in (*known_names(), *known_images())),
    _RECORD,
)
# the characters of a name's part, or of a pattern: other text is a layout
_FILTER = re.compile(r"[\w*?!\[\]-]*")


def _answer(options: Options) -> tuple[Facts, int]:
    system = options.system
    is_listed = system is None or system in _VOCABULARIES
    is_of_one = any((options.dims, options.dtype)) or not is_listed
    if system is not None and system not in SYSTEMS and (is_of_one or not is_listed):
        raise MemdescError(no_system(system))
    if is_of_one and not options.text:
        msg = "--dtype applies to a single layout; name it, with its dims"
        if not is_listed:
            msg = f"{system} has no names to list; those that have are {', '.join(_VOCABULARIES)}"
        raise MemdescError(msg)
    if is_of_one or not _FILTER.fullmatch(options.text):
        return _of_layout(options)
    meant = meanings(options.text)
    names = [
        row
        for row in _rows()
        if (row["text"] in meant or is_wanted(row["text"], options.text))
        and system in {None, row["vocabulary"]}
    ]
    if names:
        # exact names first
        names.sort(key=lambda row: row["text"].lower() != options.text.lower())
        names.sort(key=lambda row: row["text"] != options.text)
        return {"count": len(names), "names": names}, 0
    return {"count": 0, "names": []}, 1


def _rows() -> Iterator[Facts]:
    """Return the known names and image types; the tag of a refused name is None."""
    known = known_names()
    for record in known_records():
        why = f"record_desc(dims, {record!r}) describes it, `memdesc show {record} DIMS` shows it"
        named = Name(_RECORD, record, "quantised weights")
        yield named._asdict() | {"ndims": None, "tag": None, "why": why}
    for name in dict.fromkeys((*known, *known_images())):
        if image := images.IMAGES.get(name.text):
            yield name._asdict() | {"ndims": len(image.letters), "tag": image.parts}
            continue
        tags, why = list[Facts](), ""
        for bits in _BITS:
            try:
                tag = resolve(name.text, (), bits)
            except UnsupportedFormatError as reason:
                why = why or str(reason)
                continue
            tags.append({"ndims": tag.ndims, "tag": str(tag)})
            if bits == _BITS[0]:
                break
            tags[-1]["bits"] = bits
        refused = {"ndims": None, "tag": None, "why": why}
        yield from (name._asdict() | row for row in tags or [refused])


def _of_layout(options: Options) -> tuple[Facts, int]:
    """Return every name of a layout, and its strings in the notations of other systems."""
    layout = normal_form(layout_of(options, options.text))
    desc = buffer_of(layout)
    # layouts with the same offsets: a system may write only the one with fewer blocks
    whole = with_merged_blocks(desc)
    texts: dict[str, tuple[str, ...]] = {}
    refused = {}
    called = layout.name if isinstance(layout, ImageDesc) else ""
    image = [name for name in known_images() if name.text == called]
    for system in SYSTEMS if options.system is None else [options.system]:
        try:
            own = tuple(name.text for name in image if name.vocabulary == system)
            texts[system] = own or _written(desc, whole, system)
        except UnsupportedFormatError as error:
            if options.system is not None:
                raise
            refused[system] = str(error).partition(": ")[2]
    names = tuple(dict.fromkeys((*image, *desc.names(), *whole.names())))
    named = {name.vocabulary for name in names}
    facts: Facts = {
        "layout": repr(layout),
        **{key: Said(value) for key, value in facts_of(desc, "dims", "dtype", "is_dense").items()},
        "bytes": Said(desc.nbytes),
        "names": Said([name._asdict() for name in names]),
        **{
            system: Line("  ".join(words) if system in named else [*words])
            for system, words in texts.items()
        },
        "written": Said(texts),
        "cannot": Said(refused, f"{', '.join(refused)} (--json says why)" if refused else None),
        "system": Said(options.system),
    }
    return facts, 0 if names or options.system else 1


def _written(desc: MemoryDesc, whole: MemoryDesc, system: str) -> tuple[str, ...]:
    """Write a layout, or the one whose blocks are merged if a system can write only that one."""
    try:
        return written(desc, system)
    except UnsupportedFormatError:
        if whole == desc:
            raise
        return written(whole, system)


def _lay_out(facts: Facts) -> list[str]:
    """Return a line for each name; for one layout, a line for each system that can write it."""
    if "written" in facts:
        system = facts["system"].fact
        return lines(facts) if system is None else [*facts["written"].fact[system]]
    rows = [
        (row["text"], label_of(row["vocabulary"]), row["domain"], _layout(row))
        for row in facts["names"]
    ]
    return table(rows) if rows else ["no known name matches; with DIMS, TEXT may be any layout"]


def _layout(row: Facts) -> str:
    tag = row["tag"] or ("see memdesc show" if row["vocabulary"] == _RECORD else "refused")
    return f"{tag} ({row['bits']} bits)" if "bits" in row else tag


COMMAND = Command(_answer, _lay_out, {"systems": ", ".join(SYSTEMS)})
