"""`lookback serve`: best-of-N behind OpenAI's HTTP API, and the explorer.

`app` has the routes, `guard` what holds for all of them, `process` the start and the end. The body
of a request (`schema`) becomes options (`requests`); a job (`dispatch`) waits for its turn
(`scheduler`) and asks the engine in a thread; candidates become an answer (`responses`).
"""
