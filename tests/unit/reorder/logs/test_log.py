"""Logs of oneDNN's verbose mode. The files in `tests/data/verbose` are what real programs wrote."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memdesc import RUNTIME, MemdescError, memory_desc, runtime_desc
from memdesc.verbose import to_verbose
from reorder.logs import VerbosePrimitive, read_verbose

_LOGS = Path(__file__).parents[3] / "data" / "verbose"
_REORDER = (
    "exec,cpu,reorder,jit:uni,undef,src_f32::blocked:abcd:f0 dst_f32:p:blocked:aBcd16b:f0,,,"
    "2x17x8x8,0.25"
)


def _primitive(kind: str, descriptors: str, problem: str, aux: str = "") -> VerbosePrimitive:
    return VerbosePrimitive("cpu", kind, "jit:uni", "undef", descriptors, "", aux, problem)


# version, entries, and kinds of primitives
_REAL = {
    "onednn-2.4": ("2.4.0", 37, 19),
    "onednn-2.6": ("2.6.0", 37, 19),
    "onednn-3.2": ("3.2.0", 41, 19),
    "onednn-3.13": ("3.13.2", 43, 20),
    "torch-2.13": ("3.12.0", 16, 2),
    "openvino-2026.4": ("3.13.0", 24, 4),
}


@pytest.mark.parametrize("name", _REAL)
def test_every_tensor_of_real_logs_is_read_and_printed_again(name: str) -> None:
    log = read_verbose(_LOGS / f"{name}.log")
    version, entries, kinds = _REAL[name]
    assert (log.versions, len(log.entries)) == ((version,), entries)
    assert not log.skipped
    assert not log.other_lines
    assert len({entry.primitive.kind for entry in log.entries}) == kinds
    for entry in log.entries:
        primitive = entry.primitive
        assert len(primitive.tensors) == len(primitive.descriptors.split())
        assert entry.milliseconds >= 0
        for tensor in primitive.tensors.values():
            assert tensor.is_absent or tensor.desc is not None, (primitive.kind, tensor)
            if tensor.desc is not None and not tensor.why and version[0] == "3":
                # flag a is the wish of a user, and not of the descriptor
                assert to_verbose(tensor.desc) == re.sub(r"^(\w+):a", r"\1:", tensor.text)


def test_lines_of_all_versions_start_in_their_way() -> None:
    desc, at = memory_desc((2, 17, 8, 8), "f32", "nChw16c"), 1795321398365.38
    for prefix, stamp in (
        ("dnnl_verbose,", None),
        ("onednn_verbose,", None),
        (f"onednn_verbose,{at},", at),
        ("onednn_verbose,primitive,", None),
        ("onednn_verbose,v1,primitive,", None),
        (f"onednn_verbose,v1,{at},primitive,", at),
        ("[rank0]: onednn_verbose,v1,primitive,", None),
    ):
        (entry,) = read_verbose([prefix + _REORDER]).entries
        assert (entry.event, entry.milliseconds, entry.timestamp) == ("exec", 0.25, stamp)
        assert entry.primitive.tensors["dst"].desc == desc
        assert entry.is_execution


def test_lines_that_are_not_entries_are_counted() -> None:
    log = read_verbose(
        [
            "epoch 1",
            "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71)",
            "onednn_verbose,v1,graph,exec,cpu,100002,sdp,matmul,,in0,1.5",
            "onednn_verbose,v1,ukernel,create,brgemm,1",
            "onednn_verbose,v1,primitive,create:dispatch,reorder",
            "onednn_verbose,v1,primitive,error,cpu,primitive,memory",
            "onednn_verbose,v1,primitive,exec,cpu,reorder",
            f"onednn_verbose,v1,primitive,{_REORDER}x",
            "onednn_verbose,",
            f"onednn_verbose,v1,primitive,create:cache_hit,{_REORDER.partition(',')[2]}\r\n",
        ]
    )
    assert log.versions == ("3.12.0",)
    assert log.info == ("oneDNN v3.12.0 (commit 80afa71)",)
    assert log.skipped == {"graph": 1, "ukernel": 1, "create:dispatch": 1, "error": 1, "unread": 3}
    assert not log.passed_over
    assert [(each.line, each.why) for each in log.unread] == [
        (7, "it has 2 fields after the event instead of 9"),
        (8, "its time '0.25x' is not a number"),
        (9, "it has 1 field after the event instead of 9"),
    ]
    assert (log.other_lines, [entry.line for entry in log.entries]) == (1, [10])
    assert not log.executions


def test_a_line_with_a_decimal_comma_names_the_cause() -> None:
    for line in (
        "onednn_verbose,exec,cpu,reorder,jit:uni,undef,src:a dst:b,,,2x3,0,25",
        "onednn_verbose,exec,cpu,reorder,jit:uni,undef,src:a dst:b,attr-oscale:0:0,5 ,,2x3,7",
        "onednn_verbose,exec,cpu,reorder,jit:uni,undef,src:a dst:b,post_ops:'sum:0,5;';,,6,1,5e-05",
        "onednn_verbose,exec,cpu,eltwise,jit:uni,undef,data:a,,alg:x alpha:0,5 beta:0,6,12",
        "onednn_verbose,v1,1234,5,primitive,exec,cpu,reorder,jit,undef,src:a dst:b,,,2x3,0,25",
        "onednn_verbose,1234,567,exec,cpu,reorder,jit:uni,undef,src:a dst:b,,,2x3,7",
    ):
        log = read_verbose([line])
        assert (log.entries, log.skipped) == ((), {"unread": 1})
        assert "decimal comma" in log.unread[0].why
        assert "LC_ALL=C" in log.unread[0].why


def test_reasons_of_dispatch_belong_to_the_primitive_that_was_created_then() -> None:
    start = "onednn_verbose,v1,primitive,"
    known = _REORDER.partition(",")[2].rpartition(",")[0]
    other = known.replace("2x17x8x8", "1x1x8x8")
    log = read_verbose(
        [
            f"{start}create:dispatch,convolution,unsupported format tag,src/cpu/a.cpp:261",
            f"{start}create:dispatch,reorder,f,t,l padding not supported,src/cpu/b.cpp:680",
            f"{start}create:dispatch,reorder,{known},formats, they differ,src/cpu/c.cpp:1",
            f"{start}create:dispatch,reorder,{other},too small,src/cpu/c.cpp:2",
            f"{start}create:cache_hit,{_REORDER.partition(',')[2]}",
            f"{start}create:cache_miss,{_REORDER.partition(',')[2]}",
        ]
    )
    chosen = log.entries[1].primitive
    assert [each[1:] for each in log.passed_over] == [
        ("convolution", "", "unsupported format tag", "src/cpu/a.cpp:261", None),
        ("reorder", "", "f,t,l padding not supported", "src/cpu/b.cpp:680", chosen),
        ("reorder", "jit:uni", "formats, they differ", "src/cpu/c.cpp:1", chosen),
        ("reorder", "jit:uni", "too small", "src/cpu/c.cpp:2", None),
    ]
    assert not log.skipped


def test_a_time_that_onednn_does_not_print_is_not_read() -> None:
    for time in ("nan", "inf", "-1.5", "1_0", "1e308", "", "0.2onednn_verbose"):
        log = read_verbose([f"onednn_verbose,{_REORDER.rpartition(',')[0]},{time}"])
        assert (log.entries, log.skipped) == ((), {"unread": 1})


def test_only_the_first_unread_lines_are_kept() -> None:
    log = read_verbose(["onednn_verbose,exec,"] * 100)
    assert (log.skipped["unread"], len(log.unread)) == (100, 20)


def test_equal_primitives_are_one_object() -> None:
    first, second = read_verbose([f"onednn_verbose,{_REORDER}"] * 2).entries
    assert first.primitive is second.primitive


def test_a_log_is_a_file_or_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\n" + f"onednn_verbose,{_REORDER}\n".encode())
    log = read_verbose(path)
    assert log == read_verbose(str(path))
    with path.open(errors="replace", encoding="utf-8") as file:
        assert read_verbose(file) == log
    assert (len(log.entries), log.other_lines) == (1, 1)


def test_lines_that_are_not_strings_are_other_lines() -> None:
    lines: list[Any] = [None, 3, b"onednn_verbose"]
    assert read_verbose(lines).other_lines == 3


def test_tensors_of_one_name_are_numbered() -> None:
    found = _primitive(
        "binary",
        "src:f32::blocked:ab::f0 src:s8::blocked:ba::f0 dst:f32::blocked:ab::f0",
        "2x3:1x3",
    ).tensors
    assert list(found) == ["src0", "src1", "dst"]
    assert found["src1"].desc == memory_desc((1, 3), "s8", "ba")


def test_a_bias_of_a_matmul_has_the_dims_of_its_mask() -> None:
    found = _primitive(
        "matmul",
        "src_f32::blocked:ab:f0 wei_f32::blocked:ba:f0 bia_f32::blocked:ab:f0_mask2 "
        "dst_f32::blocked:ab:f0",
        "7x16:16x5",
    ).tensors
    assert found["bia"].desc == memory_desc((1, 5), "f32", "ab")
    assert found["wei"].desc == memory_desc((16, 5), "f32", "ba")


def test_runtime_dims_make_runtime_descriptors() -> None:
    found = _primitive("reorder", "src:f32::blocked:*::f0 dst:f32::blocked:ab::f0", "*x4").tensors
    assert found["src"].desc == runtime_desc((RUNTIME, 4), "f32", "*")
    assert found["dst"].desc == runtime_desc((RUNTIME, 4), "f32", "ab")


def test_a_tensor_that_is_not_described_says_why() -> None:
    for text, problem, why in (
        ("undef::undef:::", "2x3", "the primitive has no such tensor"),
        ("undef::undef::f0", "2x3", "the primitive has no such tensor"),
        ("f32::blocked:ab::f0", "", "the problem does not give its dims"),
        ("f32::blocked:abc::f0", "2x3", "3 dims"),
        ("f32:a:any:any::f0", "2x3", "the primitive that gets it chooses the layout"),
        ("f32::rnn_packed:::f0", "2x3", "only oneDNN knows its layout"),
        ("f32::wino:::f0", "2x3", "only oneDNN knows its layout"),
    ):
        tensor = _primitive("reorder", f"src:{text}", problem).tensors["src"]
        assert tensor.desc is None
        assert why in tensor.why
        assert tensor.is_absent == text.startswith("undef")


def test_a_view_is_described_from_its_first_element_on() -> None:
    tensor = _primitive("reorder", "src:f32:0:blocked:ab:8x1:f0", "2x3").tensors["src"]
    assert tensor.desc == memory_desc((2, 3), "f32", strides=(8, 1))
    assert tensor.why == "a view whose offset0 the line does not give; it is 0 here"


def test_a_descriptor_without_name_is_data_and_other_words_are_skipped() -> None:
    assert list(_primitive("eltwise", "f32::blocked:a::f0 nonsense", "6").tensors) == ["data"]


def test_reference_implementations_are_known_by_name() -> None:
    for name in ("ref:any", "gemm:ref", "ref+matmul", "ocl:ref:any"):
        assert VerbosePrimitive("cpu", "sum", name, "undef", "", "", "", "").is_reference
    for name in ("jit:uni", "simple:any", "brg_conv_fwd:avx512_core"):
        primitive = VerbosePrimitive("cpu", "sum", name, "undef", "", "", "axis:1 alg:x", "2x3")
        assert not primitive.is_reference
    assert primitive.aux == {"axis": "1", "alg": "x"}
    assert primitive.sizes.dims == ((2, 3),)
    assert primitive.attributes.post_ops == ()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_compressed_logs_and_those_of_powershell_are_read(
    encoding: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    text = "onednn_verbose,info,oneDNN v3.13.2\r\nnothing\r\n"
    path = tmp_path / "x.log"
    path.write_bytes(pack(text.encode(encoding)))
    assert read_verbose(path)[1] == ("3.13.2",)


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"onednn_verbose,info,oneDNN v3.13.2\n")
    path = tmp_path / "x.log.gz"
    for damaged in (whole[:-4], whole[:12] + b"\xff" * 20, whole[:2]):
        path.write_bytes(damaged)
        with pytest.raises(MemdescError, match=r"the log '.*' "):
            read_verbose(path)
