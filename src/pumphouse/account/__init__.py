"""SQS and SNS in memory, executing the same operations as AWS."""

from pumphouse.account.account import Account, Scope
from pumphouse.account.ledger import Entry, Sent

__all__ = ["Account", "Entry", "Scope", "Sent"]
