import pytest


@pytest.fixture(params=["alone", "threads"])
def client(request):
    """No client, and one of threads."""
    return None if request.param == "alone" else request.getfixturevalue("thread_client")
