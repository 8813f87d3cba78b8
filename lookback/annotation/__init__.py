"""Cases for people to judge: a folder of them, the page that shows them, the server, the votes.

The folder has two files. `cases.json` is all that the page and the server read: questions, images,
two answers each. `key.json` says which scorer picked which answer, and how good each is by the
benchmark's own measure; `lookback study human` alone reads it.
"""
