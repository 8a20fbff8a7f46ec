"""`manage.py limits_ban`: ban keys, lift bans and list them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from resty_django.shdict import SharedDictError
from resty_django.text import one_line

from ...bans import registry
from ...bans.registry import Ban

LONGEST: Final = 60
"""The maximum characters of a key and of a reason in the list."""


class Command(BaseCommand):
    help = (
        "Ban keys, lift bans and list them. add KEY --for TIME: ban a key, or replace its ban. lift KEY: end its bans, "
        "and forget earlier ones. list: show the bans in force, the most recent first. A KEY is written as in the log: "
        "192.0.2.7, 2001:db8::/64 or user:7."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["add", "lift", "list"])
        parser.add_argument("key", nargs="?", metavar="KEY", help="add, lift: the key.")
        parser.add_argument("--for", dest="length", metavar="TIME", help='add: the length of the ban, such as "1h".')
        parser.add_argument("--reason", help="add: the reason, for operators.")
        parser.add_argument(
            "--limit",
            metavar="NAME",
            help="The name of a limit, such as login-name. Default: add: all limits with bans, and log-ins; lift, "
            "list: all bans.",
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON object per ban.")

    def handle(self, *args: Any, **options: Any) -> None:
        action, key, limit = options["action"], options["key"], options["limit"]
        if action == "list" and key is not None:
            raise CommandError("limits_ban list takes no key. To select bans of one limit, use --limit.")
        if action != "list" and not key:
            raise CommandError(f"limits_ban {action} needs a key, such as 192.0.2.7 or user:7.")
        for option in ("length", "reason"):
            if action != "add" and options[option] is not None:
                name = "--for" if option == "length" else "--reason"
                raise CommandError(f"{name} is only supported by add. Remove {name}.")
        try:
            if action == "add":
                self._add(key, options["length"], options["reason"] or "", limit or "", options["json"])
            elif action == "lift":
                self._lift(key, limit, options["json"])
            else:
                self._list(limit, options["json"])
        except SharedDictError as error:
            raise CommandError(f"The bans cannot be read or changed. {one_line(error)}") from error

    def _add(self, key: str, length: str | None, reason: str, limit: str, as_json: bool) -> None:
        if length is None:
            raise CommandError('limits_ban add needs --for, such as --for 1h or --for "7d".')
        try:
            ban = registry.add(key, length, reason, limit)
        except ValueError as error:
            raise CommandError(one_line(error)) from error
        if as_json:
            self._print_json(ban)
            return
        self.stdout.write(f"Banned {one_line(key)} by {_limit_of(ban)} until {_time(ban.until)}.")

    def _lift(self, key: str, limit: str | None, as_json: bool) -> None:
        lifted = registry.lift(key, limit)
        if as_json:
            self.stdout.write(json.dumps({"key": key, "lifted": lifted}))
        elif lifted:
            self.stdout.write(f"Lifted {lifted} {'ban' if lifted == 1 else 'bans'} of {one_line(key)}.")
        else:
            self.stdout.write(f"{one_line(key)} was not banned.")

    def _list(self, limit: str | None, as_json: bool) -> None:
        bans = [ban for ban in registry.current_bans() if limit in (None, ban.limit)]
        for ban in bans:
            if as_json:
                self._print_json(ban)
            else:
                reason = one_line(ban.reason, LONGEST)
                self.stdout.write(
                    f"{one_line(ban.key, LONGEST)}  {_limit_of(ban)}  until {_time(ban.until)}  number {ban.number}"
                    + (f"  {reason}" if reason else "")
                )
        if not bans and not as_json:
            self.stdout.write("No bans.")

    def _print_json(self, ban: Ban) -> None:
        row = {
            "key": ban.key,
            "limit": ban.limit,
            "since": _time(ban.since),
            "until": _time(ban.until),
            "number": ban.number,
            "reason": ban.reason,
        }
        self.stdout.write(json.dumps(row))


def _limit_of(ban: Ban) -> str:
    return one_line(ban.limit, LONGEST) or "all limits"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.get_default_timezone()).isoformat(timespec="seconds")
