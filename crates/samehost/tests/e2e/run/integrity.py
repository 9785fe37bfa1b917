"""What becomes of bytes, ends and errors on a connection: both sides of one case at a time.

serve FOLDER              listens at a port and at a Unix socket, and plays the server of every case
client FOLDER CASE SIZE   plays the client, told 127.0.0.1 and the port; prints what both saw, as a line of JSON
    native                its last word: told the Unix socket instead
echo FOLDER PORT [SOCKET] a server to be killed; says over what each connection came

Both sides agree on steps over a Unix socket of their own, which is not mapped.
"""
import errno, json, mmap, os, random, resource, select, selectors, signal, socket, ssl, struct
import subprocess, sys, threading, time

BLOCK = 1 << 20
HEAD = 8
WAIT = 120
LINGER_0 = struct.pack('ii', 1, 0)


class Control:
    """Words between both sides, one a line."""

    def __init__(self, connection):
        self.file = connection.makefile('rw')

    def send(self, word):
        self.file.write(json.dumps(word) + '\n')
        self.file.flush()

    def receive(self):
        line = self.file.readline()
        if not line:
            raise SystemExit('the other side has gone')
        word = json.loads(line)
        if isinstance(word, dict) and 'failed' in word:
            raise SystemExit(f'the server: {word["failed"]}')
        return word


class Stream:
    """Bytes that both sides know: random ones, and the number of its block at the head of each."""

    def __init__(self, seed, length):
        self.block, self.length = bytearray(random.Random(seed).randbytes(BLOCK)), length

    def blocks(self):
        for number in range((self.length + BLOCK - 1) // BLOCK):
            self.block[:HEAD] = number.to_bytes(HEAD, 'big')
            yield memoryview(self.block)[:min(BLOCK, self.length - number * BLOCK)]

    def send(self, connection):
        for block in self.blocks():
            connection.sendall(block)

    def check(self, receive_into):
        """Compares all that comes, up to the length or the end; says how much came."""
        had, room = 0, bytearray(BLOCK)
        for block in self.blocks():
            length = 0
            while length < len(block):
                got = receive_into(memoryview(room)[length:len(block)])
                if got == 0:
                    break
                length += got
            assert room[:length] == block[:length], f'other bytes than were sent, in the block at {had}'
            had += length
            if length < len(block):
                break
        return had


def whole(stream, connection):
    had = stream.check(connection.recv_into)
    assert had == stream.length, f'{had} of {stream.length} bytes came'


def at_once(*actions):
    """Runs these in threads; what one raises is raised."""
    failed = []
    def guarded(action):
        try:
            action()
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def end_of(connection):
    """How many bytes come until there are no more, and how that shows."""
    had = 0
    try:
        while got := len(connection.recv(BLOCK)):
            had += got
        return f'{had} B, then the end'
    except OSError as error:
        return f'{had} B, then {errno.errorcode[error.errno]}'


def outcome(action):
    try:
        action()
        return 'done'
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


class Transfer:
    """Both directions at the same time."""

    def server(accept, size, control):
        connection = accept()
        at_once(lambda: Stream('down', size).send(connection), lambda: whole(Stream('up', size), connection))

    def client(connect, size, control):
        connection, begun = connect(), time.monotonic()
        at_once(lambda: Stream('up', size).send(connection), lambda: whole(Stream('down', size), connection))
        rate = 2 * size / (time.monotonic() - begun) / 1e9
        return 'every byte each way as it was sent', f'{size:,} B each way, {rate:.1f} GB/s'


class HalfClose:
    """One side says that it is done, and reads on; then the same the other way."""

    def first(connection, size):
        Stream('first', size).send(connection)
        connection.shutdown(socket.SHUT_WR)
        whole(Stream('second', size), connection)
        assert connection.recv(1) == b''

    def second(connection, size):
        whole(Stream('first', size), connection)
        assert connection.recv(1) == b''
        Stream('second', size).send(connection)

    def server(accept, size, control):
        with accept() as connection:
            HalfClose.second(connection, size)
        with accept() as connection:
            HalfClose.first(connection, size)

    def client(connect, size, control):
        with connect() as connection:
            HalfClose.first(connection, size)
        with connect() as connection:
            HalfClose.second(connection, size)
        return 'whole answers after the half-close, from either side', ''


class Reset:
    """Who closes: with SO_LINGER of 0 s; with bytes that it has not read. What the other reads, and its next send."""

    def close(connection, how, control):
        if how == 'linger':
            connection.sendall(bytes(10_000))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
        elif how == 'unread':
            while not select.select([connection], [], [], WAIT)[0]:
                pass
        connection.close()
        control.send('closed')

    def other(connection, how, control):
        if how == 'unread':
            connection.sendall(b'not to be read')
        control.receive()
        found = end_of(connection)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        return found + '; it sends: ' + outcome(lambda: connection.send(b'more'))

    def server(accept, size, control):
        for how in ('linger', 'unread'):
            control.send(Reset.other(accept(), how, control))
            Reset.close(accept(), how, control)

    def client(connect, size, control):
        found = []
        for how in ('linger', 'unread'):
            Reset.close(connect(), how, control)
            server = control.receive()
            client = Reset.other(connect(), how, control)
            found.append(f'{how}: {server}' + ('' if client == server else f' (client: {client})'))
        return '. '.join(found), ''


class Urgent:
    """ab, an urgent !, cd: to the server, then to the client, which asked for it in line before it connected."""

    def send(connection, control):
        connection.sendall(b'ab')
        done = outcome(lambda: connection.send(b'!', socket.MSG_OOB))
        connection.sendall(b'cd')
        control.send('sent')
        return done

    def receive(connection, control):
        control.receive()
        poll = select.poll()
        poll.register(connection, select.POLLPRI)
        has_priority = bool(poll.poll(100))
        apart = []
        aside = outcome(lambda: apart.append(connection.recv(1, socket.MSG_OOB)))
        connection.settimeout(0.2)
        parts = []
        try:
            while part := connection.recv(9):
                parts.append(part.decode())
        except TimeoutError:
            pass
        aside = apart[0].decode() if apart else aside
        return f'POLLPRI {"yes" if has_priority else "no"}, apart {aside}, in the stream {"|".join(parts)}'

    def server(accept, size, control):
        connection = accept()
        control.send(Urgent.receive(connection, control))
        control.receive()
        Urgent.send(connection, control)

    def client(connect, size, control):
        connection = connect(lambda new: new.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1))
        sent = Urgent.send(connection, control)
        server = control.receive()
        control.send('now')
        return f'{sent}: {server}; in line: {Urgent.receive(connection, control)}', ''


