//! Kinds of values that stood in files of Debian's packages and were missed or named falsely, each with its counter-case.

use samehost_model::Endpoint;

use super::super::{LeadForm, address, leads_among};

/// All that a file of this name leads to over TCP on this machine, with a line for each; ports whose host is left out as `:6379`.
fn led(file: &str, text: &str) -> Vec<String> {
    let (found, _) = leads_among(text, file, &|_| true);
    let mut told = Vec::new();
    for lead in found {
        for endpoint in &lead.endpoints {
            if let Endpoint::Tcp { host, port } = endpoint
                && address::host(host).is_some()
            {
                let host = if lead.form == LeadForm::Port { "" } else { host };
                told.push(format!("{} {host}:{port}", lead.line));
            }
        }
    }
    told
}

#[track_caller]
fn each_leads(file: &str, cases: &[(&str, &[&str])]) {
    for (text, expected) in cases {
        assert_eq!(led(file, text), *expected, "{file}: {text}");
    }
}

#[test]
fn a_port_alone_is_this_machine_to_stunnel_and_to_monit() {
    each_leads(
        "stunnel.conf",
        &[
            ("[redis]\naccept = 127.0.0.1:6390\nconnect = 6379\n", &["3 localhost:6379"]),
            ("[redis]\naccept = 6390\nconnect = 127.0.0.1:6379\n", &["3 127.0.0.1:6379"]),
            ("[redis]\naccept = 6390\nconnect = cache.example.org:6379\n", &[]),
            // HAProxy's, and a number of milliseconds.
            ("defaults\n    timeout connect 5000\n    timeout server 5000\n", &[]),
            ("connect = 5000\n", &[]),
        ],
    );
    each_leads(
        "monitrc",
        &[
            (
                "check host r with address 127.0.0.1\n  if failed port 6379 protocol redis then alert\n",
                &["2 localhost:6379"],
            ),
            (
                "check process r with pidfile /run/r.pid\n  if failed port 6379 then restart\n",
                &["2 localhost:6379"],
            ),
            (
                "check process r with pidfile /run/r.pid\n  if failed\n    host 127.0.0.1\n    port 6379\n  then alert\n",
                &["3 127.0.0.1:6379"],
            ),
            // Of another machine; and over UDP.
            ("check host r with address 10.0.0.7\n  if failed port 6379 then alert\n", &["2 :6379"]),
            ("check process s\n  if failed host 127.0.0.1 port 161 type udp then restart\n", &[]),
        ],
    );
}

#[test]
fn a_file_with_the_name_of_a_service_speaks_of_it() {
    each_leads(
        "redis.conf",
        &[
            ("servers = \"127.0.0.1\";\n", &["1 127.0.0.1:6379"]),
            ("write_servers = \"localhost\";\n", &["1 localhost:6379"]),
            ("servers = \"127.0.0.1:6390\";\n", &["1 127.0.0.1:6390"]),
            ("servers = \"10.0.0.7\";\n", &[]),
            // Where the server itself is.
            ("bind 127.0.0.1 ::1\nreplica-announce-ip 127.0.0.1\n", &[]),
        ],
    );
    each_leads("worker.conf", &[("servers = \"127.0.0.1\";\n", &[])]);
}

#[test]
fn a_host_belongs_to_the_database_whose_driver_is_beside_it() {
    each_leads(
        "a",
        &[
            (
                "$DB['TYPE'] = 'MYSQL';\n$DB['SERVER'] = 'localhost';\n$DB['PORT'] = '0';\n",
                &["2 localhost:3306"],
            ),
            ("[dbi1]\ndb=\"ulog2\"\ndbtype=\"pgsql\"\nhost=\"localhost\"\n", &["4 localhost:5432"]),
            (
                "[mysql1]\nhost=\"localhost\"\n\n[pgsql1]\nhost=\"localhost\"\n",
                &["2 localhost:3306", "5 localhost:5432"],
            ),
            ("['DBI:mysql:database=presence;host=127.0.0.1', 'u', 'p']", &["1 127.0.0.1:3306"]),
            // In another paragraph, and of no database.
            ("server=\"localhost\"\n\ndbtype=\"postgresql\"\n", &[]),
            ("type: cache\nserver: localhost\n", &[]),
        ],
    );
}

