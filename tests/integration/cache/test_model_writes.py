"""Dependencies on models: each way in which Django's ORM writes invalidates what depends on the rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models
from django.test.utils import isolate_apps

from resty_django.cache import LRU, CacheInvalidatingManager, MLCache, cached, invalidate_on
from resty_django.cache.model_dependencies import checks, dependency, registry
from resty_django.shdict.lmdb import LmdbDict
from tests.dictionaries import MIB

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.db]


@pytest.fixture(scope="module")
def tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[SimpleNamespace]:
    """Models with each kind of relation, in a separate registry, and their tables."""
    with isolate_apps("project") as apps:

        class Base(models.Model):
            objects = CacheInvalidatingManager()

            class Meta:
                abstract = True
                app_label = "project"

        class Note(Base):  # noqa: DJ008
            content_type = models.ForeignKey(ContentType, models.CASCADE, db_constraint=False)
            object_id = models.IntegerField()
            about = GenericForeignKey()

        class Author(Base):  # noqa: DJ008
            notes = GenericRelation(Note)

        class Section(Base):  # noqa: DJ008
            pass

        class Reader(Base):  # noqa: DJ008
            pass

        class Genre(Base):  # noqa: DJ008
            pass

        class Work(Base):  # noqa: DJ008
            title = models.CharField(max_length=20)

        class Translation(Work):  # noqa: DJ008
            class Meta(Base.Meta):
                abstract = False
                proxy = True

        class Book(Work):  # noqa: DJ008
            author = models.ForeignKey(Author, models.SET_NULL, null=True, related_name="books")
            section = models.ForeignKey(Section, models.SET_DEFAULT, null=True, default=None, related_name="books")
            readers = models.ManyToManyField(Reader, through="Loan", related_name="books")
            genres = models.ManyToManyField(Genre, related_name="books")

        class Loan(Base):  # noqa: DJ008
            book = models.ForeignKey(Book, models.CASCADE)
            reader = models.ForeignKey(Reader, models.CASCADE)
            days = models.IntegerField(default=7)

        class Silent(models.Model):  # noqa: DJ008
            objects = models.Manager()

            class Meta:
                app_label = "project"
                base_manager_name = "objects"

        all_models = (Note, Author, Section, Reader, Genre, Work, Book, Loan, Silent)
        with django_db_blocker.unblock():
            with connection.schema_editor() as editor:
                for model in all_models:
                    editor.create_model(model)
            yield SimpleNamespace(
                apps=apps, **{model.__name__: model for model in (*all_models, Translation, Book.genres.through)}
            )
            with connection.schema_editor() as editor:
                for model in reversed(all_models):
                    editor.delete_model(model)


@pytest.fixture
def site(tables: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Two rows of each kind, the first ones connected. `ran()` returns the cached functions that had to run: one for
    each table, and one for each book."""
    monkeypatch.setattr(registry, "by_label", copy.copy(registry.by_label))
    registry.by_label.clear()
    for module in (registry, dependency, checks):
        monkeypatch.setattr(module, "apps", tables.apps)
    ContentType.objects.clear_cache()
    site = SimpleNamespace(
        **vars(tables),
        author=tables.Author.objects.create(),
        free_author=tables.Author.objects.create(),
        section=tables.Section.objects.create(),
        reader=tables.Reader.objects.create(),
        genre=tables.Genre.objects.create(),
    )
    site.book = tables.Book.objects.create(title="one", author=site.author, section=site.section)
    site.other = tables.Book.objects.create(title="two")
    site.note = tables.Note.objects.create(about=site.author)
    site.book.genres.add(site.genre)
    site.loan = tables.Loan.objects.create(book=site.book, reader=site.reader)
    dictionary = LmdbDict("writes", 4 * MIB, str(tmp_path))
    cache = MLCache("writes", dictionary, lru=LRU(100), ttl=1000)
    runs: set[str] = set()

    def function(name: str, depends_on: Any) -> Callable[[], None]:
        return cached(cache, name=name, depends_on=[depends_on])(lambda: runs.add(name))

    functions = [
        function(model.__name__, model._meta.label) for model in tables.apps.get_models(include_auto_created=True)
    ]
    for name in ("book", "other"):
        pk = getattr(site, name).pk
        functions.append(function(name, invalidate_on(tables.Book, key=lambda pk=pk: pk)))

    def ran() -> set[str]:
        runs.clear()
        for call in functions:
            call()
        return set(runs)

    site.ran, site.function = ran, function
    ran()
    assert ran() == set()
    yield site
    dictionary.close()
    for model in (tables.Book.genres.through, *reversed(list(tables.apps.get_models()))):
        if not model._meta.proxy:
            model._base_manager.all()._raw_delete("default")


