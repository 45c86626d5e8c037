"""Erasure: samples are removed from everything that a store holds."""

from pmflib_tasks.erasure.feature import FEATURE as FEATURE
