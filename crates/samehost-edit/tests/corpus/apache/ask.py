"""Starts Apache with a configuration, asks it for every `HOST PATH` of the file `requests`, and prints what each request
came to: which backend it reached, all that the backend was sent, and what the client got. The backends are here: one at
each address that the configuration names or may name, each speaking HTTP, FastCGI, SCGI and uwsgi."""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

file, root = Path(sys.argv[1]), Path(sys.argv[2])
reached = []


def exactly(stream, length):
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def pairs(data):
    """The parameters of FastCGI."""
    at, found = 0, {}
    while at < len(data):
        lengths = []
        for _ in range(2):
            length = data[at]
            if length & 0x80:
                length = struct.unpack_from(">I", data, at)[0] & 0x7FFFFFFF
                at += 3
            at += 1
            lengths.append(length)
        name = data[at : at + lengths[0]].decode("latin1")
        at += lengths[0]
        found[name] = data[at : at + lengths[1]].decode("latin1")
        at += lengths[1]
    return found


def fastcgi(stream):
    parameters, keeps = b"", False
    while True:
        _, kind, number, length, padding, _ = struct.unpack(">BBHHBB", exactly(stream, 8))
        content = exactly(stream, length)
        exactly(stream, padding)
        if kind == 1:
            keeps = bool(content[2] & 1)
        if kind == 4:
            parameters += content
        if kind == 5 and not length:
            return pairs(parameters), number, keeps


def scgi(stream):
    length = b""
    while (byte := exactly(stream, 1)) != b":":
        length += byte
    words = exactly(stream, int(length)).decode("latin1").split("\0")
    return dict(zip(words[0::2], words[1::2]))


def uwsgi(stream):
    _, length, _ = struct.unpack("<BHB", exactly(stream, 4))
    data, at, found = exactly(stream, length), 0, []
    while at < length:
        size = struct.unpack_from("<H", data, at)[0]
        found.append(data[at + 2 : at + 2 + size].decode("latin1"))
        at += 2 + size
    return dict(zip(found[0::2], found[1::2]))


def http(stream):
    lines = []
    while (line := stream.readline().decode("latin1").rstrip("\r\n")) or not lines:
        if not line:
            raise EOFError
        lines.append(line)
    headers = {"request": lines[0]}
    for line in lines[1:]:
        name, value = line.split(":", 1)
        headers[name] = value.strip()
    return headers


def answer(connection, stream, endpoint):
    """Whether another request may follow."""
    first = stream.peek(1)[:1]
    number, keeps = None, False
    if first == b"\1":
        protocol, (sent, number, keeps) = "fastcgi", fastcgi(stream)
    elif first == b"\0":
        protocol, sent = "uwsgi", uwsgi(stream)
    elif first.isdigit():
        protocol, sent = "scgi", scgi(stream)
    elif first:
        protocol, sent = "http", http(stream)
    else:
        return False
    host = sent.get("Host") or sent.get("HTTP_HOST")
    head = [f"Location: http://{host}/back", "Set-Cookie: a=b; Path=/", "Content-Length: 0"]
    if protocol == "http" and "Upgrade" in sent and "WebSocket" in sent["Upgrade"]:
        head = ["Connection: Upgrade", "Upgrade: WebSocket"]
        text = "HTTP/1.1 101 Switching Protocols\r\n"
    else:
        text = "HTTP/1.1 302 Found\r\nConnection: close\r\n" if protocol in ("http", "uwsgi") else "Status: 302 Found\r\n"
    data = (text + "\r\n".join(head) + "\r\n\r\n").encode()
    reached.append((endpoint, protocol, sent))
    if number is not None:
        end = struct.pack(">BBHHBB", 1, 3, number, 8, 0, 0) + b"\0" * 8
        data = struct.pack(">BBHHBB", 1, 6, number, len(data), 0, 0) + data + end
    connection.sendall(data)
    return keeps


def serve(listener, endpoint):
    def one(connection):
        with connection, connection.makefile("rb") as stream:
            try:
                while answer(connection, stream, endpoint):
                    pass
            except (EOFError, OSError):
                pass

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=one, args=(connection,), daemon=True).start()


def listen(endpoint):
    kind, address = endpoint.split(":", 1)
    if kind == "unix":
        os.makedirs(os.path.dirname(address), exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        os.chmod(address, 0o666)
    else:
        host, port = address.rsplit(":", 1)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), int(port)))
    listener.listen(64)
    threading.Thread(target=serve, args=(listener, endpoint), daemon=True).start()


