"""Directives that fill the reference from the code: settings, checks, commands, errors, names, signals and HTTP.

    :::{settings} IDS UDP
    STEP: ids/service.md#step-and-offset
    :::

Lines of a directive's body are links: the key of a row, and the page that says more about it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import public_names
from django.core.management import BaseCommand, get_commands, load_command_class
from django.dispatch import Signal
from django.test import override_settings

from resty_django.conf import SECTIONS, conf
from resty_django.conf.schema import Name, page_of
from resty_django.ids.errors import IdError

Links = Mapping[str, str]

CHECKS: Final = tuple(
    f"resty_django.{name}"
    for name in (
        "checks",
        "shdict.checks",
        "ids.declared",
        "limits.checks",
        "cache.checks",
        "cache.model_dependencies.checks",
        "qless.checks",
    )
)
"""The modules whose docstrings describe checks."""


def entries(docstring: str | None, title: str) -> dict[str, str]:
    """Return the texts below `title:` in a docstring, by name: lines `name: text`, continued with a deeper indent."""
    _, found, block = inspect.cleandoc(docstring or "").partition(f"{title}:\n")
    if not found:
        return {}
    block = re.match(r"(?:    .*\n?)*", block)[0]  # type: ignore[index]
    rows = re.split(r"^    (?! )", block, flags=re.MULTILINE)[1:]
    pairs = (" ".join(row.split()).partition(": ") for row in rows)
    return {name: text for name, _, text in pairs}


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def see(target: str | None) -> str:
    """Return a sentence with a link that is named after its target, such as "See [tests](ids/service.md#tests)."."""
    text = re.split("[/#]", target)[-1].removesuffix(".md").replace("-", " ") if target else ""
    return f" See [{text}]({target})." if text else ""


# --- settings ----------------------------------------------------------------------------------------------------


def settings(path: str, links: Links) -> str:
    """Return the table of a section, such as "IDS" or "IDS UDP", with types and defaults."""
    keys = path.split()
    section = SECTIONS[keys[0]]
    with override_settings(RESTY_DJANGO={}):
        values: Any = getattr(conf, keys[0].lower())
    cls = section.cls
    full: tuple[str, ...] = next(iter(section.paths()))[:-1]  # with the name of a named section
    if isinstance(full[-1], Name):
        values = values["default"]
    for key in keys[1:]:
        values = getattr(values, key.lower())
        cls = type(values)
        full = (*full, key)
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts |= entries(vars(base).get("__doc__"), "Attributes")

    def rows() -> Iterator[tuple[str, ...]]:
        for field in dataclasses.fields(cls):
            key = field.name.upper()
            value = getattr(values, field.name)
            if dataclasses.is_dataclass(value) and field.name not in texts:
                continue  # a section with a heading
            anchor = page_of((*full, key)).partition("#")[2]
            yield f"[`{key}`]{{#{anchor}}}", kind(field), default(value), texts[field.name] + see(links.get(key))

    return table(("key", "type", "default", "meaning"), rows())


def kind(field: dataclasses.Field[Any]) -> str:
    """Return the type of a setting in words."""
    text = str(field.type)
    if "convert" in field.metadata and "float" in text:
        text = text.replace("float", "duration")
    text = re.sub(r"tuple\[dict\[str, Any\], \.\.\.\]", "list of dict", text)
    text = re.sub(r"tuple\[(\w+), \.\.\.\]", r"list of \1", text)
    text = re.sub(r"(Mapping\[.*\]|\w+Settings|\w+Retention)", "dict", text)
    return text.replace(" | ", " or ")


def default(value: object) -> str:
    if dataclasses.is_dataclass(value):
        return ""
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{value!r}`".replace("'", '"')


# --- checks, errors, names, signals -------------------------------------------------------------------------------


def checks(links: Links) -> str:
    """Return the table of all system checks, with what to do."""

    def rows() -> Iterator[tuple[str, ...]]:
        for module in CHECKS:
            for number, text in entries(import_module(module).__doc__, "Checks").items():
                meaning, _, remedy = text.partition(". ")
                yield f"`{number}`", f"{meaning.removesuffix('.')}.", remedy + see(links.get(number))

    return table(("check", "meaning", "what to do"), rows())


def errors(package: str, links: Links) -> str:
    """Return the table of the public exceptions of a package; errors of IDs have codes."""
    module = import_module(package)
    found = [(name, getattr(module, name)) for name in getattr(module, "__all__", vars(module))]
    kinds = [(name, kind) for name, kind in found if inspect.isclass(kind) and issubclass(kind, Exception)]

    def rows() -> Iterator[tuple[str, ...]]:
        for name, kind in kinds:
            codes = (f"`{kind.code}`", str(kind.udp_code), str(kind.http_status)) if issubclass(kind, IdError) else ()
            yield f"`{name}`", *codes, " ".join(inspect.getdoc(kind).split("\n\n")[0].split())  # type: ignore[union-attr]

    head = ("code", "UDP", "HTTP") if any(issubclass(kind, IdError) for _, kind in kinds) else ()
    return table(("class", *head, "meaning"), rows())


def names(links: Links) -> str:
    """Return a table of the public names of each module, below a heading."""
    parts = []
    for module, listed in public_names.listed().items():
        rows = ((f"`{name}`", public_names.description(module, name)) for name in listed)
        parts.append(f"## `{module}`\n\n" + table((f"from `{module}`", "what it is"), rows))
    return "\n\n".join(parts)


def dotted_paths(links: Links) -> str:
    """Return the table of the dotted paths that settings take."""
    rows = ((f"`{path}`", public_names.description(*path.rsplit(".", 1))) for path in public_names.dotted_paths())
    return table(("dotted path", "what it is"), rows)


def signals(links: Links) -> str:
    """Return the table of the signals, with their arguments."""

    def rows() -> Iterator[tuple[str, ...]]:
        for module, listed in public_names.listed().items():
            for name in listed:
                if isinstance(getattr(import_module(module), name, None), Signal):
                    whole = public_names.attribute_docstring(module, name)
                    yield f"`{module}.{name}`", " ".join(whole.split())

    return table(("signal", "sent"), rows())


# --- commands ----------------------------------------------------------------------------------------------------


def command_names() -> list[str]:
    """Return the names of this package's commands."""
    return [name for name, app in get_commands().items() if str(app).startswith("resty_django")]


