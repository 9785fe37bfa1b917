//! How a client is started with the words of its row: interpreters run the code, Go, Java and Rust are built once for all.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::rows::{Row, Run};
use crate::support::Home;
use crate::workloads::support::newest;

/// A row over one transport.
pub(super) struct Case {
    pub(super) row: &'static Row,
    /// `unix`, `tcp`, or `not tcp` for clients to which `localhost` is a socket, which is not the one of the test.
    pub(super) expected: &'static str,
    pub(super) words: String,
    /// Its name in the programs that have all cases.
    pub(super) key: String,
    /// Whether `samehost verify` is asked too, which takes its time.
    pub(super) is_verified: bool,
    /// Where the server is.
    pub(super) socket: PathBuf,
}

impl Case {
    /// The code with the words in it.
    fn code(&self) -> String {
        let code = match &self.row.run {
            Run::Php(code) | Run::Python(code) | Run::Ruby(code) | Run::Node(code) => code,
            Run::C(code, _) | Run::Go(code) | Run::Java(code) | Run::Rust(code) | Run::Shell(code) => code,
            Run::Front(_) => "WORDS",
        };
        let code = if self.expected == "unix" { code } else { self.row.tcp.unwrap_or(code) };
        let (user, database) = names(self.row.service);
        code.replace("{USER}", user)
            .replace("{DATABASE}", database)
            .replace("WORDS", &filled(&self.words, self.row.service))
    }

    pub(super) fn what(&self) -> String {
        format!("{} {} `{}`", self.row.language, self.row.client, self.words)
    }
}

/// A user and a database that the test's server has.
fn names(service: &str) -> (&'static str, &'static str) {
    if service == "mysql" { ("root", "sys") } else { ("fern", "template1") }
}

/// The words of a row as code that runs: the names that a reader fills in are filled in.
fn filled(words: &str, service: &str) -> String {
    let (user, database) = names(service);
    // A URL of JDBC ends with the database.
    let words = words.strip_suffix("/db").map_or_else(|| words.to_owned(), |url| format!("{url}/{database}"));
    words
        .replace("user=..., db=...", &format!("user='{user}', db='{database}'"))
        .replace("user=..., database=...", &format!("user='{user}', database='{database}'"))
        .replace("username: ..., database: ...", &format!("username: '{user}', database: '{database}'"))
        .replace("dbname: ..., user: ...", &format!("dbname: '{database}', user: '{user}'"))
        .replace("username, database }", &format!("username: '{user}', database: '{database}' }}"))
        .replace("user, database }", &format!("user: '{user}', database: '{database}' }}"))
        .replace("user:password@", &format!("{user}@"))
        .replace(")/db\"", &format!(")/{database}\""))
        .replace("/db?", &format!("/{database}?"))
        .replace("/db'", &format!("/{database}'"))
        .replace("/db\"", &format!("/{database}\""))
        .replace("USER", user)
        .replace("database=DB", &format!("database={database}"))
        .replace("dbname=DB", &format!("dbname={database}"))
        .replace("-d DB", &format!("-d {database}"))
        // lib/pq asks for TLS over TCP, which our server has not.
        .replace(" application_name=kept\")", " sslmode=disable application_name=kept\")")
}

/// What is fetched for a language, by `cargo xtask servers`; see `xtask/src/fetched.rs`.
struct Cache {
    name: &'static str,
    lists: &'static [&'static str],
    registry: &'static str,
}

const GO: Cache = Cache {
    name: "go",
    lists: &[include_str!("../../clients/go/go.mod"), include_str!("../../clients/go/go.sum")],
    registry: "Go's proxy",
};
const JAVA: Cache = Cache {
    name: "java",
    lists: &[include_str!("../../clients/java/jars.txt")],
    registry: "Maven's central repository",
};

/// Where the packages from npm are, or why not.
pub(crate) fn node() -> Result<PathBuf, String> {
    let lists = &[
        include_str!("../../clients/node/package.json"),
        include_str!("../../clients/node/package-lock.json"),
    ];
    Cache { name: "node", lists, registry: "npm's registry" }.folder()
}

impl Cache {
    fn folder(&self) -> Result<PathBuf, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients").join(self.name);
        let is_whole =
            fs::read_to_string(folder.join("complete")).is_ok_and(|text| text == self.lists.concat());
        let missing = || {
            format!(
                "the clients in {} are not in {}: `cargo xtask servers` fetches them from {}",
                self.name,
                folder.display(),
                self.registry
            )
        };
        is_whole.then_some(()).ok_or_else(missing).map(|()| folder.clone())
    }
}

