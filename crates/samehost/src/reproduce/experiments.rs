//! The registry of published experiments: an experiment is one entry, and its figures are data of the *published*
//! column, never results. What is run is a command line of `samehost bench`, which a reader can run alone.

use samehost_model::{Expected, Transport};

use super::published::{
    ANYWHERE, At, Claim, Find, Planned, Published, command, condition, connections, ratio, size, whole,
};
use crate::exit::WrongUse;

const ONE_PLAIN: At = condition(&[("backends", "1"), ("http", "1.0")]);
const ONE_KEPT: At = condition(&[("backends", "1"), ("http", "1.1")]);
const FOUR_PLAIN: At = condition(&[("backends", "4"), ("http", "1.0")]);
const FOUR_KEPT: At = condition(&[("backends", "4"), ("http", "1.1")]);
/// TCP 5 to 12 % faster.
const TCP_AHEAD: Expected = ratio(1.0 / 1.12, 1.0 / 1.05);
const TLS_THEN: &str = "MySQL 8 offers TLS over TCP and sysbench 1.0 takes it, but not over a Unix socket: the article may have compared encrypted with plain. Here TCP is plain.";
const PERCONA: &str = "Percona's blog, “Use Unix Domain Socket!”";
const GO: &str = "Eli Bendersky's blog, “Unix domain sockets in Go”";

