"""Linear algebra of runs works in one thread, unless the environment has another number."""

import os
import subprocess
import sys

import pytest

SHOW = """
{first}
{second}
import numpy as np
np.ones((64, 64)) @ np.ones((64, 64))
from threadpoolctl import threadpool_info
print({{each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}})
"""


@pytest.mark.parametrize(
    ("first", "second", "environment", "expected"),
    [
        ("import pmflib_flows", "", {}, "{1}"),
        ("import numpy", "import pmflib_flows", {}, "{1}"),
        ("import pmflib_flows", "", {"OPENBLAS_NUM_THREADS": "2"}, "{2}"),
    ],
)
def test_use_one_thread(first, second, environment, expected):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one processor: there is one thread anyway")
    known = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    code = SHOW.format(first=first, second=second)
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=known | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == expected


@pytest.mark.parametrize("limit", [None, 2_000_000_000])
def test_load_while_there_is_room__where_the_address_space_is_limited(limit):
    code = (
        "import resource, sys\n"
        f"limit = {limit}\n"
        "if limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "from pmflib.base.machine import load_while_there_is_room\n"
        "load_while_there_is_room()\n"
        "print('scipy.special' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(limit is not None)
