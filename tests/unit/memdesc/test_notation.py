from memdesc.tags import parse_tag


def test_a_block_of_one_is_dropped_as_onednn_does() -> None:
    assert parse_tag("aB1b") == parse_tag("ab")
    assert parse_tag("A1a/1.4a/1b") == parse_tag("A4ab")
