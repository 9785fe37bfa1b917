"""Stands in for the program `ip2unix` in that project's own tests, with `samehost run` in its place: as far as they are about
connecting.

ip2unix -r RULE… PROGRAM…, ip2unix -F JSON PROGRAM…

A rule becomes a `--map`. Addresses in the program that are not of the loopback become such, because `samehost run` maps no others.
Who listens stays with TCP; a relay from the rule's socket leads to it, because seccomp is for who connects. The
environment says what to start: SAMEHOST, and SAMEHOST_LOG for its log. Without a log it is `samehost run --preload`, and a rule for who
listens becomes a `--listen`.
"""
import json, os, re, socket, subprocess, sys, threading

V4 = re.compile(r'\b(?!127\.)\d{1,3}(?:\.\d{1,3}){3}\b')
V6 = re.compile(r"(?<=')[0-9a-f]+::[0-9a-f]+(?=')")
CONNECTS = re.compile(r"\.connect(?:_ex)?\(\('([^']+)', (\d+)\)\)")
BINDS = re.compile(r"\.bind\(\('([^']+)', (\d+)\)\)")
CONNECTOR = re.compile(r'connector\.py\b')
NAMES = {'socketPath': 'path', 'direction': 'direction', 'abstract': 'abstract', 'ignore': 'ignore', 'port': 'port', 'address': 'addr'}


def rule_of(text):
    rule = {}
    for word in text.split(','):
        name, _, value = word.partition('=')
        rule.update({'direction': {'in': 'incoming', 'out': 'outgoing'}[name]} if name in ('in', 'out') else {name: value or True})
    return rule


def rules_and_program(words):
    rules = []
    while words[0] in ('-r', '-F'):
        if words[0] == '-r':
            rules.append(rule_of(words[1]))
        else:
            rules += [{NAMES[name]: value for name, value in rule.items()} for rule in json.loads(words[1])]
        words = words[2:]
    return rules, words


def here(text):
    """Addresses of the loopback for all others."""
    return V6.sub('::1', V4.sub('127.0.0.1', text))


def connector(words):
    """Address and port that the suite's own helper is told, and whether it listens there."""
    at = [number for number, word in enumerate(words) if word.endswith('connector.py')]
    if not at:
        return None
    plain = [word for word in words[at[0] + 1:] if re.fullmatch(r'\d+(\.\d+){3}', word)]
    return (plain[0], int(words[words.index(plain[0]) + 1])), '-l' in words


def endpoint(rule, address, port):
    name = rule.get('path') or rule.get('abstract')
    name = name.replace('%a', address).replace('%p', str(port)).replace('%t', 'tcp')
    return name if 'path' in rule else 'abstract:' + name


def listen(rule, address, port):
    at = endpoint(rule, address, port)
    # One of the suite's tests has made a plain file there, which samehost would refuse.
    if os.path.isfile(at):
        os.remove(at)
    return ['--listen', as_map(rule, address, port)]


def as_map(rule, address, port):
    to = here(f"'{address}'").strip("'")
    return f"{f'[{to}]' if ':' in to else to}:{port}={endpoint(rule, address, port)}"


def listener(at):
    unix = socket.socket(socket.AF_UNIX)
    if at.startswith('abstract:'):
        unix.bind('\0' + at.split(':')[1])
    else:
        if os.path.exists(at):
            os.remove(at)
        unix.bind(at)
    unix.listen(99)
    return unix


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def relay(unix, target):
    """What comes to the socket goes to the port, and back."""
    def pass_on(source, drain):
        try:
            while part := source.recv(65536):
                drain.sendall(part)
            drain.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve():
        while True:
            one = unix.accept()[0]
            other = socket.create_connection(target)
            for pair in ((one, other), (other, one)):
                threading.Thread(target=pass_on, args=pair, daemon=True).start()
    threading.Thread(target=serve, daemon=True).start()


def main():
    log = os.environ.get('SAMEHOST_LOG')
    way = ['--log', log] if log else ['--preload']
    rules, program = rules_and_program(sys.argv[1:])
    original, program = program, [here(word) for word in program]
    connects, binds = CONNECTS.findall(original[-1]), BINDS.findall(original[-1])
    maps, of = [], lambda direction: [rule for rule in rules if not rule.get('ignore') and rule.get('direction', direction) == direction]
    if helper := connector(original):
        (address, port), listens = helper
        if not listens:
            connects.append((address, port))
        for rule in of('incoming')[:1] if listens else []:
            if not log:
                maps += listen(rule, address, port)
                break
            # The suite does not wait for the end of a server before it starts the next at the same port.
            own = free_port()
            relay(listener(endpoint(rule, address, port)), ('127.0.0.1', own))
            program[program.index(here(address)) + 1] = str(own)
    for address, port in binds:
        for rule in of('incoming')[:1]:
            if not log:
                maps += listen(rule, address, port)
                continue
            relay(listener(endpoint(rule, address, port)), (here(f"'{address}'").strip("'"), int(port)))
    if not log and not binds and not CONNECTOR.search(' '.join(original)):
        # A program of its own, which is not Python's text.
        maps += [word for rule in of('incoming') if 'port' in rule for word in ('--listen', f"{rule['port']}={rule['path']}")]
    for address, port in connects:
        for rule in of('outgoing')[:1]:
            maps += ['--map', as_map(rule, address, port)]
    # A program that only listens has nothing to be mapped.
    run = [os.environ['SAMEHOST'], 'run', '--quiet', *way, *maps, '--'] if maps else []
    sys.exit(subprocess.run(run + program).returncode)


main()
