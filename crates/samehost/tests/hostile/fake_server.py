# A server that is none, for tests of logins: it speaks as much of a protocol as it takes to be sent a password, or never
# ends, and writes every byte that it is sent to a file. Usage: fake_server.py KIND LOG PLACE… (a port or a path).
import os
import socket
import ssl
import struct
import sys
import threading
import time

kind, log, places = sys.argv[1], sys.argv[2], sys.argv[3:]
NONCE = b"abcdefghijklmnopqrst"


def heard(connection):
    data = connection.recv(65536)
    if not data:
        raise OSError("gone")
    with open(log, "ab") as file:
        file.write(data)
    return data


def mysql(sequence, payload):
    return struct.pack("<I", len(payload))[:3] + bytes([sequence]) + payload


def greeting(plugin=b"mysql_native_password"):
    return mysql(0, b"\x0a8.0.36\0\x07\0\0\0" + NONCE[:8] + b"\0\xff\xff\x2d\x02\0\xff\xff\x15" + bytes(10)
                 + NONCE[8:] + b"\0" + plugin + b"\0")


def switch(sequence, plugin):
    return mysql(sequence & 255, b"\xfe" + plugin + b"\0" + NONCE + b"\0")


def postgres(tag, body):
    return tag + struct.pack(">I", len(body) + 4) + body


def mysql_clear(connection):
    connection.sendall(greeting())
    asked = heard(connection)
    sequence = 2
    if len(asked) == 36:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.environ["CERTIFICATE"], os.environ["KEY"])
        connection = context.wrap_socket(connection, server_side=True)
        heard(connection)
        sequence = 3
    connection.sendall(switch(sequence, b"mysql_clear_password"))
    heard(connection)
    connection.sendall(mysql(sequence + 2, b"\0\0\0\2\0\0\0"))
    heard(connection)


def mysql_switches(connection):
    connection.sendall(greeting())
    sequence = 2
    while True:
        heard(connection)
        connection.sendall(switch(sequence, b"mysql_native_password"))
        sequence += 2


def drips(connection):
    connection.sendall(b"\x00\xf0\x00\x00\x0a")
    while True:
        connection.sendall(b"8")
        time.sleep(0.05)


def postgres_clear(connection):
    heard(connection)
    connection.sendall(postgres(b"R", struct.pack(">I", 3)))
    heard(connection)
    connection.sendall(postgres(b"R", struct.pack(">I", 0)) + postgres(b"Z", b"I"))
    heard(connection)


def postgres_notices(connection):
    heard(connection)
    while True:
        connection.sendall(postgres(b"N", b"SNOTICE\0C00000\0Mwait\0\0"))


def postgres_parameters(connection):
    heard(connection)
    while True:
        connection.sendall(postgres(b"S", b"a\0" + b"b" * 1000 + b"\0"))


def postgres_rows(connection):
    heard(connection)
    connection.sendall(postgres(b"R", struct.pack(">I", 0)) + postgres(b"Z", b"I"))
    heard(connection)
    row = struct.pack(">HI", 1, 60000) + b"x" * 60000
    while True:
        connection.sendall(postgres(b"D", row))


def redis(answer):
    def speak(connection):
        while True:
            heard(connection)
            connection.sendall(answer)
    return speak


def mysql_repeats(connection):
    connection.sendall(greeting())
    heard(connection)
    words = b"Access denied for user 'app', who said " + os.environ["REPEATS"].encode()
    connection.sendall(mysql(2, b"\xff" + struct.pack("<H", 1045) + b"#28000" + words))


def redis_repeats(connection):
    """Works as far as a measurement needs it, and tells the password wherever it has a say."""
    said, store, data = os.environ["REPEATS"].encode(), {}, b""
    bulk = lambda text: b"$%d\r\n%s\r\n" % (len(text), text)
    while True:
        data += heard(connection)
        answers = b""
        while True:
            lines = data.split(b"\r\n")
            if not lines[0].startswith(b"*") or len(lines) < 2:
                break
            count, words, rest = int(lines[0][1:]), [], data.split(b"\r\n", 1)[1]
            for _ in range(count):
                head, found, rest = rest.partition(b"\r\n")
                length = int(head[1:]) if found else 0
                if not found or len(rest) < length + 2:
                    rest = None
                    break
                words.append(rest[:length])
                rest = rest[length + 2:]
            if rest is None:
                break
            data = rest
            name = words[0].upper()
            if name == b"SET":
                store[words[1]] = words[2]
                answers += b"+OK\r\n"
            elif name == b"GET":
                answers += bulk(store[words[1]]) if words[1] in store else b"$-1\r\n"
            elif name in (b"AUTH", b"SELECT", b"DEL", b"UNLINK", b"EXPIRE", b"PEXPIRE"):
                answers += b"+OK\r\n" if name in (b"AUTH", b"SELECT") else b":1\r\n"
            elif name == b"PING":
                answers += b"+PONG\r\n"
            elif name == b"INFO":
                answers += bulk(b"# Server\r\nredis_version:7.0-" + said + b"\r\nrun_id:" + said + b"\r\n")
            elif name == b"CLIENT":
                answers += bulk(b"id=1 addr=" + said + b":1 laddr=" + said + b":2 flags=N user=" + said + b"\n")
            elif name == b"DBSIZE":
                answers += b":0\r\n"
            else:
                answers += b"-ERR " + said + b" is no word for " + name + b"\r\n"
        connection.sendall(answers)


def redis_bulk(connection):
    heard(connection)
    connection.sendall(b"$400000000\r\n")
    while True:
        connection.sendall(b"x" * 65536)


def memcached_lines(connection):
    while True:
        heard(connection)
        connection.sendall(b"VERSION 1.6.0\r\n")
        heard(connection)
        while True:
            connection.sendall(b"STAT 1:addr x\r\n" * 100)


def silent(connection):
    while True:
        heard(connection)


def closes(connection):
    pass


def garbage(connection):
    connection.sendall(b"\x07\0\0\0\xee\xfe\x80no server of yours\r\n\r\n")
    while True:
        heard(connection)


KINDS = {
    "silent": silent,
    "closes": closes,
    "garbage": garbage,
    "mysql-clear": mysql_clear,
    "mysql-switches": mysql_switches,
    "drips": drips,
    "postgres-clear": postgres_clear,
    "postgres-notices": postgres_notices,
    "postgres-parameters": postgres_parameters,
    "postgres-rows": postgres_rows,
    "redis": redis(b"+OK\r\n"),
    "redis-refuses": redis(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
    "redis-bulk": redis_bulk,
    "mysql-repeats": mysql_repeats,
    "redis-repeats": redis_repeats,
    "memcached-lines": memcached_lines,
}


def serve(connection):
    try:
        KINDS[kind](connection)
    except OSError:
        pass
    connection.close()


def listen(place):
    if place.isdigit():
        listener = socket.create_server(("127.0.0.1", int(place)))
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(place)
        os.chmod(place, 0o666)
        listener.listen(16)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


for place in places:
    threading.Thread(target=listen, args=(place,), daemon=True).start()
while True:
    time.sleep(3600)
