"""How is `GET /metrics` answered?"""

from collections.abc import Sequence

from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from luftpause.dataplane.workers import OWN, OfWorker, Up, Worker, merged, pages_of_others
from luftpause.kit import metrics


def add_metrics(api: Starlette, collectors: Sequence[Collector], worker: Worker | None) -> None:
    """The route. With `worker` the page has the counts of all workers that answer."""

    async def page(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        if worker is None:
            body, kind = await metrics.page(collectors, accept)
        elif OWN in request.query_params:
            body, kind = await metrics.page((OfWorker(worker.number, collectors),), accept)
        else:
            others = await pages_of_others(worker, request.headers)
            body, kind = await metrics.page((Up(worker, others), OfWorker(worker.number, collectors)), accept)
            body = merged((body, *others.values()))
        return Response(body, headers={"content-type": kind, "cache-control": "no-store"})

    api.add_route("/metrics", page, methods=["GET"])
