import signal

import pytest
from hypothesis import settings

# the first example of a kernel compiles it; the same examples in every run
settings.register_profile("pmflib", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("pmflib")

# a shell has its background ignore Ctrl-C, and so would all processes that tests start from there
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def thread_client():
    from pmflib.config import ClusterConfig
    from pmflib.running.clients import open_client, start_workers

    with start_workers(ClusterConfig(workers=2)) as address, open_client(address) as client:
        yield client
