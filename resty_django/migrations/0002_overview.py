from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resty_django", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Overview",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
                "permissions": [("view_metrics", "Can see the metrics")],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
