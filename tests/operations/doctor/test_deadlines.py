import threading
from contextvars import ContextVar

from pmflib_tasks.operations.doctor.clusters import call_together


def test_call_together__results_errors_and_what_never_comes_back():
    never = threading.Event()
    found = call_together({"a": lambda: 1, "b": never.wait, "c": lambda: 1 // 0}, 0.5)
    never.set()
    assert list(found) == ["a", "b", "c"]
    assert found["a"] == 1
    assert isinstance(found["b"], TimeoutError)
    assert "no answer in 0.5 s" in str(found["b"])
    assert isinstance(found["c"], ZeroDivisionError)


def test_call_together__at_the_same_time():
    # each waits for all the others
    meeting = threading.Barrier(20)
    found = call_together({n: lambda: meeting.wait(30) >= 0 for n in range(20)}, 60)
    assert all(value is True for value in found.values())


def test_call_together__nothing_to_call():
    assert call_together({}, 1.0) == {}


def test_call_together__in_the_context_of_the_caller():
    setting = ContextVar("setting", default="other")
    setting.set("mine")
    assert call_together({"a": setting.get}, 10.0) == {"a": "mine"}
