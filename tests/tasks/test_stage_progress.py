from pmflib.reporting.work_progress import Progress
from tasks.stage_progress import listen, report


def test_report__reaches_all_listeners_and_no_more():
    first, second = [], []
    with listen(first.append), listen(second.append):
        report("count", 1, 2, "x")
    report("count", 2, 2)
    assert first == second == [Progress("count", 1, 2, "x")]