/// Every experiment, in the order in which they are shown.
pub static EXPERIMENTS: &[Published] = &[
    Published {
        id: "W",
        title: "WordPress page load",
        source: "“Do Unix Domain Sockets boost WordPress performance?”",
        setup: "WordPress 5.0.3, PHP 7.2, MariaDB 10.2; one page of 54 queries, loaded 15 times",
        cores: None,
        measurements: &[Planned {
            label: "WordPress page",
            quick: command("bench wordpress", 22.0, 350.0),
            full: command("bench wordpress", 300.0, 2000.0),
        }],
        claims: &[
            Claim {
                text: "queries take less time",
                published: "0.75 ×",
                expected: ratio(0.745, 0.755),
                find: Find::Transports("query_ms", ANYWHERE),
            },
            Claim {
                text: "the page takes as long",
                published: "1 ×",
                expected: Expected::Same,
                find: Find::Transports("latency_mean", ANYWHERE),
            },
            Claim {
                text: "queries are 3–6 % of a page",
                published: "3–6 %",
                expected: Expected::Value { low: 2.5, high: 6.5 },
                find: Find::Share { part: "query_ms", whole: "latency_mean", transport: Transport::Tcp },
            },
        ],
        differs: &["That the times scatter less, too, was not tested."],
        explanations: &[
            "What queries are of a page depends on the theme, on plug-ins and on how much PHP there is to run.",
        ],
    },
    Published {
        id: "P1",
        title: "MySQL point select, closed loop",
        source: PERCONA,
        setup: "Percona Server 8.0.19, 28 cores; sysbench, prepared look-ups by primary key, 1 and 64 threads",
        cores: Some(28),
        measurements: &[Planned {
            label: "point select",
            quick: command("bench mysql --connections 1,64 --transports tcp,unix,tcp+tls", 22.0, 200.0),
            full: command("bench mysql --connections 1,64 --transports tcp,unix,tcp+tls", 240.0, 1000.0),
        }],
        claims: &[
            Claim {
                text: "1 thread: more queries/s",
                published: "1.54 ×",
                expected: ratio(1.0 / (1.0 - 0.345), 1.0 / (1.0 - 0.355)),
                find: Find::Transports("throughput", connections(1)),
            },
            Claim {
                text: "64 threads: more queries/s",
                published: "1.49 ×",
                expected: ratio(1.0 / (1.0 - 0.325), 1.0 / (1.0 - 0.335)),
                find: Find::Transports("throughput", connections(64)),
            },
        ],
        differs: &["MariaDB in place of Percona Server."],
        explanations: &[TLS_THEN],
    },
    Published {
        id: "P2",
        title: "MySQL dump",
        source: PERCONA,
        setup: "Percona Server 8.0.19, 28 cores; mysqldump of 10 million rows (about 2 GB) to /dev/null",
        cores: Some(28),
        measurements: &[Planned {
            label: "dump",
            quick: whole("bench mysql --statement dump", 24.0),
            full: whole("bench mysql --statement dump --rows 1000000", 300.0),
        }],
        claims: &[Claim {
            text: "a dump takes less time",
            published: "0.90 ×",
            expected: ratio(1.0 / 1.115, 1.0 / 1.105),
            find: Find::Transports("wall_time", ANYWHERE),
        }],
        differs: &[
            "200,000 rows (--quick) or a million, read and checked by samehost; mysqldump, which formats every row, is not run.",
        ],
        explanations: &[TLS_THEN],
    },
    Published {
        id: "P3",
        title: "MySQL at 40 % of capacity",
        source: PERCONA,
        setup: "Percona Server 8.0.19, 28 cores; 100,000 queries/s, 40 % of what it did over TCP",
        cores: Some(28),
        measurements: &[Planned {
            label: "40 % of capacity",
            quick: command("bench mysql --connections 64 --rate 40%", 28.0, 200.0),
            full: command("bench mysql --connections 64 --rate 40%", 240.0, 1000.0),
        }],
        claims: &[
            Claim {
                text: "mean latency is lower",
                published: "0.65 ×",
                expected: ratio(1.0 / 1.545, 1.0 / 1.535),
                find: Find::Transports("latency_mean", ANYWHERE),
            },
            Claim {
                text: "p99 is lower",
                published: "0.67 ×",
                expected: ratio(1.0 / 1.505, 1.0 / 1.495),
                find: Find::Transports("latency_p99", ANYWHERE),
            },
        ],
        differs: &[],
        explanations: &[TLS_THEN],
    },
    Published {
        id: "P4",
        title: "MySQL at 80 % of capacity",
        source: PERCONA,
        setup: "Percona Server 8.0.19, 28 cores; 200,000 queries/s, 80 % of what it did over TCP",
        cores: Some(28),
        measurements: &[Planned {
            label: "80 % of capacity",
            quick: command("bench mysql --connections 64 --rate 80%", 22.0, 200.0),
            full: command("bench mysql --connections 64 --rate 80%", 300.0, 2000.0),
        }],
        claims: &[
            Claim {
                text: "mean latency is lower",
                published: "0.27 ×",
                expected: ratio(1.0 / 3.75, 1.0 / 3.65),
                find: Find::Transports("latency_mean", ANYWHERE),
            },
            Claim {
                text: "p99 is lower",
                published: "0.085 ×",
                expected: ratio(1.0 / 12.0, 1.0 / 11.5),
                find: Find::Transports("latency_p99", ANYWHERE),
            },
        ],
        differs: &[],
        explanations: &[TLS_THEN],
    },
    Published {
        id: "D",
        title: "MySQL point select, 1 to 1024 users",
        source: "Dimitri Kravtchuk's blog, MySQL 8.0 GA: TCP/IP port against Unix socket",
        setup: "MySQL 8.0 on three servers of 44 to 96 cores; sysbench point selects, 1, 2, 4 … 1024 users",
        cores: Some(44),
        measurements: &[Planned {
            label: "1 to 1024 users",
            quick: command("bench mysql --connections 1,8,32,256", 28.0, 150.0),
            full: command("bench mysql --connections 1..1024", 900.0, 500.0),
        }],
        claims: &[
            Claim {
                text: "ahead at any number of users",
                published: "1–1.29 ×",
                expected: ratio(1.0, 1.295),
                find: Find::EveryPoint("throughput"),
            },
            Claim {
                text: "1 user: ahead, by up to 19 %",
                published: "1–1.19 ×",
                expected: ratio(1.0, 1.195),
                find: Find::Transports("throughput", connections(1)),
            },
            Claim {
                text: "32 users, on one server",
                published: "1.29 ×",
                expected: ratio(535.5 / 417.5, 536.5 / 416.5),
                find: Find::Transports("throughput", connections(32)),
            },
            Claim {
                text: "at the peak: ahead by 6–7 %",
                published: "1.06–1.07",
                expected: ratio(1.055, 1.075),
                find: Find::Peak("throughput"),
            },
        ],
        differs: &["MariaDB in place of MySQL 8.0; --quick takes four numbers of users."],
        explanations: &[TLS_THEN],
    },
    Published {
        id: "G1",
        title: "raw latency, ping-pong of 128 bytes",
        source: GO,
        setup: "two Go programs, 50,000 round trips: one way 3.6 µs over TCP, 2.3 µs over a Unix socket",
        cores: None,
        measurements: &[Planned {
            label: "ping-pong, 128 B",
            quick: command("bench raw --size 128", 9.0, 200.0),
            full: command("bench raw --size 128", 60.0, 500.0),
        }],
        claims: &[Claim {
            text: "a round trip takes less time",
            published: "0.64 ×",
            expected: ratio(2.25 / 3.65, 2.35 / 3.55),
            find: Find::Transports("latency_mean", ANYWHERE),
        }],
        differs: &["Client and server are native programs: no Go scheduler is in the way."],
        explanations: &[],
    },
    Published {
        id: "G2",
        title: "raw throughput, by size of a write",
        source: GO,
        setup: "one Go program writes, another reads; writes of up to 32 MB",
        cores: None,
        measurements: &[Planned {
            label: "bulk stream",
            quick: command("bench raw --pattern bulk --size 64,64k,512k,16m,32m", 26.0, 75.0),
            full: command("bench raw --pattern bulk --size 64,64k,512k,16m,32m", 300.0, 300.0),
        }],
        claims: &[
            Claim {
                text: "64 B: twice the packets/s",
                published: "> 2 ×",
                expected: Expected::AtLeast { ratio: 2.0 },
                find: Find::Transports("bandwidth", size(64)),
            },
            Claim {
                text: "64 KiB: TCP wins at times",
                published: "< 1 ×",
                expected: Expected::Below,
                find: Find::Transports("bandwidth", size(64 << 10)),
            },
            Claim {
                text: "512 KiB: more bytes/s",
                published: "1.06 ×",
                expected: ratio(9.5 / 9.45, 10.5 / 9.35),
                find: Find::Transports("bandwidth", size(512 << 10)),
            },
            Claim {
                text: "16 MiB: no difference",
                published: "1 ×",
                expected: Expected::Same,
                find: Find::Transports("bandwidth", size(16 << 20)),
            },
            Claim {
                text: "32 MiB: no difference",
                published: "1 ×",
                expected: Expected::Same,
                find: Find::Transports("bandwidth", size(32 << 20)),
            },
        ],
        differs: &[],
        explanations: &[
            "Large writes are copied by CPU and memory: caches and memory of this machine decide, not the sockets.",
        ],
    },
    Published {
        id: "G3",
        title: "servers over either socket",
        source: GO,
        setup: "an echo server and net/rpc over HTTP, in Go, over TCP and over a Unix socket",
        cores: None,
        measurements: &[
            Planned {
                label: "echo server",
                quick: command("bench raw --connections 8 --size 128", 5.0, 100.0),
                full: command("bench raw --connections 8 --size 128", 60.0, 500.0),
            },
            Planned {
                label: "net/rpc",
                quick: command("bench rpc --protocol go-gob --connections 8", 7.0, 100.0),
                full: command("bench rpc --protocol go-gob --connections 8", 60.0, 500.0),
            },
        ],
        claims: &[Claim {
            text: "works with another address",
            published: "works",
            expected: Expected::Works,
            find: Find::Works,
        }],
        differs: &[],
        explanations: &[],
    },
    Published {
        id: "N",
        title: "nginx in front of Thin",
        source: "Ecentryx, “TCP/IP Sockets Vs. Unix Domain Sockets”",
        setup: "nginx, 1 or 4 Thin backends, HTTP/1.0 or 1.1 with keep-alive; httperf, 1,000 sequential requests, 3 times",
        cores: None,
        measurements: &[Planned {
            label: "nginx to backends",
            quick: command("bench proxy --backends 1,4 --http 1.0,1.1", 36.0, 80.0),
            full: command("bench proxy --backends 1,4 --http 1.0,1.1 --connections 1,24", 900.0, 500.0),
        }],
        claims: &[
            Claim {
                text: "1 backend, 1.0: TCP faster",
                published: "0.89–0.95",
                expected: TCP_AHEAD,
                find: Find::Transports("throughput", ONE_PLAIN),
            },
            Claim {
                text: "1 backend, 1.1: TCP faster",
                published: "0.89–0.95",
                expected: TCP_AHEAD,
                find: Find::Transports("throughput", ONE_KEPT),
            },
            Claim {
                text: "4 backends, 1.0: TCP faster",
                published: "0.89–0.95",
                expected: TCP_AHEAD,
                find: Find::Transports("throughput", FOUR_PLAIN),
            },
            Claim {
                text: "4 backends, 1.1: TCP faster",
                published: "0.89–0.95",
                expected: TCP_AHEAD,
                find: Find::Transports("throughput", FOUR_KEPT),
            },
            Claim {
                text: "4 ÷ 1 backends: less",
                published: "< 1 ×",
                expected: Expected::Below,
                find: Find::Points("throughput", Transport::Tcp, [ONE_PLAIN, FOUR_PLAIN]),
            },
            Claim {
                text: "1.1 kept ÷ 1.0: more",
                published: "> 1 ×",
                expected: Expected::Above,
                find: Find::Points("throughput", Transport::Tcp, [ONE_PLAIN, ONE_KEPT]),
            },
            Claim {
                text: "the client was the limit",
                published: "~ 100 %",
                expected: Expected::ClientLimit,
                find: Find::Busy,
            },
        ],
        differs: &[
            "Requests come from samehost over a Unix socket, the same in every condition, and not from httperf.",
        ],
        explanations: &[
            "The article's client was at nearly 100 % of a CPU and the server below 20 %: it may have measured its client, as its author says.",
        ],
    },
];

/// The experiments of these ids, in the registry's order; all of them for none.
///
/// # Errors
/// When an id is unknown; it names those that are known.
pub fn chosen(ids: &[String]) -> Result<Vec<&'static Published>, WrongUse> {
    let known = |id: &String| EXPERIMENTS.iter().any(|one| one.id.eq_ignore_ascii_case(id));
    if let Some(unknown) = ids.iter().find(|id| !known(id)) {
        let all: Vec<&str> = EXPERIMENTS.iter().map(|one| one.id).collect();
        return Err(WrongUse(format!("no experiment is called `{unknown}`; known are {}", all.join(", "))));
    }
    let asked = |one: &&Published| ids.is_empty() || ids.iter().any(|id| one.id.eq_ignore_ascii_case(id));
    Ok(EXPERIMENTS.iter().filter(asked).collect())
}
