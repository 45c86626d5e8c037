"""The fitted joint PMF: predictions, held-out scores, samples."""

from pmflib.model.joint_pmf import JointPMF

__all__ = ["JointPMF"]
