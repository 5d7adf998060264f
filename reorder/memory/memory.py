"""Memory: a buffer with its descriptor, whose padding holds zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from memdesc import MemdescError, MemoryDesc
from memdesc.checked import Checked
from memdesc.desc import checked_desc
from memdesc.errors import allocates, short_repr
from memdesc.immutable import immutable
from memdesc.int64 import checked_flag
from reorder.memory.allocation import uninitialized_bytes, zeroed_bytes
from reorder.memory.arrays import bits_of, is_plain, logical_array, physical_array, write_logical
from reorder.memory.buffers import BufferCheck, address_of, pickled_bytes
from reorder.memory.compensation import compensation
from reorder.memory.dlpack import CPU_DEVICE, TensorView, refuse_gradient
from reorder.memory.indexing import Indexed, elements_at, select_elements
from reorder.memory.padding import check_padding, clear_padding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pickle import PickleBuffer

    from numpy.typing import NDArray

    from memdesc.picture import Picture


# Smaller results start where numpy's arrays do: aligning one would take longer than filling it.
MIN_ALIGNED = 16 << 10
_UINT8 = np.dtype(np.uint8)
_set = object.__setattr__  # sets the fields of a memory while it is made


class MemoryDraft(Indexed, Checked):
    """Memory whose fields are being set, which is faster than on a class that refuses changes."""

    __slots__ = ("data", "desc")


@immutable
class Memory(Indexed, Checked):
    """A buffer and its descriptor.

    Parameters
    ----------
    desc : MemoryDesc or str
        What the buffer holds. A string that contains the sizes and the data type too, such as
        ``"bf16[64,32]{1,0}"`` or a line of a log, is read by `memdesc.parse_layout`.
    buffer : ndarray, object with the buffer protocol or with DLPack, optional
        C-contiguous memory of at least `desc.min_nbytes` bytes, used without a copy;
        zeros are written into its padding. By default `desc.nbytes` zeroed bytes are
        allocated.
    zero_pad : bool
        False if the caller guarantees zeros in the padding (see `check_padding`).

    Raises
    ------
    MemdescError
        If the buffer does not fit the descriptor, or is read-only but its padding must be written.
    OutOfMemoryError
        If the system does not have this much memory.

    Examples
    --------
    >>> m = reorder.Memory(memdesc.memory_desc((1, 3, 2, 2), "f32", "nChw8c"))
    >>> m.nbytes, m.numpy().shape
    (128, (1, 3, 2, 2))
    """

    # not properties: a reorder reads them, and a call in Python takes as long as a small move
    __slots__ = {  # noqa: RUF023 - in the order of the documentation
        "desc": "The descriptor.",
        "data": "The buffer as flat bytes, for `bytes()`, `memoryview()` and files.",
    }

    desc: MemoryDesc
    data: NDArray[np.uint8]
    _another = "Memory(desc, buffer) attaches a buffer to another descriptor"

    def __init__(
        self, desc: MemoryDesc | str, buffer: Any = None, *, zero_pad: bool = True
    ) -> None:
        if isinstance(desc, str):
            from memdesc.exchange import parse_layout  # only text needs it

            desc = parse_layout(desc, default=None)  # type: ignore[assignment] # checked below
        desc = checked_desc("desc", desc)
        _set(self, "desc", desc)
        if buffer is None:
            _set(self, "data", zeroed_bytes(desc.nbytes))
            return
        must_write = checked_flag("zero_pad", zero_pad) and desc.has_padding and desc.nelems > 0
        if must_write and desc.has_broadcast:
            raise MemdescError(
                f"{desc!r} has a stride of 0, so its padding overlaps its data; pass zero_pad=False"
            )
        data = BufferCheck(desc, "buffer", write=False)(buffer)
        if must_write and not data.flags.writeable:
            refuse_gradient(buffer, "buffer")
            raise MemdescError(
                "buffer is read-only, but its padding must be set to zero; pass a copy, or "
                "zero_pad=False if it is zero already"
            )
        _set(self, "data", data[: desc.nbytes])
        if must_write:
            clear_padding(self.data, desc)

    @classmethod
    def attached(cls, desc: MemoryDesc, data: NDArray[np.uint8]) -> Memory:
        """Return memory made of flat bytes that fit a descriptor, unchecked and unchanged."""
        draft: Any = MemoryDraft()
        draft.desc, draft.data = desc, data
        draft.__class__ = cls
        made: Memory = draft
        return made

    @classmethod
    def to_fill(cls, desc: MemoryDesc) -> Memory:
        """Return memory for a caller that writes all elements and padding; other bytes are 0."""
        return cls.attached(desc, allocator_of(desc)(desc.nbytes, _UINT8))

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer that belong to the descriptor."""
        return self.data.nbytes

    @property
    def elements(self) -> NDArray[Any]:
        """The buffer as unsigned integers with the elements' bits; for 4-bit types, as bytes."""
        if self.desc.dtype.is_packed:
            return self.data
        return bits_of(self.data, self.desc)

    @allocates
    def __getitem__(self, key: Any) -> Any:
        """Read elements by their logical index, in any layout; no other bytes are read.

        *Law*: `m[key]` equals `m.numpy()[key]`.

        Parameters
        ----------
        key : int, slice, ... or a tuple of them
            As for numpy's arrays.

        Returns
        -------
        ndarray or scalar
            A copy, which is read-only because writes would not reach the memory. See `apply`.

        Raises
        ------
        OutOfRangeError
            If an index is outside its dim.
        MemdescError
            If the key holds anything else, such as an array.

        Examples
        --------
        >>> m = reorder.reorder(np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2), "nChw8c")
        >>> float(m[0, 2, 1, 0]), m[0, :, 0, 1]
        (10.0, array([1., 5., 9.], dtype=float32))
        """
        return elements_at(self.data, self.desc, select_elements(self.desc, key), 0)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _attached_again, (self.desc, pickled_bytes(self.data, protocol))

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    @allocates
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - numpy's protocol
        array = self.numpy(copy=copy)
        wanted = array.dtype if dtype is None else np.dtype(dtype)
        if array.dtype == wanted:
            return array
        if copy is False:
            raise MemdescError(
                f"{self.desc!r} holds {array.dtype.name}, so an array of {wanted.name} needs a copy"
            )
        try:
            return array.astype(wanted)
        except ValueError as error:  # for example, of bf16 as void
            raise MemdescError(f"{self.desc!r} cannot be an array of {wanted}: {error}") from None

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE

    def __dlpack__(self, **options: Any) -> Any:
        """Export the logical array without copying or, with `copy=True`, a copy of any layout.

        Raises
        ------
        BufferError
            If the layout is not a strided array of its dims, or the type has 4 bits.
        """
        if (dtype := self.desc.dtype).is_packed:
            raise BufferError(
                f"two {dtype} elements share a byte, and readers of DLPack disagree on their "
                "order; export .data, or reorder() to a wider type"
            )
        try:
            array = self.numpy(copy=bool(options.get("copy")))
        except MemdescError as error:
            raise BufferError(
                f"{error}; for DLPack take block_tensor(), its physical array, or reorder() to a "
                "plain layout"
            ) from None
        return TensorView(array).__dlpack__(**{**options, "copy": None})

    def block_tensor(self) -> TensorView:
        """Return the physical n-d array of `blocks()` for DLPack consumers, including bf16 and f8.

        Raises
        ------
        NotBlockedError
            As for `blocks`.

        Examples
        --------
        >>> m = reorder.Memory(memdesc.memory_desc((1, 17, 2, 2), "f32", "nChw16c"))
        >>> np.from_dlpack(m.block_tensor()).shape
        (1, 2, 2, 2, 16)
        """
        return TensorView(self.blocks())

    def blocks(self) -> NDArray[Any]:
        """Return the physical n-d array, without copying: one axis for each block.

        For `nChw16c` its shape is (N, C/16, H, W, 16). Axes are in memory order.

        Raises
        ------
        NotBlockedError
            For 4-bit types, and for views that end inside a block.

        Examples
        --------
        >>> reorder.Memory(memdesc.memory_desc((1, 17, 2, 2), "f32", "nChw16c")).blocks().shape
        (1, 2, 2, 2, 16)
        """
        return physical_array(self.data, self.desc)

    def show(
        self, letters: str | None = None, *, highlight: Iterable[Iterable[int]] = ()
    ) -> Picture:
        """Draw the values where they are, like `MemoryDesc.show`.

        Parameters
        ----------
        letters, highlight
            As for `MemoryDesc.show`.

        Examples
        --------
        >>> m = reorder.reorder(np.arange(6, dtype=np.int8).reshape(3, 2) ** 2, "Ab2a")
        >>> m.show("oi").text.splitlines()[-1].strip()
        '0 |  0   4   1   9  16 [0]  25 [0]'
        """
        return self.desc.show(letters, highlight=highlight, values=self)

    @allocates
    def numpy(self, *, copy: bool | None = None) -> NDArray[Any]:
        """Return the logical array: its axes are the dims.

        To change the elements, use `apply`, `blocks`, or ``reorder(array, out=memory)``:
        writes into this array reach the memory only if it is a view.

        Parameters
        ----------
        copy : bool, optional
            None gives a view of a plain layout, and a copy of a blocked one unless its
            elements happen to be in row-major order; True always copies; False gives a
            view of a plain layout and refuses others.

        Raises
        ------
        MemdescError
            With ``copy=False``, if the layout is blocked or the type has 4 bits.

        Examples
        --------
        >>> x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
        >>> bool((reorder.reorder(x, "nChw8c").numpy() == x).all())
        True
        """
        if copy is False and not is_plain(self.desc):
            raise MemdescError(
                f"{self.desc!r} is not a strided array of its dims, so numpy(copy=False) is "
                "impossible; see blocks() for a view"
            )
        array = logical_array(self.data, self.desc)
        return array.copy() if copy and np.may_share_memory(array, self.data) else array

    @allocates
    def apply(self, function: Callable[[NDArray[Any]], Any]) -> None:
        """Replace the elements with a function of them; the padding stays zero.

        Parameters
        ----------
        function : callable
            Takes the logical array and returns one of the same shape and dtype.

        Raises
        ------
        MemdescError
            If it returns another shape or dtype, or the buffer is read-only.

        Examples
        --------
        >>> m = reorder.reorder(np.zeros((1, 3, 2, 2), np.float32), "nChw8c")
        >>> m.apply(np.exp)
        >>> float(m.numpy().sum()), float(m.blocks().sum())
        (12.0, 12.0)
        """
        desc = self.desc
        if not callable(function):
            raise MemdescError(
                f"apply() takes a function of the logical array, not {short_repr(function)}"
            )
        if not self.data.flags.writeable:
            raise MemdescError("apply() writes into the buffer, which is read-only; attach a copy")
        if desc.has_broadcast:
            raise MemdescError(
                f"{desc!r} has a stride of 0: one element would be written for several indices"
            )
        returned = function(self.numpy(copy=True))
        try:
            result = np.asarray(returned)
        except ValueError as error:  # lists of different lengths
            raise MemdescError(
                f"the function returned {short_repr(returned)}, not an array: {error}"
            ) from None
        if result.shape != desc.dims or result.dtype != desc.dtype.numpy:
            raise MemdescError(
                f"the function returned {result.dtype} of shape {result.shape}, not "
                f"{desc.dtype.numpy} of shape {desc.dims}"
            )
        write_logical(self.data, desc, result)

    def compensation(self) -> dict[str, NDArray[np.int32]]:
        """Return the compensation after int8 weights, by name: ``s8s8`` and ``asymmetric``.

        The axes are the padded dims of the masks. Empty for a descriptor without `extra`.

        Examples
        --------
        >>> extra = memdesc.Extra(asymmetric_mask=1)
        >>> desc = memdesc.memory_desc((2, 3), "s8", "ab").with_extra(extra)
        >>> reorder.reorder(np.array([[1, 2, 3], [4, 5, -6]], np.int8), desc).compensation()
        {'asymmetric': array([-6, -3], dtype=int32)}
        """
        return compensation(self.data, self.desc)

    def check_padding(self) -> None:
        """Check that the padding holds zeros, as it must.

        `Memory(desc, buffer)` clears the padding. To check a dump from elsewhere, attach it with
        ``zero_pad=False``.

        Raises
        ------
        PaddingError
            With the first byte that is not zero, and its position in the padded dims.
        """
        check_padding(self.data, self.desc)


def allocator_of(desc: MemoryDesc) -> Callable[[int, np.dtype[np.uint8]], NDArray[np.uint8]]:
    """Return what allocates memory to fill: bytes that no reorder writes must be 0.

    These are gaps, the half of a last byte, and compensation.
    """
    is_filled = (
        desc.extra is None
        and desc.offset0 == 0
        and desc.is_dense
        and desc.padded_nelems * desc.dtype.bits % 8 == 0
    )
    if desc.nbytes < MIN_ALIGNED:
        return np.empty if is_filled else np.zeros
    return uninitialized_bytes if is_filled else zeroed_bytes


def _attached_again(desc: MemoryDesc, data: PickleBuffer | bytearray) -> Memory:
    """Restore pickled memory with its bytes as they were, including the padding."""
    held = np.asarray(memoryview(data))
    # buffers sent out of band may start at any address
    is_aligned = address_of(held) % desc.dtype.bits_dtype.itemsize == 0
    return Memory(desc, held if is_aligned else held.copy(), zero_pad=False)
