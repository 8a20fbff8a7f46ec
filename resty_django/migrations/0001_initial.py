from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="SharedDictionary",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "shared dictionary",
                "verbose_name_plural": "shared dictionaries",
                "permissions": [
                    ("view_dictionary_items", "Can see keys and values of shared dictionaries"),
                    ("delete_dictionary_item", "Can delete keys of shared dictionaries"),
                    ("flush_expired_items", "Can free expired items of shared dictionaries"),
                    ("flush_dictionary", "Can empty shared dictionaries"),
                ],
                "managed": False,
                "default_permissions": ("view",),
                "base_manager_name": "objects",
            },
        ),
    ]
