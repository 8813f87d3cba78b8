"""`lookback serve`: best-of-N behind OpenAI's HTTP API, and the explorer.

A request is checked (`schema`, `asking`), waits for its turn (`desk`), is worked on in a thread
(`work`), and becomes an answer (`answers`, `streams`). `app` has the routes, `guard` what holds for
all of them, `running` the start and the end.
"""
