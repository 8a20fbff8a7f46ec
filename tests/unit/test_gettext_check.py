"""Translations: tests/gettext_check.py finds texts that gettext does not see, and calls of gettext that cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import gettext_check


def check(name: str, text: str) -> list[str]:
    """Return the texts that the check finds in a module of an admin page, a template or a script."""
    path = gettext_check.ROOT / name
    if path.suffix == ".py":
        return [words for _line, words, _reason in gettext_check._python(path, text)]
    find = gettext_check._template if path.suffix == ".html" else gettext_check._script
    return [words for _line, words, _reason in find(text)]


@pytest.mark.parametrize(
    "text",
    [
        'name = models.CharField("name", help_text=_("The name."))',
        'name = models.CharField(_("name"), help_text="The name.")',
        'class Meta:\n    verbose_name = "rule"',
        'class Kind(models.TextChoices):\n    LUA = "lua", "Script"',
        "class Rule:\n    name = models.CharField(max_length=9)",
        "class Rule:\n    owner: Any = models.ForeignKey(User, models.CASCADE)",
        'fieldsets = [("Numbers", {"fields": []})]',
        'choices = [("a", "first"), ("b", _("second"))]',
        'def column(self): ...\ncolumn.short_description = "state"',
        'messages.success(request, "Saved.")',
        'self.message_user(request, f"Saved {name}")',
        'raise ValidationError("Too long")',
        'context = {"title": "Figures"}',
        'context = {"title": _("Figures") if x else "Keys"}',
        'def lookups(self, request, model_admin):\n    return [("a", "ahead")]',
        'return format_html("Not done: {}", error)',
        'return "used up" if x else ""',
        '_(f"Saved {name}.")',
        '_("Saved %s." % name)',
        '_("Saved {}.".format(name))',
        '_("Moved %s from %s")',
        'raise ValidationError({"name": "A name is too long."})',
        'raise ValidationError(["Too long", _("Too short")])',
        'raise LimitError("The policy is not valid. Correct it first.")',
        'raise NotPossible(f"The quota {name} is not loaded.")',
        'ngettext("%s of %s", "%(count)s of all", 2)',
        'written = ("Written", {"fields": ["version"]})',
        'return f"{size} free"',
        'return f"{start} to {end}"',
        'return f"{passed} passed, {refused} refused"',
        'return _("%(count)s rows") % {"count": f"{count:,}"}',
        "return _(state.capitalize())",
        'label = _("Value")',
        'class F(forms.Form):\n    value = forms.CharField(label=_("Value"))',
        'def f(text=_("none")): ...',
        'class Meta:\n    verbose_name = gettext_lazy("rule")',
    ],
)
def test_unwrapped_texts_of_admin_modules_are_found(text: str) -> None:
    assert check("resty_django/ids/admin/rules.py", text)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring. It has sentences."""',
        'from django.utils.translation import gettext_lazy as _\nlabel = _("Value")',
        'NONE = gettext_noop("Nothing is set.")\ndef f():\n    return _(NONE)',
        'async def f():\n    return _("Value")',
        'ask = lambda: _("Value")',
        'class Meta:\n    verbose_name = gettext_lazy("rule")\n    verbose_name_plural = gettext_lazy("rules")',
        'return f"state:{state}"',
        'return f"{name}: {count:g}"',
        'def f():\n    "Return what is asked for."',
        'name = models.CharField(gettext_lazy("name"), help_text=gettext_lazy("The name."))',
        'def f():\n    messages.success(request, _("Saved %(name)s.") % {"name": name})',
        "class Rule:\n    version = models.IntegerField(editable=False)",
        'class Rule:\n    owner = models.ForeignKey(User, models.CASCADE, verbose_name=gettext_lazy("owner"))',
        "rows.annotate(count=models.IntegerField())",
        'self.log_change(request, obj, "Deleted the key.")',
        'LogEntry.objects.create(change_message="Reset the key.")',
        'def perform() -> tuple[str, str]:\n    return message, "Paused for everyone."',
        'log.warning("The store is down.")',
        'raise ValueError("The number is too low.")',
        'def of_today() -> Iterator[Family]:\n    yield Family("x", "gauge", "Age of the job.")',
        'template = "admin/resty_ids/rule.html"',
        'pattern = re.compile(r"Line (?P<number>\\d+), at")',
        "return format_html('<span class=\"resty-quiet resty-wide\">{}</span>', text)",
    ],
)
def test_other_strings_are_left_out(text: str) -> None:
    assert check("resty_django/ids/admin/rules.py", text) == []


def test_outside_of_admin_modules_only_labels_and_messages_count() -> None:
    text = 'raise ValidationError("Too long")\nx = "A sentence of the core."'
    assert check("resty_django/ids/models.py", text) == ["Too long"]


@pytest.mark.parametrize(
    "text",
    [
        "<p>Words</p>",
        '<input aria-label="Search">',
        '<p data-resty-down="The server is down.">',
        '{% include "x.html" with title="Figures" %}',
        '{{ name|default:"Not known yet" }}',
        '{% translate "row" %}{{ count|pluralize }}',
    ],
)
def test_unwrapped_texts_of_templates_are_found(text: str) -> None:
    assert check("x.html", text)


@pytest.mark.parametrize(
    "text",
    [
        '<p class="resty-quiet" id="x">{% translate "Words" %} {{ name }}</p>',
        "{% blocktranslate count n=n %}One row{% plural %}{{ n }} rows{% endblocktranslate %}",
        "{# A comment #}{% comment %}Words{% endcomment %}<script>const words = 1;</script>",
        "<pre>  File {{ path }}, line 1</pre><code>next_id()</code> &nbsp; 12 {{ a }}, {{ b }}",
        '{% block bodyclass %}{{ block.super }} app-x model-y{% endblock %}<a href="{% url "x" %}">{{ y }}</a>',
        '<div data-resty-parts="#a, #b" data-resty-live="2">',
    ],
)
def test_other_parts_of_templates_are_left_out(text: str) -> None:
    assert check("x.html", text) == []


@pytest.mark.parametrize(
    "text",
    [
        'raise Refused("The counter no longer exists.")',
        'raise ValueError(f"{rate} is out of range.")',
        'return "no limit"',
    ],
)
def test_messages_that_pages_show_count_in_other_modules_too(text: str) -> None:
    (module, *_others) = sorted(gettext_check.MESSAGE_MODULES)
    assert all((gettext_check.ROOT / name).is_file() for name in gettext_check.MESSAGE_MODULES)
    assert check(module, text)
    assert check("resty_django/ids/service.py", text) == []


def test_texts_of_scripts_are_found_and_comments_are_not() -> None:
    assert check("x.js", 'say("The server is down.");') == ["The server is down."]
    assert check("x.js", "say(`The preview failed (${status}).`);") != []
    assert (
        check(
            "x.js", '// "The server is down."\n/* "The server." */ find("input[name=pick]"); say(panel.dataset.down);'
        )
        == []
    )


def test_lines_may_keep_their_text(tmp_path: Path) -> None:
    path = gettext_check.ROOT / "resty_django" / "limits" / "admin" / "exchange.py"
    kept = [line for line in path.read_text().split("\n") if gettext_check.KEEP in line]
    assert kept
    assert not list(gettext_check.findings(path))
