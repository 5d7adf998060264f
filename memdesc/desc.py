"""MemoryDesc: a data type and a layout as one frozen value, from a name, strides or an array."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from operator import is_not
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast, overload

import numpy as np

from memdesc import views
from memdesc.checked import SCHEMA, SWIZZLED, Written, check_schema
from memdesc.dtypes import DataType, data_type
from memdesc.errors import MemdescError, OverlapError, UnsupportedFormatError, short_repr
from memdesc.extra import Extra, check_extra
from memdesc.immutable import immutable, part
from memdesc.index import Index, checked_index, checked_integers
from memdesc.int64 import INT64_MAX, check_length, checked_int, checked_ints
from memdesc.layout import (
    Axis,
    Block,
    Layout,
    check_dims,
    dim_name,
    indices_at,
    layout_by_strides,
    layout_by_tag,
)
from memdesc.layout_names import dense_tag, expression, name_of, names_of
from memdesc.lazy import import_lock
from memdesc.names import Name, expand_meta_tag, is_name, letters_for, resolve
from memdesc.overlap import check_overlap
from memdesc.swizzle import period_of
from memdesc.tags import LETTERS, FormatTag, check_letters, parse_tag

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from memdesc.picture import Picture

# What members of oneDNN's `memory::desc` (3.13, dnnl.hpp) and `dnnl_memory_desc_t` are called here;
# a getter may have the prefix `get_`.
_SAME = "ndims dims strides padded_dims padded_offsets inner_blks inner_idxs"
_HERE = {
    **{name: name for name in _SAME.split()},
    "size": "nbytes",
    "data_type": "dtype",
    "submemory_desc": "submemory(dims, offsets)",
    "submemory_offset": "offset0",
    "inner_nblks": "inner_blks, whose length it is",
}


# the fields of oneDNN that the JSON of a layout has, if they can describe it
_WRITTEN = ("padded_dims", "strides", "inner_blks", "inner_idxs")


# defaults of padded_dims, inner_blks, inner_idxs and offset0; identity shows that nobody gave them
_NO_BLOCKS: tuple[int, ...] = ()
_NOTHING = (None, _NO_BLOCKS, _NO_BLOCKS, 0)
# what a caller may give with strides
_Beside = tuple[Iterable[int] | None, Iterable[int], Iterable[int], int]


@immutable
class MemoryDesc(Written):
    """How a tensor is laid out in memory: dims, dtype, padding, strides, blocks.

    `memory_desc` is another name of the class. The properties have oneDNN's names and meaning;
    strides and offsets are in elements. Equality is oneDNN's: it ignores the stride of a dim whose
    size and padded size are 1 (oneDNN 3.13, `memory_desc_wrapper`).

    Parameters
    ----------
    dims : iterable of int
        Logical sizes, 1 to 12 of them, 0 allowed.
    dtype : DataType, str or numpy dtype
        Type of the elements.
    layout : str, FormatTag, Layout or torch.memory_format, optional
        A name of any vocabulary: ``"nChw16c"``, ``"b_fs_yx_fsv16"``, ``"NHWC"``, ``"dnnl_nchw"``;
        for any number of dims ``"plain"`` (row-major), ``"channels_last"`` and benchdnn's
        ``"abx"``, ``"axb"``, ``"aBx16b"``; or any notation that `parse_layout` reads. Dims and a
        data type in it must be the given ones. Without a layout or strides, the memory is
        row-major.
    strides : iterable of int, optional
        Elements between neighbours (outer blocks) of each dim, instead of a layout. 0
        (broadcast) and negative strides describe sources only.
    padded_dims : iterable of int, optional
        With strides: by default the dims rounded up to whole blocks.
    inner_blks, inner_idxs : iterable of int
        With strides: sizes and dims of the inner blocks, outermost first.
    offset0 : int
        With strides: offset of the element at index 0, in elements.

    Raises
    ------
    MemdescError
        If two elements overlap, the number of bytes exceeds int64, or another rule is broken; the
        message names the rule, the dim and the numbers.

    Examples
    --------
    >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
    >>> d.padded_dims, d.strides, d.inner_blks, d.inner_idxs, d.nbytes
    ((2, 24, 5, 4), (480, 160, 32, 8), (8,), (1,), 3840)
    >>> d == memdesc.memory_desc(
    ...     (2, 17, 5, 4), "f32", strides=(480, 160, 32, 8), inner_blks=(8,), inner_idxs=(1,))
    True
    >>> d
    memory_desc((2, 17, 5, 4), 'f32', 'aBcd8b')
    """

    __slots__ = {
        "nbytes": "Bytes to allocate, which are oneDNN's `get_size` and those before `offset0`.",
        "min_nbytes": "Bytes that a buffer must have, up to the end of padding or compensation.",
        "spelling": "What text shows but equality ignores, the letters and strides of unit dims.",
        **dict.fromkeys(("dtype", "extra", "layout", "letters", "_hash", "_key")),
    }
    dtype: DataType
    layout: Layout
    extra: Extra | None
    letters: str | None
    nbytes: int
    min_nbytes: int
    _key: tuple[object, ...]
    _hash: int
    spelling: str  # caches of what contains or makes text are keyed by it too
    # in messages: how to get one with other dims, strides, ...
    _another: ClassVar[str] = "make another with memory_desc(), with_dtype() or with_extra()"

    def __new__(  # noqa: PLR0913 - the fields of a descriptor, named by keyword
        cls,
        dims: Iterable[int],
        dtype: object,
        layout: str | FormatTag | Layout | None = None,
        *,
        strides: Iterable[int] | None = None,
        padded_dims: Iterable[int] | None = None,
        inner_blks: Iterable[int] = _NO_BLOCKS,
        inner_idxs: Iterable[int] = _NO_BLOCKS,
        offset0: int = 0,
    ) -> Self:
        """Describe memory by a layout or by strides; the class documents the arguments."""
        sizes = checked_ints("dims", dims)
        element = _checked_type(dtype, layout, len(sizes))
        beside = (padded_dims, inner_blks, inner_idxs, offset0)
        made = None
        if strides is not None or any(map(is_not, beside, _NOTHING)):
            made = _strided_layout(sizes, layout, strides, beside)
        if made is None:
            if not isinstance(layout, Layout | FormatTag | None):
                return cast("Self", _named(sizes, element, name_of(layout)))
            made = _given_layout(sizes, layout)
        return cast("Self", desc_of(element, made))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._key == other._key if isinstance(other, MemoryDesc) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        text = expression(self.layout, self.dtype.name)
        return text if self.extra is None else f"{text}.with_extra({self.extra!r})"

    if not TYPE_CHECKING:  # for a type checker, any name would be an attribute

        def __getattr__(self, name):  # noqa: ANN001, ANN204 - see above
            # called for names that the class does not have
            here = _HERE.get(name.removeprefix("get_"), "")
            hint = f"; oneDNN's {name} is .{here} here" if here else ""
            if name == "shape":
                hint = "; numpy's shape is .dims here"
            raise AttributeError(
                f"a MemoryDesc has no attribute {short_repr(name)}{hint}", name=name, obj=self
            )

    def _arguments(self) -> tuple[Any, ...]:
        return self.dtype, self.layout, self.extra, self.letters

    @classmethod
    def _made(cls, *arguments: Any) -> MemoryDesc:
        return desc_of(*arguments)

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "schema": SWIZZLED if self.layout.xor else SCHEMA,
            "dtype": self.dtype.name,
            "dims": self.dims,
            "offset0": self.offset0,
            "padded_offsets": self.padded_offsets,
            "extra": self.extra and {**vars(self.extra)},
        }
        if self.letters is not None:
            fields["letters"] = self.letters
        try:
            fields |= {name: getattr(self, name) for name in _WRITTEN}
        except MemdescError:
            axes = [[axis.dims, axis.padded] for axis in self.axes]
            fields |= {"axes": axes, "blocks": self.layout.blocks}
        return fields | ({"xor": self.layout.xor} if self.layout.xor else {})

    @classmethod
    def _of_fields(cls, fields: Any) -> Self:
        check_schema(fields)
        # the order decides which of several missing keys the message names
        dims, dtype = checked_ints("dims", fields["dims"]), data_type(fields["dtype"])
        offset0 = checked_int("offset0", fields["offset0"])
        offsets = checked_ints("padded_offsets", fields["padded_offsets"])
        check_length("padded_offsets", offsets, len(dims))
        if any(offsets):
            raise UnsupportedFormatError(f"padded_offsets {offsets} are not supported; only 0 is")
        if "axes" in fields:
            axes = [Axis(*axis) for axis in fields["axes"]]
            blocks = [Block(*block) for block in fields["blocks"]]
            xor = fields["xor"] if fields["schema"] == SWIZZLED else ()
            layout = Layout(dims, axes, blocks, offset0, xor)  # type: ignore[arg-type] # it checks
        else:
            written = {name: checked_ints(name, fields[name]) for name in _WRITTEN}
            layout = cls(dims, dtype, offset0=offset0, **written).layout  # type: ignore[arg-type] # by keyword
        extra = fields["extra"]
        extra = Extra(**extra) if isinstance(extra, dict) else extra
        return cast("Self", desc_of(dtype, layout, extra, fields.get("letters")))

    ndims: Final[int] = part("layout.ndims", "Number of dims, 1 to 12.")
    dims: Final[tuple[int, ...]] = part(
        "layout.dims", "Logical sizes, in logical order, whatever the order in memory."
    )
    axes: Final[tuple[Axis, ...]] = part(
        "layout.axes", "The axes: groups of dims that share one index, nearly always one dim each."
    )
    offset0: Final[int] = part("layout.offset0", "Offset of the element at index 0, in elements.")
    nelems: Final[int] = part("layout.nelems", Layout.nelems.__doc__)
    padded_nelems: Final[int] = part("layout.padded_nelems", Layout.padded_nelems.__doc__)
    has_padding: Final[bool] = part("layout.has_padding", Layout.has_padding.__doc__)
    has_broadcast: Final[bool] = part("layout.has_broadcast", Layout.has_broadcast.__doc__)

    @property
    def padded_dims(self) -> tuple[int, ...]:
        """Sizes including padding. Fused dims are padded together."""
        return self.layout.padded_dims()

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one outer block of each dim to the next.

        Raises
        ------
        NotBlockedError
            If dims are fused.
        """
        return self.layout.strides(self.letters)

    @property
    def inner_blks(self) -> tuple[int, ...]:
        """Sizes of the inner blocks, outermost first.

        Raises
        ------
        NotBlockedError
            If the inner blocks are not a dense tile of nested blocks; with the reason.
        """
        return tuple(block.extent for block in self.layout.tile(self.letters))

    @property
    def inner_idxs(self) -> tuple[int, ...]:
        """Dims of the inner blocks, outermost first; raises what `inner_blks` raises."""
        tile = self.layout.tile(self.letters)
        return tuple(self.layout.axes[block.axis].dims[0] for block in tile)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The layout as data: index i of a block's axis adds (i // step) % extent * stride.

        Raises
        ------
        NotBlockedError
            If the layout is swizzled: its blocks give only the base of each offset.
        """
        layout = self.layout
        return layout.blocks if not layout.xor else layout.axis_blocks(0)

    @property
    def padded_offsets(self) -> tuple[int, ...]:
        """Index of the logical origin inside the padded box: 0 in each dim."""
        return (0,) * self.ndims

    @property
    def padding_overhead(self) -> float:
        """Padded elements per logical one: 1.0 without padding, 2.0 for twice the memory."""
        return self.padded_nelems / self.nelems if self.nelems else 1.0

    @property
    def compensation_spans(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """First byte, and shape in int32, of the ``s8s8`` and ``asymmetric`` compensation."""
        if self.extra is None or not self.nelems:
            return {}
        return self.extra.spans(
            self.dtype.nbytes(self.offset0 + self.layout.span), self.padded_dims
        )

    @property
    def is_dense(self) -> bool:
        """Whether elements and padding fill the memory after `offset0` without a gap.

        A swizzled layout is dense only if `offset0` is a multiple of the swizzle's period. A
        swizzle is one-to-one, so if there are as many elements as offsets, there is no gap.
        """
        layout = self.layout
        return not self.nelems or (
            self.padded_nelems == layout.span
            and all(block.stride > 0 for block in layout.blocks if block.extent > 1)
            and not self.offset0 % period_of(layout.xor)
        )

    @overload
    def offset(self, index: tuple[int, ...] | list[int], *, padded: bool = ...) -> int: ...
    @overload
    def offset(self, index: Iterable[ArrayLike], *, padded: bool = ...) -> Any: ...
    def offset(self, index: Iterable[Any], *, padded: bool = False) -> int | NDArray[np.int64]:
        """Return the offset of a logical index in elements; for arrays of indices, an array.

        Parameters
        ----------
        index : iterable of int or array_like
            One integer for each dim. Arrays that broadcast to one shape are many indices, as in
            numpy's ``x[rows, columns]``.
        padded : bool
            Whether the padding may be indexed too. An `Index` from `index` always may.

        Raises
        ------
        OutOfRangeError
            If the index is outside the dims.

        Examples
        --------
        >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
        >>> d.offset((1, 9, 2, 3))
        729
        >>> d.offset((1, np.arange(6, 10), 2, 3))
        array([574, 575, 728, 729])
        """
        padded = True if isinstance(index, Index) else padded
        known = checked_index(self.layout, index, padded=padded, letters=self.letters)
        at: int = self.layout.offset(known)
        return at

    def index(self, offset: ArrayLike) -> Index:
        """Return the logical index of the element at an offset: the inverse of `offset`.

        *Law*: `offset(index(o)) == o`, for integers and arrays.

        Parameters
        ----------
        offset : int or array_like of int
            In elements, from the start of the buffer. The index has an integer for each dim, or
            arrays of the same shape; if a stride of 0 maps several indices to one element, it is
            the first of them. Its `is_padding` says whether it lies beyond the dims.

        Raises
        ------
        MemdescError
            If no element lies there: in a gap between rows, or outside the buffer.

        Examples
        --------
        >>> d = memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c")
        >>> d.index(729)
        (1, 9, 2, 3)
        >>> d.index(479)
        Index((0, 23, 4, 3), is_padding=True)
        """
        offsets = checked_integers("offset", offset)
        indices, exists = indices_at(self.layout, np.atleast_1d(offsets))
        if not exists.all():
            at = int(np.atleast_1d(offsets)[~exists][0])
            reason = f"offsets are 0 to {self.layout.last}"
            if not self.nelems:
                reason = "it has no elements"
            elif 0 <= at <= self.layout.last:
                reason = "it lies in a gap between elements"
            raise MemdescError(f"no element of {self!r} is at offset {at}: {reason}")
        beyond = [i >= size for i, size in zip(indices, self.dims, strict=True)]
        is_padding = np.logical_or.reduce(beyond)
        if isinstance(offsets, int):
            return Index((int(i[0]) for i in indices), bool(is_padding[0]))
        return Index(indices, is_padding)

    @overload
    def byte(self, index: tuple[int, ...] | list[int], *, padded: bool = ...) -> int: ...
    @overload
    def byte(self, index: Iterable[ArrayLike], *, padded: bool = ...) -> Any: ...
    def byte(self, index: Iterable[Any], *, padded: bool = False) -> int | NDArray[np.int64]:
        """Return the first byte of the element at a logical index; otherwise like `offset`.

        Two 4-bit elements share a byte; the one at the even offset is in its low half.

        >>> memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c").byte((1, 9, 2, 3))
        2916
        """
        offset: int = self.offset(index, padded=padded)
        return offset * self.dtype.bits // 8

    def bank_conflicts(self, dim: int, nbytes: int = 16) -> int:
        """Return how many extra steps 32 lanes along a dim take in shared memory.

        Lane k moves the k-th `nbytes` bytes along the dim, and where the dim ends, lanes go on
        along the others. The 32 banks of 4 bytes serve 128 bytes in a step if no bank holds two of
        the words; 0 means that every step does so. The start of the buffer must be a multiple of
        128.

        Parameters
        ----------
        dim : int
            The dim along which the lanes are counted.
        nbytes : {1, 2, 4, 8, 16}
            How many bytes a lane moves at once. Their elements must be adjacent in memory.

        Examples
        --------
        >>> plain = memdesc.memory_desc((64, 64), "f16")
        >>> swizzled = memdesc.memory_desc((64, 64), "f16", "Sw<3,3,3> o (64,64):(64,1)")
        >>> plain.bank_conflicts(0), swizzled.bank_conflicts(0)
        (7, 0)
        """
        from memdesc.banks import bank_conflicts  # only layouts of shared memory need it

        return bank_conflicts(self.layout, self.dtype.bits, dim, nbytes)

    def submemory(self, dims: Iterable[int], offsets: Iterable[int]) -> MemoryDesc:
        """Describe a part of this memory that cuts no block, by oneDNN's rules.

        >>> d = memdesc.memory_desc((2, 20), "f32", "aB8b")
        >>> d.submemory((2, 4), (0, 16)).padded_dims, d.submemory((2, 4), (0, 16)).offset0
        ((2, 8), 16)
        """
        sizes, at = checked_ints("dims", dims), checked_ints("offsets", offsets)
        view = views.submemory(self.layout, sizes, at, self.letters)
        return self._with(view, self.letters)

    def reshape(self, dims: Iterable[int]) -> MemoryDesc:
        """Describe the same bytes with regrouped dims; no data is moved.

        Dims that change may be blocked, as long as blocks end where the new dims do; a reshape that
        would have to move data is refused.

        >>> memdesc.memory_desc((6, 2), "f32", "ba").reshape((2, 3, 2)).strides
        (3, 1, 6)
        >>> memdesc.memory_desc((2, 3, 4), "f32", "acb").reshape((6, 4))
        memory_desc((6, 4), 'f32', 'Ab3a')
        """
        return self._with(views.reshape(self.layout, checked_ints("dims", dims), self.letters))

    def permute_axes(self, perm: Iterable[int]) -> MemoryDesc:
        """Reorder dims in oneDNN's direction: old dim d becomes dim `perm[d]`.

        *Law*: `permute_axes(perm)` undoes numpy's `transpose(perm)`.

        >>> memdesc.memory_desc((2, 3, 4), "f32", "abc").permute_axes((2, 0, 1)).dims
        (3, 4, 2)
        """
        to = checked_ints("perm", perm)
        layout = views.permute_axes(self.layout, to)
        letters = self.letters and "".join(self.letters[to.index(k)] for k in range(self.ndims))
        return self._with(layout, letters)

    def with_dtype(self, dtype: object) -> MemoryDesc:
        """Describe the same layout, counted in elements, with another data type.

        >>> memdesc.memory_desc((2, 3), "f32", "ab").with_dtype("bf16").nbytes
        12
        """
        return desc_of(data_type(dtype), self.layout, self.extra, self.letters)

    def with_extra(self, extra: Extra | None) -> MemoryDesc:
        """Describe the same elements followed by other compensation, or by none.

        >>> d = memdesc.memory_desc((3, 5, 1), "s8", "cba")
        >>> d.with_extra(memdesc.Extra(s8s8_mask=1)).nbytes
        28
        """
        return desc_of(self.dtype, self.layout, extra, self.letters)

    def with_letters(self, letters: str | None) -> MemoryDesc:
        """Call the dims by other letters in pictures, such as ``"nchw"``; equality ignores them.

        >>> print(memdesc.memory_desc((2, 3), "f32", "ab").with_letters("nc").letters)
        nc
        """
        return desc_of(self.dtype, self.layout, self.extra, letters)

    def names(self) -> tuple[Name, ...]:
        """Return every known name of exactly this layout, in all vocabularies.

        Most layouts have several names: a tag is an order of dims, and a dim of size 1 can be
        anywhere in it. A tag that oneDNN does not enumerate is returned in its notation.
        Strides with gaps and views have no name. Names that call the dims as the descriptor does
        come first, such as the one that it was made from; then those of data.

        *Law*: each name, with these dims and dtype, makes a descriptor that is equal but for
        compensation, which has no name.

        >>> [name.text for name in memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw8c").names()]
        ['nChw8c', 'mlas_nchwc8', 'b_fs_yx_fsv8', 'aBcd8b', 'gOiw8o']
        """
        return _names_of(self, self.spelling)

    def to_notation(self, system: str, *, letters: str | None = None) -> str:
        """Write the layout in the notation of another system.

        *Law*: `parse_layout(f"{system}:{d.to_notation(system)}", d.dims, d.dtype) == d`, with the
        letters of d.

        Parameters
        ----------
        system : str
            A key of `memdesc.exchange.SYSTEMS`: ``cute``, ``onednn``, ...
        letters : str, optional
            What to call the dims, such as ``nchw``, in notations with letters; by default the
            letters of the descriptor if the string is read back without them, else a, b, c, ...

        Returns
        -------
        str
            The first of the strings that `memdesc.exchange.written` returns; for ``onednn`` the
            canonical tag, which its enum must have (``memdesc`` writes others).

        Raises
        ------
        UnsupportedFormatError
            If the system cannot express exactly this layout; with the reason.

        Examples
        --------
        >>> memdesc.memory_desc((2, 17, 5, 4), "f32", "nChw16c").to_notation("cute")
        '(2,(16,2),5,4):(640,(1,320),64,16)'
        """
        from memdesc.exchange import written  # only other notations need it

        return written(self, system, letters=letters)[0]

    def show(
        self,
        letters: str | None = None,
        *,
        highlight: Iterable[Iterable[int]] = (),
        beside: str | FormatTag | MemoryDesc | None = None,
        values: ArrayLike | None = None,
    ) -> Picture:
        """Draw the logical grid beside the memory; notebooks show the picture, `print` a text.

        Numbers are offsets in elements; each contiguous run of memory has one colour. Padding
        is hatched, blocks are outlined, cache lines marked. A large tensor is shown only at both
        ends of each dim.

        Parameters
        ----------
        letters : str, optional
            What to call the dims, such as ``"nchw"``; by default what the name of the layout
            calls them, or a, b, c, ...
        highlight : iterable of index, optional
            Elements to mark, in the padding too. The first eight are shown however large the tensor
            is.
        beside : MemoryDesc, str or FormatTag, optional
            Another layout of the same dims, or its name: its memory is drawn instead of the grid.
        values : array_like, optional
            An array of these dims: its values are drawn instead of offsets and indices.

        Examples
        --------
        >>> print(memdesc.memory_desc((3, 2), "f32", "Ab2a").show("oi", highlight=[(1, 0)]))
        memory_desc((3, 2), 'f32', 'Oi2o')
        6 elements and 2 of padding, 32 bytes in 1 cache line
        memory order, outermost first: o/2(2) i(2) o%2(2)
        <BLANKLINE>
        logical: rows o, columns i; numbers are offsets
              0   1
          0   0   2
          1  <1>  3
          2   4   6
          3  [5] [7]
        <BLANKLINE>
        memory: each offset shows the index o,i
             0 |  0,0 <1,0>   0,1   1,1   2,0   [5]   2,1   [7]
        """
        from memdesc.picture.draw import checked_cells, draw_beside, draw_layout  # only pictures do

        called = letters_of(self, letters)
        grid: Any = values
        if grid is not None:
            if beside is not None:
                raise MemdescError("give values or beside, not both")
            try:
                has_shape = isinstance(getattr(grid, "shape", None), tuple)
                grid = grid if has_shape else np.asarray(grid)
            except ValueError:  # lists of different lengths
                raise MemdescError(f"values must be an array, not {short_repr(values)}") from None
            if grid.shape != self.dims:
                raise MemdescError(
                    f"values must have the dims {self.dims}, not {tuple(grid.shape)}"
                )
        cells = checked_cells(self, called, highlight, grid)
        if beside is None:
            compensation = self.nbytes - self.with_extra(None).nbytes
            return draw_layout(cells, self._title(called), (self.nbytes, compensation))
        if isinstance(beside, str | FormatTag):
            beside = memory_desc(self.dims, self.dtype, beside)
        other: MemoryDesc = checked_desc("beside", beside)
        if self.dims != other.dims:
            raise MemdescError(
                f"beside has the dims {other.dims}, not {self.dims}; see permute_axes and reshape"
            )
        titles = self._title(called), other._title(called)
        return draw_beside(cells, checked_cells(other, called, highlight), titles)

    def _title(self, letters: str) -> str:
        """Return the repr, with the tag in the letters of the dims if the result is a name."""
        text = repr(self)
        try:
            tag = dense_tag(self.layout)
            spelled = tag.spelled(letters)
            is_same = memory_desc(self.dims, self.dtype, spelled) == self
        except MemdescError:  # it is swizzled, or no vocabulary has these letters
            return text
        return text.replace(f"'{tag}'", f"'{spelled}'") if is_same else text

    def _repr_html_(self) -> str:
        return self.show().fragment

    def source(self, lang: str = "c", name: str = "tensor", letters: str | None = None) -> str:
        """Write the layout as source code: an offset function, its inverse, and a loop nest.

        `NAME_offset` takes the index of each dim and returns the offset in elements, including
        `offset0`. `NAME_index` is its inverse, if the strides nest; `NAME_fill` copies a
        row-major array into the layout and zeroes the padding. Indices and offsets have 64
        bits. Elements of types that the language does not have are passed as their bits.
        Constants give the sizes. A comment says why a function is missing.

        *Law*: compiled functions return what `offset` returns, and move what a reorder moves.

        Parameters
        ----------
        lang : {"c", "c++", "opencl", "cuda", "python"}
            C11, C++17, OpenCL C 1.2, CUDA C++17 or Python 3. On devices `NAME_fill` is a kernel
            for any one-dimensional number of work items.
        name : str
            The prefix of all function and constant names.
        letters : str, optional
            What to call the dims; by default what the name of the layout calls them.

        Examples
        --------
        >>> source = memdesc.memory_desc((2, 17), "f32", "aB8b").source("c", letters="nc")
        >>> print(source[source.index("int64_t tensor_offset") :])  # doctest: +ELLIPSIS
        int64_t tensor_offset(int64_t n, int64_t c)
        {
            return n * 24 + c / 8 * 8 + c % 8;
        }
        ...
        """
        from memdesc.source import layout_source  # only source code needs it

        names = name, letters_of(self, letters)
        about = repr(self), {"NBYTES": self.nbytes}
        return layout_source(self.layout, self.dtype, lang, names, about)

    def _with(self, layout: Layout, letters: str | None = None) -> MemoryDesc:
        if self.extra is not None:
            raise MemdescError(
                f"{self!r} has compensation, which was computed from all of its elements; "
                "see with_extra(None)"
            )
        return desc_of(self.dtype, layout, letters=letters)


memory_desc = MemoryDesc


def desc_of(
    dtype: DataType, layout: Layout, extra: Extra | None = None, letters: str | None = None
) -> MemoryDesc:
    """Make a descriptor from a data type and a layout; `letters` are what text calls the dims."""
    if not isinstance(dtype, DataType) or not isinstance(layout, Layout):
        raise MemdescError(
            f"a MemoryDesc needs a DataType and a Layout, not {short_repr(dtype)} and "
            f"{short_repr(layout)}"
        )
    if letters is not None:
        check_letters(letters, layout.ndims)
    if extra is not None:
        check_extra(extra, dtype, layout, letters)
    check_overlap(layout.base())  # XOR terms are one-to-one
    nbytes = dtype.nbytes(layout.offset0 + layout.span) if layout.nelems else 0
    min_nbytes = dtype.nbytes(layout.last + 1) if nbytes else 0
    if extra is not None and layout.nelems:
        nbytes = min_nbytes = extra.nbytes(nbytes, layout.padded_dims())
    if nbytes > INT64_MAX:
        raise MemdescError(
            f"dims {layout.dims} of {dtype} take {nbytes} bytes, "
            f"more than int64 holds ({INT64_MAX})"
        )
    desc = object.__new__(MemoryDesc)
    key = dtype.name, layout.key(), extra
    spelling = f"{letters or ''}{layout.unit_strides()}"
    values = nbytes, min_nbytes, spelling, dtype, extra, layout, letters, hash(key), key
    for name, value in zip(MemoryDesc.__slots__, values, strict=True):
        object.__setattr__(desc, name, value)
    return desc


def letters_of(desc: MemoryDesc, letters: object = None) -> str:
    """Return what a caller calls the dims; by default the letters of the name, or a, b, c, ..."""
    return check_letters(desc.letters or LETTERS if letters is None else letters, desc.ndims)


def _checked_type(dtype: object, layout: object, ndims: int) -> DataType:
    """Return the data type of a descriptor's arguments, or say that they are in the wrong order."""
    try:
        return data_type(dtype)
    except MemdescError as error:
        name = dtype.strip() if isinstance(dtype, str) else ""
        if layout is None and is_name(name, ndims, 32):
            raise MemdescError(
                f"dtype comes before layout: memory_desc(dims, dtype, {name!r})"
            ) from None
        try:
            data_type(layout)
        except MemdescError:
            raise error from None
        raise MemdescError(
            f"dtype comes before layout: dtype is {short_repr(dtype)} here, and layout "
            f"{short_repr(layout)}"
        ) from None


def _given_layout(dims: tuple[int, ...], layout: Layout | FormatTag | None) -> Layout:
    """Return the layout that a caller gives as a value; None is row-major."""
    if layout is None:
        layout = parse_tag(LETTERS[: len(dims)] or "a")
    if isinstance(layout, FormatTag):
        return layout_by_tag(layout, dims)
    if layout.dims != dims:
        raise MemdescError(f"dims {short_repr(dims)} are not those of the layout, {layout.dims}")
    return layout


def _strided_layout(
    dims: tuple[int, ...], layout: object, strides: Iterable[int] | None, beside: _Beside
) -> Layout | None:
    """Return the layout of strides and the arguments beside them; None if none is given."""
    padded_dims, inner_blks, inner_idxs, start = beside
    blks = checked_ints("inner_blks", inner_blks)
    idxs = checked_ints("inner_idxs", inner_idxs)
    offset0 = checked_int("offset0", start)
    if strides is None:
        if blks or idxs or padded_dims is not None or offset0:
            raise MemdescError(
                "inner_blks, inner_idxs, padded_dims and offset0 go with strides=, not with a "
                "layout"
            )
        return None
    if layout is not None:
        raise MemdescError(
            "give a layout or strides, not both: "
            f"layout={short_repr(layout)} and strides={short_repr(strides)}"
        )
    if len(blks) != len(idxs) or min(blks, default=1) < 1 or not {*idxs} <= {*range(len(dims))}:
        raise MemdescError(
            f"inner_blks {short_repr(blks)} and inner_idxs {short_repr(idxs)} "
            f"must be sizes of 1 or more, each with a dim of 0 to {len(dims) - 1}"
        )
    if prod(blks) > INT64_MAX:
        raise MemdescError(
            f"inner_blks {short_repr(blks)} multiply to more elements than int64 holds "
            f"({INT64_MAX})"
        )
    inner = tuple((blk, dim) for blk, dim in zip(blks, idxs, strict=True) if blk > 1)
    steps = checked_ints("strides", strides)
    padded = None if padded_dims is None else checked_ints("padded_dims", padded_dims)
    for name, values in (("strides", steps), ("padded_dims", padded)):
        if values is not None:
            check_length(name, values, len(dims))
    return layout_by_strides(dims, steps, inner, padded, offset0)


@lru_cache(maxsize=4096)
def _named(dims: tuple[int, ...], dtype: DataType, name: str) -> MemoryDesc:
    """Describe memory by a name or, if no vocabulary has it, by another notation."""
    # asked first, as the error of an unknown name takes long to suggest similar ones
    if is_name(name, len(dims), dtype.bits):
        return desc_by_name(dims, dtype, name)
    with import_lock:
        from memdesc.exchange import parse_layout  # only other notations need it

    desc = parse_layout(name, dims, dtype)
    if isinstance(desc, MemoryDesc):
        return desc
    raise UnsupportedFormatError(
        f"{short_repr(name)} is an image; image_desc(dims, dtype, name) describes it"
    )


def desc_by_name(dims: tuple[int, ...], dtype: DataType, tag: str) -> MemoryDesc:
    """Describe memory by a name of a vocabulary; no other notation is read."""
    name = expand_meta_tag(tag, len(dims))
    letters = letters_for(name, len(dims))
    if letters is not None or not dims:
        check_dims(dims, letters)
    try:
        resolved = resolve(name, dims, dtype.bits)
    except MemdescError as error:
        if name != tag:
            meant = f"{short_repr(tag)} stands for {name!r} where there are {len(dims)} dims"
            error.args = (f"{meant}: {error}",)
        raise
    return desc_of(dtype, layout_by_tag(resolved, dims, name), letters=letters)


def checked_desc(name: str, desc: object) -> MemoryDesc:
    """Return a caller's descriptor; refuse other values."""
    if isinstance(desc, MemoryDesc):
        return desc
    has_one = isinstance(getattr(desc, "desc", None), MemoryDesc)
    raise MemdescError(
        f"{name} must be a MemoryDesc, not {short_repr(desc)}; "
        f"{'its .desc is one' if has_one else 'see memdesc.memory_desc'}"
    )


@lru_cache(maxsize=1024)  # tries all known names, which takes milliseconds
def _names_of(desc: MemoryDesc, _spelling: str) -> tuple[Name, ...]:
    if not desc.layout.xor:
        return names_of(desc.layout, desc.dtype.bits, desc.letters)
    from memdesc.exchange import swizzle_names  # no vocabulary has swizzles

    return swizzle_names(desc)


def array_desc(x: Any) -> MemoryDesc:
    """Describe the memory of an array or tensor; its axes are the logical dims.

    Element 0 of the described buffer is the lowest address that the array touches,
    so `offset0` is not 0 if a stride is negative.

    Parameters
    ----------
    x : ndarray, or tensor of torch, JAX or another library with DLPack
        Of any shape and strides. A tensor may be on any device; one without strides, such as
        JAX's, is row-major.

    Raises
    ------
    MemdescError
        If memdesc has no such data type, the array holds unpacked 4-bit elements, a stride is not
        a multiple of the element size, or the tensor is sparse.

    Examples
    --------
    >>> memdesc.array_desc(np.zeros((3, 4), np.float32)[:, ::-1])
    memory_desc((3, 4), 'f32', strides=(4, -1), offset0=3)
    """
    if isinstance(x, np.ndarray):
        return strided_desc(x.shape, x.strides, x.dtype)
    if not hasattr(x, "__dlpack__"):
        raise MemdescError(f"an array or a tensor is needed, not {short_repr(x)}")
    if (form := str(getattr(x, "layout", "strided"))).rpartition(".")[2] != "strided":
        raise MemdescError(
            f"a tensor of {form} has no strides; its values and indices are tensors that have"
        )
    shape, strides = tuple(map(int, x.shape)), getattr(x, "strides", None)
    if isinstance(strides, tuple):  # in bytes, as numpy's
        return strided_desc(shape, strides, np.dtype(x.dtype))
    dtype = data_type(x.dtype)
    _refuse_packed(dtype, f"a tensor of {x.dtype}")
    stride = getattr(x, "stride", None)
    steps = stride() if callable(stride) else None
    return MemoryDesc(shape, dtype, strides=steps)


def _refuse_packed(dtype: DataType, what: str) -> None:
    if dtype.is_packed:
        raise MemdescError(
            f"{what} holds one element per byte, but memory of {dtype} holds two; "
            "reorder() packs them"
        )


@lru_cache(maxsize=4096)
def strided_desc(
    shape: tuple[int, ...], strides: tuple[int, ...], element: np.dtype[Any]
) -> MemoryDesc:
    """Describe an array by its strides in bytes, from its lowest element on."""
    dtype = data_type(element)
    _refuse_packed(dtype, f"a numpy array of {element.name}")
    steps = []
    skipped = 0
    is_empty = 0 in shape
    for dim, (size, nbytes) in enumerate(zip(shape, strides, strict=True)):
        # numpy allows any stride for a dim of size 1, and for all dims if one has size 0
        if size > 1 and not is_empty and nbytes % element.itemsize:
            raise MemdescError(
                f"{dim_name(dim)} has a stride of {nbytes} bytes, "
                f"not a multiple of the {element.itemsize}-byte element; copy the array"
            )
        steps.append(nbytes // element.itemsize)
        skipped += 0 if is_empty else (size - 1) * max(-steps[-1], 0)
    try:
        return MemoryDesc(shape, dtype, strides=steps, offset0=skipped)
    except OverlapError as error:
        error.args = (f"{error}; copy the array",)
        raise
