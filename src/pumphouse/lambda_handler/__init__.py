"""An app's handlers on AWS Lambda, behind an SQS event source mapping: `app.lambda_handler`."""

from __future__ import annotations

from pumphouse.lambda_handler.handler import BatchFailedError, LambdaHandler

__all__ = ["BatchFailedError", "LambdaHandler"]
