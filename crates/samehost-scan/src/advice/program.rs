//! Groups connections by client program and service. Connections whose process is not visible join the program that they
//! are of, where only one fits: one pair is one piece of advice.

use std::collections::BTreeMap;

use samehost_model::scan::{Connection, Process, Scan, Socket};

use super::endpoint;

/// What tells one pair from another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) service: usize,
    /// Where it connects to.
    pub(super) now: String,
    pub(super) name: String,
    pub(super) uid: Option<u32>,
    pub(super) mount_namespace: Option<u64>,
    pub(super) network_namespace: u64,
}

/// Connections of a program, as positions in those of the scan.
pub(super) type Programs = BTreeMap<Program, Vec<usize>>;

/// All programs that talk to a service over TCP.
pub(super) fn programs(scan: &Scan) -> Programs {
    let (mut seen, mut made, mut closed) = (Programs::new(), Programs::new(), Programs::new());
    let tcp = scan.connections.iter().enumerate().filter(|(_, connection)| connection.kind.is_tcp());
    for (at, connection) in tcp {
        let Some(client) = scan.sockets.get(connection.client) else { continue };
        let holder = scan.holder(connection.client);
        let Some(program) = program(scan, connection, client, holder) else { continue };
        let group = match holder {
            Some(_) => &mut seen,
            // The maker of a socket that was closed is not known: the kernel says root.
            None if client.inode == 0 => &mut closed,
            None => &mut made,
        };
        group.entry(program).or_default().push(at);
    }
    for (unseen, by) in [(made, Made::By), (closed, Made::BySomebody)] {
        for (program, connections) in unseen {
            let unit = connections.first().and_then(|at| client(scan, *at)?.made_in.as_deref());
            let fitting: Vec<&Program> =
                seen.keys().filter(|known| by.fits(scan, &program, unit, known, &seen)).collect();
            let into = match fitting.as_slice() {
                [only] => Some(*only),
                several => several.iter().copied().find(|known| known.name == program.name),
            };
            let into = into.cloned().unwrap_or(program);
            seen.entry(into).or_default().extend(connections);
        }
    }
    seen
}

/// What is known of who made sockets that nobody holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    /// A user.
    By,
    /// Nothing.
    BySomebody,
}

impl Made {
    /// Whether the connections of `unseen` may be of the program `known`. `unit` is where they were made.
    fn fits(
        self,
        scan: &Scan,
        unseen: &Program,
        unit: Option<&str>,
        known: &Program,
        seen: &Programs,
    ) -> bool {
        let is_same_hop = (unseen.service, &unseen.now, unseen.network_namespace)
            == (known.service, &known.now, known.network_namespace);
        let is_same_user = self == Made::BySomebody || unseen.uid == known.uid;
        let first = seen.get(known).and_then(|connections| connections.first());
        let known_unit = first.and_then(|at| unit_of(scan, client(scan, *at)?));
        is_same_hop && is_same_user && (unit.is_none() || known_unit == unit)
    }
}

/// The unit of whoever holds a client's socket; where nobody does any more, the one in which it was made.
fn unit_of<'a>(scan: &'a Scan, client: &'a Socket) -> Option<&'a str> {
    match client.pids.first().and_then(|pid| scan.process(*pid)) {
        Some(process) => process.unit.as_deref(),
        None => client.made_in.as_deref(),
    }
}

fn client(scan: &Scan, connection: usize) -> Option<&Socket> {
    scan.sockets.get(scan.connections.get(connection)?.client)
}

fn program(
    scan: &Scan,
    connection: &Connection,
    client: &Socket,
    holder: Option<&Process>,
) -> Option<Program> {
    let server = scan.sockets.get(connection.server)?.local.inet()?;
    let name = match holder {
        Some(process) => process.name.clone(),
        None => client.made_in.clone().unwrap_or_else(|| "not visible".to_owned()),
    };
    Some(Program {
        service: connection.service?,
        now: endpoint(server),
        name,
        uid: holder.map(|process| process.uid).or(client.uid),
        mount_namespace: holder.and_then(|process| process.mount_namespace),
        network_namespace: client.network_namespace,
    })
}

#[cfg(test)]
mod tests {
    use samehost_model::scan::{Address, SocketKind, SocketState};

    use super::*;

    /// A connection to a service at port 80 from a process, or from a socket of a user that nobody holds.
    fn connect(scan: &mut Scan, holder: Option<u32>, (inode, uid): (u64, u32), made_in: Option<&str>) {
        let client = scan.sockets.len();
        scan.sockets.push(Socket {
            uid: Some(uid),
            made_in: made_in.map(str::to_owned),
            pids: holder.into_iter().collect(),
            ..Socket::new(SocketKind::Tcp, SocketState::Established, inode, 1)
        });
        scan.connections.push(Connection { kind: SocketKind::Tcp, client, server: 0, service: Some(0) });
    }

    fn scan() -> Scan {
        let local = Address::Inet("127.0.0.1:80".parse().unwrap());
        let server = Socket { local, ..Socket::new(SocketKind::Tcp, SocketState::Established, 1, 1) };
        let process = |pid, name: &str, uid, unit: &str| Process {
            pid,
            name: name.to_owned(),
            uid,
            unit: Some(unit.to_owned()),
            ..Process::default()
        };
        let processes =
            vec![process(10, "php", 33, "php.service"), process(11, "curl", 1000, "cron.service")];
        Scan { sockets: vec![server], processes, ..Scan::default() }
    }

    fn names(scan: &Scan) -> Vec<(String, usize)> {
        programs(scan).into_iter().map(|(program, all)| (program.name, all.len())).collect()
    }

    #[test]
    fn what_is_not_visible_joins_the_only_program_that_fits() {
        let mut scan = scan();
        connect(&mut scan, Some(10), (7, 33), None);
        connect(&mut scan, None, (8, 33), None);
        connect(&mut scan, None, (9, 33), Some("php.service"));
        connect(&mut scan, None, (0, 0), None);
        assert_eq!(names(&scan), [("php".to_owned(), 4)]);
        connect(&mut scan, None, (12, 65534), None);
        assert_eq!(names(&scan).len(), 2, "another user's");
    }

    #[test]
    fn what_fits_several_or_none_stays_on_its_own() {
        let mut scan = scan();
        connect(&mut scan, Some(10), (7, 33), None);
        connect(&mut scan, Some(11), (8, 1000), None);
        connect(&mut scan, None, (0, 0), None);
        connect(&mut scan, None, (9, 33), Some("shop.service"));
        let all = names(&scan);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(
            all.contains(&("shop.service".to_owned(), 1)) && all.contains(&("not visible".to_owned(), 1))
        );
        connect(&mut scan, None, (0, 0), Some("shop.service"));
        assert!(names(&scan).contains(&("shop.service".to_owned(), 2)));
    }
}
