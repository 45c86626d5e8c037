from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pmflib.store import (
    COLLECTIONS,
    Entry,
    Reference,
    RunRecord,
    Store,
    append_record,
    choose_kept_runs,
    is_needed,
    list_collected_runs,
    order_by_need,
    reach,
)

RUN = RunRecord("run", "kept", "", "then", "now", "", {})


def name(number, kind="model"):
    return Reference(kind, f"{number:064x}", f"{number:064x}")


def make_entry(number, inputs, kind="thing"):
    roles = {f"input {each}": name(each, "thing") for each in inputs}
    return Entry(name(number, kind), roles, {}, 1)


@st.composite
def graphs(draw):
    """Entries by identity: each may have any earlier ones for inputs, some of which have no entry."""
    size = draw(st.integers(1, 12))
    entries = {}
    for number in range(size):
        earlier = st.integers(0, number - 1) if number else st.nothing()
        inputs = draw(st.sets(earlier, max_size=4)) if number else set()
        if draw(st.integers(0, 9)):
            entries[name(number).identity] = make_entry(number, sorted(inputs))
    roots = draw(st.sets(st.integers(0, size), max_size=4))
    return entries, {name(root).identity for root in roots}


@given(graphs())
def test_reach__is_closed_and_least(graph):
    entries, roots = graph
    reached = reach(entries, roots)
    assert reached <= entries.keys()
    assert roots & entries.keys() <= reached
    for identity in reached:
        inputs = {reference.identity for reference in entries[identity].inputs.values()}
        assert inputs & entries.keys() <= reached
        used = [
            other for other in reached
            if identity in {each.identity for each in entries[other].inputs.values()}
        ]  # fmt: skip
        assert identity in roots or used


@given(graphs())
def test_order_by_need__what_is_left_never_lacks_an_input(graph):
    entries, roots = graph
    dropped = entries.keys() - reach(entries, roots)
    order = order_by_need(entries, dropped)
    assert sorted(order) == sorted(dropped)
    for number, identity in enumerate(order):
        needed = {reference.identity for reference in entries[identity].inputs.values()}
        assert not needed & {*order[:number]}


def test_is_needed__counts_keep_what_they_are_differences_to_until_they_are_full_again():
    base = name(1, "counts")
    entry = Entry(name(2, "counts"), {"base": base}, {}, 1, {"differences": 3})
    assert is_needed(entry, base)
    assert not is_needed(replace(entry, summary={"differences": 0}), base)


def test_is_needed__not_what_content_does_without():
    for kind, of_input, needed in (
        ("dataset", "dataset", False),
        ("dataset", "samples", True),
        ("dataset", "spill-list", True),
        ("spill-list", "spill", True),
        ("counts", "counts", True),
        ("counts", "dataset", False),
        ("start", "model", False),
        ("start", "counts", True),
        ("samples", "spill-list", False),
        ("samples", "source", True),
        ("spill", "cuts", True),
        ("scores", "model", False),
        ("predictions", "dataset", True),
    ):
        entry = Entry(name(0, kind), {"a": name(1, of_input)}, {}, 1)
        assert is_needed(entry, name(1, of_input)) is needed, (kind, of_input)


def record(store, pipeline, number, **changes):
    stages = {"dataset": name(1000 + number, "dataset"), "model": name(number)}
    return append_record(store, pipeline, replace(RUN, stages=stages, **changes))


def test_choose_kept_runs__the_last_that_ended_and_the_last_of_any_outcome(tmp_path):
    store = Store(tmp_path)
    live = name(2)
    record(store, "a", 1, live=name(1))
    record(store, "a", 2, live=live)
    for number in (3, 4, 5):
        record(store, "a", number, live=live)
    for number in (6, 7, 8):
        record(store, "a", number, live=live, outcome="failed")
    record(store, "b@labels", 9, action="labels", outcome="done")
    kept = choose_kept_runs(store, 2)
    # 2 made the live model; 4 and 5 ended; 7 and 8 are the last
    assert kept.numbers == {"a": [2, 4, 5, 7, 8], "b@labels": [1]}
    assert kept.last == {"a": 8, "b@labels": 1}
    numbers = {int(identity, 16) for identity in kept.roots}
    assert numbers == {2, 4, 5, 7, 8, 9, 1002, 1004, 1005, 1007, 1008, 1009}


def test_choose_kept_runs__models_that_a_rollback_may_give_back(tmp_path):
    store = Store(tmp_path)
    record(store, "a", 1, live=name(1))
    record(store, "a", 2, live=name(1))
    append_record(store, "a", replace(RUN, action="rollback", outcome="done", live=name(1)))
    record(store, "a", 3, live=name(3))
    assert choose_kept_runs(store, 1).numbers == {"a": [4]}
    # after run 2 the model of run 1 was live
    assert choose_kept_runs(store, 2).numbers == {"a": [1, 2, 4]}


def test_choose_kept_runs__live_model_after_a_command(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2, 3):
        record(store, "a", number, live=name(number))
    append_record(store, "a", replace(RUN, action="rollback", outcome="done", live=name(1)))
    assert choose_kept_runs(store, 1).numbers == {"a": [1, 3]}


def test_list_collected_runs__adds_up(tmp_path):
    store = Store(tmp_path)
    assert list_collected_runs(store) == {}
    for last, kept in ((3, [2, 3]), (6, [3, 5, 6])):
        facts = {"last_runs": {"a": last}, "kept_runs": {"a": kept}}
        append_record(store, COLLECTIONS, replace(RUN, action="gc", outcome="done", facts=facts))
    assert list_collected_runs(store) == {"a": {1, 2, 4}}
