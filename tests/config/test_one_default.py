"""An option that a function, a dataclass and the configuration have by one name has one default."""

from __future__ import annotations

import inspect

import pytest

import pmflib as pmf
from pmflib.base import Limits
from pmflib.fits import Passes, PassOptions
from pmflib.ingest import SourceOptions
from pmflib_tasks.config import EMConfig, ModelConfig
from pmflib_tasks.crowd import CrowdConfig
from pmflib_tasks.margins import MarginsConfig

PAIRS = [
    (EMConfig, Passes),
    (EMConfig, Limits),
    (EMConfig, pmf.fit_em),
    (EMConfig, pmf.fits.distil),
    (ModelConfig, pmf.fit),
    (CrowdConfig, pmf.crowd.aggregate),
    (CrowdConfig, pmf.crowd.DawidSkene),
    (MarginsConfig, pmf.surveys.rake),
    (SourceOptions, pmf.surveys.SurveyDesign),
    (SourceOptions, pmf.Schema),
]


@pytest.mark.parametrize(("section", "function"), PAIRS)
def test_options_of_one_name_have_one_default(section, function):
    defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    shared = [
        name
        for name, field in section.model_fields.items()
        if not field.is_required()
        and defaults.get(name, inspect.Parameter.empty) is not inspect.Parameter.empty
    ]
    assert shared
    for name in shared:
        assert (
            section.model_fields[name].get_default(call_default_factory=True) == defaults[name]
        ), name


def test_keyword_arguments_of_passes_are_its_fields():
    assert list(PassOptions.__annotations__) == list(Passes._fields)


def test_docstring_of_fit_em_has_the_defaults_of_passes():
    text = pmf.fit_em.__doc__
    assert f"``max_passes`` ({Passes().max_passes})" in text
    assert f"``patience`` ({Passes().patience})" in text
    assert f"``accelerate`` ({Passes().accelerate})" in text
