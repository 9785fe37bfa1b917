//! What manual pages say beyond the command line's definition: examples, files, environment, related pages.

/// A variable of the environment, or a file.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Whether every page has it.
    pub(super) is_everywhere: bool,
}

/// What is added to one page.
#[derive(Default)]
pub(super) struct Extra {
    /// Names in [`ALL_VARIABLES`].
    pub(super) variables: &'static [&'static str],
    /// Names in [`ALL_FILES`].
    pub(super) files: &'static [&'static str],
    /// Command and explanation.
    pub(super) examples: &'static [(&'static str, &'static str)],
    /// Other pages, with their sections.
    pub(super) see: &'static [&'static str],
}

const STATE: &str = "~/.local/state/samehost";
const ROOTS_SWITCHES: &str = "/var/lib/samehost/switches";
const SWITCHES: &str = "~/.local/state/samehost/switches";
const PASSWORDS: &str = "MYSQL_PWD, PGPASSWORD, REDISCLI_AUTH";

pub(super) const ALL_VARIABLES: &[Entry] = &[
    Entry {
        name: "XDG_STATE_HOME",
        text: "Where results and switches are kept, in a directory `samehost`, in place of ~/.local/state.",
        is_everywhere: true,
    },
    Entry { name: "COLUMNS", text: "Width of the output, in place of the terminal's.", is_everywhere: true },
    Entry {
        name: "NO_COLOR",
        text: "No colours, when it is set to anything. TERM=dumb does the same.",
        is_everywhere: true,
    },
    Entry {
        name: PASSWORDS,
        text: "Passwords for servers that already run, where their URLs have none.",
        is_everywhere: false,
    },
    Entry {
        name: "PGUSER",
        text: "Database user, where neither the URL nor the configuration names one.",
        is_everywhere: false,
    },
    Entry {
        name: OTLP,
        text: "Where --otlp sends metrics without a URL of its own, and headers that are sent along.",
        is_everywhere: false,
    },
    Entry { name: RESOURCE, text: "What the metrics of --otlp are of.", is_everywhere: false },
    Entry {
        name: "XDG_RUNTIME_DIR, TMPDIR",
        text: "Where private servers have their directories.",
        is_everywhere: false,
    },
];

pub(super) const ALL_FILES: &[Entry] = &[
    Entry {
        name: STATE,
        text: "Trials of measurements, as they arrive; the newest 50 files are kept.",
        is_everywhere: false,
    },
    Entry {
        name: ROOTS_SWITCHES,
        text: "Root's switches: a journal each, and the files as they were, with the passwords in them.",
        is_everywhere: false,
    },
    Entry { name: SWITCHES, text: "The same of other users.", is_everywhere: false },
    Entry { name: "/var/lib/samehost/scans", text: "Root's history of scans.", is_everywhere: false },
    Entry {
        name: "/usr/lib/systemd/system/samehost-scan.timer",
        text: "Scans once a day. It comes with the packages, and is off until `systemctl enable --now samehost-scan.timer`.",
        is_everywhere: false,
    },
];

const OTLP: &str = "OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS";
const RESOURCE: &str = "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES";

const MEASURES: Extra = Extra {
    variables: &[PASSWORDS, "PGUSER", "XDG_RUNTIME_DIR, TMPDIR"],
    files: &[STATE],
    examples: &[],
    see: &["samehost-report(1)", "samehost-compare(1)", "samehost-history(1)"],
};

/// What is added to a page.
pub(super) fn extra(page: &str) -> Extra {
    match page.strip_prefix("samehost-").unwrap_or_default() {
        "" => Extra {
            files: &[STATE, ROOTS_SWITCHES, SWITCHES],
            examples: &[
                ("samehost", "What TCP on localhost costs on this machine, in under a minute."),
                ("samehost scan", "Who talks to whom here, and what could use a Unix socket."),
                ("samehost switch /srv/site --dry-run", "What moving a site to Unix sockets would change."),
            ],
            see: &["unix(7)", "tcp(7)", "ss(8)"],
            ..Extra::default()
        },
        "bench" => Extra { examples: BENCH, ..MEASURES },
        workload if workload.starts_with("bench-") => MEASURES,
        verb => of_verb(verb),
    }
}

const BENCH: &[(&str, &str)] = &[
    (
        "samehost bench raw --connections 1,64 --size 128",
        "The transports alone, with two numbers of connections.",
    ),
    ("samehost bench raw --rate 40%,80%", "Latency under load that does not wait for replies."),
    (
        "samehost bench command --arm tcp='sleep 0.02' --arm unix='sleep 0.01'",
        "Any two commands; the first is the baseline.",
    ),
];

