"""A web service around one agent: any number of workers on one store, none of which matters.

    SERVICE_TOKEN=… uvicorn service.app:app --workers 3

`docs/how-to/run-a-service.md` explains each choice. `agent` is what you replace, `settings` what you set, `app` what
clients see, `gate` what is refused at once, `worker` what a process does with runs, `streams` what is shown of them,
`hooks` how people are asked, `errors` what a refusal looks like.
"""
