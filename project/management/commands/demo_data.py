"""`manage.py demo_data`: the rules and the users of the demo. Running it again changes nothing."""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management.base import BaseCommand
from django.db import transaction
from rest_framework.authtoken.models import Token

from resty_django.ids.models import IdRule

LUA: Final = """\
function min_counter() return 1 end
function max_counter() return 99999 end
function reset_seconds() return 86400 end

function create_id(counter, now, salt)
  return string.format("T%04d%02d%02d-%05d", now:year(), now:month(), now:day(), counter:generate_counter())
end
"""

RULES: Final[dict[str, dict[str, Any]]] = {
    "order_id": {
        "description": "Order numbers: O, year, month, day, six digits that start again each day.",
        "source": "O{now:%y%m%d}{counter:06d}",
        "max_counter": 999_999,
        "reset_seconds": 86_400,
    },
    "o2o": {
        "description": "One digit of the year, month, day, four digits that start again each day.",
        "source": "{now:%1Y%m%d}{counter:04d}",
        "max_counter": 9_999,
        "reset_seconds": 86_400,
    },
    "customer": {
        "description": "Customer numbers that do not reveal their count, with a check digit.",
        "source": "C{counter:08d:scramble}{luhn}",
        "max_counter": 99_999_999,
    },
    "invoice": {
        "description": "Invoice numbers without gaps, from 1 each year.",
        "source": "INV-{now:%Y}-{counter:06d}",
        "min_counter": 1,
        "max_counter": 999_999,
        "reset_calendar": "year",
        "gapless": True,
    },
    "ticket": {
        "description": "A Lua rule, as in id_server.",
        "kind": "lua",
        "source": LUA,
        "min_counter": 1,
        "max_counter": 99_999,
        "reset_seconds": 86_400,
    },
}


class Command(BaseCommand):
    help = "Create the demo's rules, its user admin (password admin) and the API's user till, unless they exist."

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        for name, fields in RULES.items():
            if not IdRule.objects.filter(name=name).exists():
                rule = IdRule(name=name, **fields)
                rule.full_clean()
                rule.save()
        users = get_user_model()
        if not users.objects.filter(username="admin").exists():
            users.objects.create_superuser("admin", "admin@example.com", "admin")
        till, created = users.objects.get_or_create(username="till")
        if created:  # a program that only issues IDs over HTTP, with a token
            issue = Permission.objects.get(content_type__app_label="resty_ids", codename="issue_id")
            till.user_permissions.add(issue)
            Token.objects.create(user=till)
        if options["verbosity"]:
            self.stdout.write(f"Rules: {', '.join(RULES)}. User: admin, password admin.")
