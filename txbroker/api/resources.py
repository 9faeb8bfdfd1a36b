"""The resources that a request touches, and what it does with them, as handlers declare it (Kafka's ACL model, KIP-11).

A handler has `resources(request, context)`, which returns its `Need`s. What is denied for the whole request raises the error of its kind of
resource; what is denied for an item of a list is answered in its place, by the handler's `failed`, and the handler gets the others only.
Handlers of lists, which leave out what a client may not see, ask `context.may` themselves (`in_place`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from txbroker.security.acl_model import CLUSTER_NAME, AclOperation, AclResource

__all__ = ["CLUSTER_NAME", "AclOperation", "AclResource"]


class Need(NamedTuple):
    """An operation on resources of one type.

    `names`: of the resources; None: nothing to check. Without `items` one that is denied refuses the request. `items`: the list of the
    request that the names belong to, one each, and `answers` the list of the response. `instead`: this operation on the cluster is enough.
    `anywhere`: or this operation on any resource of the type that comes with it (KIP-679).
    """

    operation: AclOperation
    resource: AclResource
    names: Sequence[str | None]
    items: str = ""
    answers: str = ""
    instead: AclOperation | None = None
    anywhere: tuple[AclOperation, AclResource] | None = None


Resources = Callable[[Any, Any], Sequence[Need]]
Rights = Sequence[tuple[AclOperation, AclResource]]


def rights_of(handler: Any) -> Rights:
    """The operations on types of resources that requests of a handler may need, for the documentation; none: every client may send them.

    A handler has them as `rights` if it asks for some itself, or its `resources` is not one of those below.
    """
    found: Rights = getattr(handler, "rights", ()) or getattr(handler.resources, "rights", ())
    return found


def refused_of(handler: Any) -> Sequence[AclResource]:
    """The types of resources whose errors denied requests of a handler have, for the documentation.

    Other rights of `rights_of` are enough instead of one of these, or something is left out without them. A handler has `refused` if that
    is so for some of its `rights`.
    """
    if hasattr(handler, "rights"):
        found: Sequence[AclResource] = getattr(handler, "refused", tuple(dict.fromkeys(resource for _, resource in handler.rights)))
        return found
    needed: Sequence[AclResource] = getattr(handler.resources, "refused", ())
    return needed


def in_place(request: object, context: object) -> Sequence[Need]:
    """The handler asks `context.may` for each object, or every client may send the request."""
    return ()


def declared(needs: Any, *rights: tuple[AclOperation, AclResource], are_all_needed: bool = False) -> Any:
    """`needs` as `resources` of a handler, with its rights: the one that is needed, and others that are enough instead."""
    needs.rights = rights
    needs.refused = tuple(resource for _, resource in (rights if are_all_needed else rights[:1]))
    return staticmethod(needs)


def on_cluster(operation: AclOperation, *, instead: AclOperation | None = None) -> Any:
    """The whole request needs an operation on the cluster."""
    needs = (Need(operation, AclResource.CLUSTER, (CLUSTER_NAME,), instead=instead),)
    rights = [(each, AclResource.CLUSTER) for each in (operation, instead) if each is not None]
    return declared(lambda request, context: needs, *rights)


def on_group(operation: AclOperation) -> Any:
    """The whole request needs an operation on its group."""
    return declared(
        lambda request, context: (Need(operation, AclResource.GROUP, (request.group_id,)),), (operation, AclResource.GROUP)
    )


def on_transactional_id(operation: AclOperation) -> Any:
    """The whole request needs an operation on its transactional id."""
    return declared(
        lambda request, context: (Need(operation, AclResource.TRANSACTIONAL_ID, (request.transactional_id,)),),
        (operation, AclResource.TRANSACTIONAL_ID),
    )


def on_each(
    operation: AclOperation, resource: AclResource, items: str, answers: str, field: str = "", *, instead: AclOperation | None = None
) -> Any:
    """Each item of a list needs an operation on the resource that it names; `field`: of the item, if it is not the name itself."""

    def needs(request: Any, context: object) -> Sequence[Need]:
        named = getattr(request, items)
        names = [getattr(item, field) for item in named] if field else named
        return (Need(operation, resource, names, items, answers, instead),)

    return declared(needs, (operation, resource), *([] if instead is None else [(instead, AclResource.CLUSTER)]))
