"""Responses that handlers return already encoded, because they are frequent.

Most handlers return a `Response`, which the connection encodes. That costs some 2 µs, a quarter of a small Produce or Fetch. Two kinds of
responses have a shorter way:

`Frame`             A whole frame: size, header and body, as bytes and file regions. Handlers of Produce and Fetch make it when a request
                    has succeeded, as nearly all requests of a busy broker do. The frames of one version differ in a few fields only
                    (correlation id, topics, partitions, offsets), so they are filled in, not encoded:

                        wire/topic_lists.py     a template of one version, made from what the encoder returns for a response with marks
                        api/produce_response.py Produce: correlation id, topics, partitions, offsets, append times
                        api/fetch_response.py   Fetch: correlation id, session id, topics, partitions, offsets, records

                    There is one template per version, not one per partition, so nothing has to be evicted. A response that does not fit
                    (errors, aborted transactions, versions without these fields) is encoded as usual.

`CachedResponse`    A body that many clients receive unchanged: Metadata while the cluster image stays the same. It is encoded once, when
                    the first connection needs it; connections put their own header before it. `ResponseCache` bounds the memory.
"""
