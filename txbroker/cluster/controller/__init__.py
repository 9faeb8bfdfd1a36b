"""The controller: its election, leader elections, ISR changes, topic deletion and its requests to brokers."""
