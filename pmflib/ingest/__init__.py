"""Raw files to sample blocks: read, encode by schema, quarantine what does not fit, partition by sample."""

from pmflib.base.faces import make_face

__getattr__, __dir__ = make_face(__name__)
