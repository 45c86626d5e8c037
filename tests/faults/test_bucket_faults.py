"""A part of the faults that ``python -m tests.faults.bucket_nights`` draws: see there."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.bucket_nights import BucketNights, Fault, draw_faults
from tests.faults.fault_matrix import note_fault

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SEED = 1
FAULTS = [fault for number, fault in enumerate(draw_faults(40, SEED)) if number % 6 == 1]
"""Seven, of kinds that all differ."""


@pytest.fixture(scope="module")
def bucket_nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketNights]:
    with ExitStack() as stack:
        yield BucketNights(tmp_path_factory.mktemp("bucket"), SEED, stack)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.kind}-{fault.night}")
def test_run__fault_with_a_store_in_a_bucket(fault: Fault, bucket_nights: BucketNights) -> None:
    found = bucket_nights.disturb(f"fault-{FAULTS.index(fault)}", fault)
    note_fault(fault.kind, fault.night, "a bucket", found.code)
