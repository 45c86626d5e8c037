from dataclasses import asdict, replace

import pytest

from pmflib.base import StoreError
from pmflib.store import (
    Reference,
    RunRecord,
    Store,
    check_published,
    describe_live,
    explain_withdrawal,
    find_candidate,
    find_previous,
    list_models,
)

A, B, C = (Reference("model", digit * 64, digit * 64) for digit in "abc")


def make(number, action, outcome, live, model=None, **facts):
    stages = {} if model is None else {"model": model}
    why = f"{action} {number}: {outcome}"
    time = f"2026-01-{number:02}T02:00:00+00:00"
    return RunRecord(
        action, outcome, why, time, time, "c", stages, live, facts=facts, number=number
    )


HISTORY = [
    make(1, "run", "promoted", A, A, scores={"log_prob_per_cell": -1.0}),
    make(2, "run", "unchanged", A, A),
    make(3, "run", "held back", A),
    make(4, "run", "kept", A, B),
    make(5, "run", "failed", A, C),
    make(6, "run", "interrupted", A),
]


def test_list_models__what_became_of_each():
    found = [(each.run, each.model, each.standing, each.why) for each in list_models(HISTORY)]
    assert found == [
        (1, A, "live", "run 1: promoted"),
        (3, None, "held back", "run 3: held back"),
        (4, B, "rejected", "run 4: kept"),
        (5, C, "undecided", "run 5: failed"),
    ]
    assert list_models(HISTORY)[0].record.scores == {"log_prob_per_cell": -1.0}
    assert list_models([]) == []
    same = [*HISTORY, make(7, "run", "unchanged", A, replace(C, identity="9" * 64))]
    assert len(list_models(same)) == 4
    assert find_candidate(same, None).number == 4
    promoted = [*HISTORY, make(7, "promote", "done", B)]
    assert [(each.standing, each.why) for each in list_models(promoted)[::2]] == [
        ("past", "run 1: promoted"),
        ("live", "promote 7: done"),
    ]


def test_find_candidate__the_newest_that_is_not_live_or_the_one_named():
    assert find_candidate(HISTORY, None).number == 4
    assert find_candidate(HISTORY, 5).number == 5
    assert find_candidate(HISTORY, 1).number == 1
    for number, message in (
        (3, "run 3"),
        (9, "run 9"),
    ):
        with pytest.raises(StoreError, match=message):
            find_candidate(HISTORY, number)
    for history in (HISTORY[:3], []):
        with pytest.raises(StoreError, match="no run"):
            find_candidate(history, None)


def test_find_previous__the_model_before_or_one_that_was_live():
    promoted = [*HISTORY, make(7, "promote", "done", B), make(8, "run", "kept", B, C)]
    assert find_previous(promoted, None).number == 2
    back = [*promoted, make(9, "rollback", "done", A, before=B.digest)]
    assert find_previous(back, None).number == 4
    assert find_previous(back, 4).number == 4
    with pytest.raises(StoreError, match="run 8"):
        find_previous(back, 8)
    with pytest.raises(StoreError, match="no model"):
        find_previous(HISTORY, None)


def test_explain_withdrawal__until_somebody_makes_it_live_again():
    history = [*HISTORY, make(7, "promote", "done", B)]
    assert explain_withdrawal(history, B) == ""
    history.append(make(8, "rollback", "done", A, before=B.digest))
    assert "run 8" in explain_withdrawal(history, B)
    assert explain_withdrawal(history, A) == ""
    history.append(make(9, "promote", "done", B))
    assert explain_withdrawal(history, B) == ""


def test_describe_live__since_when_and_why():
    assert describe_live([]) is None
    found = describe_live([*HISTORY, make(7, "promote", "done", B), make(8, "run", "kept", B, C)])
    assert asdict(found) == {
        "model": B.digest,
        "since": "2026-01-07T02:00:00+00:00",
        "run": 7,
        "action": "promote",
        "why": "promote 7: done",
    }
    assert describe_live(HISTORY).run == 1


def test_check_whole__refuses_what_is_gone_or_changed(tmp_path):
    store = Store(tmp_path)

    def write(folder, work):
        (folder / "model").write_bytes(b"whole")
        return {}

    model = store.build("model", inputs={}, options={}, version=1, write=write).reference
    check_published(store, model)
    (store.locate(model) / "model").write_bytes(b"whoLe")
    with pytest.raises(StoreError, match=model.digest[:12]):
        check_published(store, model)
    (store.root / "manifest" / f"{model.identity}.json").unlink()
    with pytest.raises(StoreError, match="manifest"):
        check_published(store, model)
    with pytest.raises(StoreError, match=model.digest[:12]):
        check_published(store, replace(model, identity="9" * 64))
