import numpy as np
import pytest

import pmflib as pmf
from benchmarks.pipeline.deliveries import NIGHT_SECONDS, Deliveries
from pmflib.model import planted_factors


def draw(deliveries, seed=0):
    rng = np.random.default_rng(seed)
    prior, factors = planted_factors([5] * 12, 3, rng)
    return list(deliveries.draw(prior, factors, np.arange(13) * 5, rng))


def test_draw__samples_arrive_over_time_and_some_return():
    nights = draw(Deliveries(20_000, 8, per_sample=4, returning=0.2))
    assert len(nights) == 8
    sizes = [table.num_rows for table in nights]
    assert 18_000 < sum(sizes) < 22_000
    users = [set(table["user"].to_pylist()) for table in nights]
    seen: set[int] = set()
    for night, (table, mine) in enumerate(zip(nights, users, strict=True)):
        # most are new, some have been there before
        returned = len(mine & seen) / len(mine)
        assert (returned == 0) if night == 0 else (0 < returned < 0.6)
        seen |= mine
        times = table["ts"].to_numpy()
        assert (times // NIGHT_SECONDS == night).all()
        assert set(table["rating"].to_pylist()) <= set(range(1, 6))
    pairs = [(row["user"], row["movie"]) for table in nights for row in table.to_pylist()]
    assert len(set(pairs)) == len(pairs)


def test_draw__one_seed_one_log():
    deliveries = Deliveries(500, 3, per_sample=4)
    assert draw(deliveries) == draw(deliveries)
    assert draw(deliveries) != draw(deliveries, seed=1)


def test_deliveries__refuses_what_cannot_be():
    with pytest.raises(pmf.PmfError, match="n_triples is 5"):
        Deliveries(5, 6, per_sample=1)
    with pytest.raises(pmf.PmfError, match="returning is 2"):
        Deliveries(50, 6, per_sample=1, returning=2)
