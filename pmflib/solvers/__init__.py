"""From pairwise marginals to factors and a prior: functions of arrays, one node."""
