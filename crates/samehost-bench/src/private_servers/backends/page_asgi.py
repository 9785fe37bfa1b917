# The page that every backend serves: N letters at /bytes/N.
BODIES = {}


async def application(scope, receive, send):
    size = int(scope["path"].removeprefix("/bytes/"))
    body = BODIES.get(size)
    if body is None:
        body = BODIES[size] = bytes(97 + at % 23 for at in range(size))
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
