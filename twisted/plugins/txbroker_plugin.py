"""Registers `twistd txbroker`."""

from twisted.application.service import ServiceMaker

broker = ServiceMaker("txbroker", "txbroker.tap", "A broker that speaks Kafka's wire protocol.", "txbroker")
