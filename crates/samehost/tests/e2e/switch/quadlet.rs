//! A PostgreSQL of this machine, and a container of podman that reaches it over TCP. Its Quadlet file gets the socket and the
//! volume; podman's own generator says how the container is then started, and it is; PostgreSQL says what it is reached by.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use samehost_testing::postgres::{Cluster, SECRET};

use super::stack::{Stack, in_one_line, is_root, must, wait_for};
use crate::support::send;
use crate::workloads::support::newest;

/// Asks the server how it is reached, over and over, with a connection that stays for a moment.
const CLIENT: &str = "while :; do
  PSQL -XAtqc \"SELECT coalesce(host(client_addr), 'unix') FROM pg_stat_activity WHERE pid = pg_backend_pid()\" -c 'SELECT pg_sleep(0.3)' >/seen/next 2>/seen/error &&
    head -n1 /seen/next >/seen/now
done
";

/// Starts what the generator makes of the file, in namespaces with which all of it ends. No control group is made, which would stay
/// in the machine's tree, and there is no systemd that waits for word.
const START: &str = r#"set -e
for hidden in /run /var/lib /dev/shm; do mount -t tmpfs none $hidden; done
umount /sys/fs/cgroup/unified 2>/dev/null || :
line=$(QUADLET_UNIT_DIRS="$1" "$2" -dryrun 2>/dev/null | sed -n 's/^ExecStart=//p')
line=$(echo "$line" | sed 's/--cgroups=split/--cgroups=disabled --log-driver=passthrough --ulimit=host/; s/--sdnotify=conmon/--sdnotify=ignore/; s/ -d / /')
eval "set -- $line"
shift
exec podman --root "$STATE/store" --runroot "$STATE/runroot" --tmpdir "$STATE/tmp" --storage-driver vfs --log-level error "$@"
"#;

struct Shop {
    stack: Stack,
    cluster: Cluster,
    quadlet: PathBuf,
    file: PathBuf,
    running: Option<Child>,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shop {
    fn make() -> Self {
        let stack = Stack::new();
        // Its directory is where the socket is.
        let cluster = Cluster::start_below(&stack.path(""), 20);
        let root = stack.path("root");
        for name in ["usr", "proc", "sys", "dev", "run", "tmp", "etc", "seen"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            symlink(fs::read_link(Path::new("/").join(name)).unwrap(), root.join(name)).unwrap();
        }
        let psql = must("sh", &["-c", "ls /usr/lib/postgresql/*/bin/psql | tail -n1"]);
        let client = stack.write("seen/client", &CLIENT.replace("PSQL", psql.trim()));
        let file = stack.write(
            "containers/shop.container",
            &format!(
                "[Unit]\nDescription=A shop\n\n[Container]\nRootfs={}\nContainerName=shop\nNetwork=host\nSecurityLabelDisable=true\n\
                 Volume=/usr:/usr:ro\nVolume={}:/seen\nEnvironment=PGHOST=127.0.0.1\nEnvironment=PGPORT={} PGUSER=by_scram\n\
                 Environment=PGPASSWORD={SECRET} PGDATABASE=shop\nExec=/bin/sh /seen/client\n\n[Install]\nWantedBy=multi-user.target\n",
                root.display(),
                client.parent().unwrap().display(),
                cluster.port
            ),
        );
        let conf = "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nruntime = \"crun\"\n";
        stack.write("podman.conf", conf);
        let quadlet = newest("usr/libexec/podman/quadlet");
        let mut shop = Shop { stack, cluster, quadlet, file, running: None };
        shop.start();
        shop
    }

    /// Starts the container as the file says now.
    fn start(&mut self) {
        let at = |name: &str| self.stack.path(name).display().to_string();
        let log = fs::File::create(self.stack.path("podman.log")).unwrap();
        let child = Command::new("unshare")
            .args([
                "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "/bin/sh", "-c", START,
                "sh",
            ])
            .args([&at("containers"), &self.quadlet.display().to_string()])
            .env("STATE", at("podman"))
            .env("CONTAINERS_CONF", at("podman.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running = Some(child);
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            send(child.id(), Signal::KILL);
            let _ = child.wait();
        }
        let _ = fs::remove_file(self.stack.path("seen/now"));
    }

    /// Waits until the server sees the container over this.
    fn wait_for(&self, seen: &str) {
        let log = || fs::read_to_string(self.stack.path("podman.log")).unwrap_or_default();
        wait_for(&format!("{seen}: {}", log()), || {
            let now = fs::read_to_string(self.stack.path("seen/now")).ok()?;
            (now.trim() == seen).then_some(())
        });
    }
}

#[test]
fn a_container_moves_to_a_socket_of_this_machine_and_comes_back() {
    if !is_root("a_container_moves_to_a_socket_of_this_machine_and_comes_back") {
        return;
    }
    let mut shop = Shop::make();
    shop.wait_for("127.0.0.1");
    let before = Stack::facts(&[&shop.file]);
    let name = shop.file.display().to_string();

    let dry = shop.stack.samehost(&["switch", &name, "--dry-run"]);
    assert_eq!(dry.status, 0, "{}", dry.both());
    let socket = shop.cluster.socket();
    let folder = Path::new(socket.strip_prefix("unix:").unwrap()).parent().unwrap().display().to_string();
    for line in [format!("+ Volume={folder}:{folder}"), format!("+ Environment=PGHOST={folder}")] {
        assert!(dry.stdout.contains(&line), "{line}: {}", dry.both());
    }
    assert_eq!(Stack::facts(&[&shop.file]), before);

    let ended = shop.stack.samehost(&["switch", &name, "--no-confirm", "--yes"]);
    assert_eq!(ended.status, 0, "{}", ended.both());
    shop.stack.assert_nothing_to_do(&["switch", &name, "--no-confirm", "--yes"], &[]);
    assert!(ended.stdout.contains("user by_scram, Unix socket"), "{}", ended.both());
    assert!(in_one_line(&ended).contains("systemctl --user restart -- shop.service"), "{}", ended.both());
    let text = fs::read_to_string(&shop.file).unwrap();
    assert!(text.contains(&format!("Volume={folder}:{folder}\nEnvironment=PGHOST={folder}\n")), "{text}");
    shop.stop();
    shop.start();
    shop.wait_for("unix");

    let undone = shop.stack.samehost(&["switch", "--undo", &shop.stack.only_switch(), "--yes"]);
    assert_eq!(undone.status, 0, "{}", undone.both());
    assert_eq!(Stack::facts(&[&shop.file]), before);
    shop.stop();
    shop.start();
    shop.wait_for("127.0.0.1");
    for said in [&dry, &ended, &undone] {
        assert!(!said.both().contains(SECRET), "{}", said.both());
    }
}
