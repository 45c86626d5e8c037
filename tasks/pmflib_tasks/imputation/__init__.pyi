"""Missing answers of stored samples, drawn several times."""

from pmflib_tasks.imputation.feature import FEATURE as FEATURE
from pmflib_tasks.imputation.imputation import make_imputer as make_imputer
