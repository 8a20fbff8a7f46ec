"""Store the number of application names in a rule's row, so that a new name does not require counting them."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Count

import resty_django.ids.models


def count_names(apps: Any, schema_editor: BaseDatabaseSchemaEditor) -> None:
    rules = apps.get_model("resty_ids", "IdRule").objects.using(schema_editor.connection.alias)
    counted = rules.annotate(names=Count("counters__app_name", distinct=True)).exclude(names=0)
    for key, names in list(counted.values_list("pk", "names")):
        rules.filter(pk=key).update(name_count=names)


class Migration(migrations.Migration):
    dependencies = [("resty_ids", "0002_anchor")]

    operations = [
        migrations.AddField(
            "idrule", "name_count", resty_django.ids.models.NameCountField(default=0, db_default=0, editable=False)
        ),
        migrations.RunPython(count_names, migrations.RunPython.noop, elidable=True),
    ]
