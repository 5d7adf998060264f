from memdesc.record import record_desc


def test_bytes_with_several_fields_padding_or_none_say_so() -> None:
    desc = record_desc((1, 256), "q4_k")
    assert (
        "byte 4\nbits 0 to 3: sc_low, index (0, 0)\nbits 4 to 5: sc_high, index (0, 0)\n"
        "bits 6 to 7: sc_high, index (0, 4)" in desc.show().svg
    )
    # a number of several bytes
    assert "byte 1\nbits 0 to 7: d, index (0, 0)" in desc.show().svg
    assert "one colour: one field" in desc.show().svg
    assert "hmask 0 32…" in str(record_desc((1, 256), "q3_k").show()).splitlines()[9]
    padded = str(record_desc((2, 64), "ocp_mxfp4").show())
    assert "scales 0,1" in padded
    assert "[2]" in padded
    # the second half of each pair of a torch tensor with one field left out
    pair = record_desc((64, 256), "torch_int4_cpu")
    fields = pair.field("weight"), pair.field("scales")
    half = type(pair)(pair.dims, fields, pair.rule._replace(offset=()), "half").show().svg
    assert "byte 2\nno field" in half
    assert "no element" in half
    empty = str(record_desc((0, 256), "q6_k").show())
    assert empty.splitlines()[0] == "record_desc((0, 256), 'q6_k')"
    assert "byte" in empty
    assert desc._repr_html_() == desc.show().fragment
