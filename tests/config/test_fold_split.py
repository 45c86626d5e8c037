from pmflib_tasks.config.pipeline import split_folds


def test_split_folds__last_ones_test():
    split = split_folds(6, 1, 2)
    assert (split.train, split.validation, split.test) == ((0, 1, 2), (3,), (4, 5))
    assert split_folds(3, 0, 0).train == (0, 1, 2)