def command(name: str, links: Links) -> str:
    """Return a command's help and the table of its options."""
    loaded = load_command_class(get_commands()[name], name)
    parser = loaded.create_parser("manage.py", name)
    common = {option for action in BaseCommand().create_parser("", "")._actions for option in action.option_strings}
    text = [f"{loaded.help}\n"]
    for title, one in ((name, parser), *subcommands(parser)):
        rows = [
            (usage(action), (action.help or "") % {**vars(action), "prog": name})
            for action in one._actions
            if action.help != "==SUPPRESS==" and not isinstance(action.choices, dict)
            if not common.issuperset(action.option_strings) or not action.option_strings
        ]
        if rows:
            head = "option" if one is parser else f"`{title}`"
            text += [table((head, "meaning"), iter(rows)), ""]
    return "\n".join(text)


def subcommands(parser: Any) -> list[tuple[str, Any]]:
    return [pair for action in parser._actions if isinstance(action.choices, dict) for pair in action.choices.items()]


def usage(action: Any) -> str:
    """Return an option as a shell has it: `--port PORT`."""
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    return ", ".join(f"`{option} {value}`".replace(" `", "`") for option in action.option_strings)


# --- HTTP --------------------------------------------------------------------------------------------------------


def http(part: str, links: Links) -> str:
    """Return the table of the requests below a part of the site's API, from its OpenAPI schema."""
    from drf_spectacular.generators import SchemaGenerator

    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]

    def rows() -> Iterator[tuple[str, ...]]:
        for path, methods in paths.items():
            if path.startswith(f"/api/{part}/"):
                for method, operation in methods.items():
                    text = " ".join(operation.get("description", operation.get("summary", "")).split("\n\n")[0].split())
                    query = [
                        f"`{field['name']}`" for field in operation.get("parameters", ()) if field["in"] == "query"
                    ]
                    yield f"`{method.upper()} {path.removeprefix(f'/api/{part}')}`", text, ", ".join(query)

    return table(("request", "does", "parameters"), rows())


def directive(text_of: Callable[..., str], *, arguments: int = 0) -> type[Any]:
    """Return a directive that shows the Markdown which a function returns for its argument and links."""
    from docutils import nodes
    from sphinx.util.docutils import SphinxDirective

    class Generated(SphinxDirective):
        required_arguments = arguments
        final_argument_whitespace = True
        has_content = True

        def run(self) -> list[Any]:
            links = dict(line.split(": ", 1) for line in self.content if line)
            parsed = self.parse_text_to_nodes(text_of(*self.arguments, links), allow_section_headings=True)
            return parsed if text_of is names else [nodes.container("", *parsed, classes=["stacked"])]

    return Generated


def setup(app: Any) -> dict[str, bool]:
    for function in (settings, errors, command, http):
        app.add_directive(function.__name__, directive(function, arguments=1))
    for function in (checks, names, dotted_paths, signals):
        app.add_directive(function.__name__, directive(function))
    return {"parallel_read_safe": True}
