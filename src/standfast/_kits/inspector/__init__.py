"""Web page of a store: the words, acts and costs of its agents, without anything loaded from elsewhere.

`app.make_app` is the web application, `access_control.Gate` checks every request, `changes.Watching` polls for news for
all open pages, `json_views` converts stored values for the page, `serving.serve` runs the server.
"""
