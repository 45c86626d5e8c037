import json

import pytest

from pmflib.store import seal, unseal


def test_unseal__gives_what_was_sealed():
    content = {"text": "größe", "numbers": [1, 2.5, None], "inner": {"a": {"b": True}}}
    assert unseal(seal(content)) == content
    # tuples and keys as JSON has them
    assert unseal(seal({"pair": (1, 2), "by number": {10: "a", 9: "b"}})) == {
        "pair": [1, 2],
        "by number": {"10": "a", "9": "b"},
    }


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"3", b"{}", b'{"checksum": 3}', b"\xff", b"[" * 50_000, b'{"a": 1}']
)
def test_unseal__refuses_what_was_not_sealed(text):
    with pytest.raises(ValueError):
        unseal(text)


def test_unseal__refuses_edits_and_not_another_layout():
    sealed = seal({"a": 1, "b": [1, 2]})
    assert unseal(json.dumps(json.loads(sealed)).encode()) == {"a": 1, "b": [1, 2]}
    with pytest.raises(ValueError, match="edited"):
        unseal(sealed.replace(b"2", b"3"))