fn of_verb(verb: &str) -> Extra {
    match verb {
        "checkup" => Extra {
            files: &[STATE],
            examples: &[(
                "samehost checkup --budget 2m --html checkup.html",
                "A longer one, as a page with charts.",
            )],
            see: &["samehost-bench(1)"],
            ..Extra::default()
        },
        "reproduce" => Extra {
            examples: &[("samehost reproduce --quick", "All published experiments in under six minutes.")],
            ..MEASURES
        },
        "scan" => SCAN,
        "explain" => Extra {
            examples: &[
                ("samehost explain", "All codes, with what each is."),
                (
                    "sudo samehost explain backlog",
                    "Who is affected here, and which setting of the service helps.",
                ),
            ],
            see: &["samehost-scan(1)", "samehost-how(1)"],
            ..Extra::default()
        },
        "top" => Extra {
            examples: &[("sudo samehost top --interval 2s", "All pairs, counted every two seconds.")],
            see: &["samehost-scan(1)", "ss(8)"],
            ..Extra::default()
        },
        "verify" => Extra {
            variables: &[PASSWORDS, "PGUSER"],
            examples: &[(
                "samehost verify /srv/site/wp-config.php --expect unix",
                "Exit status 1 unless the site reaches its database over a Unix socket.",
            )],
            see: &["samehost-switch(1)", "samehost-scan(1)"],
            ..Extra::default()
        },
        "how" => Extra {
            examples: &[
                ("samehost how mariadb --client php", "What a client in PHP has to say."),
                ("samehost how prisma", "Prisma, with each service that it uses."),
                (
                    "samehost how postgres --client prisma --compose",
                    "A Compose file: both in containers that share the socket.",
                ),
            ],
            see: &["samehost-switch(1)"],
            ..Extra::default()
        },
        "run" => RUN,
        "switch" => SWITCH,
        other => of_stored(other),
    }
}

const SCAN: Extra = Extra {
    variables: &[OTLP, RESOURCE],
    files: &["/var/lib/samehost/scans", "/usr/lib/systemd/system/samehost-scan.timer"],
    examples: &[
        ("sudo samehost scan", "Every process of the machine, as only root sees them."),
        ("sudo samehost scan mariadb", "One service, with its notes in full."),
        ("sudo samehost scan --observe 10s", "With the traffic, and what a switch would save."),
        (
            "sudo samehost scan --prometheus /var/lib/prometheus/node-exporter/samehost.prom",
            "Metrics for node_exporter's textfile collector.",
        ),
    ],
    see: &[
        "samehost-explain(1)",
        "samehost-top(1)",
        "samehost-how(1)",
        "samehost-switch(1)",
        "ss(8)",
        "lsof(8)",
    ],
};

const RUN: Extra = Extra {
    variables: &[],
    files: &[],
    examples: &[
        (
            "samehost run --map 3306=/run/mysqld/mysqld.sock -- java -jar shop.jar",
            "A program that knows host and port only, connected over the Unix socket.",
        ),
        (
            "samehost run --listen 8080=/run/site/site.sock -- node server.js",
            "A server that knows a port only, which listens at the Unix socket.",
        ),
        (
            "sudo samehost run --auto --dry-run",
            "What would be mapped here, and what the servers would see differently.",
        ),
    ],
    see: &["samehost-how(1)", "samehost-verify(1)", "unix(7)", "seccomp(2)", "ld.so(8)"],
};

const SWITCH: Extra = Extra {
    variables: &[PASSWORDS, "PGUSER"],
    files: &[ROOTS_SWITCHES, SWITCHES],
    examples: &[
        (
            "samehost switch /srv/site --dry-run",
            "What would change, and what is in the way; touches nothing.",
        ),
        ("sudo samehost switch /srv/site --page http://127.0.0.1/", "Asks, switches, and looks at the page."),
        ("sudo samehost switch --list", "What was switched, and where the backups are."),
        ("sudo samehost switch --undo 20261121-121332-b96c", "Puts a switch back."),
    ],
    see: &["samehost-how(1)", "samehost-verify(1)", "samehost-scan(1)"],
};

fn of_stored(verb: &str) -> Extra {
    match verb {
        "serve" => Extra {
            examples: &[(
                "samehost serve echo --listen tcp:127.0.0.1:0 --listen unix:echo.sock",
                "One server at a port and a socket.",
            )],
            see: &["samehost-bench(1)", "unix(7)"],
            ..Extra::default()
        },
        "report" => Extra {
            files: &[STATE],
            examples: &[("samehost report --html last.html", "The newest measurement as a page.")],
            see: &["samehost-bench(1)", "samehost-compare(1)"],
            ..Extra::default()
        },
        "compare" => Extra {
            examples: &[(
                "samehost compare old.json new.json --fail-on-slower",
                "Exit status 1 when anything became slower.",
            )],
            see: &["samehost-report(1)", "samehost-history(1)"],
            ..Extra::default()
        },
        "history" => Extra {
            files: &[STATE],
            examples: &[("samehost history --json -", "All stored results, for a program.")],
            see: &["samehost-report(1)", "samehost-compare(1)"],
            ..Extra::default()
        },
        "prune" => Extra {
            files: &[STATE, "/var/lib/samehost/scans"],
            examples: &[(
                "samehost prune --older-than 90d --dry-run",
                "What would be removed; switches never are.",
            )],
            see: &["samehost-history(1)", "samehost-scan(1)"],
            ..Extra::default()
        },
        "completions" => Extra {
            examples: &[(
                "samehost completions bash >~/.local/share/bash-completion/completions/samehost",
                "Completion in bash, from the next shell on; the packages bring it.",
            )],
            see: &["samehost-man(1)"],
            ..Extra::default()
        },
        "man" => Extra {
            examples: &[("samehost man ~/.local/share/man/man1", "The pages, where man(1) finds them.")],
            see: &["samehost-completions(1)", "man(1)"],
            ..Extra::default()
        },
        _ => Extra::default(),
    }
}
