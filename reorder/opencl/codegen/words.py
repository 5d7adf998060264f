"""Runs of elements in a buffer: loaded and stored as words, one by one, or as halves of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["load_words", "one_element", "store_element", "store_words"]

_BYTE, _WORD = 8, 32


def _type_of(bits: int) -> str:
    """Return the type of a run of so many bits: one integer, or words of 32 bits."""
    narrow = {8: "uchar", 16: "ushort", 32: "uint"}
    return narrow[bits] if bits in narrow else f"uint{bits // _WORD}"


def _at(operand: str, offset: str, bits: int) -> str:
    return f"{operand} + (({offset}) >> 1)" if bits < _BYTE else f"{operand} + ({offset})"


def load_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statements that load aligned elements, which follow one another, into names."""
    if len(names) == 1:
        yield f"{names[0]} = {one_element(operand, offset, bits)};"
        return
    total = bits * len(names)
    kind = _type_of(total)
    address = f"(__global const {kind} *)({_at(operand, offset, bits)})"
    yield f"const {kind} {operand}_words = *{address};"
    for k, name in enumerate(names):
        word = f"{operand}_words" + (f".s{k * bits // _WORD:x}" if total > _WORD else "")
        if bits > _WORD:
            pair = f"{operand}_words.s{2 * k + 1:x}, {operand}_words.s{2 * k:x}"
            yield f"{name} = upsample({pair});"
        elif bits == _WORD:
            yield f"{name} = {word};"
        else:
            shift = k * bits % _WORD
            yield f"{name} = ({word} >> {shift}) & {(1 << bits) - 1:#x};"


def store_words(operand: str, offset: str, bits: int, names: list[str]) -> Iterator[str]:
    """Return the statement that stores elements behind one another, at an aligned offset."""
    total = bits * len(names)
    if bits > _WORD:
        words = [part for name in names for part in (f"(uint){name}", f"(uint)({name} >> {_WORD})")]
    else:
        each = max(_WORD // bits, 1)
        words = [
            " | ".join(f"{name} << {j * bits}" for j, name in enumerate(names[k : k + each]))
            for k in range(0, len(names), each)
        ]
    kind = _type_of(total)
    yield f"*(__global {kind} *)({_at(operand, offset, bits)}) = ({kind})({', '.join(words)});"


def one_element(operand: str, offset: str, bits: int) -> str:
    """Return the expression of the bits of one element."""
    if bits < _BYTE:
        return f"(({operand}[({offset}) >> 1] >> ((({offset}) & 1) << 2)) & 15)"
    return f"{operand}[{offset}]"


def store_element(operand: str, offset: str, bits: int, name: str) -> str:
    """Return the statement that stores one element; of 4 bits, one half of a byte."""
    if bits < _BYTE:
        byte = f"{operand}[({offset}) >> 1]"
        shift = f"((({offset}) & 1) << 2)"
        return f"{byte} = (uchar)(({byte} & (240 >> {shift})) | {name} << {shift});"
    return f"{operand}[{offset}] = {name};"
