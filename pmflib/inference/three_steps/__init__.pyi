"""Relations of latent classes to other variables, corrected for errors of classification."""

from pmflib.inference.three_steps.classification import classify as classify
