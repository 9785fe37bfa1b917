"""What Docker Compose itself makes of a file, by its own loader: images, variables and volumes of each service, and where
a database's client would connect: through a socket only where both services mount the same volume there."""
import os
import sys
from urllib.parse import parse_qs, unquote, urlsplit

from compose.config import config
from compose.config.environment import Environment

root, name = os.path.split(sys.argv[1])
loaded = config.load(config.find(root, [name], Environment()))
SOCKETS = ("/run/mysqld", "/var/run/mysqld", "/var/run/postgresql")
mounts = {
    service["name"]: {v.internal.rstrip("/"): v.external for v in service.get("volumes", []) if hasattr(v, "internal")}
    for service in loaded.services
}


def unix(client, path):
    """The socket, where another service shares its directory through a volume that the file declares."""
    directory = os.path.dirname(path)
    source = mounts[client].get(directory)
    declared = source in loaded.volumes or (source or "").startswith("/")
    others = [name for name in mounts if name != client and mounts[name].get(directory) == source]
    return f"unix:{path}" if source and declared and others else "broken"


def place(client, key, value, environment):
    """Where the client connects to; None where the variable is none that it connects by."""
    connection = environment.get("DB_CONNECTION")
    if key == "WORDPRESS_DB_HOST":
        host, _, rest = value.partition(":")
        return unix(client, rest) if rest.startswith("/") else f"tcp:{host}:{rest or 3306}"
    if key == "DB_HOST" and connection in ("mysql", "mariadb"):
        socket = environment.get("DB_SOCKET")
        return unix(client, socket) if socket else f"tcp:{value}:{environment.get('DB_PORT') or 3306}"
    if key == "database__connection__host":
        # mysql2 connects to socketPath where it is set, whatever the host (lib/base/connection.js).
        socket = environment.get("database__connection__socketPath")
        return unix(client, socket) if socket else f"tcp:{value}:{environment.get('database__connection__port') or 3306}"
    if key == "PGHOST" or (key == "DB_HOST" and connection == "pgsql"):
        port = environment.get("PGPORT" if key == "PGHOST" else "DB_PORT") or 5432
        return unix(client, f"{value}/.s.PGSQL.{port}") if value.startswith("/") else f"tcp:{value}:{port}"
    if key == "DATABASE_URL":
        url = urlsplit(value)
        if url.scheme in ("mysql2", "trilogy"):
            socket = parse_qs(url.query).get("socket")
            return unix(client, socket[0]) if socket else f"tcp:{url.hostname}:{url.port or 3306}"
        if url.scheme in ("postgres", "postgresql"):
            host = unquote(url.netloc.rpartition("@")[2].partition(":")[0])
            port = url.port or 5432
            return unix(client, f"{host}/.s.PGSQL.{port}") if host.startswith("/") else f"tcp:{host}:{port}"
    return None


for service in loaded.services:
    client, environment = service["name"], service.get("environment", {})
    for key, value in environment.items():
        endpoint = place(client, key, value, environment) if value else None
        if endpoint:
            print(f"{client} {key} endpoint={endpoint}")
            if key == "DATABASE_URL":
                url = urlsplit(value)
                print(f"{client} {key} {url.scheme} {url.username} {url.password} {url.path}")
        elif key not in ("DB_SOCKET", "database__connection__socketPath"):
            print(f"{client} {key}={value!r}")
    for volume in service.get("volumes", []):
        if getattr(volume, "internal", "") not in SOCKETS:
            print(f"{client} volume {volume if hasattr(volume, 'internal') else vars(volume)!r}")
    rest = {key: value for key, value in service.items() if key not in ("environment", "volumes", "name")}
    print(f"{client} {sorted(rest.items())!r}")
for name, volume in loaded.volumes.items():
    if not name.endswith("-socket"):
        print(f"volume {name} {volume!r}")
for name, network in loaded.networks.items():
    print(f"network {name} {network!r}")
