"""Hints about files work: a call that is refused, what is said of it, and calls that follow."""

from pathlib import Path
from typing import Any

import numpy as np

import reorder
from memdesc import memory_desc
from reorder.checkpoints.moves.changes import Reorder
from reorder.checkpoints.moves.pieces import cut
from tests.hints import ROOT, check, rows

# what the bytes of checkpoints are read, moved, written and compared by
_FOLDER = ROOT / "reorder" / "checkpoints"
_MODULES = [
    str(path.relative_to(ROOT))
    for folder in ("formats", "moves")
    for path in sorted((_FOLDER / folder).glob("*.py"))
] + [f"reorder/checkpoints/{name}.py" for name in ("writer", "save", "reorder_file", "compare")]
# rules that follow these are in the hints of conversions; the last is of damaged bytes
_OTHERS = (
    "or leave the tensor out of the rule",
    "give a larger scale",
    "what was written differs from the definition",
)
_ROWS = rows("""
r.load_all(compressed, max_nbytes=4000)  # pass max_nbytes=
    r.load_all(compressed, max_nbytes=8128)
r.load(compressed, max_nbytes=4000)  # more than the 4000 allowed
    np.load(compressed)["x"]
pieces(1000)  # give more
    pieces(131072)
r.save(new, {"__metadata__": x})  # give another name
    r.save(new, {"metadata": x})
r.load(compressed, mmap=True)  # reorder.load_all reads it
    r.load_all(compressed)
r.save(npy, r.quantize(x, "s8"))  # write a .npz or .safetensors
    r.save(npz, r.quantize(x, "s8"))
r.save(npy, r.reorder(x, "Ab8a"))  # reorder it to 'plain'
    r.save(npy, r.reorder(x, "plain"))
r.save(raw, x)  # reorder.checkpoints.save_raw
    r.checkpoints.save_raw(raw, r.reorder(x, "ab"))
r.load(quantized)  # load(path, reorder.Quantized)
    r.load(quantized, r.Quantized)
r.load(several)  # commands take one as FILE:NAME
    r.load_all(several)
""")


def test_hints_are_given_and_work(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(64, 256)
    endings = {"new": ".safetensors", "raw": ".bin", "npy": ".npy", "npz": ".npz"}
    names: dict[str, Any] = {name: tmp_path / f"{name}{end}" for name, end in endings.items()}
    names |= {each: tmp_path / f"{each}.npz" for each in ("compressed", "quantized", "several")}
    np.savez_compressed(names["compressed"], x=np.zeros(1000))
    reorder.save(names["quantized"], reorder.quantize(x, "s8"))
    np.savez(names["several"], w=x, v=x)
    src, dst = (memory_desc(x.shape, "f32", tag) for tag in ("ab", "AB64a256b"))

    def pieces(most: int) -> object:
        return cut(Reorder(src, dst), most)

    check(_ROWS, {**names, "x": x, "pieces": pieces}, _MODULES, _OTHERS)
