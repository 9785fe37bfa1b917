//! What each code of a scan means, in general: `samehost explain CODE`. What was found on this machine, and the exact
//! setting of its service, is in the obstacles and findings of a scan; how loopback gets CUBIC is in `slow_congestion`.

use samehost_model::scan::Explanation;

/// The explanation of a code.
#[must_use]
pub fn explanation(code: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|one| one.code == code)
}

const fn explain(
    code: &'static str,
    is: &'static str,
    matters: &'static str,
    change: &'static str,
    undo: &'static str,
) -> Explanation {
    Explanation { code, is, more: "", matters, change, undo }
}

/// All codes: first what stands in the way of a pair, then what else is worth knowing.
pub const EXPLANATIONS: &[Explanation] = &[
    explain(
        "server",
        "The service listens on no Unix socket.",
        "Always: nobody can connect to a socket that is not there.",
        "Give the service its socket; `samehost how SERVICE` prints the setting, and `samehost switch` makes it.",
        "Remove the setting and restart the service, or `samehost switch --undo`.",
    ),
    Explanation {
        more: "Over TCP a client whose place is taken tries again after a second; at a Unix socket connect() blocks, or fails at once with EAGAIN where the client does not block, as in nginx, Node and Go.",
        ..explain(
            "backlog",
            "Connections wait in a queue, the backlog, until the service accepts them.",
            "Where more clients may connect at the same moment than the backlog holds: after a restart, or where each request has a connection of its own. Not for a few workers that stay connected.",
            "Raise the service's backlog to twice its clients, and net.core.somaxconn where that is less, which limits all of them; then restart the service.",
            "Remove the setting and restart the service. A larger backlog costs nothing while it is empty.",
        )
    },
    explain(
        "permissions",
        "The client's user may not write to the socket file, or not pass through a directory above it.",
        "Always: connect() fails with `Permission denied`.",
        "Put the client's user into the socket's group (usermod -aG GROUP USER) and restart the client: a running process keeps its groups.",
        "gpasswd -d USER GROUP, then restart the client.",
    ),
    Explanation {
        more: "samehost does not evaluate the policy.",
        ..explain(
            "confinement",
            "SELinux, AppArmor or systemd (RestrictAddressFamilies=) confine the client or the service.",
            "Where the policy does not allow this path: the connection fails although the file's mode allows it.",
            "Look in the audit log after a try (ausearch -m avc, journalctl -k | grep apparmor), and allow that path in the policy or unit.",
            "Remove the rule that you added, and load the policy again.",
        )
    },
    explain(
        "mount-namespace",
        "Client and service see different files: PrivateTmp=, a chroot or a container stands between them.",
        "Always, where the socket's path is not the same file for both.",
        "Put the socket below /run in a directory that both see, or share the directory (BindPaths= in the unit, a volume in a container).",
        "Take the shared directory out again, and restart both.",
    ),
    Explanation {
        more: "Some take `localhost` for the socket, others for TCP.",
        ..explain(
            "localhost",
            "Client libraries look for a socket at a path of their own when a configuration says `localhost`.",
            "Where the socket is not at that path, or the library takes `localhost` for TCP.",
            "Name the path in the client's setting; `samehost how SERVICE --client LANGUAGE` prints it.",
            "Put the former address back, or `samehost switch --undo`.",
        )
    },
    explain(
        "accounts",
        "A server may know the client by another name over a socket: MySQL has 'user'@'localhost' beside 'user'@'127.0.0.1', PostgreSQL has `local` lines in pg_hba.conf, where `peer` asks for the system's user.",
        "Where the account, its password or its rights differ: the login fails.",
        "Try it first: `samehost switch PATH --dry-run` logs in as the application and prints the statement or line that is missing.",
        "DROP USER of the account that you created, or remove the line of pg_hba.conf and reload.",
    ),
    explain(
        "container",
        "Client and service run in different containers, or one of them in none.",
        "Always: a container sees only its own files.",
        "Mount one directory with the socket into both: a volume in Compose, an emptyDir in a pod.",
        "Remove the volume from both, and start them again.",
    ),
    explain(
        "driver",
        "The client's driver connects to host and port only.",
        "Always, for this client.",
        "Start the client by `samehost run`, which connects it over the socket as it is.",
        "Start the client as before.",
    ),
    explain(
        "stale",
        "The socket file is there, and nobody listens on it: its server ended without removing it, or was replaced.",
        "Always: connect() fails with `Connection refused`.",
        "Restart the service, which makes the file anew.",
        "Nothing has to be undone.",
    ),
    explain(
        "another-socket",
        "The path leads to another socket than the service's: a second server, a mount, a private /tmp.",
        "Always: the client would talk to somebody else.",
        "Give each server a path of its own, and name the right one.",
        "Put the former path back.",
    ),
    Explanation {
        more: "A Unix socket has none.",
        ..explain(
            "client-address",
            "A proxy's service reads its client's address from the connection.",
            "Where the service logs, limits or trusts by address.",
            "Have the proxy pass the address in a header, and the service believe it.",
            "Remove both settings, and reload.",
        )
    },
    explain(
        "tls",
        "The connection is encrypted, or may be: both ends have a TLS library loaded.",
        "Where the client demands TLS (sslmode=require, REQUIRE SSL, rediss://): many servers have none on a socket. The traffic needs none there, for it does not leave the machine.",
        "Look whether it is encrypted (`samehost verify PID`), and take the demand out of the client's setting.",
        "Put the demand back.",
    ),
    Explanation {
        more: "A server can bind a longer one by a relative path; no client can reach it.",
        ..explain(
            "path-length",
            "A socket's address holds 107 bytes of path.",
            "Always.",
            "Choose a shorter path, below /run.",
            "Put the former path back.",
        )
    },
    explain(
        "file-system",
        "The directory is on a file system that carries no sockets, or not to all who have its files: 9p, virtiofs, drvfs, NFS, CIFS, FUSE.",
        "Always: the server cannot make the socket, or clients cannot reach it.",
        "Put the socket below /run, and mount that directory into containers.",
        "Put the former path back.",
    ),
    Explanation {
        more: "CUBIC, which most distributions have, does not pace.",
        ..explain(
            "bbr",
            "TCP connections inside this machine begin with BBR, which paces what it sends.",
            "For large transfers over loopback: they are slower. Small requests are the same.",
            "Give the local routes CUBIC; connections to other machines keep BBR. `samehost` without a verb measures what that brings here. It is for connections that are made from then on; programs keep theirs until they connect again.",
            "Put the routes back, and remove the unit where you made one.",
        )
    },
    explain(
        "full-queue",
        "More connections wait at a listener than its backlog says.",
        "Now: over TCP the next client waits a second and more, at a Unix socket it is refused.",
        "If the service hangs, look at it; if it is busy, give it more workers and a longer backlog.",
        "Remove the settings, and restart the service.",
    ),
    Explanation {
        more: "Seen with --observe, as root: where a connection is the third in the queue, the first is the one two before it, and how long ago that came is known. So the wait that is shown is the least that it was.",
        ..explain(
            "slow-accept",
            "New connections to a Unix socket wait in its queue for milliseconds before the service accepts them.",
            "Where each request has a connection of its own, as behind nginx and PHP-FPM: the wait is part of each. A client that does not block is refused when the queue is full.",
            "More workers (pm.max_children, workers, processes): a longer backlog does not make the wait shorter, it only keeps the next client from being refused.",
            "Remove the settings, and restart the service.",
        )
    },
    explain(
        "ports-run-out",
        "Half of the ports that this machine may use towards one destination are taken, most of them in TIME_WAIT.",
        "When all are taken: new connections fail with `Cannot assign requested address`.",
        "Keep connections open instead of making one for each request, or use a Unix socket: it has no ports.",
        "Put the former settings back.",
    ),
    explain(
        "datagrams-dropped",
        "A UDP socket of a service here has dropped datagrams since it began: its receive buffer was full.",
        "Where their contents matter: no sender was told.",
        "Give the receiver a larger buffer (net.core.rmem_max and its own setting), or a Unix datagram socket, where senders wait.",
        "sysctl back to the former value, and remove the setting.",
    ),
    explain(
        "datagrams-over-udp",
        "Programs send datagrams to a service on this machine over UDP.",
        "Where datagrams are dropped: at a Unix datagram socket a sender waits or is told.",
        "Give the service a Unix datagram socket, and the senders its path; `samehost how SERVICE` prints both.",
        "Put the former address back.",
    ),
    explain(
        "small-writes-wait",
        "Small pieces of a chatty connection wait for an acknowledgement, because the sender has not set TCP_NODELAY (Nagle's algorithm).",
        "Where one request is sent in several small writes: up to 40 ms each, more than a switch saves.",
        "Set TCP_NODELAY in the program or its driver, or use a Unix socket, which has no such wait.",
        "Take the option out again.",
    ),
    explain(
        "shared-files",
        "A socket file lies on a file system that other hosts, guests or mounts have too.",
        "Where somebody connects from there: they see the file, and are refused.",
        "Put the socket below /run.",
        "Put the former path back.",
    ),
    explain(
        "published-port",
        "A published port of a container: a program of the container's engine stands between client and service.",
        "It costs a second connection for each, and the service sees the engine's address.",
        "Mount the directory with the service's socket into both sides, and connect there.",
        "Remove the mount, and connect to the port again.",
    ),
    explain(
        "open-to-everybody",
        "Every local user may connect to a socket file of a service that asks for no login.",
        "Where others have accounts on this machine, or a program of theirs may be broken into.",
        "Set the socket's mode to 0660 and its group to one that the clients are in, or put it into a directory that only they may pass.",
        "Set the former mode.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_is_explained() {
        for code in samehost_model::scan::FINDING_CODES {
            assert!(explanation(code).is_some(), "{code}");
        }
    }

    #[test]
    fn codes_stand_once_and_each_is_whole() {
        for (index, one) in EXPLANATIONS.iter().enumerate() {
            assert!(EXPLANATIONS[..index].iter().all(|other| other.code != one.code), "{}", one.code);
            for text in [one.is, one.matters, one.change, one.undo] {
                assert!(text.ends_with('.'), "{}: {text}", one.code);
            }
        }
    }
}
