"""What questions add to lower rooms of the core."""

HOOKS = {
    "model_methods": {"ask": "pmflib.answering.answering:ask"},
    "trials": {"weight": "pmflib.answering.weighing:weigh_by_trial"},
}
