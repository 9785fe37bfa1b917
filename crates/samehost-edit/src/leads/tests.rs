//! Leads by their spellings, and by what is around them: an address is found with its own port, or with none, and never with
//! another's.

mod kinds;

use proptest::prelude::*;
use samehost_model::Endpoint;

use super::{Lead, LeadForm, address, leads, leads_among};

/// Ways to write the address of a server: the host is 127.0.0.1 and its port @PORT. Each is a whole text.
const SPELLINGS: &[&str] = &[
    // HOST:PORT with anything before and behind
    "a = 127.0.0.1:@PORT",
    "smtpd_milters = inet:127.0.0.1:@PORT",
    "smtpd_milters = { inet:127.0.0.1:@PORT, default_action=tempfail }, unix:/run/x.sock",
    "virtual_transport = lmtp:inet:127.0.0.1:@PORT",
    "milter = inet:@PORT@127.0.0.1",
    "INPUT_MAIL_FILTER(`clamav', `S=inet:@PORT@127.0.0.1, F=, T=S:4m;R:4m')dnl",
    "a = tcp:127.0.0.1:@PORT",
    "cache: tcp:127.0.0.1:@PORT",
    "backend = \"[127.0.0.1]:@PORT\"",
    "a = [::1]:@PORT",
    "a = \"tcp6:[::1]:@PORT\"",
    "server=127.0.0.1#@PORT",
    "forward-addr: 127.0.0.1@@PORT",
    "exec 3<>/dev/tcp/127.0.0.1/@PORT",
    "write_servers = \"127.0.0.1:@PORT\";",
    "servers = [\"10.0.0.1:1\", \"127.0.0.1:@PORT\"]",
    "redis: 127.0.0.1:@PORT,abortConnect=false,defaultDatabase=5",
    "{ \"Redis\": \"127.0.0.1:@PORT,abortConnect=false\" }",
    "memcached_servers 127.0.0.1:@PORT:100",
    "upstream = *127.0.0.1:@PORT",
    "net.Dial(\"tcp\", \"127.0.0.1:@PORT\")",
    "server app1 127.0.0.1:@PORT check inter 2s",
    "proxy_pass http://127.0.0.1:@PORT/x/;",
    "ProxyPass \"/\" \"ajp://127.0.0.1:@PORT/\"",
    "broker_url = 'amqp://u:p@127.0.0.1:@PORT//'",
    "a = redis://10.0.0.1:1,127.0.0.1:@PORT",
    "DSN=u:p@tcp(127.0.0.1:@PORT)/a?parseTime=true",
    "DATA_SOURCE_NAME='u:p@(127.0.0.1:@PORT)/'",
    "url = jdbc:oracle:thin:@127.0.0.1:@PORT:xe",
    "url = jdbc:sqlserver://127.0.0.1:@PORT;databaseName=a",
    "url = jdbc:postgresql://127.0.0.1:@PORT/stats?ApplicationName=shop",
    "url = jdbc:mysql://address=(host=127.0.0.1)(port=@PORT)/a",
    "url = postgres://u:p@/a?host=127.0.0.1&port=@PORT",
    // strings of keys and values
    "dsn = \"DBI:mysql:database=a;host=127.0.0.1;port=@PORT\"",
    "['DBI:mysql:database=a;host=127.0.0.1;port=@PORT', 'u', 'p'],",
    "dsn = \"dbi:Pg:dbname=a;host=127.0.0.1;port=@PORT\"",
    "dsn = \"DBI:mysql:a:127.0.0.1:@PORT\"",
    "new PDO('mysql:host=127.0.0.1;port=@PORT;dbname=a', 'u', 'p');",
    "\"Default\": \"Server=127.0.0.1;Port=@PORT;Database=a;Uid=u;Pwd=p\"",
    "\"Default\": \"Host=127.0.0.1;Port=@PORT;Database=a\"",
    "\"Default\": \"Data Source=127.0.0.1,@PORT;Initial Catalog=a\"",
    "\"Default\": \"Server=tcp:127.0.0.1,@PORT;Database=a\"",
    "Server=127.0.0.1,@PORT",
    "connect = host=127.0.0.1 port=@PORT dbname=a user=u",
    "conn = \"host='127.0.0.1' port='@PORT' dbname=a\"",
    "conn = \"port=@PORT host=127.0.0.1 dbname=a\"",
    "conn = \"host=10.0.0.1,127.0.0.1 port=1,@PORT dbname=a\"",
    // tuples and calls
    "HOSTS = [(\"127.0.0.1\", @PORT)]",
    "HOSTS = [('127.0.0.1', '@PORT')]",
    "Servers = [{\"127.0.0.1\", @PORT}]",
    "$r->connect(\"127.0.0.1\", @PORT);",
    "red:connect(\"127.0.0.1\", @PORT)",
    "new InetSocketAddress(\"127.0.0.1\", @PORT)",
    "net.JoinHostPort(\"127.0.0.1\", \"@PORT\")",
    "fmt.Sprintf(\"%s:%d\", \"127.0.0.1\", @PORT)",
    "new Redis(@PORT, \"127.0.0.1\");",
    "replicaof 127.0.0.1 @PORT",
    // calls with their port behind user and database
    "new mysqli(\"127.0.0.1\", \"u\", \"p\", \"d\", @PORT);",
    "$db = mysqli_connect('127.0.0.1', 'u', 'p', 'd', @PORT);",
    "new Jedis(\"127.0.0.1\", @PORT)",
    "RedisURI.create(\"127.0.0.1\", @PORT)",
    "redis.createClient(@PORT, '127.0.0.1')",
    "r = Redis.new(:host => \"127.0.0.1\", :port => @PORT)",
    "&redis.Options{Addr: \"127.0.0.1:@PORT\", DB: 3}",
    "$config['redis_hosts'] = ['127.0.0.1:@PORT:3:secret'];",
    // other names of both
    "dataSource.serverName=127.0.0.1\ndataSource.portNumber=@PORT\n",
    "dataSource.portNumber=@PORT\ndataSource.serverName=127.0.0.1\n",
    "socket_address: { address: 127.0.0.1, port_value: @PORT }",
    "SocketAddress:\n  address: 127.0.0.1\n  port_value: @PORT\n",
    "CACHE_HOST=127.0.0.1\nSMTP_HOST=mail.example.com\nSMTP_PORT=587\nCACHE_PORT=@PORT\n",
    "DB_HOST=127.0.0.1\nREDIS_HOST=10.0.0.1\nREDIS_PORT=1\nDB_PORT=@PORT\n",
    "export DB_HOST=127.0.0.1 DB_PORT=@PORT",
    "ENV DB_HOST=127.0.0.1 DB_PORT=@PORT",
    "set $redis_host 127.0.0.1;\nset $redis_port @PORT;",
    "$db['hostname'] = '127.0.0.1';\n$db['port'] = @PORT;",
    "$cfg['Servers'][$i]['host'] = '127.0.0.1';\n$cfg['Servers'][$i]['port'] = '@PORT';",
    "'hostname' => '127.0.0.1',\n'hostport' => '@PORT',",
    "host     : '127.0.0.1',\nport     : @PORT,",
    "Host: \"127.0.0.1\", Port: @PORT,",
    "--db_host 127.0.0.1 --db_port @PORT",
    "db-url-host=127.0.0.1\ndb-url-port=@PORT",
    "tcp://127.0.0.1:@PORT?database=3&weight=1",
    "save_path = \"tcp://127.0.0.1:@PORT?auth=a\"",
    "connstr = addr=127.0.0.1:@PORT,pool_size=100,db=3,ssl=false",
    "connect = host=127.0.0.1 port=@PORT dbname=a user=b",
    "memcache = inet:127.0.0.1:@PORT",
    "dsn: mysql:host=127.0.0.1;dbname=a;port=@PORT",
    "url: ecto://u:p@127.0.0.1:@PORT/a",
    "r2dbc:postgresql://127.0.0.1:@PORT/a",
    "conn = \"user=a host=127.0.0.1 port=@PORT sslmode=disable\"",
    "{ \"Address\": \"127.0.0.1\", \"Port\": @PORT }",
    "server: { addr: '127.0.0.1', weight: 1, port: @PORT }",
    // maps
    "{\"redis\":{\"host\":\"127.0.0.1\",\"port\":@PORT,\"db\":3}}",
    "{\"redis\":{\"port\":@PORT,\"path\":\"/x\",\"host\":\"127.0.0.1\"}}",
    "A='{\"host\":\"127.0.0.1\",\"port\":@PORT}'",
    "A=\"{\\\"host\\\":\\\"127.0.0.1\\\",\\\"port\\\":@PORT}\"",
    "redis:\n  host: 127.0.0.1\n  db: 3\n  port: @PORT\n",
    "redis:\n  - host: 127.0.0.1\n    port: @PORT\n",
    "redis: { host: 127.0.0.1, port: @PORT }",
    "[redis]\nhost = \"127.0.0.1\"\nport = @PORT\n",
    "fastcgi.server = ( \".php\" => (( \"host\" => \"127.0.0.1\", \"port\" => @PORT )) )",
    "backend default {\n    .host = \"127.0.0.1\";\n    .port = \"@PORT\";\n}\n",
    "[{redis, [{host, \"127.0.0.1\"}, {port, @PORT}]}].",
    "config :app, Repo, [host: \"127.0.0.1\", port: @PORT]",
    "{:host \"127.0.0.1\" :port @PORT}",
    "r = Redis.new(host: \"127.0.0.1\", port: @PORT)",
    "r = redis.Redis(\n    host=\"127.0.0.1\",\n    db=3,\n    port=@PORT,\n)",
    "env:\n- name: DB_HOST\n  value: 127.0.0.1\n- name: DB_PORT\n  value: \"@PORT\"\n",
    "env:\n  DB_HOST: 127.0.0.1\n  DB_USER: u\n  DB_PORT: @PORT\n",
    "environment:\n  - DB_HOST=127.0.0.1\n  - DB_PORT=@PORT\n",
    "REDIS_HOST=127.0.0.1\nREDIS_DB=3\nREDIS_PORT=@PORT\n",
    "spring.redis.host=127.0.0.1\nspring.redis.port=@PORT\n",
    "gmysql-host=127.0.0.1\ngmysql-port=@PORT\n",
    "$CFG->session_redis_host = '127.0.0.1';\n$CFG->session_redis_port = @PORT;\n",
    "$database_hostname = '127.0.0.1';\n$database_port     = '@PORT';\n",
    "define('R_HOST', '127.0.0.1');\ndefine('R_PORT', @PORT);",
    "self.host = \"127.0.0.1\"\nself.port = @PORT",
    // options
    "redis-cli -h 127.0.0.1 -p @PORT ping",
    "mysql -h127.0.0.1 -P@PORT shop",
    "ARGS=\"-redis.addr redis://127.0.0.1:@PORT -web.listen-address 127.0.0.1:9\"",
    "ExecStart=/usr/bin/app --redis-host=127.0.0.1 --redis-port=@PORT",
    "command: [\"app\", \"--host\", \"127.0.0.1\", \"--port\", \"@PORT\"]",
    // defaults, also nested ones
    "URL=redis://${H:-127.0.0.1}:${P:-@PORT}/1",
    "URL=redis://${H:-${G:-127.0.0.1}}:${P:-${Q:-@PORT}}/1",
    "URL=redis://${U}:${W}@${H-127.0.0.1}:${P:=@PORT}/1",
    "url: jdbc:mysql://${SQL_HOST:127.0.0.1}:${SQL_PORT:@PORT}/a",
    "reverse_proxy {$UPSTREAM:127.0.0.1:@PORT}",
    "a: ${REDIS:redis://127.0.0.1:@PORT}",
    "{ host: process.env.SQL_HOST ?? '127.0.0.1', port: process.env.SQL_PORT ?? @PORT }",
    "{ host: process.env.SQL_HOST || '127.0.0.1', port: parseInt(process.env.SQL_PORT || '@PORT', 10) }",
    "{ host: process.env['SQL_HOST'] || '127.0.0.1', port: Number(process.env.SQL_PORT ?? @PORT) }",
    "const host = process.env.SQL_HOST ?? '127.0.0.1';\nconst port = process.env.SQL_PORT ?? @PORT;",
    "redis.Redis(host=os.environ.get(\"H\", \"127.0.0.1\"), port=int(os.environ.get(\"P\", @PORT)))",
    "redis.Redis(host=os.getenv(\"H\") or \"127.0.0.1\", port=int(os.getenv(\"P\", \"@PORT\")))",
    "'redis' => ['host' => env('H', '127.0.0.1'), 'port' => (int) env('P', @PORT)],",
    "Redis.new(host: ENV.fetch('H', '127.0.0.1'), port: ENV.fetch('P') { @PORT })",
    "let addr = env::var(\"A\").unwrap_or(\"127.0.0.1:@PORT\".into());",
    "let a = env::var(\"A\").unwrap_or_else(|_| \"redis://127.0.0.1:@PORT\".to_string());",
    "$h = $_ENV['H'] ?? '127.0.0.1:@PORT';",
];

