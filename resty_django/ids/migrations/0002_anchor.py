"""Set the anchor of a rule for every way of creating a row, see `AnchorField`."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import resty_django.ids.models


def anchor_unused_rules(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Set the anchor of rules that `bulk_create` or a data migration left at 0, if they have not issued any number.

    A rule that was edited or has counters keeps its anchor.
    """
    rules = apps.get_model("resty_ids", "IdRule").objects.using(schema_editor.connection.alias)
    unused = rules.filter(anchor=0, version=1, counters=None).exclude(min_counter=0)
    for key, minimum in list(unused.values_list("pk", "min_counter")):
        rules.filter(pk=key).update(anchor=minimum)


class Migration(migrations.Migration):
    dependencies = [("resty_ids", "0001_initial")]

    operations = [
        migrations.AlterField(
            "idrule",
            "anchor",
            resty_django.ids.models.AnchorField(default=None, editable=False, null=True),
        ),
        migrations.RunPython(anchor_unused_rules, migrations.RunPython.noop, elidable=True),
    ]
