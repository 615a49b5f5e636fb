"""What is behind `SQLiteSession`: one engine per database file, and the operations it runs.

`engine` owns the threads and connections of a file; `writer` turns many queued requests into one durable commit;
`readers` answers questions beside it; `requests` is one request's life from caller to answer. `schema` and
`statements` know the tables. `history`, `generations`, `forks`, `leases`, `listing` and `runs` are plain functions of
an open transaction: they know no thread and no loop.
"""
