"""Find user-visible texts that cannot be translated: `python -m tests.gettext_check [PATH]...`.

In Python: labels (also those that Django derives from the names of models' fields), help texts, titles and
descriptions; messages; validation errors; and, in the modules of admin pages and in `MESSAGE_MODULES`, every string
that reads like prose, also in exceptions whose texts pages show. Entries of the admin's history, log lines, metrics and
the API's schema are English for all users, so they are left out. In templates: text outside of `{% translate %}` and
`{% blocktranslate %}`. In scripts: strings that read like prose, which templates should pass in data attributes. Also
calls of gettext that cannot work: f-strings, texts formatted before the call, and several unnamed placeholders, whose
order translators cannot change.

Further: gettext called when a module is imported, which returns the language of whoever imported it (use
`gettext_lazy`); names of models without a plural; and, on pages, numbers in the English format (`{count:,}`).

The rule for everything else: a text goes through gettext if a page, a form, a mail or an answer that a person reads may
show it, also as the message of an exception. English for all users, as in Django, are: log lines, the admin's history,
metrics, the API's schema, system checks and the findings of `resty_check`, the output of commands, exceptions that only
a mistake in code raises, the messages of the core of the job queue, and of the pure engine of the ID service.

Prints each place with its text; ends with 1 where there is one. A line may keep its text with `gettext: keep` in a
comment.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.findings import ROOT, Finding, files, report

PATHS: Final = ("resty_django", "templates/shop/parts.html", "templates/shop/part_job.html")
KEEP: Final = "gettext: keep"
GETTEXT: Final = frozenset(
    {
        "_",
        "gettext",
        "gettext_lazy",
        "gettext_noop",
        "pgettext",
        "pgettext_lazy",
        "ngettext",
        "ngettext_lazy",
        "npgettext",
    }
)
PLURAL: Final = frozenset({"ngettext", "ngettext_lazy", "npgettext"})
WORDS: Final = re.compile(r"[A-Za-z]{2,}")
PROSE: Final = re.compile(r"^\W*[A-Z][a-z]*(?:[ ,]+\S+)+|^[a-z]+(?:,? [a-z]+)+[.:]?$|^[A-Z][a-z]+[.!?]$|[a-z] .*[.!?]$")
"""A text with a capital and several words, two words in small letters, or the end of a sentence."""
NAMES: Final = frozenset({"per minute", "waits again"})
"""Names of units and of steps of jobs, which only look like texts."""
NOT_PROSE: Final = re.compile(r"attachment; |\(\?|^Traceback |^\[Previous line ")
"""Regular expressions, and the output of Python."""
MARKUP: Final = re.compile(r"<[^>]*>|&\w+;")
PLACEHOLDER: Final = re.compile(r"%\(\w+\)[sdrif]|%[sdrif]|\{[^{}]*\}")
UNNAMED: Final = re.compile(r"(?<!%)%[sdrif]|\{\}")

LABELS: Final = frozenset(
    {
        *("verbose_name", "verbose_name_plural", "help_text", "label", "labels", "description", "short_description"),
        *(
            "title",
            "empty_label",
            "empty_value_display",
            "empty",
            "caption",
            "note",
            "notes",
            "bars_label",
            "help_texts",
        ),
        *("site_header", "site_title", "index_title", "error_messages", "question", "heading", "aria_label", "legend"),
        *("search_help_text", "button", "fieldsets", "choices"),
    }
)
"""Names of arguments, attributes and context variables whose texts are shown."""
MODEL_FIELDS: Final = re.compile(r"(?:Field|ForeignKey)$")
MESSAGE_CALLS: Final = {"ValidationError": 0, "message_user": 1, "add_message": 2, "add_error": 1}
MESSAGES: Final = frozenset({"debug", "info", "success", "warning", "error"})
HISTORY_CALLS: Final = frozenset({"add_history", "log_actions", "log_addition", "log_change", "log_deletion", "note"})
HISTORY_ARGUMENTS: Final = frozenset({"change_message", "log_text"})
"""Functions that add an entry to the admin's history, and arguments of others that contain one."""
UNSHOWN_ERRORS: Final = frozenset(
    {"Http404", "PermissionDenied", "ImproperlyConfigured", "SuspiciousOperation", "CommandError", "TypeError"}
    | {"ValueError", "KeyError", "LookupError", "AttributeError", "RuntimeError", "NotImplementedError"}
)
"""Exceptions whose texts no page shows, except `ValueError` in `MESSAGE_MODULES`."""
MESSAGE_MODULES: Final = frozenset(
    {
        "resty_django/alerts/delivery.py",
        "resty_django/concurrency.py",
        "resty_django/ids/operations.py",
        "resty_django/limits/bans/banning.py",
        "resty_django/limits/bans/registry.py",
        "resty_django/limits/enforcement/chosen_rates.py",
        "resty_django/limits/limiters/descriptions.py",
        "resty_django/limits/overrides/export.py",
        "resty_django/limits/overrides/rates.py",
        "resty_django/limits/overrides/spec.py",
        "resty_django/limits/policies/export.py",
        "resty_django/limits/policies/lines.py",
        "resty_django/limits/policies/spec.py",
    }
)
"""Modules outside of the admin whose descriptions and messages pages show."""
LOGGERS: Final = frozenset({"log", "logger", "warnings"})
LAZY: Final = frozenset({"gettext_lazy", "gettext_noop", "pgettext_lazy", "ngettext_lazy", "npgettext_lazy"})
LOOSE_WORD: Final = re.compile(r"(?:^|\s)[a-z]{2,}(?=[\s,.!?]|$)")
"""A word between the expressions of an f-string: `f"{size} free"`, `f"{start} to {end}"`."""


