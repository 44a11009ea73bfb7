"""HTTP: the OpenAI routes over an engine. Nothing is imported here: `service` is of use without a web server."""
