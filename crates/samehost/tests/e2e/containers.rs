//! What `how` prints for containers: files that Compose and Kubernetes read, the page that shows them, and two containers
//! of podman that reach each other over the socket as the file says.

use std::fs;
use std::path::Path;
use std::process::Command;

use samehost_testing::must;
use serde_json::Value;

use crate::scan::is_root;
use crate::support::{Home, not_tested};

/// A file for containers, by what `how` is asked.
fn printed(home: &Home, asked: &str) -> String {
    let ended = home.run(&["how"].into_iter().chain(asked.split(' ')).collect::<Vec<_>>());
    assert_eq!(ended.status, 0, "{asked}: {}", ended.stderr);
    ended.stdout
}

/// YAML as PyYAML reads it.
fn read(home: &Home, text: &str) -> Value {
    let file = home.path("file.yaml");
    fs::write(&file, text).unwrap();
    let program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    serde_json::from_str(&must("/usr/bin/python3", &["-c", program, file.to_str().unwrap()])).unwrap()
}

fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().unwrap()).collect()
}

const ASKED: &[&str] = &[
    "mysql --client prisma", "mariadb --client spring", "postgres --client prisma", "postgres --client pg",
    "redis --client celery", "valkey --client sidekiq", "memcached", "php-fpm",
];

#[test]
fn what_is_printed_is_read_by_compose_and_shares_the_sockets_directory_with_programs() {
    let home = Home::new();
    for asked in ASKED {
        let text = printed(&home, &format!("{asked} --compose"));
        let file = home.path("compose.yaml");
        fs::write(&file, &text).unwrap();
        must("docker-compose", &["-f", file.to_str().unwrap(), "config", "--quiet"]);
        let compose = read(&home, &text);
        let services = compose["services"].as_object().unwrap();
        let volumes: Vec<&str> =
            services.values().map(|service| service["volumes"][0].as_str().unwrap()).collect();
        assert!(services.len() == 2 && volumes[0] == volumes[1], "{asked}: {volumes:?}");

        let pod = read(&home, &printed(&home, &format!("{asked} --kubernetes")));
        assert_eq!((pod["apiVersion"].as_str(), pod["kind"].as_str()), (Some("v1"), Some("Pod")), "{asked}");
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let mounts: Vec<&Value> = containers.iter().map(|one| &one["volumeMounts"][0]).collect();
        let folder = volumes[0].rsplit_once(':').unwrap().1;
        assert!(mounts.len() == 2 && mounts[0] == mounts[1] && mounts[0]["mountPath"] == folder, "{asked}");
        assert!(!words(&containers[0]["startupProbe"]["exec"]["command"]).is_empty(), "{asked}");
    }
}

#[test]
fn what_the_page_shows_is_what_is_printed() {
    let home = Home::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/containers.md");
    let page = fs::read_to_string(page).unwrap();
    let mut shown = 0;
    for part in page.split("```console\n$ samehost how ").skip(1) {
        let (asked, rest) = part.split_once("\n```\n").unwrap();
        let Some(text) = rest.trim_start().strip_prefix("```yaml\n") else { continue };
        assert_eq!(text.split("```").next().unwrap(), printed(&home, asked), "{asked}");
        shown += 1;
    }
    assert!(shown >= 3, "{shown} files are shown");
}

#[test]
fn an_answer_for_containers_is_about_one_service() {
    let home = Home::new();
    for (asked, why) in [
        ("typeorm --compose", "name one: samehost how m"),
        ("gunicorn --kubernetes", "knows no image of gunicorn"),
        ("typeorm --json", "uses several services"),
    ] {
        let ended = home.run(&["how"].into_iter().chain(asked.split(' ')).collect::<Vec<_>>());
        assert!(ended.status == 2 && ended.stderr.contains(why), "{asked}: {}", ended.both());
    }
}