def is_text(text: str) -> bool:
    """Return whether a label contains words, apart from markup and placeholders."""
    return bool(WORDS.search(_plain(text)))


def is_prose(text: str) -> bool:
    """Return whether any string of an admin page reads like a text for people."""
    plain = _plain(text).strip()
    return (
        text not in NAMES
        and not NOT_PROSE.search(text)
        and bool(PROSE.search(plain))
        and bool(WORDS.search(plain))
        and "/" not in plain.split(" ", 1)[0]
    )


def _plain(text: str) -> str:
    return PLACEHOLDER.sub("", MARKUP.sub(" ", text))


# --- Python ---


class _Strings(ast.NodeVisitor):
    """Collects the lines and texts of a module that cannot be translated."""

    def __init__(self, all_prose: bool, labels: frozenset[str], unshown_errors: frozenset[str]) -> None:
        self.places: list[tuple[int, str, str]] = []
        self._all_prose = all_prose
        self._unshown_errors = unshown_errors
        self._labels = labels
        self._returned = ""
        self._is_imported = True
        """Whether the code runs when the module is imported."""
        self._lazy = set(LAZY)
        self._done: set[ast.AST] = set()

    def _add(self, node: ast.expr, reason: str) -> None:
        if node not in self._done:
            self._done.add(node)
            self.places.append((node.lineno, _literal(node) or "", reason))

    def _require(self, node: ast.AST | None, reason: str) -> None:
        """Report the unwrapped texts of an expression: a literal, or the literals in a list, a dict or a choice."""
        if isinstance(node, ast.Constant | ast.JoinedStr):
            text = _literal(node)
            if text and is_text(text):
                self._add(node, reason)
        elif isinstance(node, ast.IfExp):
            self._require(node.body, reason)
            self._require(node.orelse, reason)
        elif isinstance(node, ast.BinOp):
            self._require(node.left, reason)
        elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.Dict) and reason in MESSAGE_CALLS):
            for value in node.values:
                self._require(value, reason)
        elif isinstance(node, ast.List) and reason in MESSAGE_CALLS:
            for element in node.elts:
                self._require(element, reason)

    def _require_label(self, name: str, node: ast.AST | None) -> None:
        if name == "fieldsets" and isinstance(node, ast.List | ast.Tuple):
            for entry in node.elts:
                if isinstance(entry, ast.Tuple) and entry.elts:
                    self._require(entry.elts[0], name)
        elif name == "choices" and isinstance(node, ast.List | ast.Tuple):
            for entry in node.elts:
                if isinstance(entry, ast.Tuple) and len(entry.elts) == 2:
                    self._require(entry.elts[1], name)
        elif name in ("labels", "help_texts", "error_messages") and isinstance(node, ast.Dict):
            for value in node.values:
                self._require(value, name)
        elif name == "notes" and isinstance(node, ast.List | ast.Tuple):
            for value in node.elts:
                self._require(value, name)
        elif name not in ("fieldsets", "choices", "labels"):
            self._require(node, name)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called(node.func)
        if name in GETTEXT:
            self._check_gettext(node, name)
            return
        if name in HISTORY_CALLS or _owner(node.func) in LOGGERS:
            return
        if name in MESSAGE_CALLS and len(node.args) > MESSAGE_CALLS[name]:
            self._require(node.args[MESSAGE_CALLS[name]], name)
        if name in MESSAGES and _owner(node.func) == "messages" and len(node.args) > 1:
            self._require(node.args[1], f"messages.{name}")
        if MODEL_FIELDS.search(name) and _owner(node.func) == "models" and node.args:
            self._require(node.args[0], "verbose_name")
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in HISTORY_ARGUMENTS]
        for keyword in node.keywords:
            if keyword.arg in self._labels:
                self._require_label(keyword.arg, keyword.value)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module == "django.utils.translation":
            self._lazy |= {alias.asname or alias.name for alias in node.names if alias.name in LAZY}

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self._is_imported = self._is_imported, False
        self.generic_visit(node)
        self._is_imported = outer

    def visit_Tuple(self, node: ast.Tuple) -> None:
        """Report the title of an entry of `fieldsets`, wherever it is."""
        match node.elts:
            case [ast.Constant() as title, ast.Dict(keys=[ast.Constant(value="fields"), *_])]:
                self._require(title, "fieldsets")
        self.generic_visit(node)

    def _check_gettext(self, node: ast.Call, name: str) -> None:
        texts = node.args[:2] if name in PLURAL else node.args[-1:]
        if self._is_imported and name not in self._lazy:
            self.places.append((node.lineno, ast.unparse(node), "translated at import: use gettext_lazy"))
        for argument in texts:
            if isinstance(argument, ast.Call):
                self.places.append((argument.lineno, ast.unparse(argument), "computed: gettext needs a literal"))
        for argument in texts:
            text = _literal(argument)
            if isinstance(argument, ast.JoinedStr):
                self._add(argument, "an f-string in gettext")
            elif isinstance(argument, ast.BinOp) and any(map(_literal, ast.walk(argument))):
                self.places.append((argument.lineno, ast.unparse(argument), "formatted before gettext"))
            elif text and len(UNNAMED.findall(text)) > 1:
                self._add(argument, "several placeholders without names")
        for argument in node.args[len(texts) :]:
            self.visit(argument)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call):
            name = _called(node.exc.func)
            if name in MESSAGE_CALLS or (self._all_prose and name not in self._unshown_errors):
                self.visit(node.exc)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if node.name == "Meta":
            names = {ast.unparse(each.targets[0]) for each in node.body if isinstance(each, ast.Assign)}
            if "verbose_name" in names and "verbose_name_plural" not in names:
                self.places.append((node.lineno, "verbose_name", "a name without a plural: set verbose_name_plural"))
        are_choices = any(_called(base).endswith("Choices") for base in node.bases)
        for statement in node.body:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and _has_no_name(value):
                self.places.append((value.lineno, ast.unparse(value.func), "a field without a verbose_name"))
            if are_choices and isinstance(value, ast.Tuple):
                self._require(value.elts[-1], "choices")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if isinstance(value, ast.Tuple) and len(value.elts) == 2 and "tuple[str, str]" in self._returned:
            self.visit(value.elts[0])  # the message; the second text is the entry of the history
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "lookups":  # of a filter
            for part in ast.walk(node):
                if isinstance(part, ast.Tuple) and len(part.elts) == 2:
                    self._require(part.elts[1], "lookups")
        for part in (*node.decorator_list, node.args):
            self.visit(part)
        outer = self._returned, self._is_imported
        self._returned, self._is_imported = ast.unparse(node.returns) if node.returns is not None else "", False
        if "Family" not in self._returned:  # metrics
            for statement in node.body:
                self.visit(statement)
        self._returned, self._is_imported = outer

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        outer, self._is_imported = self._is_imported, False
        self.generic_visit(node)
        self._is_imported = outer

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            name = (
                target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
            )
            if name in self._labels:
                self._require_label(name, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id in self._labels:
            self._require_label(node.target.id, node.value)
        if node.value is not None:
            self.visit(node.value)  # the annotation is not shown

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in self._labels:
                self._require_label(str(key.value), value)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        self._prose(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._prose(node)
        if self._all_prose and LOOSE_WORD.search(MARKUP.sub(" ", (_literal(node) or "").replace("{}", " "))):
            self._add(node, "prose")
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value.value)
                if self._all_prose and value.format_spec is not None and "," in ast.unparse(value.format_spec):
                    self.places.append((node.lineno, ast.unparse(node), "an English number: use grouped()"))

    def _prose(self, node: ast.expr) -> None:
        text = _literal(node)
        if self._all_prose and text and is_prose(text):
            self._add(node, "prose")


def _has_no_name(call: ast.Call) -> bool:
    """Return whether a call makes a field of a model whose label Django derives from its English name."""
    name = _called(call.func)
    if not MODEL_FIELDS.search(name) or _owner(call.func) != "models":
        return False
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    takes_model = name == "ForeignKey"
    return (takes_model or not call.args) and "verbose_name" not in keywords and keywords.get("editable") != "False"


def _literal(node: ast.AST) -> str | None:
    """Return the text of a literal, with `{}` for the expressions of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return None


def _called(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _owner(function: ast.expr) -> str:
    value = function.value if isinstance(function, ast.Attribute) else None
    return value.id if isinstance(value, ast.Name) else ""


def is_page(path: Path) -> bool:
    """Return whether all prose of a module is shown on pages."""
    path = path.relative_to(ROOT)
    return (
        "admin" in path.parts
        or str(path) in MESSAGE_MODULES
        or path.name in {"admin.py", "forms.py", "overview.py", "preview.py", "timeline.py"}
        or "templatetags" in path.parts
    )


def _python(path: Path, text: str) -> list[tuple[int, str, str]]:
    is_of_messages = str(path.relative_to(ROOT)) in MESSAGE_MODULES
    strings = _Strings(
        is_page(path),
        LABELS - {"label"} if path.name == "apps.py" else LABELS,
        UNSHOWN_ERRORS - {"ValueError"} if is_of_messages else UNSHOWN_ERRORS,
    )
    strings.visit(ast.parse(text))
    return strings.places


# --- templates ---

TRANSLATED: Final = re.compile(r"\{%-?\s*blocktrans(?:late)?\b.*?%\}(.*?)\{%\s*endblocktrans(?:late)?\s*%\}", re.DOTALL)
UNSHOWN: Final = re.compile(
    r"\{%\s*comment\b.*?endcomment\s*%\}|\{#.*?#\}|<!--.*?-->|<(script|style|code|pre)\b[^>]*>.*?</\1>"
    r"|\{%\s*block \w*class\w*\s*%\}.*?endblock[^%]*%\}",
    re.DOTALL,
)
TAG: Final = re.compile(r"\{%(.*?)%\}|\{\{(.*?)\}\}", re.DOTALL)
SHOWN_ATTRIBUTES: Final = re.compile(
    r"""\b(aria-label|aria-description|title|placeholder|alt|summary|label|data-resty-[a-z-]+)="([^"]*)\"""", re.DOTALL
)
DATA_NAMES: Final = re.compile(r"[a-z0-9_.:#\[\], >-]*")
"""Values of data attributes that are for scripts."""
CSS_CLASS: Final = re.compile(r"[a-z]+(?:-[a-z]+)+|colM")
LITERAL: Final = re.compile(r"""(?<![_(])(["'])(.*?)\1""")


def _template(text: str) -> Iterator[tuple[int, str, str]]:
    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    plural = re.search(r"\|pluralize", text)
    if plural:
        yield (
            _line(text, plural.start()),
            plural[0],
            "a plural that cannot be translated: use {% blocktranslate count %}",
        )
    rest = UNSHOWN.sub(blank, TRANSLATED.sub(blank, text))
    for match in TAG.finditer(rest):
        code = (match[1] or match[2] or "").strip()
        if code.split(" ", 1)[0] in ("translate", "trans", "load", "extends", "url", "static", "if", "elif", "block"):
            continue
        for literal in LITERAL.finditer(code):
            if is_prose(literal[2]) or (
                is_text(literal[2]) and re.search(r"(?:title|label|text|caption)=$", code[: literal.start()])
            ):
                yield _line(rest, match.start()), literal[2], "a literal in a tag"
    shown = TAG.sub(blank, rest)
    for match in SHOWN_ATTRIBUTES.finditer(shown):
        is_data = match[1].startswith("data-") and DATA_NAMES.fullmatch(match[2])
        if is_text(match[2]) and not is_data:
            yield _line(shown, match.start()), match[2].strip(), f"the attribute {match[1]}"
    for match in re.finditer(r"[^<>]+", re.sub(r"<[^>]*>", lambda tag: f"<{blank(tag)[2:]}>", shown)):
        if is_text(match[0]) and not CSS_CLASS.fullmatch(match[0].strip()):
            yield (
                _line(shown, match.start() + len(match[0]) - len(match[0].lstrip())),
                " ".join(match[0].split()),
                "text",
            )


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# --- scripts ---

COMMENT: Final = re.compile(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", re.DOTALL)
STRING: Final = re.compile(r"""(["'`])((?:\\.|(?!\1).)*)\1""")
CODE: Final = re.compile(r"[\[\]#=]|^use strict$|^\.")
"""Strings with selectors or attributes."""


def _script(text: str) -> Iterator[tuple[int, str, str]]:
    code = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in STRING.finditer(code):
        if not CODE.search(match[2]) and is_prose(re.sub(r"\$\{[^}]*\}", "{}", match[2])):
            yield _line(code, match.start()), match[2], "a text in a script: pass it in a data attribute"


# --- all files ---


def findings(path: Path) -> Iterator[Finding]:
    """Yield the texts of a file that cannot be translated."""
    text = path.read_text()
    lines = text.split("\n")
    if path.suffix == ".py":
        places: Iterator[tuple[int, str, str]] = iter(sorted(_python(path, text)))
    else:
        places = _template(text) if path.suffix == ".html" else _script(text)
    for line, words, reason in places:
        if KEEP not in lines[line - 1]:
            yield Finding(path, line, words, reason)


def main(*paths: str) -> int:
    checked = files(paths or PATHS, {".py", ".html", ".js"}, {"migrations", "api"})
    return report(finding for file in checked for finding in findings(file))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
