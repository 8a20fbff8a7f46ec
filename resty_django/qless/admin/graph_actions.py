"""Operations on all jobs that are connected with a job: retry the failed steps, cancel all."""

from __future__ import annotations

from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..clients.graph import Graph
from ..errors import GraphTooLarge
from . import formatting
from .counted import CountedOperation, counted_view
from .job_actions import JobActions

MOST: Final = 2000
"""Maximum number of connected jobs that a request walks through."""
RETRY: Final = CountedOperation(
    "retry_graph",
    "retry_job",
    gettext_lazy("Failed in a run"),
    lambda graph: len(graph.failed()),
    lambda client, jid: client.retry_graph(jid, MOST),
    gettext_lazy("Retried %(jobs)s."),
)
CANCEL: Final = CountedOperation(
    "cancel_graph",
    "cancel_job",
    gettext_lazy("Not complete"),
    lambda graph: len(graph.not_complete()),
    lambda client, jid: client.cancel_graph(jid, MOST),
    gettext_lazy("Canceled %(jobs)s."),
    danger=True,
)


class GraphActions(JobActions):
    def action_urls(self) -> list[URLPattern]:
        return [
            *super().action_urls(),
            self.page_url("retry_graph", self.retry_graph_view),
            self.page_url("cancel_graph", self.cancel_graph_view),
        ]

    def retry_graph_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._graph_operation(request, object_id, RETRY)

    def cancel_graph_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._graph_operation(request, object_id, CANCEL)

    def _graph_operation(self, request: HttpRequest, object_id: str, operation: CountedOperation) -> HttpResponse:
        def load(row: Any) -> Graph:
            job = self.job(row)
            try:
                graph: Graph = self.client().jobs.graph(row.name, MOST)
            except GraphTooLarge:
                raise GraphTooLarge(
                    _("More than %(most)s jobs are connected. Call client.%(name)s() in code, with a higher limit.")
                    % {"most": formatting.number(MOST), "name": operation.name}
                ) from None
            row.gone = operation is CANCEL and job.state != "complete"
            return graph

        def facts(graph: Graph) -> list[tuple[Any, Any]]:
            return [(_("Connected"), formatting.job_count(len(graph.jobs)))]

        return counted_view(self, request, object_id, operation, load, facts)
