"""Records for clients that do not know batches of format v2 (Fetch v0-v3): the only place where a fetch looks into records."""

from __future__ import annotations

from txbroker.errors import BrokerError
from txbroker.log.region import Region
from txbroker.wire.conversion import from_v2
from txbroker.wire.messages.fetch import PartitionData

DOWN_CONVERTED_BYTES_MAX = 128 << 20  # what the records of one partition may decompress to while they are converted


def down_convert(data: PartitionData, magic: int, first_offset: int) -> bool:
    """Convert the records to message format `magic`, in place. False: they are replaced by an error."""
    if not isinstance(data.records, Region):
        return True
    try:
        data.records = from_v2(data.records.read(), magic, first_offset=first_offset, bytes_max=DOWN_CONVERTED_BYTES_MAX)
    except BrokerError as error:
        data.error_code = error.code
        data.records = b""
        return False
    return True
