"""MNN's names of packed data: `NC4HW4`, and `C4NHW4` of its OpenCL buffers.

Backends that pack 8 or 16 channels use the first name too; here it has its meaning in files and
interfaces. In buffers of OpenCL, MNN means `C4NHW4` by it: the slices of channels are outside the
batch. Source: MNN at 4d40bdbd, `Tensor::CAFFE_C4`, `MNN_DATA_FORMAT_NC4HW4` and
`OpenCLRunningUtils.cpp`.
"""

from __future__ import annotations

from memdesc.names.vocabulary import ANY_WIDTH, Row, Vocabulary

_ROWS = {
    "NC4HW4": Row("nchw", "data", {ANY_WIDTH: "aBcd4b"}),
    "C4NHW4": Row("nchw", "data", {ANY_WIDTH: "Bacd4b"}),
}

VOCABULARY = Vocabulary("mnn", "format of MNN", _ROWS, "NC4|C4N")
