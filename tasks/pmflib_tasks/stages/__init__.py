"""The stages of the pipeline, from raw files to a refined model."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
