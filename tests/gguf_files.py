"""Files of llama.cpp, as the package gguf writes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def gguf_file(path: Path, **options: Any) -> Iterator[Any]:
    """Yield the package's GGUF writer; the file is written on exit."""
    import gguf  # not installed everywhere

    writer = gguf.GGUFWriter(path, "llama", **options)
    yield writer
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
