"""What questions add to lower rooms of the core."""

HOOKS = {
    "model_methods": {"ask": "pmflib.answering.answering:ask"},
    "continuations": {"weight": "pmflib.answering.weighing:inherit_weight"},
    "trials": {"weight": "pmflib.answering.weighing:weigh_by_trial"},
}
