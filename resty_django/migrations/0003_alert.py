from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resty_django", "0002_overview")]

    operations = [
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "alert",
                "verbose_name_plural": "alerts",
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
