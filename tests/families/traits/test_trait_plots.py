import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot

import pmflib as pmf
from pmflib.base import DenseBlock
from pmflib.families.traits import compile_states
from tests.families.traits.planted_traits import draw_samples, plant_traits


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def test_plot_traits__a_point_per_person_with_answers():
    truth = plant_traits([4] * 6, 2, 1)
    codes, _ = draw_samples(truth, 30, 2, missing=0.3)
    codes[4] = -1
    model = compile_states(truth, DenseBlock(codes), 10, 0)
    line = model.plot_traits(codes, trait=1).lines[0]
    kept = (codes >= 0).any(axis=1)
    means = [np.mean(row[row >= 0]) for row in codes[kept]]
    assert line.get_xdata() == pytest.approx(means)
    assert line.get_ydata() == pytest.approx(model.traits(codes).scores[kept, 1])
    with pytest.raises(pmf.PmfError, match="trait"):
        model.plot_traits(codes, trait=2)


def test_plot_traits__needs_values():
    truth = plant_traits([3] * 3, 1, 1, nominal=range(3))
    codes, _ = draw_samples(truth, 5, 2)
    model = compile_states(truth, DenseBlock(codes), 10, 0)
    with pytest.raises(pmf.PmfError):
        model.plot_traits(codes)
