"""What python-dotenv, django-environ, dj-database-url, Django, redis-py and kombu make of a .env file: one fact a line."""
import os
import runpy
import sys

import dj_database_url
import dotenv
import environ
import redis
from celery import Celery
from celery.app.backends import by_url
from django.conf import settings
from kombu import Connection
from kombu.transport.redis import Channel

settings.configure()
from django.db.backends.mysql.base import DatabaseWrapper as Mysql  # noqa: E402
from django.db.backends.postgresql.base import DatabaseWrapper as Postgres  # noqa: E402

DEFAULTS = {"TIME_ZONE": None, "OPTIONS": {}, "CONN_MAX_AGE": 0, "AUTOCOMMIT": True, "TEST": {}}


def tcp(host, port):
    return f"tcp:[{host}]:{port}" if ":" in host else f"tcp:{host}:{port}"


def database(name, config):
    """What Django hands to the database's library."""
    config = {**DEFAULTS, **config}
    if "mysql" in config["ENGINE"]:
        words = Mysql(config, "default").get_connection_params()
        if words.get("host", "localhost") == "localhost":
            place = "unix:" + words.get("unix_socket", "default")
        else:
            place = tcp(words["host"], words.get("port", 3306))
    else:
        words = Postgres(config, "default").get_connection_params()
        host, port = words["host"], words.get("port") or 5432
        place = f"unix:{host}/.s.PGSQL.{port}" if host.startswith("/") else tcp(host, port)
    print(f"{name} endpoint={place}")
    for key, word in words.items():
        if key not in ("host", "port", "unix_socket", "conv", "client_flag"):
            print(f"{name} {key}={word!r}")


def celery(name, value):
    """What Celery hands to redis-py, for its results and for its broker."""
    if name == "CELERY_RESULT_BACKEND":
        backend, url = by_url(value)
        words = backend(app=Celery(), url=url).connparams
        place = f"unix:{words['path']}" if "path" in words else tcp(words["host"], words["port"])
        print(f"{name} endpoint={place}")
        print(f"{name} db={words['db']} password={words['password']}")
        return
    client = Connection(value)
    channel = object.__new__(Channel)
    channel.connection = type("Transport", (), {"client": client, "default_port": 6379})()
    channel._closed = True
    words = channel._connparams()
    place = f"unix:{words['path']}" if "path" in words else tcp(words["host"], words["port"])
    print(f"{name} endpoint={place}")
    print(f"{name} db={words['db']} username={words['username']} password={words['password']}")


read = {"python-dotenv": dotenv.dotenv_values(sys.argv[1], encoding="utf-8")}
os.environ.clear()
environ.Env.read_env(sys.argv[1])
read["django-environ"] = dict(os.environ)
own = os.path.join(os.path.dirname(sys.argv[1]), "config/settings.py")
told = ()
if "DB_HOST" in os.environ and os.path.exists(own):
    told = ("DB_HOST", "DB_PORT")
    database("DB_HOST", runpy.run_path(own)["DATABASES"]["default"])
for library, values in read.items():
    for name, value in values.items():
        if value is None or name in told:
            continue
        scheme = value.split("://")[0] if "://" in value else ""
        if scheme in ("mysql", "postgres", "postgresql", "pgsql"):
            parse = dj_database_url.parse if library == "python-dotenv" else environ.Env.db_url_config
            database(name, parse(value))
        elif name.startswith("CELERY_") and scheme in ("redis", "redis+socket"):
            celery(name, value)
        elif scheme in ("redis", "unix"):
            words = redis.ConnectionPool.from_url(value).connection_kwargs
            place = f"unix:{words.pop('path')}" if "path" in words else tcp(words.pop("host"), words.pop("port", 6379))
            print(f"{name} endpoint={place}")
            words["db"] = words.get("db", 0)
            print(f"{name} {sorted(words.items())}")
        else:
            print(f"{library} {name}={value!r}")
