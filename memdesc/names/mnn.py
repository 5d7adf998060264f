"""MNN's name of packed data: `NC4HW4`.

Backends that pack 8 or 16 channels use this name too; here it has its meaning in files and
interfaces. Source: MNN, `Tensor::CAFFE_C4` and `MNN_DATA_FORMAT_NC4HW4`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import ANY_WIDTH, Row, Table

_ROWS = {"NC4HW4": Row("nchw", "data", {ANY_WIDTH: "aBcd4b"})}

VOCABULARY = Table("format of MNN", _ROWS).vocabulary("mnn", lambda name: name.startswith("NC4"))
