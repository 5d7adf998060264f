"""Descriptors with dims that are known only at execution.

Source: oneDNN 3.13, `DNNL_RUNTIME_DIM_VAL`.
"""

from __future__ import annotations

from collections.abc import Iterable

from memdesc.checked import Checked, check_types
from memdesc.desc import MemoryDesc, memory_desc
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, UnsupportedFormatError, about
from memdesc.immutable import field, value_class
from memdesc.int64 import RUNTIME, check_length, checked_ints
from memdesc.layout import check_dims, dim_name
from memdesc.layout_names import tag_of
from memdesc.lazy import cached_property
from memdesc.names import letters_for
from memdesc.tags import FormatTag, check_letters

UNKNOWN = "*"  # what oneDNN prints for an order that is known only at execution


@value_class
class RuntimeDesc(Checked):
    """A tag over dims, some of which are known only at execution; made by `runtime_desc`.

    Parameters
    ----------
    dims : tuple of int
        Sizes, `RUNTIME` where they are not known.
    dtype : DataType
        Type of the elements.
    tag : FormatTag or None
        The order and the blocks; None if these are not known either.
    letters : str, optional
        What the name of the layout calls the dims, such as ``"nchw"``; for messages, ignored by
        equality.

    Examples
    --------
    >>> d = memdesc.runtime_desc((memdesc.RUNTIME, 20, 4), "f32", "aBc8b")
    >>> d.padded_dims[1:], d.strides, d.nbytes is None
    ((24, 4), (96, 32, 8), True)
    >>> d.resolve((2, 20, 4))
    memory_desc((2, 20, 4), 'f32', 'aBc8b')
    """

    dims: tuple[int, ...]
    dtype: DataType
    tag: FormatTag | None
    letters: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", checked_ints("dims", self.dims, least=RUNTIME))
        check_types(self, "; see runtime_desc")
        if self.letters is not None:
            check_letters(self.letters, self.ndims)
        with about("a size that is not known yet is memdesc.RUNTIME"):
            check_dims(self._least, self.letters)
        if self.tag is not None:
            self._check_tag(self.tag)
            with about(f"{self!r} with 1 for each size that is not known"):
                _ = self._smallest

    def _check_tag(self, tag: FormatTag) -> None:
        if tag.ndims != self.ndims:
            raise MemdescError(f"'{tag}' is for {tag.ndims} dims, not for {self.ndims}")
        outer = tuple(digit for digit in tag.digits if not digit.extent)
        is_nested = len(tag.axes) == tag.ndims and max(tag.align) == 1
        if not is_nested or tag.digits[: len(outer)] != outer:
            raise UnsupportedFormatError(
                f"'{tag}' is not in oneDNN's notation, so nothing is known about its layout until "
                "all dims are known"
            )

    @property
    def _least(self) -> tuple[int, ...]:
        """The sizes, with 1 for each that is not known."""
        return tuple(1 if size == RUNTIME else size for size in self.dims)

    @cached_property
    def _smallest(self) -> MemoryDesc:
        """The descriptor with 1 for each size that is not known, if the tag is."""
        return memory_desc(self._least, self.dtype, self.tag)

    def __repr__(self) -> str:
        sizes = ", ".join("memdesc.RUNTIME" if size == RUNTIME else str(size) for size in self.dims)
        tag = UNKNOWN if self.tag is None else str(self.tag)
        return f"runtime_desc(({sizes}{',' * (len(self.dims) == 1)}), '{self.dtype}', {tag!r})"

    @property
    def ndims(self) -> int:
        """Number of dims."""
        return len(self.dims)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """Sizes including padding; `RUNTIME` where the size or the tag is not known."""
        if self.tag is None:
            return (RUNTIME,) * self.ndims
        sizes = zip(self.dims, self._smallest.padded_dims, strict=True)
        return tuple(RUNTIME if size == RUNTIME else padded for size, padded in sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between outer blocks; `RUNTIME` for dims outside one that is not known."""
        if self.tag is None:
            return (RUNTIME,) * self.ndims
        order = [digit.axis for digit in self.tag.digits if not digit.extent]
        unknown = [k for k, dim in enumerate(order) if self.dims[dim] == RUNTIME]
        outside = order[: max(unknown, default=0)]
        strides = enumerate(self._smallest.strides)
        return tuple(RUNTIME if dim in outside else stride for dim, stride in strides)

    @property
    def nbytes(self) -> None:
        """None, because the number of bytes is not known until all dims are; see `resolve`."""
        return

    def resolve(self, dims: Iterable[int]) -> MemoryDesc:
        """Return the descriptor for sizes that are now known, if the tag is."""
        if self.tag is None:
            raise MemdescError(
                f"the order of dims of {self!r} is not known; use memory_desc(dims, dtype, tag)"
            )
        sizes = checked_ints("dims", dims)
        check_length("dims", sizes, self.ndims)
        for dim, (size, known) in enumerate(zip(sizes, self.dims, strict=True)):
            if known not in {RUNTIME, size}:
                raise MemdescError(
                    f"{dim_name(dim, self.letters)} is {size}, but {self!r} says {known}"
                )
        return memory_desc(sizes, self.dtype, self.tag).with_letters(self.letters)


def runtime_desc(
    dims: Iterable[int], dtype: object, layout: str | FormatTag | None = None
) -> RuntimeDesc:
    """Describe memory whose sizes are not all known.

    Parameters
    ----------
    dims : iterable of int
        Logical sizes, `RUNTIME` where they are not known.
    dtype : DataType, str or numpy dtype
        Type of the elements.
    layout : str, FormatTag or torch.memory_format, optional
        A name of any vocabulary, or TVM's string; row-major by default, as for `memory_desc`.
        ``"*"``, as oneDNN prints it, if the order of dims is known only at execution.

    Raises
    ------
    UnsupportedFormatError
        If dims are fused or aligned, so that their strides depend on all sizes.

    Examples
    --------
    >>> d = memdesc.runtime_desc((memdesc.RUNTIME, 20), "f32", "ab")
    >>> d.strides, d.resolve((3, 20)).nbytes
    ((20, 1), 240)
    """
    sizes, element = checked_ints("dims", dims, least=RUNTIME), data_type(dtype)
    letters = None
    if isinstance(layout := "plain" if layout is None else layout, str):
        layout = layout.strip()
        if layout == UNKNOWN:
            return RuntimeDesc(sizes, element, None)
        letters = letters_for(layout, len(sizes))
    return RuntimeDesc(sizes, element, tag_of(layout, len(sizes), element.bits), letters)
