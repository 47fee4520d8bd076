"""SNS in memory: topics, subscriptions, and what becomes of a message that is published."""