WORKS = "Work Translation Book"
LOANS = f"{WORKS} Loan Reader"
LINKS = f"{WORKS} Book_genres Genre"
CHANGES: list[tuple[str, Callable[[Any], Any], str]] = [
    ("save", lambda s: s.book.save(), f"{WORKS} book"),
    ("save through the parent", lambda s: s.Work.objects.get(pk=s.book.pk).save(), f"{WORKS} book"),
    ("save through a proxy", lambda s: s.Translation.objects.get(pk=s.book.pk).save(), f"{WORKS} book"),
    ("asave", lambda s: async_to_sync(s.book.asave)(), f"{WORKS} book"),
    ("create", lambda s: s.Book.objects.create(), WORKS),
    ("get_or_create", lambda s: s.Book.objects.get_or_create(title="new"), WORKS),
    ("update_or_create", lambda s: s.Book.objects.update_or_create({"title": "new"}, pk=s.book.pk), f"{WORKS} book"),
    ("update", lambda s: s.Book.objects.filter(pk=s.book.pk).update(title="new"), f"{WORKS} book other"),
    ("update of the parent", lambda s: s.Work.objects.update(title="new"), f"{WORKS} book other"),
    ("aupdate", lambda s: async_to_sync(s.Book.objects.all().aupdate)(title="new"), f"{WORKS} book other"),
    ("bulk_create", lambda s: s.Work.objects.bulk_create([s.Work()]), WORKS),
    ("bulk_update", lambda s: s.Book.objects.bulk_update([s.book], ["title"]), f"{WORKS} book"),
    ("delete", lambda s: s.book.delete(), f"{LOANS} {LINKS} book"),
    ("delete through the parent", lambda s: s.Work.objects.get(pk=s.book.pk).delete(), f"{LOANS} {LINKS} book"),
    ("QuerySet.delete", lambda s: s.Book.objects.filter(pk=s.book.pk).delete(), f"{LOANS} {LINKS} book"),
    ("CASCADE", lambda s: s.reader.delete(), f"{LOANS} book"),
    ("CASCADE of many-to-many", lambda s: s.genre.delete(), f"{LINKS} book other"),
    ("SET_NULL", lambda s: s.author.delete(), f"{WORKS} book other Author Note"),
    ("SET_DEFAULT", lambda s: s.section.delete(), f"{WORKS} book other Section"),
    ("related add", lambda s: s.free_author.books.add(s.book), f"{WORKS} book other"),
    ("related aadd", lambda s: async_to_sync(s.free_author.books.aadd)(s.book), f"{WORKS} book other"),
    ("related add, bulk=False", lambda s: s.free_author.books.add(s.book, bulk=False), f"{WORKS} book"),
    ("related remove", lambda s: s.author.books.remove(s.book), f"{WORKS} book other"),
    ("related clear", lambda s: s.author.books.clear(), f"{WORKS} book other"),
    ("related set", lambda s: s.free_author.books.set([s.book]), f"{WORKS} book other"),
    ("related create", lambda s: s.author.books.create(), WORKS),
    ("many-to-many add", lambda s: s.other.genres.add(s.genre), f"{LINKS} other"),
    ("many-to-many add, reverse", lambda s: s.genre.books.add(s.other), f"{LINKS} other"),
    ("many-to-many remove", lambda s: s.book.genres.remove(s.genre), f"{LINKS} book"),
    ("many-to-many clear", lambda s: s.book.genres.clear(), f"{LINKS} book"),
    ("many-to-many set", lambda s: s.book.genres.set([]), f"{LINKS} book"),
    ("many-to-many aset", lambda s: async_to_sync(s.book.genres.aset)([]), f"{LINKS} book"),
    ("through: add", lambda s: s.other.readers.add(s.reader), f"{LOANS} other"),
    ("through: remove", lambda s: s.book.readers.remove(s.reader), f"{LOANS} book"),
    ("through: clear", lambda s: s.book.readers.clear(), f"{LOANS} book"),
    ("through: set", lambda s: s.book.readers.set([]), f"{LOANS} book"),
    ("through: create", lambda s: s.Loan.objects.create(book=s.other, reader=s.reader), f"{LOANS} other"),
    ("through: save", lambda s: s.loan.save(), f"{LOANS} book other"),
    ("through: update", lambda s: s.Loan.objects.update(days=1), f"{LOANS} book other"),
    ("through: delete", lambda s: s.loan.delete(), f"{LOANS} book"),
    (
        "through: bulk_create",
        lambda s: s.Loan.objects.bulk_create([s.Loan(book=s.other, reader=s.reader)]),
        f"{LOANS} other",
    ),
    ("generic add", lambda s: s.free_author.notes.add(s.note), "Note"),
    ("generic aadd", lambda s: async_to_sync(s.free_author.notes.aadd)(s.note), "Note"),
    ("generic remove", lambda s: s.author.notes.remove(s.note), "Note"),
    ("generic clear", lambda s: s.author.notes.clear(), "Note"),
    ("generic set", lambda s: s.free_author.notes.set([s.note]), "Note"),
    ("generic create", lambda s: s.author.notes.create(), "Note"),
]


@pytest.mark.parametrize(
    ("change", "expected"), [pytest.param(change, expected, id=name) for name, change, expected in CHANGES]
)
def test_each_write_of_the_orm(site: SimpleNamespace, change: Callable[[Any], Any], expected: str) -> None:
    change(site)
    assert site.ran() == set(expected.split())
    assert site.ran() == set()


def test_checks_of_changes_that_would_not_be_seen(site: SimpleNamespace) -> None:
    for model, fields in ((site.Author, ("books", "notes")), (site.Note, ("about", "object_id"))):
        site.function("relation", invalidate_on(model, fields=fields))
    site.function("many to many", invalidate_on(site.Genre, fields=("books",)))
    messages = [(message.id, message.msg) for message in checks.check_dependencies()]
    assert sorted(messages) == [
        ("resty_cache.E004", "relation depends on the field 'about' of project.Note, which has no column."),
        (
            "resty_cache.E004",
            "relation depends on the field 'books' of project.Author, which has no column.",
        ),
        (
            "resty_cache.E004",
            "relation depends on the field 'notes' of project.Author, which has no column.",
        ),
        (
            "resty_cache.W003",
            "Silent depends on project.Silent, whose Meta.base_manager_name is 'objects'. This manager does not "
            "invalidate what depends on rows that add() of related objects or SET_NULL changes.",
        ),
    ]
