"""The fitted joint PMF: predictions, held-out scores, samples."""

from pmflib.base.faces import make_face
from pmflib.model.joint_pmf import JointPMF

__all__ = ["JointPMF"]

__getattr__, __dir__ = make_face(__name__)
