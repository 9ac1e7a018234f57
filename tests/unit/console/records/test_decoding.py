"""What is shown of values that were written to be costly or misleading."""

import json
import tracemalloc
import unicodedata

from services.console.records.decoding import Decoder, visible
from tests.unit.console.records.fakes import no_registry


def test_the_indentation_of_a_deep_value_ends_where_the_shown_text_ends() -> None:
    value = b"[" * 400 + b"0," * 100_000 + b"0" + b"]" * 400
    decoder = Decoder(no_registry(), largest=1 << 20)
    tracemalloc.start()
    try:
        shown = decoder.shown(value, "json", 1 << 20, pretty=True)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (shown["form"], len(shown["text"]), shown["cut"]) == ("json", 1 << 20, True)
    assert most < 32 << 20


def test_json_that_fits_is_shown_whole() -> None:
    value = {"a": [1, 2.5, None, "\u00e4"], "b": {}}
    decoder = Decoder(no_registry(), largest=1 << 20)
    plain = json.dumps(value, ensure_ascii=False)
    assert decoder.shown(plain.encode(), "auto", len(plain))["text"] == plain
    assert not decoder.shown(plain.encode(), "auto", len(plain))["cut"]
    assert decoder.shown(plain.encode(), "auto", len(plain) - 1)["cut"]
    pretty = json.dumps(value, ensure_ascii=False, indent=2)
    assert decoder.shown(plain.encode(), "auto", 1000, pretty=True)["text"] == pretty


def test_no_character_that_cannot_be_seen_is_shown_as_it_is() -> None:
    codes = (*range(0x20000), *range(0xE0000, 0xE0200))
    kinds = {chr(code): unicodedata.category(chr(code)) for code in codes}
    hidden = {each for each, kind in kinds.items() if kind in ("Cc", "Cf", "Zl", "Zp")} - {"\t", "\n"}
    escaped = {each for each in kinds if visible(each) != each}
    assert escaped >= hidden
    # Later versions of Unicode have more of them than some versions of Python know.
    assert {kinds[each] for each in escaped - hidden} <= {"Cn"}