class Stopped:
    """A reader that stops; then it reads on."""

    def server(accept, size, control):
        connection = accept()
        control.receive()
        had = Stream('up', size).check(connection.recv_into)
        control.send(had)

    def fill(connection, stream):
        """Sends until nothing more is taken for half a second; says how much was."""
        connection.setblocking(False)
        sent = 0
        for block in stream.blocks():
            while block:
                if not select.select([], [connection], [], 0.5)[1]:
                    return sent
                taken = connection.send(block)
                block, sent = block[taken:], sent + taken
        return sent

    def client(connect, size, control):
        connection, memory = connect(), supervisors_memory()
        sent = Stopped.fill(connection, Stream('up', size))
        more = supervisors_memory() - memory
        connection.shutdown(socket.SHUT_WR)
        control.send('read')
        had = control.receive()
        assert sent < min(size, 64 << 20), f'{sent} bytes were taken, and nobody reads'
        assert had == sent, f'{had} of {sent} bytes came'
        assert more < 1024, f'the supervisor grew by {more} KiB'
        detail = f'{sent:,} B under way' + ('' if memory == 0 else f', the supervisor has {more} KiB more')
        return 'the sender waits; all comes when it is read', detail


def supervisors_memory():
    """VmRSS of `samehost run`, in KiB; 0 without."""
    status = open(f'/proc/{os.getppid()}/status').read()
    if not status.startswith('Name:\tsamehost'):
        return 0
    return int(status.split('VmRSS:')[1].split()[0])


class Splice:
    """A file by sendfile and by splice, both ways."""

    def write(name, stream):
        with open(name, 'wb') as file:
            for block in stream.blocks():
                file.write(block)

    def sendfile(connection, name):
        with open(name, 'rb') as file:
            at, length = 0, os.path.getsize(name)
            while at < length:
                at += os.sendfile(connection.fileno(), file.fileno(), at, length - at)

    def splice(source, target, length):
        reads, writes = os.pipe()
        while length > 0:
            taken = os.splice(source, writes, min(length, 1 << 16))
            assert taken > 0, 'the end came first'
            length -= taken
            while taken > 0:
                taken -= os.splice(reads, target, taken)
        os.close(reads)
        os.close(writes)

    def send(connection, size, name):
        Splice.write(name, Stream('file', size))
        Splice.sendfile(connection, name)
        with open(name, 'rb') as file:
            Splice.splice(file.fileno(), connection.fileno(), size)
        os.remove(name)

    def receive(connection, size, name):
        whole(Stream('file', size), connection)
        with open(name, 'wb') as file:
            Splice.splice(connection.fileno(), file.fileno(), size)
        with open(name, 'rb') as file:
            assert Stream('file', size).check(file.readinto) == size
        os.remove(name)

    def server(accept, size, control):
        connection = accept()
        Splice.receive(connection, size, 'had.server')
        Splice.send(connection, size, 'file.server')

    def client(connect, size, control):
        connection = connect()
        Splice.send(connection, size, 'file.client')
        Splice.receive(connection, size, 'had.client')
        return 'files as they were, by sendfile and by splice, both ways', ''


