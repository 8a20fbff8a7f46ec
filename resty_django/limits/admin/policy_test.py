"""The test of an edited policy with the recorded requests of the last hour, before it is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from django.utils.translation import gettext as _

from resty_django.admin.formatting import number
from resty_django.admin.statistics import Key, why
from resty_django.admin.versions import stored_row
from resty_django.conf import conf

from ..enforcement import keys
from ..overrides.current import current
from ..policies import registry
from ..policies.lines import EXEMPTIONS
from ..policies.policy_set import recording_name
from ..policies.replay import KeyReplay, NotReplayable, Replay, replay
from ..policies.spec import BadPolicy, PolicySpec, tier_specs
from ..statistics.recorder import recorder

TEST: Final = "_test"
"""The name of the button."""
COUNTS: Final = (
    *("requests", "refused_then", "shadowed_then", "delayed_then", "refused", "delayed"),
    *("key_count", "overridden", "limited", "released", "uncertain"),
)
CONDITIONS: Final = ("path", "route", "view", "methods", *EXEMPTIONS)
IGNORED: Final = ("exempt_networks", "exempt_users", "exempt_groups", "ban", "ban_after")


@dataclass(frozen=True, slots=True)
class TestedKey:
    """The requests of one key, as text. `changed`: whether the policy would refuse more or fewer of them."""

    text: str
    requests: str
    refused_then: str
    refused: str
    delayed: str
    changed: bool

    @classmethod
    def of(cls, counts: KeyReplay) -> TestedKey:
        return cls(
            Key.of(counts.key).text,
            number(counts.requests),
            number(counts.refused_then),
            number(counts.refused),
            number(counts.delayed),
            counts.refused != counts.refused_then,
        )


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """The result of a test. `problem`: why there is none, or "".

    `ignored`: changed fields that the test ignores. `conditions`: whether a condition was changed, so that the edited
    policy may apply to requests that were not recorded. `unknown_tiers`: tiers of the edited policy whose requests were
    recorded without their tier, or not recorded. `bans`: whether the edited policy bans keys, which is not replayed.
    """

    replay: Replay | None = None
    problem: str = ""
    words: str = ""
    ignored: list[str] = field(default_factory=list)
    conditions: bool = False
    unknown_tiers: list[str] = field(default_factory=list)
    bans: bool = False

    @property
    def keys(self) -> list[TestedKey]:
        return [] if self.replay is None else [TestedKey.of(counts) for counts in self.replay.keys]

    @property
    def numbers(self) -> dict[str, str]:
        """The counts of the replay, with separators."""
        return {} if self.replay is None else {name: number(getattr(self.replay, name)) for name in COUNTS}

    @property
    def percent(self) -> str:
        """The share of the keys that were recorded, or "" for all of them."""
        share = 1.0 if self.replay is None else self.replay.share
        return "" if share == 1 else f"{100 * share:.3g} %"


def run_test(form: Any) -> PolicyTest:
    """Test the policy of a form without errors. Store nothing."""
    edited = form.instance.spec()
    saved = _saved(form)
    if saved is None:
        return PolicyTest(problem=_nothing_recorded(_("No policy has the name %(name)s yet.") % {"name": edited.name}))
    try:
        recorder.flush()
        recording = recorder.read(recording_name(saved))
        if not recording.requests:
            return PolicyTest(problem=_nothing_recorded())
        roles = keys.parse(edited.key).roles
        registry.all_policies()  # reads the overrides, too, if this process has not read them yet
        result = replay(edited, recording, saved, lambda key: current.find(edited.name, key, roles))
    except NotReplayable as error:
        return PolicyTest(problem=str(error))
    except Exception as error:  # the store may raise anything; the form has to be shown
        return PolicyTest(problem=_("The recorded requests cannot be read: %(reason)s") % {"reason": why(error)})
    changed = {name for name in (*CONDITIONS, *IGNORED) if getattr(edited, name) != getattr(saved, name)}
    ignored: list[str] = [name for name in IGNORED if name in changed]
    recorded = tier_specs(saved)
    unknown = [tier for tier, rates in tier_specs(edited).items() if rates and not recorded.get(tier)]
    conditions = not changed.isdisjoint(CONDITIONS)
    return PolicyTest(result, "", form.instance.describe(), ignored, conditions, unknown, bool(edited.ban))


def _nothing_recorded(reason: str = "") -> str:
    if not conf.limits.record_requests:
        return _("Requests are not recorded, because the setting RECORD_REQUESTS is off. Nothing can be tested.")
    parts = [
        reason,
        _(
            "No request of this policy was recorded in the last hour. Save the policy in shadow mode: it then decides "
            "and counts, but lets all requests pass, and its requests are recorded."
        ),
    ]
    return " ".join(part for part in parts if part)


def _saved(form: Any) -> PolicySpec | None:
    """Return the policy as it is in force: before the edit, or as declared in code; None if there is none."""
    if form.instance.pk is not None:
        row = stored_row(form.instance)
        return None if row is None else row.spec()
    try:
        return registry.declared_policies().get(form.instance.name)
    except BadPolicy:  # a rule in the settings is not valid; a system check reports it
        return None