/// Runs in namespaces of its own, with which podman, its containers and mounts end. /run is empty in there, as the server's
/// container in `bench` has it.
const FIRST: &str = r#"set -e
for hidden in /run /var/lib /dev/shm; do mount -t tmpfs none "$hidden"; done
umount /sys/fs/cgroup/unified 2>/dev/null || :
podman="podman --root $PWD/store --runroot $PWD/runroot --tmpdir $PWD/tmp --storage-driver vfs --log-level error"
run="$podman run --cgroups=disabled --read-only --network=none --security-opt=label=disable --volume=/usr:/usr:ro"
"#;

/// Roots of containers with this machine's programs, which are mounted at /usr.
fn root(home: &Home, name: &str) -> String {
    let made = home.path(name);
    fs::create_dir_all(made.join("usr")).unwrap();
    for link in ["bin", "sbin", "lib", "lib32", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            std::os::unix::fs::symlink(target, made.join(link)).unwrap();
        }
    }
    made.display().to_string()
}

fn in_shell(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

/// Starts the server and then the client as the file says, but for their images: each as another user, and with no network.
fn reached(asked: &str, client: &[&str]) -> String {
    let home = Home::new();
    let compose = read(&home, &printed(&home, &format!("{asked} --compose")));
    let (server, app) = (&compose["services"][asked.split(' ').next().unwrap()], &compose["services"]["app"]);
    let options = &compose["volumes"]["sockets"]["driver_opts"];
    let option = |name: &str| format!("{name}={}", options[name].as_str().unwrap());
    let volume = |service: &Value| service["volumes"][0].as_str().unwrap().to_owned();
    let variables = app["environment"].as_object().unwrap().iter();
    let variables: Vec<String> =
        variables.map(|(name, value)| format!("--env={name}={}", value.as_str().unwrap())).collect();
    let script = format!(
        "{FIRST}$podman volume create {}\n\
         $run --detach --log-driver=none --user=999:999 --name=server --volume={} --rootfs {} {}\n\
         for wait in $(seq 100); do $podman exec server {} && break; sleep 0.1; done\n\
         $run --log-driver=passthrough --user=10001:10001 --volume={} {} --rootfs {} {}\n",
        in_shell(&["--opt", &option("type"), "--opt", &option("device"), "--opt", &option("o"), "sockets"]),
        volume(server),
        root(&home, "server"),
        in_shell(&words(&server["command"])),
        in_shell(&words(&server["healthcheck"]["test"])[1..]),
        volume(app),
        in_shell(&variables.iter().map(String::as_str).collect::<Vec<_>>()),
        root(&home, "app"),
        in_shell(client),
    );
    let settings = "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"crun\"\n";
    fs::write(home.path("containers.conf"), settings).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", &script]);
    command.current_dir(home.path("")).env("CONTAINERS_CONF", home.path("containers.conf"));
    command.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap()));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{asked}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn two_containers_of_other_users_reach_each_other_over_the_socket_as_root() {
    if !is_root() {
        not_tested("without root: containers of podman");
        return;
    }
    let python = "/usr/bin/python3";
    let redis = "import os, redis; c = redis.Redis.from_url(os.environ['REDIS_URL']); print('reached', c.client_list()[0]['addr'])";
    let celery = "from celery import Celery; c = Celery(); c.connection_for_write().ensure_connection(max_retries=1); print('reached', c.backend.client.client_list()[0]['addr'])";
    let sidekiq = "require 'sidekiq'; Sidekiq.redis { |c| puts \"reached #{c.client(:list)[0]['addr']}\" }";
    let cached = "import os; from pymemcache.client.base import Client; path = os.environ['MEMCACHED_SOCKET']; Client('unix:' + path).set('a', 'b', noreply=False); print('reached', path)";
    for (asked, client, path) in [
        ("redis", &[python, "-c", redis], "/run/redis/redis.sock"),
        ("redis --client celery", &[python, "-c", celery], "/run/redis/redis.sock"),
        ("redis --client sidekiq", &["ruby", "-e", sidekiq], "/run/redis/redis.sock"),
        ("memcached", &[python, "-c", cached], "/run/memcached/memcached.sock"),
    ] {
        let said = reached(asked, client);
        assert!(said.contains(&format!("reached {path}")), "{asked}: {said}");
    }
}