class Tls:
    def server(accept, size, control):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain('certificate.pem', 'key.pem')
        connection = context.wrap_socket(accept(), server_side=True)
        whole(Stream('up', size), connection)
        Stream('down', size).send(connection)
        connection.unwrap()

    def client(connect, size, control):
        context = ssl.create_default_context(cafile='certificate.pem')
        connection = context.wrap_socket(connect(), server_hostname='localhost')
        Stream('up', size).send(connection)
        whole(Stream('down', size), connection)
        version = connection.version()
        connection.unwrap()
        return f'{version}, every byte, and its end', ''


class Restart:
    """A server that is killed with a connection open, and started again."""

    def server(accept, size, control):
        child, command = None, [sys.executable, __file__, 'echo', '.', open('echo.port').read()]
        while (word := control.receive()) != 'done':
            if child:
                child.kill()
                child.wait()
                child = None
            if word != 'kill':
                more = ['echo.sock'] if word == 'start' else []
                child = subprocess.Popen(command + more, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                child.stdout.readline()
            control.send(word)
        child.kill()
        child.wait()

    def client(connect, size, control):
        port = int(open('echo.port').read())
        def step(word):
            control.send(word)
            control.receive()
        def over():
            connection = socket.create_connection(('127.0.0.1', port), WAIT)
            return connection, connection.recv(4).decode()
        step('start')
        (first, before) = over()
        step('kill')
        left = end_of(first)
        refused = outcome(over)
        step('start')
        after = over()[1]
        step('start without the Unix socket')
        alone = over()[1]
        control.send('done')
        return f'{before}; killed: {left}; meanwhile {refused}; again: {after}; port only: {alone}', ''


class Many:
    """Connections at the same time, of which each has bytes of its own."""

    COUNT, LENGTH = 2000, 10_000

    def server(accept, size, control):
        watched, left = selectors.DefaultSelector(), min(size, Many.COUNT)
        def take():
            for _ in range(left):
                connection = accept()
                connection.setblocking(False)
                watched.register(connection, selectors.EVENT_READ, bytearray())
        taker = threading.Thread(target=take)
        taker.start()
        while left:
            for key, events in watched.select(0.2):
                if events & selectors.EVENT_READ:
                    got = key.fileobj.recv(BLOCK)
                    if not got:
                        watched.unregister(key.fileobj)
                        key.fileobj.close()
                        left -= 1
                        continue
                    key.data.extend(got)
                if key.data:
                    try:
                        del key.data[:key.fileobj.send(key.data)]
                    except BlockingIOError:
                        pass
                watched.modify(key.fileobj, selectors.EVENT_READ | (selectors.EVENT_WRITE if key.data else 0), key.data)
        taker.join()

    def client(connect, size, control):
        count = min(size, Many.COUNT)
        connections = [connect() for _ in range(count)]
        streams = [(random.Random(number).randbytes(Many.LENGTH), one) for number, one in enumerate(connections)]
        for own, one in streams:
            one.sendall(own)
        for own, one in streams:
            had = b''
            while len(had) < len(own):
                had += one.recv(len(own)) or b'?' * len(own)
            assert had == own
        for one in connections:
            one.close()
        return 'each has its own bytes back', f'{count:,} at once'


class Killed:
    """A process of the program that is killed while it sends, and one that ends right after its last send."""

    def server(accept, size, control):
        for seed in ('killed', 'ended'):
            connection, stream = accept(), Stream(seed, size)
            had = stream.check(connection.recv_into)
            control.send([had, end_of(connection)])

    def child(connect, stream, taken):
        child = os.fork()
        if child == 0:
            connection, sent = connect(), 0
            for block in stream.blocks():
                connection.sendall(block)
                sent += len(block)
                taken[:HEAD] = sent.to_bytes(HEAD, 'big')
            os._exit(0)
        return child

    def client(connect, size, control):
        taken = mmap.mmap(-1, HEAD)
        child = Killed.child(connect, Stream('killed', size), taken)
        while int.from_bytes(taken[:HEAD], 'big') < size // 4:
            time.sleep(0.0001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sent = int.from_bytes(taken[:HEAD], 'big')
        had, end = control.receive()
        assert sent <= had, f'{had} of {sent} bytes came'
        os.waitpid(Killed.child(connect, Stream('ended', size), taken), 0)
        all_of_it, end_too = control.receive()
        assert all_of_it == size, f'{all_of_it} of {size} bytes came'
        ends = {end, end_too}
        return f'all that send took comes; {", ".join(sorted(ends))}', f'killed after {had:,} B'


class Unsupervised:
    """`samehost run` itself is killed while bytes go both ways."""

    server = Transfer.server

    def client(connect, size, control):
        connection = connect()
        assert supervisors_memory(), 'this case needs samehost run'
        def kill():
            time.sleep(0.01)
            os.kill(os.getppid(), signal.SIGKILL)
        up = lambda: Stream('up', size).send(connection)
        at_once(up, lambda: whole(Stream('down', size), connection), kill)
        new = outcome(lambda: connect(lambda new: None))
        return f'every byte; afterwards connect: {new}, getpeername: {outcome(connection.getpeername)}', ''


CASES = {case.__name__.lower(): case for case in (
    Transfer, HalfClose, Reset, Urgent, Stopped, Splice, Tls, Restart, Many, Killed, Unsupervised)}


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def serve():
    listeners = [socket.create_server(('127.0.0.1', 0), backlog=4096), socket.socket(socket.AF_UNIX)]
    listeners[1].bind('data.sock')
    listeners[1].listen(4096)
    control = socket.socket(socket.AF_UNIX)
    control.bind('control.sock')
    control.listen()
    command = 'openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost'
    command = command.split() + ['-addext', 'subjectAltName=DNS:localhost', '-keyout', 'key.pem', '-out', 'certificate.pem']
    subprocess.run(command, check=True, capture_output=True)
    open('echo.port', 'w').write(str(free_port()))
    open('port', 'w').write(str(listeners[0].getsockname()[1]))
    print('ready', flush=True)
    while True:
        client = control.accept()[0]
        words, over = Control(client), {'tcp': 0, 'unix': 0}
        def accept():
            ready = select.select(listeners, [], [], WAIT)[0][0]
            over['unix' if ready is listeners[1] else 'tcp'] += 1
            return ready.accept()[0]
        try:
            case, size = words.receive()
            CASES[case].server(accept, size, words)
            words.send({'over': over})
        except BaseException as error:
            tell(words, error)


def tell(words, error):
    """The client fails where it next expects a word."""
    try:
        words.send({'failed': repr(error)})
    except OSError:
        print(error, file=sys.stderr)


def client(name, size, is_native):
    # A case that hangs ends.
    signal.alarm(5 * WAIT)
    port, own = int(open('port').read()), socket.socket(socket.AF_UNIX)
    own.connect('control.sock')
    control = Control(own)
    control.send([name, size])
    def connect(prepare=None):
        new = socket.socket(socket.AF_UNIX if is_native else socket.AF_INET)
        if prepare:
            prepare(new)
        new.connect('data.sock' if is_native else ('127.0.0.1', port))
        return new
    says, detail = CASES[name].client(connect, size, control)
    over = ', '.join(f'{number} {kind}' for kind, number in control.receive()['over'].items() if number)
    print(json.dumps({'case': name, 'says': says, 'detail': detail, 'over': over}))


def echo(port, path=None):
    listeners = [socket.create_server(('127.0.0.1', port))]
    if path:
        if os.path.exists(path):
            os.remove(path)
        listeners.append(socket.socket(socket.AF_UNIX))
        listeners[1].bind(path)
        listeners[1].listen()
    print('ready', flush=True)
    kept = []
    while True:
        # Its input ends with whoever started it.
        for ready in select.select([sys.stdin] + listeners, [], [])[0]:
            if ready is sys.stdin:
                return
            kept.append(ready.accept()[0])
            kept[-1].sendall(b'unix' if ready is not listeners[0] else b'tcp')


os.chdir(sys.argv[2])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * Many.COUNT, most), most))
{'serve': serve, 'client': lambda: client(sys.argv[3], int(sys.argv[4]), sys.argv[5:] == ['native']), 'echo': lambda: echo(int(sys.argv[3]), *sys.argv[4:])}[sys.argv[1]]()
