import threading

import pytest

from pmflib.core.machine import call_regularly


def test_call_regularly__calls_while_the_context_lasts_and_not_after():
    enough, calls = threading.Event(), []

    def call():
        calls.append(threading.current_thread())
        if len(calls) == 3:
            enough.set()

    with call_regularly(call, 0.001):
        assert enough.wait(30)
    n_calls = len(calls)
    assert n_calls >= 3
    assert threading.current_thread() not in calls
    threading.Event().wait(0.02)
    assert len(calls) == n_calls


def test_call_regularly__ends_with_an_error():
    calls = []
    with pytest.raises(RuntimeError), call_regularly(lambda: calls.append(1), 1000):
        raise RuntimeError
    assert not calls
