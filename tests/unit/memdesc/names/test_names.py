"""Names of oneDNN are known, and every vocabulary is searched."""

import gc

from memdesc import known_names, memory_desc
from memdesc.names import vocabularies
from memdesc.names.vocabulary import Vocabulary
from memdesc.tags import parse_tag
from tests.tables import ONEDNN_ALIASES, ONEDNN_CANONICAL


def test_every_canonical_name_reads_back_as_itself_and_every_alias_is_its_tag() -> None:
    assert [str(parse_tag(name)) for name in ONEDNN_CANONICAL] == ONEDNN_CANONICAL
    for alias, tag in ONEDNN_ALIASES.items():
        dims = (35, 37, 39, 41, 43, 45)[: parse_tag(tag).ndims]
        assert memory_desc(dims, "s8", alias) == memory_desc(dims, "s8", tag)


def test_aliases_have_a_domain_and_canonical_names_have_any() -> None:
    domains = {name.text: name.domain for name in known_names() if name.vocabulary == "onednn"}
    assert domains.keys() == {*ONEDNN_CANONICAL, *ONEDNN_ALIASES}
    assert {domains[name] for name in ONEDNN_CANONICAL} == {"any"}
    assert "any" not in {domains[name] for name in ONEDNN_ALIASES}
    for domain, names in {
        "data": ("nc", "nCdhw16c"),
        "weights": ("oi", "OIhw4i16o4i"),
        "grouped weights": ("goiw", "gOIdhw4i16o4i"),
        "sequence": ("tnc", "ntc"),
        "rnn states": ("ldnc",),
        "rnn weights": ("ldgOi32o", "ldio"),
        "rnn bias": ("ldgo",),
        "vector": ("x",),
    }.items():
        assert {domains[name] for name in names} == {domain}


def test_every_vocabulary_is_registered() -> None:
    found = [found for found in gc.get_objects() if isinstance(found, Vocabulary)]
    assert {id(vocabulary) for vocabulary in found} == {id(one) for one in vocabularies()}
