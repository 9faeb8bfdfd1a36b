"""Kafka's wire formats: messages, frames, record batches and codecs. Nothing here knows a socket, a clock or Twisted."""
