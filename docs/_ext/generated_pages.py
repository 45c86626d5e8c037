"""Parts of pages that are made when the site is built: files of the repository, commands, configuration.

A page says `<!-- generated: NAME -->` where the part goes. Links between documents of the repository become links
between pages of the site.
"""

import importlib
import inspect
import json
import os
import re
from pathlib import Path
from typing import Literal, get_args, get_origin

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"^<!-- generated: (\S+) -->$", re.MULTILINE)
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "deploy/README.md": "deployment.md",
    "deploy/machine/README.md": "deployment-machine.md",
    "deploy/compose/README.md": "deployment-compose.md",
    "deploy/kubernetes/README.md": "deployment-kubernetes.md",
    "benchmarks/README.md": "benchmark-programs.md",
    "examples/README.md": "examples.md",
}
"""Page of the site for each document that is not in docs/."""
LINK = re.compile(r"(\]\()(?!https?:|#)([^)\s#]+)")


def relate_links(text, folder, home=ROOT / "docs"):
    """Links of a document in a folder of the repository, as seen from a page of docs/."""

    def relate(found):
        target = os.path.normpath(folder / found[2])
        name = os.path.relpath(target, ROOT)
        if name in PAGES:
            return found[1] + os.path.relpath(ROOT / "docs" / PAGES[name], home)
        if name.startswith("docs/"):
            return found[1] + os.path.relpath(target, home)
        return found[0]

    text = LINK.sub(relate, text)
    # what is in the repository alone, a folder or a source file, is named and not linked
    return re.sub(
        r"\[([^\]]+)\]\((?!https?:|#)(?![^)\s]*\.(?:md|html)(?:#[^)]*)?\))[^)\s]+\)", r"\1", text
    )


def take_file(name):
    """Text of a document of the repository, with its links."""
    path = ROOT / name
    text = path.read_text("utf-8")
    return relate_links(text, path.parent)


def list_commands():
    """Names and commands of the command line, those of groups after their group."""
    from typer.main import get_command

    from pmflib_flows.cli import app

    def walk(command, name):
        for word, child in sorted(getattr(command, "commands", {}).items()):
            whole = f"{name} {word}"
            if hasattr(child, "commands"):
                yield from walk(child, whole)
            else:
                yield whole, child

    return list(walk(get_command(app), "pmf"))


