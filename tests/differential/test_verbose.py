"""What libdnnl prints of descriptors in its verbose mode, runtime dims included."""

import pytest

import memdesc
from memdesc import RUNTIME, memory_desc, runtime_desc
from reorder.logs import VerbosePrimitive, read_verbose

from .cases import draw_dims_with_tails, make_rng, tags_of
from .libdnnl import Desc, DnnlError, Library
from .tally import Tally

_COUNT = 300
_TAGS = 760


def _printed(
    library: Library, capfd: pytest.CaptureFixture[str], desc: Desc
) -> VerbosePrimitive | None:
    """Return what the line of a new reorder between equal descriptors says; None without one."""
    capfd.readouterr()
    library.c.dnnl_set_verbose(2)
    try:
        handle = library.new(
            *("reorder_primitive_desc_create", desc.handle, library.engine),
            *(desc.handle, library.engine, None),
        )
        primitive = library.new("primitive_create", handle)
        library.call("primitive_destroy", primitive)
        library.call("primitive_desc_destroy", handle)
    except DnnlError:
        return None
    finally:
        library.c.dnnl_set_verbose(0)
        library.c.fflush(None)
    log = read_verbose(capfd.readouterr().out.splitlines())
    assert "unread" not in log.skipped
    return log.entries[-1].primitive if log.entries else None


def test_libdnnl_prints_what_to_verbose_writes(
    dnnl_3_13: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    tally = Tally("verbose strings", dnnl_3_13.version)
    for case in range(_COUNT):
        rng = make_rng("verbose", case)
        ndims = rng.randint(1, 5)
        dims = draw_dims_with_tails(rng, [8] * ndims, zero=0.0, max_nelems=5000)
        sizes = tuple(RUNTIME if rng.random() < 0.25 else size for size in dims)
        tag = rng.choice(tags_of(ndims, _TAGS))
        ours = (
            runtime_desc(sizes, "f32", tag) if RUNTIME in sizes else memory_desc(dims, "f32", tag)
        )
        theirs = dnnl_3_13.by_string_tag(sizes, "f32", tag)
        assert isinstance(theirs, Desc)
        printed = _printed(dnnl_3_13, capfd, theirs)
        if printed is None:
            continue
        text, shown = printed.tensors["src"].text, printed.problem
        tally.compared += 1
        tally.kinds["runtime"] += RUNTIME in sizes
        tally.kinds["*"] += "*" in text
        if memdesc.verbose.to_verbose(ours) != text:
            tally.differ(f"{ours!r}: {memdesc.verbose.to_verbose(ours)}, theirs {text}")
            continue
        read = memdesc.verbose.from_verbose(text, shown)
        # flag p is not held where the tag is not
        again = text.replace(":p:", "::") if "*" in text else text
        if read.dims != sizes or memdesc.verbose.to_verbose(read) != again:
            tally.differ(f"{text} over {shown} reads as {read!r}")
    tally.check()
    assert tally.compared > _COUNT / 2
    assert all(tally.kinds[kind] > _COUNT / 20 for kind in ("runtime", "*"))


def test_lines_of_both_libraries_are_read_as_descriptors(
    dnnl_3_2: Library, dnnl_3_13: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    for library in (dnnl_3_2, dnnl_3_13):
        tally = Tally("verbose lines", library.version)
        for case in range(_COUNT // 3):
            rng = make_rng("verbose lines", case)
            ndims = rng.randint(1, 5)
            dims = draw_dims_with_tails(rng, [8] * ndims, zero=0.0, max_nelems=5000)
            tag = rng.choice(tags_of(ndims, _TAGS))
            theirs = library.by_string_tag(dims, "f32", tag)
            assert isinstance(theirs, Desc)
            printed = _printed(library, capfd, theirs)
            if printed is None:
                continue
            tally.compared += 1
            found = printed.tensors["dst"].desc
            # the order of dims of one index is not in a line
            if found is None or memdesc.verbose.to_verbose(found) != printed.tensors["dst"].text:
                tally.differ(f"{dims} {tag}: {printed.tensors['dst']}")
        tally.check()
        assert tally.compared > _COUNT / 6