texts = {path: path.read_text("latin1") for path in root.rglob("*") if path.is_file()}
every = "\n".join(texts.values())
requests = [line.split(None, 2) for line in (root / "requests").read_text().splitlines() if line]
# Every port that a text has after a colon or for itself, and every socket that it may be about.
front = 80
for port in sorted({int(port) for port in re.findall(r"(?<![\d./])\d{4,5}\b", every)} - {front}):
    if 1000 < port < 65536:
        listen(f"tcp:127.0.0.1:{port}")
        listen(f"tcp:[::1]:{port}")
for path in sorted(set(re.findall(r"/run/[\w./@+-]+\.sock|/run/hhvm/sock", every))):
    listen(f"unix:{path}")

log = Path("/run/apache.log")
modules = """mpm_event authn_core authz_core authz_host authz_user auth_basic authn_file access_compat alias dir env
headers mime negotiation proxy proxy_fcgi proxy_http proxy_scgi proxy_uwsgi proxy_wstunnel slotmem_shm
lbmethod_byrequests proxy_balancer proxy_hcheck rewrite setenvif status macro expires deflate filter request cgid unique_id""".split()
wrapper = Path("/run/wrapper.conf")
listens = [] if re.search(r"(?im)^\s*Listen\s", every) else [f"Listen {front}"]
before = [f"LoadModule {module}_module /usr/lib/apache2/modules/mod_{module}.so" for module in modules]
# The file that Apache begins with: above the one asked about, or that one itself.
names = ["apache2.conf", "httpd.conf", "conf/httpd.conf"]
above = [folder / name for folder in file.parents if folder.is_relative_to(root) for name in names]
main = next((path for path in above if path.exists()), file)
server_root = main.parent.parent if main.parent.name == "conf" else main.parent
before += [f"ServerRoot {server_root}", "ServerName server.example", "DefaultRuntimeDir /run", *listens]
before += ["<Directory />", "Require all granted", "</Directory>"]
after = ["User nobody", "Group nogroup", "PidFile /run/apache.pid", "ScriptSock /run/cgid.sock", f"ErrorLog {log}", "TypesConfig /etc/mime.types"]
wrapper.write_text("\n".join([*before, f"Include {main}", *after]) + "\n")
command = ["apache2", "-X", "-f", str(wrapper)]
apache = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=open("/run/said", "w"))


def ask(host, path, extra):
    for _ in range(600):
        try:
            connection = socket.create_connection(("127.0.0.1", front), timeout=20)
            break
        except ConnectionRefusedError:
            if apache.poll() is not None:
                break
            time.sleep(0.02)
    else:
        apache.kill()
    if apache.poll() is not None:
        sys.exit(f"Apache does not run: {open('/run/said').read()}{log.read_text() if log.exists() else ''}")
    with connection:
        headers = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        if extra == "websocket":
            headers = headers.replace("close", "Upgrade") + "Upgrade: WebSocket\r\nSec-WebSocket-Key: a\r\n"
        connection.sendall((headers + "\r\n").encode())
        if extra == "websocket":
            return connection.recv(65536).decode("latin1")
        return connection.makefile("rb").read().decode("latin1")


for host, path, *extra in requests:
    name = " ".join([host, path, *extra])
    reached.clear()
    head, _, body = ask(host, path, *(extra or [""])).partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    print(f"{name}: {status}")
    for header in headers:
        # How the end of an answer is told depends on when the server behind closed its connection, and whether an ETag
        # is weak on the age of the file.
        passing = ("Date", "Server", "Connection", "Content-Length", "Transfer-Encoding", "ETag", "Last-Modified")
        if not header.startswith(passing):
            print(f"{name}: gets {header}")
    if " 302 " not in status and " 101 " not in status:
        print(f"{name}: body {' '.join(body.split())[:80]}")
    for endpoint, protocol, sent in reached:
        print(f"{name} endpoint={endpoint}")
        print(f"{name}: speaks {protocol}")
        for key, value in sent.items():
            # Ports of clients and names of requests are new each time; the rest is the test's own environment.
            if key not in ("REMOTE_PORT", "UNIQUE_ID", "PATH", "LD_LIBRARY_PATH"):
                print(f"{name}: sent {key}={value}")
sys.stdout.flush()
# Apache and all else here end with this process, the first one of its namespace.
os._exit(0)
