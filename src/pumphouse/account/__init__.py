"""SQS and SNS in memory, executing the same operations as AWS."""

from pumphouse.account.account import Account, Scope

__all__ = ["Account", "Scope"]
