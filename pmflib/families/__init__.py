"""Other families of models than latent classes.

Public names are those that the features offer under the hook ``"face"``; the imports below are for type checkers.
"""

from typing import TYPE_CHECKING

from pmflib.base.faces import list_homes, make_face

if TYPE_CHECKING:
    from pmflib.families.groups.groups import fit_groups as fit_groups
    from pmflib.families.panels.fit import fit_transitions as fit_transitions
    from pmflib.families.panels.waves import spread_waves as spread_waves
    from pmflib.families.traits.item_responses import fit_item_responses as fit_item_responses
    from pmflib.families.traits.traits import fit_traits as fit_traits

__all__ = list(_HOMES := list_homes(__name__))

__getattr__, __dir__ = make_face(__name__, _HOMES)
