"""The window over which the pace of a counter is measured. A stored counter begins it with its next reservation."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resty_ids", "0003_name_count")]

    operations = [
        migrations.AddField("idcounter", "window_began", models.DateTimeField(null=True, editable=False)),
        migrations.AddField(
            "idcounter", "window_issued", models.BigIntegerField(default=0, db_default=0, editable=False)
        ),
    ]
