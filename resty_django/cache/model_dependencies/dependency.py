"""`invalidate_on`: a dependency of a cached value on a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db.models import Model

from resty_django.text.suggestions import did_you_mean

from ..errors import BadOption
from ..mlcache.cache import MLCache
from ..tags.names import Tags
from . import registry
from .registry import ANY_ROW, base_tag, row_tag

PrimaryKey = str | Callable[..., Any] | None
"""The parameter that contains the primary key, or a function of the arguments that returns it. None: the table."""


@dataclass(frozen=True)
class Dependency:
    """A dependency on a model; see `invalidate_on`. `label`: the model in lower case, such as "shop.product"."""

    label: str
    key: PrimaryKey = None
    fields: frozenset[str] | None = None

    @property
    def base(self) -> str:
        """The tag of the table."""
        return base_tag(self.label, self.fields)

    def tags(self, pk: object = None) -> tuple[str, ...]:
        """Return the tags of a value that depends on the row with this primary key (None: on the table)."""
        if pk is None:
            return (self.base,)
        return row_tag(self.base, self._converted(pk)), row_tag(self.base, ANY_ROW)

    def _converted(self, pk: object) -> Any:
        """Return the primary key as the model has it, so that "7" and 7 have the same tag."""
        try:
            return self.model._meta.pk.to_python(pk)
        except ValidationError:  # no row has this primary key
            return pk

    @property
    def model(self) -> type[Model]:
        """The model. Raise `BadOption` if it is not installed."""
        try:
            return apps.get_model(self.label)
        except (LookupError, ValueError):
            raise BadOption(not_installed(self.label)) from None


Depends = Sequence["type[Model] | str | Dependency"]
"""Models, their labels, or results of `invalidate_on`."""


def invalidate_on(
    model: type[Model] | str,
    *,
    key: PrimaryKey = None,
    fields: Collection[str] | None = None,
    cache: MLCache | str | None = None,
) -> Dependency:
    """Return a dependency on a model for `depends_on`, more exact than the model itself.

        @cached(ttl=3600, depends_on=[invalidate_on(Product, key="number", fields=("price",))])
        def price(number): ...

    `model`: a model or its label, such as "shop.Product". `key`: the parameter that contains the primary key of the
    row, or a function of the arguments that returns it; None: the value depends on the whole table. `fields`: a change
    of other fields alone does not invalidate; what was changed is known for `save(update_fields=...)`, for
    `QuerySet.update` and `bulk_update` of our manager, and for many-to-many fields, and any other change counts as a
    change of all fields. `cache`: a cache, or its name, with values that are stored with `tags=dependency.tags(pk)`.

    Raise `BadOption`.
    """
    if isinstance(model, type) and issubclass(model, Model):
        label = (model._meta.concrete_model or model)._meta.label_lower
    elif isinstance(model, str) and model.count(".") == 1 and all(model.split(".")):
        label = model.lower()
    else:
        raise BadOption(f'A dependency must be a model, or a label such as "shop.Product", not {model!r}.')
    if key is not None and not isinstance(key, str) and not callable(key):
        raise BadOption(f"key must be the name of a parameter, or a function of the arguments, not {key!r}.")
    if fields is not None and (isinstance(fields, str) or not all(isinstance(name, str) for name in fields)):
        raise BadOption(f"fields must be a tuple of names of fields, not {fields!r}.")
    dependency = Dependency(label, key, None if fields is None else frozenset(fields))
    if cache is not None:
        register((dependency,), cache, "invalidate_on()")
    return dependency


def dependencies(depends_on: Any) -> tuple[Dependency, ...]:
    """Return the value of the option `depends_on` as dependencies. Raise `BadOption`."""
    if isinstance(depends_on, str | type | Dependency) or not isinstance(depends_on, Collection):
        raise BadOption(f"depends_on must be a list of models, labels or invalidate_on(), not {depends_on!r}.")
    return tuple(item if isinstance(item, Dependency) else invalidate_on(item) for item in depends_on)


def register(depends_on: Sequence[Dependency], cache: MLCache | str, origin: str) -> None:
    """Invalidate values in a cache when the models change. `origin`: what depends on them, for messages."""
    if isinstance(cache, MLCache) and cache.channel is None:
        raise BadOption(f"The cache {cache.name!r} has no channel, so it cannot be invalidated. Set its ipc.")
    for dependency in depends_on:
        registry.add(dependency.label, dependency.fields, cache, origin)


def tags_function(
    depends_on: Sequence[Dependency], function: Callable[..., Any], by_object: bool = False
) -> Callable[..., tuple[str, ...]]:
    """Return the function from the arguments of a call of `function` to the tags of its result. Raise `BadOption`.

    `by_object`: the key of the result contains the identity of the first argument. If it is a row of a model without
    `key`, the result depends on this row.
    """
    signature = inspect.signature(function)
    parameters = signature.parameters
    any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for dependency in depends_on:
        if isinstance(dependency.key, str) and dependency.key not in parameters and not any_name:
            name = getattr(function, "__qualname__", repr(function))
            hint = did_you_mean(dependency.key, parameters, f"Parameters: {', '.join(parameters)}.")
            raise BadOption(f"key={dependency.key!r} is not a parameter of {name}(). {hint}")

    def tags(*args: object, **kwargs: object) -> tuple[str, ...]:
        names: list[str] = []
        for dependency in depends_on:
            names += dependency.tags(_pk(dependency, signature, by_object, args, kwargs))
        return tuple(dict.fromkeys(names))

    return tags


def tags_with_models(
    tags: Tags,
    depends_on: Depends,
    function: Callable[..., Any],
    cache: MLCache | str,
    name: str,
    by_object: bool = False,
) -> Callable[..., tuple[str, ...]]:
    """Return the function from the arguments of a call to its tags and its models' tags, and register the models.

    `tags`: the option of the same name. `name`: of the function, for messages. Raise `BadOption`.
    """
    items = dependencies(depends_on)
    of_models = tags_function(items, function, by_object)
    register(items, cache, name)

    def of_call(*args: object, **kwargs: object) -> tuple[str, ...]:
        return (*(tags(*args, **kwargs) if callable(tags) else tags), *of_models(*args, **kwargs))

    return of_call


def _pk(
    dependency: Dependency,
    signature: inspect.Signature,
    by_object: bool,
    args: tuple[object, ...],
    kwargs: dict[str, Any],
) -> Any:
    key = dependency.key
    if callable(key):
        pk = key(*args, **kwargs)
    elif key is not None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        pk = bound.arguments.get(key, bound.kwargs.get(key))
    else:
        pk = args[0] if by_object and args and _is_row(args[0], dependency.label) else None
    return pk.pk if isinstance(pk, Model) else pk


def _is_row(candidate: object, label: str) -> bool:
    if not isinstance(candidate, Model):
        return False
    concrete = candidate._meta.concrete_model
    return concrete is not None and concrete._meta.label_lower == label


def not_installed(label: str) -> str:
    """Return the message for a label without a model."""
    labels = [model._meta.label for model in apps.get_models()]
    hint = did_you_mean(label, labels, "Add its app to INSTALLED_APPS, or correct the label.")
    return f"The model {label!r} is not installed. {hint}"
