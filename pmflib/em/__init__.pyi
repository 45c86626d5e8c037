"""Expectation-maximisation (EM) for all families of models."""

from pmflib.em.block_source import MAX_BLOCKS as MAX_BLOCKS
from pmflib.em.block_source import BlocksInMemory as BlocksInMemory
from pmflib.em.block_source import BlockSource as BlockSource
from pmflib.em.block_source import ScoreUnder as ScoreUnder
from pmflib.em.block_source import iterate_distinct as iterate_distinct
from pmflib.em.blocks import ScoreRows as ScoreRows
from pmflib.em.blocks import merge_duplicates as merge_duplicates
from pmflib.em.blocks import score_rows as score_rows
from pmflib.em.blocks import score_under_classes as score_under_classes
from pmflib.em.checkpoint import Checkpoint as Checkpoint
from pmflib.em.checkpoint import digest_fit as digest_fit
from pmflib.em.conditional import ConditionalObjective as ConditionalObjective
from pmflib.em.conditional import raise_conditional as raise_conditional
from pmflib.em.family import Family as Family
from pmflib.em.family import PassReporter as PassReporter
from pmflib.em.family import State as State
from pmflib.em.family import describe_passes as describe_passes
from pmflib.em.family import run_em as run_em
from pmflib.em.latent_classes import ClassState as ClassState
from pmflib.em.latent_classes import LatentClasses as LatentClasses
from pmflib.em.latent_classes import Runs as Runs
from pmflib.em.latent_classes import evaluate_group as evaluate_group
from pmflib.em.latent_classes import evaluate_models as evaluate_models
from pmflib.em.latent_classes import join_members as join_members
from pmflib.em.latent_classes import join_statistics as join_statistics
from pmflib.em.latent_classes import split_members as split_members
from pmflib.em.latent_classes import start_models as start_models
from pmflib.em.memory import PassMemory as PassMemory
from pmflib.em.memory import choose_tasks as choose_tasks
from pmflib.em.memory import plan_em as plan_em
from pmflib.em.memory import plan_pass as plan_pass
from pmflib.em.side_by_side import RunStates as RunStates
from pmflib.em.side_by_side import SideBySide as SideBySide
from pmflib.em.stored_blocks import StoredBlocks as StoredBlocks
from pmflib.em.stored_samples import StoredSamples as StoredSamples
from pmflib.em.stored_samples import find_effective as find_effective
from pmflib.em.stored_samples import open_source as open_source
from pmflib.em.stored_samples import read_samples as read_samples

__all__: list[str]
