"""`txbroker spark compaction-check`: whether compaction kept what it must keep."""
