"""Make room for several rates in one policy, as in "10/s;1000/h"."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("resty_limits", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="limitpolicy",
            name="rate",
            field=models.CharField(
                verbose_name="rate",
                blank=True,
                help_text="The rate of requests, for example 200/s or 30/min. A request must pass all of several rates: "
                "10/s;1000/h. Windows, token bucket: instead of the numbers that it defines.",
                max_length=200,
            ),
        ),
        migrations.AlterField(
            model_name="limitpolicy",
            name="limit",
            field=models.BigIntegerField(
                verbose_name="limit",
                blank=True,
                help_text="Windows without a rate: requests per window. Concurrency: requests at the same time.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="limitpolicy",
            name="window",
            field=models.CharField(
                verbose_name="window",
                blank=True,
                help_text="Windows without a rate: the length of a window, for example 1h, 10min or 30s.",
                max_length=32,
            ),
        ),
    ]
