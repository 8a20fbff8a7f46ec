from django.db import migrations

import resty_django.txid.fields


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="order",
            name="txid",
            field=resty_django.txid.fields.TxidField(db_index=True, editable=False, null=True),
        ),
    ]