/// The same in XML: a file is one document.
const OF_XML: &[&str] = &[
    "<add connectionString=\"Server=127.0.0.1; Port = @PORT; Database=a\"/>",
    "<add key=\"RedisHost\" value=\"127.0.0.1\"/>\n<add key=\"RedisPort\" value=\"@PORT\"/>",
    "<Resource url=\"jdbc:mysql://127.0.0.1:@PORT/a?autoReconnect=true\" username=\"u\"/>",
    "<entry key=\"host\">127.0.0.1</entry>\n<entry key=\"port\">@PORT</entry>",
    "<redis host=\"127.0.0.1\" port=\"@PORT\"/>",
    "<redis>\n  <host>127.0.0.1</host>\n  <port>@PORT</port>\n</redis>",
    "<bean>\n<property name=\"port\" value=\"@PORT\"/>\n<property name=\"host\" value=\"127.0.0.1\"/>\n</bean>",
];

/// Lines that have other hosts and ports, and belong to nobody beside them.
const SURROUNDINGS: &[&str] = &[
    "",
    "\n",
    "# a comment with port=5499\n",
    "[other]\nport = 5499\n",
    "[other]\nhost = 10.0.0.1\nport = 5499\n",
    "other:\n  port: 5499\n",
    "other:\n  host: 10.0.0.9\n  port: 5499\n",
    "DATABASES = {\"default\": {\"HOST\": \"10.0.0.1\", \"PORT\": \"5499\"}}\n",
    "{\"pg\":{\"port\":5499}}\n",
    "PGBOUNCER_PORT=5499\n",
    "postgres_port: 5499\n",
    "$pg = new Pg(['port' => 5499]);\n",
    "listen 5499;\n",
    "timeout = 30\n",
];

