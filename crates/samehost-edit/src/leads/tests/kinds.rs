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

#[test]
fn a_url_is_the_programs_own_at_the_top_of_its_file_and_without_a_path() {
    each_leads(
        "a",
        &[
            ("url: http://localhost:2368", &[]),
            ("{\n  \"url\": \"http://localhost:2368/\",\n  \"database\": {}\n}", &[]),
            ("return [\n  'url' => 'http://localhost:8000',\n];", &[]),
            ("app:\n  url: http://localhost:8000\n", &[]),
            ("eap {\n  ocsp {\n    url = \"http://127.0.0.1/ocsp/\"\n  }\n}\n", &["3 127.0.0.1:80"]),
            ("datasources:\n  - name: Metrics\n    url: http://localhost:9090\n", &["3 localhost:9090"]),
            ("{\"search\": {\"url\": \"http://localhost:7700\"}}", &["1 localhost:7700"]),
            ("[search]\nurl = http://localhost:7700\n", &["2 localhost:7700"]),
            ("my $URL = $ENV{'url'} || \"http://localhost/nginx_status\";", &["1 localhost:80"]),
        ],
    );
}

#[test]
fn the_second_choice_counts_and_what_is_made_of_it() {
    each_leads(
        "a",
        &[
            (
                "my $PORT = exists $ENV{'port'} ? $ENV{'port'} : 8080;\nmy $HOST = exists $ENV{'host'} ? $ENV{'host'} : \"127.0.0.1\";",
                &["2 127.0.0.1:8080"],
            ),
            (
                "const h = process.env.H ? process.env.H : '127.0.0.1';\nconnect({ host: h, url: `redis://${h}:6395` });",
                &["2 127.0.0.1:6395"],
            ),
            (
                "my $URL = exists $ENV{url} ? $ENV{url} : \"http://localhost:81/s\";\nget($URL);",
                &["1 localhost:81", "2 localhost:81"],
            ),
            // What a person reads, a part of an answer, the answer of a call, and a variable of the environment with the name of another.
            ("my $s = $ENV{s} || \"localhost:81\";\nprint \"none at $s\";", &["1 localhost:81"]),
            ("$r = get(\"localhost:81\");\nif ($r->content) { keep($r); }", &["1 localhost:81"]),
            ("$host = 'localhost:81';\n$other = getenv('host');", &["1 localhost:81"]),
            ("my $H = exists $ENV{'host'} ? $ENV{'host'} : \"10.0.0.7:81\";", &[]),
        ],
    );
}

#[test]
fn a_default_of_a_schema_is_of_the_name_above_it() {
    each_leads(
        "a",
        &[
            (
                "class A {\n  const DBserver = [\n    'default' => 'localhost',\n  ];\n}",
                &["3 localhost:3306", "3 localhost:5432"],
            ),
            (
                "{\"redis_host\": {\"type\": \"string\", \"default\": \"localhost\"}, \"redis_port\": {\"default\": 6390}}",
                &["1 localhost:6390", "1 localhost:6379"],
            ),
            ("redis_host:\n  type: string\n  default: localhost\n", &["3 localhost:6379"]),
            ("bind_address:\n  default: 127.0.0.1:80\n", &[]),
            ("name:\n  default: localhost\n", &[]),
            ("redis_host:\n  default: cache.example.org\n", &[]),
        ],
    );
}

#[test]
fn a_program_has_defaults_of_its_own_in_its_directory() {
    let redis = "redis:\n  host: localhost\n";
    each_leads(
        "/etc/icingadb/config.yml",
        &[(redis, &["2 localhost:6380"]), ("REDIS_HOST=::1\nREDIS_PORT=6379\n", &["1 ::1:6379"])],
    );
    each_leads("/etc/other/config.yml", &[(redis, &["2 localhost:6379"])]);
}

#[test]
fn options_in_the_default_of_a_variable_are_options() {
    each_leads(
        "a",
        &[
            ("MYSQLOPTS=\"${opts:---user=a --host=localhost}\"", &["1 localhost:3306"]),
            ("ARGS=\"--redis-host 127.0.0.1 --redis-port 6390\"", &["1 127.0.0.1:6390"]),
            ("ARGS=\"--user=a --host=db.example.org\"", &[]),
        ],
    );
    let (found, _) = leads_among("MYSQLOPTS=\"${opts:---user=a --host=localhost}\"", "", &|_| true);
    assert_eq!(found[0].unless, ["opts"]);
}

#[test]
fn where_a_program_listens_is_none_of_its_addresses() {
    each_leads(
        "a",
        &[
            (
                "# What port the REPL should listen on\nport = 8082\n\n# IP address to listen on\nhost = 127.0.0.1\n",
                &[],
            ),
            (
                "ExecStart=/usr/sbin/varnishd \\\n  -a :6081 \\\n  -T localhost:6082 \\\n  -b localhost:8080\n",
                &["4 localhost:8080"],
            ),
            ("$ redis-cli -h localhost -p 6390\n", &[]),
            // It may be a client's.
            ("# The port that the server listens on\nport = 6390\nhost = 127.0.0.1\n", &["3 127.0.0.1:6390"]),
            (
                "# The address that Redis is to listen on\nhost = 127.0.0.1\nport = 6390\n",
                &["2 127.0.0.1:6390"],
            ),
            ("# IP address to listen on\nhost = 127.0.0.1\nredis_host = 127.0.0.1\n", &["3 127.0.0.1:6379"]),
            ("# IP address to listen on\nredis_host = 127.0.0.1\n", &["2 127.0.0.1:6379"]),
            (
                "ExecStart=/usr/bin/gunicorn app\nExecStart=/usr/bin/app -b 127.0.0.1:8000\n",
                &["2 127.0.0.1:8000"],
            ),
            ("ExecStart=/usr/bin/app -a 127.0.0.1:8000\n", &["1 127.0.0.1:8000"]),
        ],
    );
    each_leads("varnish", &[("DAEMON_OPTS=\"-a :6081 \\\n  -T localhost:6082 \\\n -f /x\"\n", &[])]);
}

#[test]
fn an_option_is_named_as_it_is_written() {
    let (found, _) =
        leads_among("redis-cli -h 127.0.0.1 -p 6390 ping\nredis-cli -p 6390 ping\n", "", &|_| true);
    let names: Vec<&str> = found.iter().map(|lead| lead.name.as_str()).collect();
    assert_eq!(names, ["-h", "-p"]);
}
