from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resty_django", "0003_alert")]

    operations = [
        migrations.CreateModel(
            name="Timeline",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "what happened",
                "verbose_name_plural": "what happened",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
