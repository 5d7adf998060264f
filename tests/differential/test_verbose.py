"""What libdnnl prints of descriptors in its verbose mode, runtime dims included."""

import pytest

import memdesc
from memdesc import RUNTIME, memory_desc, runtime_desc
from memdesc.verbose import to_verbose
from reorder.logs import VerbosePrimitive, read_verbose

from .cases import draw_dims_with_tails, make_rng, tags_of
from .libdnnl import Desc, DnnlError, Library
from .tally import Tally

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


@pytest.mark.parametrize(("version", "count"), [("dnnl_3_2", 100), ("dnnl_3_13", 300)])
def test_libdnnl_prints_what_to_verbose_writes(
    version: str, count: int, request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]
) -> None:
    library: Library = request.getfixturevalue(version)
    is_new = library.version >= (3, 13)
    tally = Tally("verbose strings", library.version)
    for case in range(count):
        rng = make_rng("verbose", case)
        ndims = rng.randint(1, 5)
        dims = draw_dims_with_tails(rng, [8] * ndims, max_nelems=5000)
        # 3.2 prints no runtime dims
        sizes = tuple(RUNTIME if is_new and rng.random() < 0.25 else size for size in dims)
        tag = rng.choice(tags_of(ndims, _TAGS))
        make = runtime_desc if RUNTIME in sizes else memory_desc
        theirs = library.by_string_tag(sizes, "f32", tag)
        assert isinstance(theirs, Desc)
        printed = _printed(library, capfd, theirs)
        if printed is None:
            continue
        text, shown = printed.tensors["dst"].text, printed.problem
        tally.compared += 1
        tally.kinds["runtime"] += RUNTIME in sizes
        tally.kinds["*"] += "*" in text
        read = memdesc.verbose.from_verbose(text, shown)
        # flag p is not held where the tag is not; the order of dims of one index is not in a line
        again = text.replace(":p:", "::") if "*" in text else text
        ours = to_verbose(make(sizes, "f32", tag)) if is_new else text
        if (ours, to_verbose(read), read.dims) != (text, again, sizes):
            tally.differ(f"{sizes} {tag}: {ours}, theirs {text} over {shown}, read as {read!r}")
    tally.check()
    assert tally.compared > count / 2
    kinds = ("runtime", "*") if is_new else ()
    assert all(tally.kinds[kind] > count / 20 for kind in kinds)
