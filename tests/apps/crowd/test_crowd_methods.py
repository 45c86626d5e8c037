import pytest

import pmflib as pmf
from pmflib.apps.crowd import CROWD_METHODS
from pmflib.base import find_method
from tests.factories import check_table


def test_table__names_functions_and_options_are_there():
    check_table(CROWD_METHODS)


def test_find_method__names_the_nearest_method_of_label_logs():
    with pytest.raises(pmf.PmfError, match="did you mean 'dawid_skene'"):
        find_method(CROWD_METHODS, "dawid")
