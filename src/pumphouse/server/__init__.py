"""The served endpoint: any backend over HTTP, in the two protocols of SQS, for any AWS SDK."""