/// Where clients are built and run.
pub(super) struct Workshop {
    home: Home,
    /// Why a language has no clients, by its name.
    missing: Vec<(&'static str, String)>,
}

impl Workshop {
    /// Builds what these cases need.
    pub(super) fn new(cases: &[Case]) -> Self {
        let mut shop = Workshop { home: Home::new(), missing: Vec::new() };
        type Build = fn(&Path, &[&Case]) -> Result<(), String>;
        for (language, build) in
            [("go", go as Build), ("java", java), ("rust", rust), ("node", |_, _| node().map(drop))]
        {
            let of_it: Vec<&Case> = cases.iter().filter(|case| case.row.language == language).collect();
            let folder = shop.home.path(language);
            fs::create_dir(&folder).unwrap();
            if let Err(why) = if of_it.is_empty() { Ok(()) } else { build(&folder, &of_it) } {
                shop.missing.push((language, why));
            }
        }
        shop
    }

    /// Why languages have no clients.
    pub(super) fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(|(_, why)| why.as_str())
    }

    pub(super) fn has(&self, language: &str) -> bool {
        self.missing.iter().all(|(missing, _)| *missing != language)
    }

    /// A folder for a case alone.
    pub(super) fn folder(&self, case: &Case) -> PathBuf {
        let folder = self.home.path(&format!("case-{}", case.key));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// The command of a case; not of a front, which listens.
    pub(super) fn command(&self, case: &Case) -> Result<Command, String> {
        let code = case.code();
        let folder = self.folder(case);
        let with = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).current_dir(&folder);
            if case.row.service == "dogstatsd" {
                let wheels = ["datadog", "statsd"].map(|name| newest(&format!("../wheels/{name}.whl")));
                command.env("PYTHONPATH", std::env::join_paths(wheels).unwrap());
            }
            command
        };
        let own = |program: &str| self.home.path(program);
        Ok(match &case.row.run {
            Run::Php(_) => {
                let (user, database) =
                    if case.row.service == "mysql" { ("root", "mysql") } else { ("postgres", "") };
                let names = format!("$user = '{user}'; $database = '{database}'; $password = '';");
                with("php", &["-r", &format!("{names} {code} echo \"ready\\n\"; fgets(STDIN);")])
            }
            Run::Python(_) => {
                with("/usr/bin/python3", &["-c", &format!("{code}\nprint('ready', flush=True)\ninput()")])
            }
            Run::Ruby(_) => with("ruby", &["-e", &format!("{code}; puts 'ready'; $stdout.flush; gets")]),
            Run::Node(_) => {
                let whole = format!(
                    "(async () => {{ {code} console.log('ready'); process.stdin.resume(); }})().catch(error => {{ console.error(error); process.exit(1); }})"
                );
                // TypeORM looks for the program's own file, which `-e` has not.
                fs::write(folder.join("client.js"), whole).unwrap();
                let mut command = with("node", &["client.js"]);
                command.env("NODE_PATH", node()?.join("node_modules"));
                command
            }
            Run::C(_, flags) => {
                let (source, program) = (folder.join("client.c"), folder.join("client"));
                fs::write(&source, code).unwrap();
                let mut compiler = Command::new("cc");
                built(compiler.arg(&source).arg("-o").arg(&program).args(*flags))?;
                Command::new(program)
            }
            Run::Go(_) => with(own("go/client").to_str().unwrap(), &[&case.key]),
            Run::Rust(_) => with(own("rust/client").to_str().unwrap(), &[&case.key]),
            Run::Java(_) => {
                let path = format!("{}:{}/*", own("java").display(), JAVA.folder()?.display());
                let quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"];
                with("java", &[&quick[..], &["-cp", &path, "Client", &case.key]].concat())
            }
            Run::Shell(_) => {
                let mut command = with("sh", &["-c", &code]);
                command.env("SOCKET", &case.socket);
                command
            }
            Run::Front(_) => return Err("a front is started with a port".to_owned()),
        })
    }

    /// The words of a front's case.
    pub(super) fn words(case: &Case) -> String {
        case.code()
    }
}

/// Runs a build; words that do not compile are a wrong row.
fn built(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    if output.status.success() { Ok(output) } else { Err(format!("{command:?}: {said}")) }
}

/// The cases as the arms of a choice.
fn arms(cases: &[&Case], arm: impl Fn(&str, String) -> String) -> String {
    cases.iter().map(|case| arm(&case.key, case.code())).collect()
}

