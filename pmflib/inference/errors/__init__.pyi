"""Standard errors of parameters."""

from pmflib.inference.errors.standard_errors import find_design_errors as find_design_errors
