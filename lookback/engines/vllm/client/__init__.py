"""The side of the caller: vLLM's asynchronous engine, its requests and their results."""