/// The leads of a text with the ports that stand alone in it.
fn leads_and_ports(text: &str) -> Vec<Lead> {
    leads_among(text, "", &|lead| lead.form != LeadForm::Usual).0
}

fn found(text: &str) -> Vec<Lead> {
    let mut found = leads_and_ports(text);
    found.retain(|lead| !matches!(lead.form, LeadForm::Path | LeadForm::MountedPath | LeadForm::Port));
    found
}

/// The ports of this machine to which the values of a text may lead, the surest of each.
fn ports(text: &str) -> Vec<(u32, u16)> {
    let mut ports = Vec::new();
    for Lead { line, endpoints, .. } in found(text) {
        if let Some(Endpoint::Tcp { host, port }) = endpoints.first()
            && address::host(host).is_some()
        {
            ports.push((line, *port));
        }
    }
    ports
}

#[test]
fn each_spelling_is_found_with_its_port() {
    let mut wrong = Vec::new();
    for spelling in SPELLINGS.iter().chain(OF_XML) {
        let text = spelling.replace("@PORT", "6395");
        let all = ports(&text);
        if all.iter().filter(|(_, port)| *port == 6395).count() != 1 {
            wrong.push(format!("{text}: {all:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SPELLINGS.len(), wrong.join("\n"));
}

proptest! {
    /// What is around a value changes neither that it is found nor its port, and lends it none.
    #[test]
    fn no_surroundings_lend_a_port(
        spelling in proptest::sample::select(SPELLINGS),
        before in proptest::collection::vec(proptest::sample::select(SURROUNDINGS), 0..4),
        behind in proptest::collection::vec(proptest::sample::select(SURROUNDINGS), 0..4),
        port in 1024..60000_u16,
    ) {
        prop_assume!(port != 5499);
        let text = format!("{}{}\n{}", before.concat(), spelling.replace("@PORT", &port.to_string()), behind.concat());
        let all = ports(&text);
        prop_assert!(all.iter().all(|(_, found)| *found != 5499), "{text}: {all:?}");
        // In a section that has a port already it may be either.
        let is_either = before.iter().any(|one| one.starts_with("[other]\nport"));
        let count = all.iter().filter(|(_, found)| *found == port).count();
        prop_assert!(count == 1 || (is_either && count == 0), "{text}: {all:?}");
    }

    /// Of two addresses in one text each keeps its own port, or has none.
    #[test]
    fn two_addresses_do_not_exchange_their_ports(
        one in proptest::sample::select(SPELLINGS),
        other in proptest::sample::select(SPELLINGS),
        between in proptest::sample::select(SURROUNDINGS),
    ) {
        let above = format!("{}\n{between}", one.replace("@PORT", "6395"));
        let lines = above.lines().count() as u32;
        let text = format!("{above}\n{}\n", other.replace("@PORT", "6396"));
        for (line, port) in ports(&text) {
            let own = if line <= lines { 6395 } else { 6396 };
            prop_assert!(port == own, "{line} {port}:\n{text}");
        }
    }
}

#[test]
fn a_host_without_a_port_leads_to_the_database_that_its_text_speaks_of() {
    let (mysql, postgres, either) = (["3306"].as_slice(), ["5432"].as_slice(), ["3306", "5432"].as_slice());
    for (text, expected) in [
        ("DB_HOST=127.0.0.1", either),
        ("DB_TYPE=postgres\nDB_HOST=127.0.0.1", postgres),
        ("DB_CONNECTION=pgsql\nDB_HOST=127.0.0.1\nOLD_URL=mysql://u@10.0.0.9/a", postgres),
        ("const { Pool } = require('pg');\nnew Pool({ host: process.env.DB_HOST || '127.0.0.1' })", postgres),
        ("database:\n  driver: mysql\n  db_host: 127.0.0.1", mysql),
        ("# PostgreSQL or MySQL\nDB_HOST=127.0.0.1", either),
        // Dovecot, Postfix, mysql2 of Node
        ("driver = mysql\nconnect = host=127.0.0.1 dbname=mail user=mail", mysql),
        ("driver = pgsql\nconnect = host=127.0.0.1 dbname=mail user=mail", postgres),
        ("user = mail\nhosts = 127.0.0.1\ndbname = mail\nquery = SELECT 1", either),
        ("mysql.createConnection({\n  host: '127.0.0.1',\n  user: 'me',\n  database: 'shop',\n})", mysql),
        ("[db]\ndatabase = shop\n[web]\nhost = 127.0.0.1", &[]),
        ("host = 127.0.0.1\nname = web", &[]),
    ] {
        let found: Vec<String> = leads(text)
            .iter()
            .flat_map(|lead| &lead.endpoints)
            .filter(|one| matches!(one, Endpoint::Tcp { host, .. } if host == "127.0.0.1"))
            .map(|one| one.to_string().rsplit(':').next().unwrap().to_owned())
            .collect();
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(
        reported("result_backend = \"db+postgresql://u:p@127.0.0.1/a\"", false),
        ["1 result_backend tcp:127.0.0.1:5432"]
    );
}

/// The leads of a text over TCP, or to sockets.
fn reported(text: &str, to_sockets: bool) -> Vec<String> {
    let mut reported = Vec::new();
    for Lead { line, name, endpoints, form, .. } in leads(text) {
        let places: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
        if matches!(form, LeadForm::Path | LeadForm::MountedPath) == to_sockets {
            reported.push(format!("{line} {name} {}", places.join("|")));
        }
    }
    reported
}

#[test]
fn a_host_with_its_port_is_found_in_every_form() {
    for (text, expected) in [
        ("DB_HOST=127.0.0.1:3399", "1 DB_HOST tcp:127.0.0.1:3399"),
        ("$config['db_dsnw'] = 'pgsql://stats:fe:rn@127.0.0.1:5499/stats';", "1 db_dsnw tcp:127.0.0.1:5499"),
        ("$config['redis_hosts'] = ['127.0.0.1:6390:0'];", "1 redis_hosts tcp:127.0.0.1:6390"),
        ("define( 'DB_HOST', 'localhost:3306' );", "1 DB_HOST tcp:localhost:3306"),
        ("dsn: \"mysql:host=127.0.0.1;port=3399;dbname=a\"", "1 dsn tcp:127.0.0.1:3399"),
        ("conn = \"host=localhost port=5499 dbname=a\"", "1 conn tcp:localhost:5499"),
        ("conn = \"host=localhost dbname=a\"", "1 conn tcp:localhost:5432"),
        ("DATABASE_URL=mysql://u:p@localhost/a", "1 DATABASE_URL tcp:localhost:3306"),
        ("DSN=u:p@tcp(127.0.0.1:3306)/a", "1 DSN tcp:127.0.0.1:3306"),
        ("  - DB_SERVER_HOST=127.0.0.1:1", "1 DB_SERVER_HOST tcp:127.0.0.1:1"),
        ("{ \"redis\": \"[::1]:6379\" }", "1 redis tcp:[::1]:6379"),
        ("ExecStart=/usr/bin/app --db 127.0.0.1:5432 --listen 127.0.0.1:80", "1 db tcp:127.0.0.1:5432"),
        ("set $backend 127.0.0.1:8000;", "1 backend tcp:127.0.0.1:8000"),
        ("REDIS_HOST=127.0.0.1", "1 REDIS_HOST tcp:127.0.0.1:6379"),
        ("DB_HOST=localhost", "1 DB_HOST tcp:localhost:3306|tcp:localhost:5432"),
        ("Environment=\"DB_ADDR=127.0.0.1:3399\" A=b", "1 DB_ADDR tcp:127.0.0.1:3399"),
        ("Environment=REDIS_HOST=127.0.0.1", "1 REDIS_HOST tcp:127.0.0.1:6379"),
        ("<redis-host>127.0.0.1</redis-host>", "1 redis-host tcp:127.0.0.1:6379"),
        ("$wgDBserver = \"127.0.0.1:3399\";", "1 wgDBserver tcp:127.0.0.1:3399"),
        ("{ \"host\": \"127.0.0.1\", \"port\": 6390 }", "1 host tcp:127.0.0.1:6390"),
        (
            "spring.datasource.url=jdbc:postgresql://localhost:5499/a",
            "1 spring.datasource.url tcp:localhost:5499",
        ),
    ] {
        assert_eq!(reported(text, false), [expected], "{text}");
    }
}

#[test]
fn the_name_of_a_value_is_never_a_value() {
    for (text, name) in [
        ("$c['redis_hosts'] = ['127.0.0.1:6390:3:hunter2', 'localhost:6391'];", "redis_hosts"),
        ("a = connect(\"u\", \"hunter2\", \"127.0.0.1:6391\")", "connect"),
        ("ini_set('session.save_path', 'tcp://127.0.0.1:6391')", "session.save_path"),
        ("define('DB_HOST', '127.0.0.1:6391');", "DB_HOST"),
    ] {
        let names: Vec<String> = found(text).into_iter().map(|lead| lead.name).collect();
        assert!(names.iter().all(|one| one == name), "{text}: {names:?}");
    }
}

#[test]
fn a_host_and_its_port_in_two_lines_belong_together() {
    let php = "'host' => '127.0.0.1',\n'password' => 'moss',\n'port' => 3399,\n";
    assert_eq!(reported(php, false), ["1 host tcp:127.0.0.1:3399"]);
    let compose = "  a:\n    environment:\n      DB_SERVER_HOST: 127.0.0.1\n      DB_SERVER_PORT: 3399\n  b:\n      DB_SERVER_HOST: 127.0.0.1\n      DB_SERVER_PORT: 3400\n";
    assert_eq!(
        reported(compose, false),
        ["3 DB_SERVER_HOST tcp:127.0.0.1:3399", "6 DB_SERVER_HOST tcp:127.0.0.1:3400"]
    );
    let manifest = "- name: DB_HOST\n  value: 127.0.0.1\n- name: DB_PORT\n  value: \"3399\"\n";
    assert_eq!(reported(manifest, false), ["2 DB_HOST tcp:127.0.0.1:3399"]);
    assert_eq!(reported("servers:\n  - 127.0.0.1:11211\n", false), ["2 servers tcp:127.0.0.1:11211"]);
    assert_eq!(
        reported("DB_HOST=127.0.0.1\nREDIS_PORT=6390\n", false),
        ["1 DB_HOST tcp:127.0.0.1:3306|tcp:127.0.0.1:5432"]
    );
}

#[test]
fn sockets_are_found_by_their_paths() {
    for (text, expected) in [
        ("DB_HOST=localhost;unix_socket=/run/m/m.sock", "1 DB_HOST unix:/run/m/m.sock"),
        ("REDIS_URL=unix:///run/r.sock?db=1", "1 REDIS_URL unix:/run/r.sock"),
        ("'host' => '/run/r.sock',", "1 host unix:/run/r.sock"),
        ("- /run/m.sock:/run/m.sock", "1  unix:/run/m.sock"),
        ("php_fastcgi unix//run/r.sock", "1 php_fastcgi unix:/run/r.sock"),
    ] {
        let all = reported(text, true);
        assert!(all.iter().any(|one| one == expected), "{text}: {all:?}");
    }
    assert_eq!(leads("      - /run/m.sock:/run/m.sock")[0].form, LeadForm::MountedPath);
}

#[test]
fn what_leads_nowhere_is_none() {
    for text in [
        "# DB_HOST=127.0.0.1:1",
        "/*\n 'host' => '127.0.0.1:1'\n*/",
        "APP_URL=http://localhost:8000",
        "listen 127.0.0.1:80;",
        "bind-address = 127.0.0.1",
        "trusted_proxies = 127.0.0.1",
        "'overwrite.cli.url' => 'http://localhost:80',",
        "return 301 http://localhost:8080/;",
        "<Proxy fcgi://127.0.0.1:9000>",
        "time = 10:30",
        "image: redis:7",
        "name: localhost",
        "CACHE=redis",
        "APP_PORT=8000",
        "url: http://localhost:2368",
        "A=b # 127.0.0.1:1",
        "",
    ] {
        let mut found = leads(text);
        found.retain(
            |lead| matches!(&lead.endpoints[0], Endpoint::Tcp { host, .. } if address::host(host).is_some()),
        );
        assert_eq!(found, [], "{text}");
    }
}

/// The leads of a text that leads to port 6395 of this machine, or has that port alone.
fn to_the_port(text: &str) -> Vec<Lead> {
    let is_it =
        |one: &Endpoint| matches!(one, Endpoint::Tcp { host, port: 6395 } if address::host(host).is_some());
    leads_among(text, "", &|lead| lead.endpoints.iter().any(is_it)).0
}

#[test]
fn a_new_form_of_an_address_is_one_line_here() {
    for text in [
        "$r->connect(\"127.0.0.1\", 6395);",
        "$m->addServer('127.0.0.1',6395);",
        "$r->connect(\n  \"127.0.0.1\",\n  6395,\n);",
        "HOSTS = [(\"127.0.0.1\", 6395)]",
        "HOSTS=[(\"localhost\", 6395)]",
        "$servers = array(array(\"127.0.0.1\", 6395));",
        "return [\"servers\" => [[\"127.0.0.1\", 6395]]];",
        "const r = new Redis(6395, \"127.0.0.1\");",
        "const c = redis.createClient(6395, '127.0.0.1');",
        "createClient({ socket: { port: 6395, host: \"127.0.0.1\" } });",
        "{\"redis\":{\"host\":\"127.0.0.1\",\"port\":6395}}",
        "{\"a\":{\"host\":\"127.0.0.1\",\"port\":1},\"b\":{\"host\":\"127.0.0.1\",\"port\":6395}}",
        "r = Redis.new(host: \"127.0.0.1\", port: 6395)",
        "r = redis.Redis(host=\"127.0.0.1\", port=6395)",
        "redis-cli -h 127.0.0.1 -p 6395 ping",
        "mysql -h127.0.0.1 -P6395 shop",
        "system(\"redis-cli -h 127.0.0.1 -p 6395 ping\");",
        "*/5 * * * * redis-cli -p 6395 del x",
        "* * * * * root redis-cli -p 6395 ping",
        "echo PING | nc 127.0.0.1 6395",
        "replicaof 127.0.0.1 6395",
        "command=/usr/bin/worker --redis-host 127.0.0.1 --redis-port 6395",
        "Environment=CACHE_HOST=127.0.0.1 CACHE_PORT=6395",
        "environment=REDIS_HOST=\"127.0.0.1\",REDIS_PORT=\"6395\"",
        "<property name=\"port\" value=\"6395\"/><property name=\"host\" value=\"127.0.0.1\"/>",
        "php_value[session.save_path]=tcp://127.0.0.1:6395",
        "    server a 127.0.0.1:6395",
        "RH=127.0.0.1\nRP=6395\nSESSION_DSN=redis://${RH}:${RP}/3",
        "S=redis://127.1:6395/3",
        "S=redis://0.0.0.0:6395",
        "S=${X:-redis://127.0.0.1:6395}",
        "R = os.environ.get(\"R\", \"redis://127.0.0.1:6395/0\")",
        "'servers' => [['host' => env('MH', '127.0.0.1'), 'port' => env('MP', 6395)]],",
        "createClient({port: 6395})",
        "createClient({ url: `redis://${h}:6395` })",
        "QUEUE_REDIS_PORT=6395",
        "$c = new Predis\\Client([\"port\" => 6395]);",
        "const c = require(\"ioredis\"); new c(6395);",
        "$r = new Redis(); $r->connect($host, 6395);",
        "const addr = \":6395\"",
        "define('R_HOST', '127.0.0.1');\ndefine('R_PORT', 6395);",
    ] {
        assert_eq!(to_the_port(text).len(), 1, "{text}: {:?}", to_the_port(text));
    }
}

#[test]
fn what_leads_to_another_host_or_port_or_to_nobody_is_none() {
    for text in [
        "$r->connect(\"10.0.0.7\", 6395);",
        "$r->connect(\"redis\", 6395);",
        "$r->connect(\"127.0.0.1\", 63951);",
        "HOSTS = [(\"cache.example.org\", 6395)]",
        "const r = new Redis(6395, \"10.0.0.7\");",
        "{\"redis\":{\"host\":\"10.0.0.7\",\"port\":6395}}",
        "redis:\n  host: cache\n  port: 6395\n",
        "REDIS_HOST=10.0.0.7\nREDIS_PORT=6395\n",
        "REDIS_HOST=/run/r.sock\nREDIS_PORT=6395\n",
        "redis-cli -h 10.0.0.7 -p 6395",
        "ssh -p 6395 example.org",
        "mkdir -p 6395",
        "$redis->ping(); usleep(6395);",
        "const r = new Redis(); setTimeout(6395);",
        "$redis->expire('key', 6395);",
        "# redis-cli -p 6395",
        "// connect(\"127.0.0.1\", 6395)",
        "foo(); /* connect(\"127.0.0.1\", 6395) */",
        "\"\"\"\nredis://127.0.0.1:6395\n\"\"\"\n",
        "REDIS_URL=redis://10.0.0.7:6395",
        "S=redis://126.1:6395",
        "LISTEN_PORT=6395",
        "image: redis:6395",
    ] {
        assert_eq!(to_the_port(text), [], "{text}");
    }
}

#[test]
fn a_default_counts_without_its_variable() {
    let found =
        leads_and_ports("'host' => env('REDIS_HOST', '127.0.0.1'), 'port' => env('REDIS_PORT', '6395'),");
    assert_eq!((found.len(), found[0].name.as_str()), (1, "REDIS_HOST"));
    assert_eq!(found[0].unless, ["REDIS_HOST", "REDIS_PORT"]);
}

#[test]
fn no_value_is_lost_in_a_long_line_or_behind_many_others() {
    let queue = r#""queue":{"host":"127.0.0.1","port":6395}}"#;
    let lorem = "lorem, it's ipsum ";
    for text in [
        format!(r#"{{"texts":"{}",{queue}"#, lorem.repeat(60)),
        format!(r#"{{"texts":"{}",{queue}"#, lorem.repeat(3_000)),
        format!(r#"{{"texts":"{}",{queue}"#, "x".repeat(100_000)),
        format!(r#"{{"texts":[{}"a"],{queue}"#, "\"a\\\"b\",".repeat(20_000)),
        format!(r#"{{"texts":[{}"a"],{queue}"#, "{\"a\":1},".repeat(20_000)),
        format!("<a>{}</a><redis host=\"127.0.0.1\" port=\"6395\"/>", "<b>x</b>".repeat(9_000)),
        format!("let a = \"{}\"; let r = new Redis(6395, \"127.0.0.1\");", "'".repeat(20_001)),
        r#"{"queue":"redis:\/\/127.0.0.1:6395\/2"}"#.to_owned(),
    ] {
        let start: String = text.chars().take(40).collect();
        assert_eq!(to_the_port(&text).len(), 1, "{start} … {}", text.len());
    }
    let many: String = (1..=40_000).map(|at| format!("s{at} = 127.0.0.1:{}\n", 10_000 + at)).collect();
    let text = format!("{many}queue = 127.0.0.1:6395\n");
    let wanted = |lead: &Lead| lead.endpoints.contains(&address::tcp("127.0.0.1", 6395));
    let (found, is_cut) = leads_among(&text, "", &wanted);
    assert!(found.len() == 1 && found[0].line == 40_001 && !is_cut, "{found:?}");
    assert!(leads_among(&format!("{many}{text}"), "", &wanted).1, "it is said where it stops");
}

#[test]
fn a_host_without_a_port_leads_to_the_usual_one_of_the_service_that_is_spoken_of() {
    let usual = |text: &str| {
        let (found, _) = leads_among(text, "", &|lead| lead.form == LeadForm::Usual);
        found.iter().flat_map(|lead| &lead.endpoints).map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut wrong = Vec::new();
    for text in [
        "$r = new Redis();\n$r->connect(\"127.0.0.1\");",
        "import redis\nr = redis.StrictRedis(host=\"localhost\")",
        "{\"redis\": {\"host\": \"127.0.0.1\"}}",
        "{\n  \"redis\": {\n    \"host\": \"127.0.0.1\"\n  }\n}",
        "[redis]\nhost = 127.0.0.1",
        "redis:\n  pool: 4\n  host: localhost",
        "5 4 * * * app redis-cli -h 127.0.0.1 incr nightly",
        "5 4 * * * app /usr/bin/redis-cli incr nightly",
        "* * * * * app redis-cli incr nightly",
        "{\"scripts\": {\"clean\": \"redis-cli flushall\"}}",
        "<?php\n$r = new Redis();\n$r->connect('localhost');",
        "<?php\n$r = new Predis\\Client();",
        "import redis\nr = redis.Redis()",
        "from redis import Redis\nr = Redis(db=3, socket_timeout=5, decode_responses=True)",
        "import redis\nr = redis.Redis(\n    password=secret,\n    db=1,\n)",
        "require 'redis'\n$redis = Redis.new",
        "$redis = Redis.new(db: 3)",
        "const { createClient } = require('redis');\nconst c = createClient();",
        "import { createClient } from 'redis';\nconst c = createClient({ database: 2 });",
        "const Redis = require('ioredis');\nmodule.exports = new Redis({ db: 1 });",
        "import redis.clients.jedis.Jedis;\nJedis j = new Jedis(\"localhost\");",
        "c := redis.NewClient(&redis.Options{DB: 1})",
    ] {
        let found = usual(text);
        if found.len() != 1 || !found[0].ends_with(":6379") {
            wrong.push((text, found));
        }
        assert!(leads_and_ports(text).iter().all(|lead| lead.form != LeadForm::Usual), "{text}");
    }
    for text in [
        "redis-cli -s /run/r.sock ping",
        "redis-cli -p 6380 ping",
        "# redis-cli flushall",
        "apt-get install redis-tools",
        "see redis-cli-notes for more",
        "mysqldump shop",
        "[redis]\nport = 6380\n[web]\nhost = 127.0.0.1",
        "redis:\n  size: 3\nweb:\n  host: 127.0.0.1",
        "redis: { host: 10.0.0.9, port: 6379 }\nserver:\n  address: 127.0.0.1",
        "<?php\n$r = new Redis();\n$r->connect('/run/r.sock');",
        "import redis\nr = redis.Redis(unix_socket_path='/run/r.sock')",
        "import redis\nr = redis.Redis(port=6380)",
        "import redis\nr = redis.Redis(\n    db=1,\n    host=settings.HOST,\n)",
        "import redis\nr = redis.Redis(**options)\nq = redis.Redis(connection_pool=pool)",
        "import redis\n# r = redis.Redis()\nx = 1  # as redis.Redis() does",
        "import redis\ndef f():\n    \"\"\"\n    Like redis.Redis().\n    \"\"\"",
        "raise Wrong(\"call redis.Redis() first\")",
        "from redis import Redis, StrictRedis\nimport redis.asyncio",
        "class Redis():\n    name = 'redis'",
        "const Redis = require('ioredis');\nconst r = new Redis(process.env.REDIS_URL);",
        "import { createClient } from 'redis';\nconst c = createClient({ url });\nconst d = createClient(options);",
        "const c = createClient({ socket: { path: '/run/r.sock' } }); // redis",
        "import { createClient } from '@supabase/supabase-js';\nconst c = createClient();",
        "$redis = Redis.new(path: '/run/r.sock')",
        "c := redis.NewClient(&redis.Options{Network: \"unix\", Addr: path})",
        "Jedis j = new Jedis(host); // redis.clients.jedis",
    ] {
        let found = usual(text);
        if !found.is_empty() {
            wrong.push((text, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let session = leads("session.save_handler = redis\nsession.save_path = \"tcp://localhost\"");
    assert!(session.len() == 1 && session[0].endpoints[0].to_string() == "tcp:localhost:6379", "{session:?}");
}
