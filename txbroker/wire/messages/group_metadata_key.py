"""GroupMetadataKey: versions 2. A record of `__consumer_offsets`."""

from __future__ import annotations

from txbroker.wire.schema import Data, String


class GroupMetadataKey(Data, versions="2"):
    group: String
