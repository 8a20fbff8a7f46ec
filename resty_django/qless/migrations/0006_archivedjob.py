from django.db import migrations, models

import resty_django.database.fields


class Migration(migrations.Migration):
    dependencies = [
        ("resty_qless", "0005_jobclass"),
    ]

    operations = [
        migrations.CreateModel(
            name="ArchivedJob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", resty_django.database.fields.ExactCharField(max_length=255, unique=True, verbose_name="jid")),
                ("klass", resty_django.database.fields.ExactCharField(max_length=200, verbose_name="class")),
                ("queue", resty_django.database.fields.ExactCharField(max_length=200, verbose_name="queue")),
                (
                    "state",
                    models.CharField(
                        choices=[("complete", "complete"), ("failed", "failed"), ("canceled", "canceled")],
                        max_length=8,
                        verbose_name="state",
                    ),
                ),
                ("priority", models.FloatField(default=0, verbose_name="priority")),
                ("tags", models.TextField(default="[]", verbose_name="tags")),
                (
                    "txid",
                    resty_django.database.fields.ExactCharField(blank=True, max_length=200, verbose_name="transaction"),
                ),
                ("arguments", models.TextField(default="null", verbose_name="arguments")),
                (
                    "arguments_are",
                    models.CharField(
                        choices=[
                            ("complete", "complete"),
                            ("redacted", "redacted"),
                            ("cut", "not complete"),
                        ],
                        max_length=8,
                        verbose_name="arguments are",
                    ),
                ),
                ("error_group", models.CharField(blank=True, max_length=200, verbose_name="failure group")),
                ("error_message", models.TextField(blank=True, verbose_name="error")),
                ("worker", models.CharField(blank=True, max_length=200, verbose_name="worker")),
                ("retries", models.IntegerField(default=0, verbose_name="retries")),
                ("retries_left", models.IntegerField(default=0, verbose_name="retries left")),
                ("put_at", models.DateTimeField(verbose_name="put")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                ("finished_at", models.DateTimeField(verbose_name="finished")),
                ("waited", models.FloatField(null=True, verbose_name="seconds waiting")),
                ("ran", models.FloatField(null=True, verbose_name="seconds running")),
                ("history", models.TextField(default="[]", verbose_name="history")),
            ],
            options={
                "verbose_name": "archived job",
                "verbose_name_plural": "archive",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["klass", "finished_at"], name="resty_qless_archive_class"),
                    models.Index(fields=["queue", "finished_at"], name="resty_qless_archive_queue"),
                    models.Index(fields=["state", "finished_at"], name="resty_qless_archive_state"),
                    models.Index(fields=["finished_at"], name="resty_qless_archive_finished"),
                ],
            },
        ),
    ]
