import django.db.models.deletion
from django.db import migrations, models

import resty_django.fields


class Migration(migrations.Migration):
    dependencies = [
        ("resty_qless", "0006_archivedjob"),
    ]

    operations = [
        migrations.CreateModel(
            name="ArchivedTerm",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job", "term", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("term", resty_django.fields.ByteOrderCharField(max_length=210, verbose_name="term")),
                (
                    "job",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="resty_qless.archivedjob",
                        verbose_name="archived job",
                    ),
                ),
            ],
            options={
                "verbose_name": "term of the archive",
                "verbose_name_plural": "terms of the archive",
                "default_permissions": (),
                "indexes": [models.Index(fields=["term", "job"], name="resty_qless_archive_term")],
            },
        ),
    ]
