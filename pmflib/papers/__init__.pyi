"""The methods of the papers, as functions of arrays: SPA, CNMF-OPT, mirror descent, SymNMF, triples, the NMF rank."""

from pmflib.papers.composite import fit_composite as fit_composite
from pmflib.papers.least_squares import project_simplex as project_simplex
from pmflib.papers.least_squares import solve_simplex_least_squares as solve_simplex_least_squares
from pmflib.papers.metrics import factor_mse as factor_mse
from pmflib.papers.metrics import mae as mae
from pmflib.papers.metrics import match_factors as match_factors
from pmflib.papers.metrics import published_factor_mse as published_factor_mse
from pmflib.papers.metrics import relative_error as relative_error
from pmflib.papers.metrics import rmse as rmse
from pmflib.papers.mirror import fit_mirror as fit_mirror
from pmflib.papers.nmf_rank import PUBLISHED_PENALTY as PUBLISHED_PENALTY
from pmflib.papers.nmf_rank import ColumnMoments as ColumnMoments
from pmflib.papers.nmf_rank import Method as Method
from pmflib.papers.nmf_rank import NMFRank as NMFRank
from pmflib.papers.nmf_rank import choose_rank as choose_rank
from pmflib.papers.pair_matrix import cut_observed_pairs as cut_observed_pairs
from pmflib.papers.pair_matrix import open_start as open_start
from pmflib.papers.pair_matrix import start_random as start_random
from pmflib.papers.ranks import add_state as add_state
from pmflib.papers.ranks import count_confirmed as count_confirmed
from pmflib.papers.ranks import merge_states as merge_states
from pmflib.papers.rotation import PLAIN as PLAIN
from pmflib.papers.rotation import alternate_shifted as alternate_shifted
from pmflib.papers.rotation import draw_rotations as draw_rotations
from pmflib.papers.rotation import find_nearest_rotation as find_nearest_rotation
from pmflib.papers.rotation import improve_root as improve_root
from pmflib.papers.rotation import root_of as root_of
from pmflib.papers.rotation import rotate_nonnegative as rotate_nonnegative
from pmflib.papers.rotation import rotate_shifted as rotate_shifted
from pmflib.papers.spa import SpaSettings as SpaSettings
from pmflib.papers.spa import fit_spa as fit_spa
from pmflib.papers.spa import select_anchors as select_anchors
from pmflib.papers.squarem import Acceleration as Acceleration
from pmflib.papers.squarem import descend as descend
from pmflib.papers.squares import fit_pair_squares as fit_pair_squares
from pmflib.papers.support_union import fit_row_support as fit_row_support
from pmflib.papers.support_union import order_generators as order_generators
from pmflib.papers.symnmf import SymnmfSettings as SymnmfSettings
from pmflib.papers.symnmf import fit_symnmf as fit_symnmf
from pmflib.papers.symnmf import impute_pairs as impute_pairs
from pmflib.papers.symnmf import read_parameters as read_parameters
from pmflib.papers.triples import fit_ctd as fit_ctd
from pmflib.papers.triples import fit_ctd_kl as fit_ctd_kl

__all__: list[str]