def describe_default(option):
    """Default of an option as its help says it."""
    if option.show_default and isinstance(option.show_default, str):
        return option.show_default
    default = option.default
    if default is None or default is False or callable(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"


def escape(text):
    """Text that is safe in a cell of a Markdown table."""
    return escape_text(" ".join(text.split())).replace("|", "\\|")


def describe_commands():
    """A section for each command: what it does, arguments, options with their defaults."""
    lines = []
    for name, command in list_commands():
        lines += [f"## {name}", ""]
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        usage = " ".join(
            each.name.upper() if each.required else f"[{each.name.upper()}]" for each in arguments
        )
        lines += ["```console", f"$ {name} {usage} [OPTIONS]".replace("  ", " "), "```", ""]
        lines += [escape_text(command.help or ""), ""]
        lines += ["| argument or option | default | what it is |", "|---|---|---|"]
        for each in command.params:
            if each.param_type_name == "argument":
                word = each.name.upper()
                shown = "required" if each.required else describe_default(each)
            else:
                word = ", ".join(f"`{text}`" for text in [*each.opts, *each.secondary_opts])
                shown = "required" if each.required else describe_default(each)
            lines.append(f"| {word} | {shown} | {escape(each.help or '')} |")
        lines.append("")
    return "\n".join(lines)


def describe_configuration():
    """A section for each section of pipeline.toml: options, defaults, descriptions."""
    from pmflib.ingest.options import Section
    from pmflib_tasks.config.pipeline import PipelineConfig

    top, sections = [], []
    for name, field in PipelineConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            sections.append((field.alias or name, field.annotation))
        elif name != "base":
            top.append((name, field))
    lines = ["## Without a section", "", *list_options(top)]
    for name, section in sections:
        first = (section.__doc__ or "").split("\n\nOptions")[0].strip()
        lines += [f"## [{name}]", "", re.sub(r"\s+", " ", first), ""]
        lines += list_options(
            (option.alias or key, option) for key, option in section.model_fields.items()
        )
    return "\n".join(lines)


def list_options(fields):
    """A definition list of options."""
    lines = []
    for name, field in fields:
        default = "required" if field.is_required() else f"default `{show_default(field)}`"
        if get_origin(field.annotation) is Literal:
            allowed = ", ".join(f"`{json.dumps(each)}`" for each in get_args(field.annotation))
            default = f"one of {allowed}; {default}"
        lines += [f"`{name}`", f":   {default}", ""]
        for line in (field.description or "").splitlines():
            text = line.strip()
            # descriptions of methods, a line each
            lines += [f"    {escape_text(text)}" + ("  " if line.startswith(" ") else "")]
        lines.append("")
    return lines


def escape_text(text):
    """Prose of a docstring as Markdown; options are code, or their dashes would become one."""

    def mark(found):
        if found[1]:
            return found[1]
        return f"`{found[2]}`" if found[2] else "\\" + found[3]

    pattern = r"(`[^`]*`)|(?<!\w)(--[a-z][a-z-]*)|([<*_\\\[\]])"
    return re.sub(pattern, mark, text.replace("``", "`"))


def show_default(field):
    """Default of an option as TOML would have it."""
    from pydantic import BaseModel

    value = field.get_default(call_default_factory=True)
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return json.dumps(value.model_dump(mode="json", exclude_none=True)).replace('"', "")
    if isinstance(value, dict):
        return "{}" if not value else str(value)
    return json.dumps(value, ensure_ascii=False)


def list_names(*modules):
    """A section for each public name of some modules, documented by its docstring; those of the top are on its page."""
    return "\n".join(list_module(each, importlib.import_module(each)) for each in modules)


def list_module(module, home):
    """A section for each public name of a module."""
    top = set() if module == "pmflib" else set(importlib.import_module("pmflib").__all__)
    lines = []
    for name in sorted({*home.__all__} - top, key=lambda each: (each[0].isupper(), each.lower())):
        found = getattr(home, name)
        if inspect.ismodule(found):
            continue
        lines += [f"## {name}", "", "```{eval-rst}"]
        if inspect.isclass(found):
            lines += [f".. autoclass:: {module}.{name}", "   :members:"]
            if not issubclass(found, Exception):
                lines += ["   :inherited-members: dict, tuple, ndarray, object, Warning"]
        else:
            lines += [f".. autofunction:: {module}.{name}"]
        lines += ["```", ""]
        if name == "JointPMF":
            lines += ["Methods that are bound by name:", "", *list_offered(), ""]
    return "\n".join(lines)


def list_offered():
    """A line for each method of models that rooms above and features offer."""
    from pmflib.model.joint_pmf import find_methods

    for name, method in find_methods().items():
        arguments = ", ".join([*inspect.signature(method).parameters][1:])
        yield f"* `{name}({arguments})`: {inspect.getdoc(method).splitlines()[0]}"


def describe_methods():
    """A table of the methods of `pmf.fit` by what decides between them, and one of the options of all methods."""
    from pmflib.apps.crowd.methods import CROWD_METHODS
    from pmflib.base.method_options import describe_options
    from pmflib.base.methods import PAIR_METHODS

    lines = [
        "| method | paper, equation | cost | identifiable when | unobserved pairs | take it |",
        "|---|---|---|---|---|---|",
    ]
    for name, method in PAIR_METHODS.items():
        facts = method.facts
        cells = (facts.source, facts.cost, facts.identifiable, facts.unobserved, facts.take)
        lines.append(" | ".join([f"| `{name}`", *map(escape, cells)]) + " |")
    for title, table in (("pairs of variables", PAIR_METHODS), ("label logs", CROWD_METHODS)):
        found = {}
        for name, method in table.items():
            for option, (default, text) in describe_options(method).items():
                found.setdefault((option, json.dumps(default), text), []).append(f"`{name}`")
        lines += ["", f"| option, {title} | default | what it is | methods |", "|---|---|---|---|"]
        for (option, default, text), names in found.items():
            lines.append(f"| `{option}` | `{default}` | {escape(text)} | {', '.join(names)} |")
    return "\n".join([*lines, ""])


GENERATED = {
    "methods": describe_methods,
    "library": lambda: list_names("pmflib"),
    "library-core": lambda: list_names(
        "pmflib.counts", "pmflib.papers", "pmflib.fits", "pmflib.em"
    ),
    "library-questions": lambda: list_names("pmflib.answering"),
    "library-surveys": lambda: list_names("pmflib.surveys"),
    "library-inference": lambda: list_names("pmflib.inference"),
    "library-families": lambda: list_names("pmflib.families"),
    "library-apps": lambda: list_names("pmflib.apps"),
    "library-crowd": lambda: list_names("pmflib.apps.crowd"),
    "commands": describe_commands,
    "configuration": describe_configuration,
}


def fill(found):
    """The part that a marker asks for."""
    name = found[1]
    return GENERATED[name]() if name in GENERATED else take_file(name)


def read_source(app, docname, source):
    """Fill in what is generated, and relate links."""
    page = Path(app.srcdir) / f"{docname}.md"
    # the repository shows `compare` as nothing, and so does the site
    text = relate_links(source[0], page.parent, page.parent)
    source[0] = MARKER.sub(lambda found: fill(found), text)


def skip_inherited(_app, _what, _name, member, _skip, _options):
    """Leave out what scikit-learn gives its estimators: its pages say it, and refer to others of its own."""
    return True if (getattr(member, "__module__", "") or "").startswith("sklearn.") else None


def setup(app):
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
