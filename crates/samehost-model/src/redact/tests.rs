//! What must be hidden, and what must stay visible.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

use super::*;

fn holds(shown: impl Fn(&str) -> String, cases: &[(&str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter(|(given, wanted)| shown(given) != *wanted)
        .map(|(given, wanted)| format!("{given}\n  became {}\n  wanted {wanted}", shown(given)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn stay(shown: impl Fn(&str) -> String, texts: &[&str]) {
    holds(shown, &texts.iter().map(|text| (*text, *text)).collect::<Vec<_>>());
}

fn line(text: &str) -> String {
    Redactor::default().line(text)
}

fn message(text: &str) -> String {
    Redactor::default().message(text)
}

fn command(text: &str) -> String {
    Redactor::default().command(text)
}

fn words(text: &str) -> String {
    Redactor::default().words(text.split(' ')).join(" ")
}

#[test]
fn lines_of_configurations() {
    holds(
        line,
        &[
            ("define('DB_PASSWORD', 'hunter2');", "define('DB_PASSWORD', ***);"),
            ("define( \"DB_PASSWORD\" , 'it\\'s' . \"x\" );", "define( \"DB_PASSWORD\" , *** );"),
            ("env[DB_PASS] = ot,her", "env[DB_PASS] = ***"),
            ("APP_KEY=base64:abc", "APP_KEY=***"),
            ("DB_PASSWORD=a b # c", "DB_PASSWORD=***"),
            ("export DB_PASSWORD=ab", "export DB_PASSWORD=***"),
            ("password = x y;z", "password = ***"),
            ("password: correct horse battery", "password: ***"),
            (
                "  'password' => 'hunter2', 'host' => '127.0.0.1',",
                "  'password' => ***, 'host' => '127.0.0.1',",
            ),
            (
                "['password' => env('DB_PASSWORD', 'hunter2'), 'host' => 'h']",
                "['password' => ***, 'host' => 'h']",
            ),
            ("$db['default']['password'] = 'it''s';", "$db['default']['password'] = ***;"),
            ("requirepass hunter2", "requirepass ***"),
            ("# requirepass \"a b\"", "# requirepass ***"),
            ("masterauth x", "masterauth ***"),
            ("user app on >hunter2 ~* +@all", "user app on >*** ~* +@all"),
            ("sentinel auth-pass main hunter2", "sentinel auth-pass main ***"),
            (
                "ExecStart=/usr/bin/redis-server --requirepass hunter2 --port 6379",
                "ExecStart=/usr/bin/redis-server --requirepass *** --port 6379",
            ),
            (
                "ExecStart=/usr/bin/redis-server \"--requirepass\" 'a b' --port 6379",
                "ExecStart=/usr/bin/redis-server \"--requirepass\" '***' --port 6379",
            ),
            (
                "Environment=\"A=b c\" \"TOKEN=x y\" PGPASSWORD=z \"DB_HOST=h\"",
                "Environment=\"A=b c\" \"TOKEN=***\" PGPASSWORD=*** \"DB_HOST=h\"",
            ),
            (
                "environment: { DB_HOST: 127.0.0.1, DB_PASSWORD: x y, PORT: 1 }",
                "environment: { DB_HOST: 127.0.0.1, DB_PASSWORD: ***, PORT: 1 }",
            ),
            ("  - DB_PASSWORD=a=b c", "  - DB_PASSWORD=***"),
            (
                "command: [\"redis-server\", \"--requirepass\", \"hunter2\", \"--port\", \"1\"]",
                "command: [\"redis-server\", \"--requirepass\", \"***\", \"--port\", \"1\"]",
            ),
            ("{\"password\":\"a\\\"b\",\"host\":\"h\"}", "{\"password\":***,\"host\":\"h\"}"),
            (
                "\"{\\\"password\\\":\\\"a b\\\",\\\"host\\\":\\\"h\\\"}\"",
                "\"{\\\"password\\\":***,\\\"host\\\":\\\"h\\\"}\"",
            ),
            ("fastcgi_param DB_PASSWORD hunter2;", "fastcgi_param DB_PASSWORD ***;"),
            ("SetEnv DB_PASSWORD \"a b\"", "SetEnv DB_PASSWORD ***"),
            ("conninfo = 'host=/run password=x user=y'", "conninfo = 'host=/run password=*** user=y'"),
            ("conninfo = 'password=''a b'' host=/run'", "conninfo = 'password=*** host=/run'"),
            (
                "save_path = \"tcp://127.0.0.1:6379?auth=x&db=1\"",
                "save_path = \"tcp://127.0.0.1:6379?auth=***&db=1\"",
            ),
            ("Server=h;Uid=u;Pwd=a b;Port=1", "Server=h;Uid=u;Pwd=***;Port=1"),
            ("<password>hunter2</password>", "<password>***</password>"),
            (
                "DATABASE_URL=\"mysql://app:p@ss/w@127.0.0.1/db\"",
                "DATABASE_URL=\"mysql://app:***@127.0.0.1/db\"",
            ),
            ("dsn = \"u:p:w@tcp(127.0.0.1:3306)/d\"", "dsn = \"u:***@tcp(127.0.0.1:3306)/d\""),
            ("REDIS_URL=redis://hunter2@127.0.0.1", "REDIS_URL=redis://***@127.0.0.1"),
            ("IDENTIFIED BY 'hunter2'", "IDENTIFIED BY '***'"),
            ("ALTER ROLE a PASSWORD 'hunter2';", "ALTER ROLE a PASSWORD ***;"),
            ("password = ab", "password = ***"),
            ("DB_PASSWORD=on", "DB_PASSWORD=***"),
            ("DB_PASSWORD=${OTHER:-hunter2}", "DB_PASSWORD=***"),
        ],
    );
}

#[test]
fn addresses_and_harmless_values_stay() {
    let all = [
        "define('DB_HOST', 'localhost:/run/mysqld/mysqld.sock');",
        "    fastcgi_pass unix:/run/php/php.sock;",
        "    fastcgi_pass \"unix:/run/php/php.sock\";",
        "  proxy_pass http://127.0.0.1:3000;",
        "proxy_pass http://u.example:8080/a;",
        "listen = 127.0.0.1:9000",
        "DB_PASSWORD_FILE=/run/secrets/db_password",
        "- ./secrets/db_password:/run/secrets/db_password:ro",
        "DB_PASSWORD=${DB_PASSWORD}",
        "'password' => null,",
        "requirepass \"\"",
        "DB_PASSWORD=",
        "DB_PASSWORD=\"\"",
        "password_encryption = scram-sha-256",
        "host all all 127.0.0.1/32 scram-sha-256",
        "default_authentication_plugin = mysql_native_password",
        "ssl_certificate_key /etc/ssl/key.pem;",
        "key_buffer_size = 16M",
        "auth_basic \"Restricted\";",
        "server_tokens off;",
        "http://127.0.0.1:4873/@scope/package",
        "mysql://bob@h/db",
        "registry: http://localhost:5000/a?m=x@y",
        "PWD=/tmp",
        "-u www-data:www-data",
    ];
    stay(line, &all);
    stay(message, &all);
    stay(command, &all);
}

#[test]
fn messages() {
    stay(
        message,
        &[
            "ERROR 1045 (28000): Access denied for user 'u'@'localhost' (using password: YES)",
            "FATAL: password authentication failed for user \"u\"",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH Authentication required.",
            "DB_PASSWORD: a byte order mark stands before it",
            "CREATE USER 'u'@'localhost' IDENTIFIED BY 'PASSWORD'; GRANT ALL ON `d`.* TO 'u'@'localhost'",
            "Plugin 'auth_socket' is not loaded",
            "/etc/db_password: Permission denied",
            "the password is wrong: put the credentials right first",
            "add above them, then reload: local db user scram-sha-256",
            "requirepass is set, and the login has no password",
        ],
    );
    holds(
        message,
        &[
            ("unknown variable 'password=hunter2'", "unknown variable 'password=***'"),
            (">>> 'requirepass hunter2'", ">>> 'requirepass ***'"),
            ("see mysql://u:hunter2@h/d, then", "see mysql://u:***@h/d, then"),
            ("password: hunter2", "password: ***"),
            ("a\npassword=x\nb", "a\npassword=***\nb"),
        ],
    );
}

#[test]
fn command_lines() {
    holds(
        words,
        &[
            ("mysql -u root -phunter2 db", "mysql -u root -p*** db"),
            ("/usr/bin/mysqldump -px", "/usr/bin/mysqldump -p***"),
            ("redis-server --requirepass hunter2 --port 1", "redis-server --requirepass *** --port 1"),
            ("redis-cli -a hunter2 get x", "redis-cli -a *** get x"),
            ("redis-cli AUTH hunter2", "redis-cli AUTH ***"),
            ("app --db-password=hunter2 -p 80", "app --db-password=*** -p 80"),
            ("app --pass x --auth y --pwd z", "app --pass *** --auth *** --pwd ***"),
            ("app -u bob:hunter2 http://h/", "app -u bob:*** http://h/"),
            ("curl --user bob:a:b h", "curl --user bob:*** h"),
            ("app mysql://bob:hunter2@h/db", "app mysql://bob:***@h/db"),
            ("java -Ddb.password=x -jar a", "java -Ddb.password=*** -jar a"),
            ("redis_exporter -redis.password x", "redis_exporter -redis.password ***"),
            ("sshpass -p x ssh h", "sshpass -p *** ssh h"),
            ("ab -n 5 -A bob:hunter2 http://h/", "ab -n 5 -A bob:*** http://h/"),
            ("ab -P bob:hunter2 -C session=abc http://h/", "ab -P bob:*** -C session=*** http://h/"),
            ("hey -a bob:hunter2 http://h/", "hey -a bob:*** http://h/"),
            ("curl -U bob:hunter2 -b session=abc http://h/", "curl -U bob:*** -b session=*** http://h/"),
        ],
    );
    stay(
        words,
        &[
            "memcached -p 11211 -a 700",
            "docker run -u 1000:1000 -p3306:3306 mysql",
            "nginx: master process /usr/sbin/nginx -c /etc/nginx/nginx.conf",
            "php-fpm: pool www",
            "mysqld --port=3306 --default-auth=mysql_native_password --socket=/run/mysqld/mysqld.sock",
            "ssh -p 22 host",
            "redis-server --requirepass --save x",
            "app --no-password x --password-file /etc/x",
            "postgres -D /var/lib/postgresql -c hba_file=/etc/pg_hba.conf",
            "memcached -u memcache -l 127.0.0.1",
        ],
    );
    let one = Redactor::default();
    assert_eq!(one.words(["--password=a b;c\"d", "-h"]), ["--password=***", "-h"]);
    assert_eq!(one.words(["sh", "-c", "PGPASSWORD=a psql"]), ["sh", "-c", "PGPASSWORD=***"]);
    assert_eq!(one.words(["curl", "-H", "Authorization: Bearer a b"]), ["curl", "-H", "Authorization: ***"]);
    assert_eq!(one.words(["wrk", "-H", "Cookie: session=abc; x=y"]), ["wrk", "-H", "Cookie: ***"]);
    assert_eq!(one.words(["sh", "-c", "mysql -u root -pPW db"]), ["sh", "-c", "mysql -u root -p*** db"]);
    assert_eq!(one.command("wrk -H 'Cookie: session=abc' http://h/"), "wrk -H 'Cookie: ***' http://h/");
    assert_eq!(one.command("sh -c \"mysql -u root -pPW db\""), "sh -c \"mysql -u root -p*** db\"");
    assert_eq!(one.command("sh -c \"su -c 'mysql -pPW db'\""), "sh -c \"su -c 'mysql -p*** db'\"");
    assert_eq!(one.word("redis://:a b'c@h:1/0"), "redis://:***@h:1/0");
    assert!(one.words([""; 0]).is_empty());
}

#[test]
fn scripts() {
    holds(
        command,
        &[
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://bob:hunter2@127.0.0.1:6379/0", "redis://bob:***@127.0.0.1:6379/0"),
            ("redis://:hunter2@h", "redis://:***@h"),
            ("--tcp=redis://:a/b?c@d@h:1", "--tcp=redis://:***@h:1"),
            ("redis+unix://:hunter2@/run/r.sock?db=1", "redis+unix://:***@/run/r.sock?db=1"),
            ("a='x redis://:p@h y' b=http://u:q@h", "a='x redis://:***@h y' b=http://u:***@h"),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.1:1"),
            (
                "sysbench --mysql-host=h --mysql-password=x run",
                "sysbench --mysql-host=h --mysql-password=*** run",
            ),
            ("mysql --password=hunter2 -e q", "mysql --password=*** -e q"),
            ("mysql --password='a b' -e q", "mysql --password=*** -e q"),
            ("mysql -ubob -phunter2 db", "mysql -ubob -p*** db"),
            ("mysql -u bob -p db; mkdir -pv x", "mysql -u bob -p db; mkdir -pv x"),
            ("mysql --port=3306 --protocol=tcp", "mysql --port=3306 --protocol=tcp"),
            ("a=PGPASSWORD=x pgbench -S -p 5432", "a=PGPASSWORD=*** pgbench -S -p 5432"),
            ("MYSQL_PWD=\"x y\" REDISCLI_AUTH=z run", "MYSQL_PWD=*** REDISCLI_AUTH=*** run"),
            ("redis-benchmark -q -a hunter2 -p 6379", "redis-benchmark -q -a *** -p 6379"),
            ("redis-cli --pass hunter2 ping; ls -a x", "redis-cli --pass *** ping; ls -a x"),
            ("server --requirepass --save x", "server --requirepass --save x"),
            ("cd $PWD; PWD=/tmp ls", "cd $PWD; PWD=/tmp ls"),
            ("env PGPASSWORD=x;id", "env PGPASSWORD=***;id"),
        ],
    );
}

fn knowing(secret: &str) -> Redactor {
    Redactor::new([&Secret::new(secret)])
}

#[test]
fn a_plain_word_is_hidden_as_a_word_only() {
    let redactor = knowing("redis");
    for text in
        ["unix:/run/redis/redis.sock", "redis-server", "redis://127.0.0.1:6379", "/srv/redis", "redis.conf"]
    {
        assert_eq!(redactor.message(text), text);
    }
    assert_eq!(redactor.message("near 'redis' at line 3"), "near '***' at line 3");
    assert_eq!(redactor.message("a%3Aredis b"), "a%3A*** b");
    assert_eq!(knowing("3306").message("tcp:127.0.0.1:3306"), "tcp:127.0.0.1:3306");
    // Too short to search for; hidden only as the value of a setting.
    assert_eq!(knowing("a").line("password=a and a"), "password=***");
    assert_eq!(knowing("a").message("a and a"), "a and a");
    let mut redactor = knowing("wordpress");
    redactor.spare("wordpress");
    assert_eq!(
        redactor.message("CREATE USER 'wordpress'@'localhost'"),
        "CREATE USER 'wordpress'@'localhost'"
    );
}

/// They may have been removed, become spaces, or be written as escapes.
#[test]
fn hidden_characters_of_a_secret_match_whatever_became_of_them() {
    let redactor = knowing("\0ge\0\u{7}\0he1m\u{200b}");
    for text in ["gehe1m", "ge   he1m", "ge he1m", r"ge\0\x07\0he1m", r"ge\x00\0he1m", "ge%00%07he1m"] {
        assert_eq!(redactor.message(&format!("a {text} b")), "a *** b");
    }
    assert_eq!(knowing(&"\0".repeat(20_000)).message("a b  c"), "a b  c");
}

#[test]
fn what_a_file_holds_is_learned() {
    let mut redactor = Redactor::default();
    redactor.learn(
        "define('AUTH_KEY', 'it\\'s gehe1m');\nrequirepass \"ab cd3f\"\nurl=redis://:x1y2z3@h\nhost=h",
    );
    assert_eq!(
        redactor.message("unexpected \"it's gehe1m\", expecting \")\""),
        "unexpected \"***\", expecting \")\""
    );
    assert_eq!(redactor.message("ab cd3f; x1y2z3"), "***; ***");
    assert!(!format!("{redactor:?}").contains("gehe1m"));
}

#[test]
fn nothing_of_a_file_is_quoted() {
    let message = without_quotes(
        "PHP Parse error: unexpected string \"geheim\", expecting \")\" in /a/wp-config.php on line 3",
    );
    assert!(!message.contains("geheim") && message.contains("on line 3"), "{message}");
}

/// Encodings of URLs, shells, HTML, JSON, PHP, YAML, SQL, systemd and Compose.
fn escaped(secret: &str) -> Vec<String> {
    let percent = |upper: bool| -> String {
        let code = |byte: u8| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") };
        secret
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { code(b) })
            .collect()
    };
    let html =
        secret.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;").replace('\'', "&#39;");
    let json = serde_json::to_string(secret).unwrap();
    let units: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    vec![
        secret.to_owned(),
        percent(true),
        percent(false),
        percent(true).replace('%', "%25"),
        percent(true).replace("%20", "+"),
        html.clone(),
        html.replace('&', "&amp;"),
        json.clone(),
        serde_json::to_string(&json).unwrap(),
        units,
        secret.bytes().map(|byte| format!("\\x{byte:02x}")).collect(),
        secret.bytes().map(|byte| format!("\\{byte:03o}")).collect(),
        secret.replace('\'', "'\\''"),
        secret.replace('\'', "''"),
        secret.replace('\'', "'\"'\"'"),
        secret.replace('\\', "\\\\").replace('\'', "\\'"),
        secret.chars().map(|c| format!("\\{c}")).collect(),
        secret.replace('$', "$$").replace('%', "%%"),
        crate::printable::clean(secret),
    ]
}

proptest! {
    #[test]
    fn a_known_secret_stands_nowhere_however_it_is_escaped(
        secret in prop_oneof![
            "[a-zA-Z0-9]{12,20}",
            "[a-z0-9@:/%'\"$\\\\<&> ;+]{6,20}[0-9][A-Z]",
            "[a-zäöß日本😀@'%]{5,12}[0-9]ö",
        ],
        before in "[a-z =:'\"/]{0,8}",
        after in "[a-z ;'\"/]{0,8}",
    ) {
        let redactor = knowing(&secret);
        for form in escaped(&secret) {
            let text = format!("{before}{form}{after}");
            for shown in [redactor.line(&text), redactor.message(&text), redactor.command(&text)] {
                prop_assert!(!shown.contains(form.trim_matches('"')), "{text} became {shown}");
            }
        }
        for login in [secret.clone(), format!("u:{secret}"), format!("us:{secret}@h"), format!("a{secret}")] {
            for form in [STANDARD.encode(&login), URL_SAFE.encode(&login)] {
                let shown = redactor.message(&format!("basic {form} ."));
                prop_assert_eq!(shown, "basic *** .");
            }
        }
    }

    #[test]
    fn where_it_is_set_even_the_shortest_is_hidden(secret in "[a-zA-Z0-9@:%/+]{1,3}") {
        prop_assume!(secret != "PASSWORD");
        for name in ["DB_PASSWORD", "db.pass", "requirepass", "MYSQL_PWD"] {
            for (given, wanted) in [
                (format!("{name}={secret}"), format!("{name}=***")),
                (format!("{name}: '{secret}'"), format!("{name}: ***")),
                (format!("'{name}' => \"{secret}\","), format!("'{name}' => ***,")),
                (format!("define('{name}', '{secret}');"), format!("define('{name}', ***);")),
            ] {
                prop_assert_eq!(line(&given), wanted);
            }
            prop_assert_eq!(words(&format!("app --{name} {secret}")), format!("app --{name} ***"));
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>(), odd in "[a-z'\"\\\\=:, ä{}()&?;-]{0,40}", at in 0..6_usize) {
        let secrets = [Secret::new(odd.as_str()), Secret::new("pass\\\\'é")];
        let mut redactor = Redactor::new(&secrets);
        let name = ["password", "--pass ", "'token' => ", "redis://:", "user a >", "IDENTIFIED BY "][at];
        for text in [text.clone(), odd.clone(), format!("{odd}{name}{odd}"), format!("{name}{text}")] {
            let _ = (redactor.line(&text), redactor.message(&text), redactor.command(&text));
            let _ = redactor.words(text.split(' '));
            redactor.learn(&text);
        }
    }
}

/// Each option asks which programs stand before it: the square of the words took minutes.
#[test]
fn a_line_of_options_alone_takes_as_long_as_it_is_long() {
    for option in ["-a", "auth"] {
        let mut words = vec![option; 50_000];
        words[0] = "redis-cli";
        words.extend(["-a", "SECRET1"]);
        let found = options::of_words(&words);
        assert!(found.last().is_some_and(|ranges| !ranges.is_empty()), "{option}");
    }
}

#[test]
fn no_format_shows_it() {
    let secret = Secret::new("hunter2");
    assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
    assert_eq!(secret.reveal(), "hunter2");
}
