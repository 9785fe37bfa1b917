"""What Django makes of a settings file, and the libraries of that: one fact a line. The settings are imported as Django
does it; the words that each database's library would get come from Django's own backends."""
import os
import sys

import redis
from kombu import Connection
from kombu.transport.redis import Channel
from pymemcache.client.base import normalize_server_spec

path = sys.argv[1]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(path)))
sys.path.insert(0, os.path.dirname(path))
package = os.path.basename(os.path.dirname(path))
name = os.path.basename(path)[:-3]
in_package = os.path.exists(os.path.join(os.path.dirname(path), "__init__.py"))
os.environ["DJANGO_SETTINGS_MODULE"] = f"{package}.{name}" if in_package else name

from django.conf import settings  # noqa: E402
from django.db import DEFAULT_DB_ALIAS, ConnectionHandler  # noqa: E402,F401


def tcp(host, port):
    return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"


def place(words, mysql):
    host = words.get("host") or ("localhost" if mysql else "")
    if mysql and host == "localhost":
        return "unix:" + words.get("unix_socket", "default")
    if host.startswith("/"):
        return f"unix:{host}/.s.PGSQL.{words.get('port') or 5432}"
    return tcp(host, words.get("port") or (3306 if mysql else 5432)) if host else "default"


def celery(value):
    channel = object.__new__(Channel)
    channel.connection = type("Transport", (), {"client": Connection(value), "default_port": 6379})()
    channel._closed = True
    return channel._connparams()


def leads(words):
    return f"unix:{words['path']}" if "path" in words else tcp(words["host"], words.get("port", 6379))


for key in sorted(dir(settings)):
    if not key.isupper() or key in ("DATABASES", "CACHES"):
        continue
    value = getattr(settings, key)
    if key in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND", "BROKER_URL") and str(value).startswith("redis"):
        words = celery(value)
        print(f"{key} endpoint={leads(words)}")
        print(f"{key} db={words['db']} password={words['password']}")
    elif settings.is_overridden(key):
        print(f"{key}={value!r}")

for alias, config in settings.DATABASES.items():
    mysql = "mysql" in config.get("ENGINE", "")
    if mysql or "postg" in config.get("ENGINE", ""):
        config = dict(config)
        # GIS wants libraries that are not here; its words are those of the backend below.
        config["ENGINE"] = config["ENGINE"].replace("contrib.gis.db", "db").replace("postgis", "postgresql")
        words = ConnectionHandler({"default": config})["default"].get_connection_params()
        print(f"DATABASES {alias} endpoint={place(words, mysql)}")
        for key, word in words.items():
            if key not in ("host", "port", "unix_socket", "conv", "client_flag"):
                print(f"DATABASES {alias} {key}={word!r}")
    else:
        print(f"DATABASES {alias} {config!r}")

for alias, config in settings.CACHES.items():
    location = config.get("LOCATION", "")
    first = location[0] if isinstance(location, (list, tuple)) and location else location
    if "RedisCache" in config["BACKEND"] and first:
        words = redis.ConnectionPool.from_url(first).connection_kwargs
        print(f"CACHES {alias} endpoint={leads(words)}")
        print(f"CACHES {alias} db={words.get('db', 0)} password={words.get('password')} {config.get('OPTIONS')}")
    elif "Mem" in config["BACKEND"] or "PyLibMC" in config["BACKEND"]:
        if "Mem" in config["BACKEND"] and "locmem" not in config["BACKEND"]:
            server = normalize_server_spec(first)
            print(f"CACHES {alias} endpoint=" + (f"unix:{server}" if isinstance(server, str) else tcp(*server)))
        elif "PyLibMC" in config["BACKEND"]:
            # pylibmc takes a path for a socket, and Django strips unix: where it stands.
            print(f"CACHES {alias} endpoint=" + (f"unix:{first}" if first.startswith("/") else tcp(*first.split(":"))))
    print(f"CACHES {alias} {({k: v for k, v in config.items() if k != 'LOCATION'})!r}")
