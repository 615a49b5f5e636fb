"""A page on which people see what their agents said, did and cost: one store, nothing loaded from elsewhere.

`app.make_app` is the web application, `gate.Gate` decides who may ask it anything, `watching.Watching` looks for what
is new on behalf of every open page, `shown` turns what a store holds into what the page shows, `serving.serve` runs it.
"""