#[test]
fn what_a_name_only_contains_says_nothing() {
    each_leads(
        "a",
        &[
            ("DBL_SPAM = \"127.0.1.2\";", &[]),
            ("DBL_BLOCKED = \"127.255.255.255\";", &[]),
            ("ZM_DB_HOST=localhost", &["1 localhost:3306", "1 localhost:5432"]),
            ("$dbserver = 'localhost';", &["1 localhost:3306", "1 localhost:5432"]),
            ("OCS_OPT_UNICODE_SUPPORT 1\nmemory-report: 1\n", &[]),
            ("usage: -t mysql server hostname, if unset localhost will be used", &[]),
        ],
    );
}

#[test]
fn what_is_compared_or_says_who_may_call_leads_nowhere() {
    each_leads(
        "a",
        &[
            ("if (!empty($dbport) || $dbserver != 'localhost') {", &[]),
            ("if ($dbserver == '') $dbserver = '127.0.0.1:3399';", &["1 127.0.0.1:3399"]),
            ("$SERVER[\"socket\"] == \"localhost:8080\" {", &[]),
            ("Require ip 127 ::1", &[]),
            ("Allow from 127.0.0.0/8 ::1", &[]),
            ("accept = 127.0.0.1:110", &[]),
            ("socket = 127.0.0.1:3031", &[]),
            ("Socket inet:8891@localhost", &[]),
            ("milter = inet:8891@localhost", &["1 localhost:8891"]),
        ],
    );
}

#[test]
fn comments_of_lua_and_of_perl_are_none_of_their_values() {
    each_leads(
        "a",
        &[
            ("-- what is stored\n--sql = { driver = \"MySQL\", host = \"localhost:3306\" }\n", &[]),
            (
                "=head1 CONFIGURATION\n\n  env.url http://localhost:8080/\n\n=cut\n\nmy $at = 'localhost:8081';\n",
                &["7 localhost:8081"],
            ),
            ("command: >\n  --redis-url 127.0.0.1:6390\n", &["2 127.0.0.1:6390"]),
            ("#!trydef DBURL \"mysql://u:p@localhost/k\"\n", &["1 localhost:3306"]),
            ("# define DBURL \"mysql://u:p@localhost/k\"\n#!/bin/sh\n", &[]),
        ],
    );
}

#[test]
fn urls_without_a_host_within_others_and_over_udp() {
    each_leads(
        "a",
        &[
            ("REDIS_URL=redis://", &["1 localhost:6379"]),
            ("r = Redis.from_url(\"redis://\")", &["1 localhost:6379"]),
            ("if url.startswith(\"redis://\"):", &[]),
            ("url = \"redis://\" + host", &[]),
            ("DATABASE_URL=postgres://", &[]),
            ("ServiceURL \"service:jmx:rmi:///jndi/rmi://localhost:17264/jmxrmi\"", &["1 localhost:17264"]),
            ("modparam(\"rtpproxy\", \"rtpproxy_sock\", \"udp:127.0.0.1:7722\")", &[]),
            ("log = udp://127.0.0.1:514", &[]),
        ],
    );
}

#[test]
fn numbers_are_read_as_programs_read_them() {
    each_leads(
        "a",
        &[
            ("A=redis://0x7f.1:6379", &["1 127.0.0.1:6379"]),
            ("A=0x7f000001:6379", &["1 127.0.0.1:6379"]),
            ("A=http://2130706433:8081/", &["1 127.0.0.1:8081"]),
            ("A=redis://0177.0.0.1:6379", &["1 127.0.0.1:6379"]),
            ("A=redis://0x0a.1:6379", &[]),
            ("c = Redis.new(host: \"127.0.0.1\", port: 6_380)", &["1 127.0.0.1:6380"]),
        ],
    );
}