fn go(folder: &Path, cases: &[&Case]) -> Result<(), String> {
    let cache = GO.folder()?;
    let arms = arms(cases, |key, code| format!("case \"{key}\":\n{code}\n"));
    let source = format!(
        "{GO_HEAD}\nfunc main() {{\nctx := context.Background()\nswitch os.Args[1] {{\n{arms}}}\n}}\n"
    );
    // go.mod forbids a main.go of another folder.
    for name in ["go.mod", "go.sum"] {
        fs::copy(cache.join(name), folder.join(name)).unwrap();
    }
    fs::write(folder.join("main.go"), source).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", "client", "."]).current_dir(folder);
    go.env("GOMODCACHE", cache.join("mod")).env("GOFLAGS", "-mod=readonly -modcacherw").env("GOPROXY", "off");
    built(go.env("GOCACHE", cache.join("built")).env("GOTOOLCHAIN", "local")).map(drop)
}

const GO_HEAD: &str = r#"package main
import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"github.com/DataDog/datadog-go/v5/statsd"
	"github.com/bradfitz/gomemcache/memcache"
	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)
func ready(err error) {
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
"#;

fn java(folder: &Path, cases: &[&Case]) -> Result<(), String> {
    let cache = JAVA.folder()?;
    let arms = arms(cases, |key, code| format!("case \"{key}\": {{ {code} ready(); break; }}\n"));
    let source = format!(
        "{JAVA_HEAD}\npublic static void main(String[] a) throws Exception {{ switch (a[0]) {{\n{arms}}} }} }}\n"
    );
    fs::write(folder.join("Client.java"), source).unwrap();
    let mut javac = Command::new("javac");
    javac.args(["-proc:none", "-cp", &format!("{}/*", cache.display()), "-d"]).arg(folder);
    built(javac.arg(folder.join("Client.java"))).map(drop)
}

const JAVA_HEAD: &str = r#"
import com.zaxxer.hikari.*;
import com.timgroup.statsd.NonBlockingStatsDClientBuilder;
import io.grpc.*;
import io.grpc.stub.ClientCalls;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.*;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.CharsetUtil;
import java.io.*;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.DriverManager;
import org.newsclub.net.unix.*;
import org.springframework.boot.*;
import org.springframework.boot.autoconfigure.*;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.data.redis.connection.*;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import redis.clients.jedis.*;
import redis.clients.jedis.exceptions.JedisConnectionException;

@EnableAutoConfiguration
class Application {
}

class Client {
    static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
        public InputStream stream(byte[] bytes) { return new ByteArrayInputStream(bytes); }
        public byte[] parse(InputStream stream) { return new byte[0]; }
    };
    static final MethodDescriptor<byte[], byte[]> SAY = MethodDescriptor.<byte[], byte[]>newBuilder()
        .setType(MethodDescriptor.MethodType.UNARY).setFullMethodName("echo.Echo/Say")
        .setRequestMarshaller(BYTES).setResponseMarshaller(BYTES).build();
    /// An application of Spring Boot with these properties and what it makes of them by itself.
    static ConfigurableApplicationContext spring(String properties) throws IOException {
        var lazy = "spring.main.lazy-initialization=true\n";
        Files.writeString(Path.of("application.properties"), lazy + properties);
        return new SpringApplication(Application.class).run();
    }
    static void ready() throws IOException {
        System.out.println("ready");
        System.in.read();
        System.exit(0);
    }
"#;

/// Built where the crates that the clients need stay built.
fn rust(folder: &Path, cases: &[&Case]) -> Result<(), String> {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/rust");
    fs::create_dir_all(kept.join("src")).unwrap();
    for (name, text) in [
        ("Cargo.toml", include_str!("../../clients/rust/Cargo.toml")),
        ("Cargo.lock", include_str!("../../clients/rust/Cargo.lock")),
    ] {
        fs::write(kept.join(name), text).unwrap();
    }
    let arms = arms(cases, |key, code| format!("\"{key}\" => {{ {code} }}\n"));
    let source = format!(
        "fn ready() {{ println!(\"ready\"); let _ = std::io::stdin().read_line(&mut String::new()); }}\n\
         #[tokio::main(flavor = \"current_thread\")]\nasync fn main() {{ match std::env::args().nth(1).unwrap().as_str() {{\n{arms}_ => {{}} }} }}\n"
    );
    fs::write(kept.join("src/main.rs"), source).unwrap();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--locked"]).current_dir(&kept);
    built(cargo.env("CARGO_TARGET_DIR", kept.join("target")))?;
    fs::copy(kept.join("target/debug/client"), folder.join("client"))
        .map(drop)
        .map_err(|error| error.to_string())
}
