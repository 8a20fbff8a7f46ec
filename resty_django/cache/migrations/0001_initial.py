from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Cache",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "cache",
                "verbose_name_plural": "caches",
                "permissions": [
                    ("view_cache_items", "Can see keys and values of caches"),
                    ("delete_cache_item", "Can delete keys of caches"),
                    ("purge_cache", "Can purge caches"),
                ],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
