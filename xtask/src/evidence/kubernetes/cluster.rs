//! The control plane of Kubernetes on ports of 127.0.0.1: etcd from Debian, the rest from Go's proxy; kwok plays the nodes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::bench::free_port;
use crate::evidence::go::Module;
use crate::{succeed, text};

const KUBERNETES: Module = Module {
    path: "k8s.io/kubernetes",
    version: "v1.37.2",
    programs: &["cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kubectl"],
    tags: "",
    variables: &[
        ("k8s.io/component-base/version.gitVersion", "v1.37.2"),
        ("k8s.io/component-base/version.gitMajor", "1"),
        ("k8s.io/component-base/version.gitMinor", "37"),
        ("k8s.io/component-base/version.gitTreeState", "clean"),
    ],
    beside: Some("v0.37.2"),
};
const KWOK: Module = Module {
    path: "sigs.k8s.io/kwok",
    version: "v0.8.0",
    programs: &["cmd/kwok"],
    tags: "",
    variables: &[],
    beside: None,
};
/// What kwok does with nodes and pods, as its authors have it.
const STAGES: &[&str] = &["node/fast/node-initialize", "pod/fast/pod-ready", "pod/fast/pod-delete"];
/// Commands in a container are run by kwok, on this machine.
const COMMANDS: &str = r#"{"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterExec", "metadata": {"name": "all"}, "spec": {"execs": [{"local": {}}]}}"#;
/// Puts the programs of a folder into /usr/bin for what it starts, where an image has them.
const WITH_PROGRAMS: &str =
    r#"mount -t overlay none -o lowerdir="$1":/usr/bin /usr/bin && shift && exec "$@""#;
const TOKEN: &str = "of-a-cluster-that-ends-at-once";
/// Time for a program to answer.
const LIMIT: Duration = Duration::from_secs(300);

/// The programs, and their versions in a line.
pub(super) struct Programs {
    pub(super) folders: [PathBuf; 2],
    pub(super) versions: String,
}

impl Programs {
    pub(super) fn build() -> anyhow::Result<Self> {
        let folders = [KUBERNETES.build()?, KWOK.build()?];
        let etcd = text(Command::new("etcd").arg("--version"))?;
        let etcd = etcd.lines().next().unwrap_or_default().replace(" Version:", "");
        let versions = format!(
            "{} {}, {} {}, built here; {etcd} of Debian",
            KUBERNETES.path, KUBERNETES.version, KWOK.path, KWOK.version
        );
        Ok(Programs { folders, versions })
    }
}

/// A running control plane. It ends, the last that was started first, when this is dropped.
pub(super) struct Cluster<'a> {
    programs: &'a Programs,
    folder: PathBuf,
    /// Of the plugin.
    plugins: PathBuf,
    started: Vec<(&'static str, Child)>,
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for (_, child) in self.started.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl<'a> Cluster<'a> {
    /// `images` has what the containers' programs are.
    pub(super) fn start(
        programs: &'a Programs,
        folder: &Path,
        plugins: &Path,
        images: &Path,
    ) -> anyhow::Result<Self> {
        let mut cluster =
            Cluster { programs, folder: folder.to_owned(), plugins: plugins.to_owned(), started: Vec::new() };
        let etcd = cluster.etcd()?;
        cluster.api_server(&etcd)?;
        let config = format!("--kubeconfig={}", cluster.path("config").display());
        let key = format!("--service-account-private-key-file={}", cluster.path("accounts.key").display());
        let fast = ["--kube-api-qps=500", "--kube-api-burst=1000", "--leader-elect=false", "--secure-port=0"];
        let mut manager = cluster.program("kube-controller-manager");
        manager.args([&config, &key, "--use-service-account-credentials"]).args(fast);
        cluster.start_program("kube-controller-manager", manager)?;
        let mut scheduler = cluster.program("kube-scheduler");
        scheduler.arg(&config).args(fast);
        cluster.start_program("kube-scheduler", scheduler)?;
        cluster.nodes(&config, images)?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn program(&self, name: &str) -> Command {
        let [kubernetes, kwok] = &self.programs.folders;
        let paths = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(name);
        command.env(
            "PATH",
            format!("{}:{}:{}:{paths}", kubernetes.display(), kwok.display(), self.plugins.display()),
        );
        command.env("KUBECONFIG", self.path("config")).env("HOME", &self.folder).current_dir(&self.folder);
        command
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut kubectl = self.program("kubectl");
        kubectl.args(arguments);
        kubectl
    }

    fn start_program(&mut self, name: &'static str, mut command: Command) -> anyhow::Result<()> {
        let log = File::create(self.path(name).with_extension("log"))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.started.push((name, child.with_context(|| format!("starting {name}"))?));
        Ok(())
    }

    /// Waits until something holds. Fails when one of the programs has ended.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> anyhow::Result<T> {
        let begun = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            let mut ended = None;
            for (name, child) in &mut self.started {
                if child.try_wait()?.is_some() {
                    ended = Some(*name);
                }
            }
            let is_late = begun.elapsed() > LIMIT;
            if is_late || ended.is_some() {
                let name = ended.unwrap_or("kube-apiserver");
                let log = fs::read_to_string(self.path(name).with_extension("log")).unwrap_or_default();
                let from = log.len().saturating_sub(2_000);
                bail!(
                    "{what}: not after {:?}; the log of {name}: {}",
                    begun.elapsed(),
                    log.get(from..).unwrap_or(&log)
                );
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn etcd(&mut self) -> anyhow::Result<String> {
        let [clients, peers] = [free_port()?, free_port()?].map(|port| format!("http://127.0.0.1:{port}"));
        let mut etcd = self.program("etcd");
        etcd.args([
            &format!("--data-dir={}", self.path("etcd").display()),
            &format!("--listen-client-urls={clients}"),
            &format!("--advertise-client-urls={clients}"),
            &format!("--listen-peer-urls={peers}"),
            &format!("--initial-advertise-peer-urls={peers}"),
            &format!("--initial-cluster=default={peers}"),
            "--unsafe-no-fsync",
        ]);
        self.start_program("etcd", etcd)?;
        Ok(clients)
    }

    fn api_server(&mut self, etcd: &str) -> anyhow::Result<()> {
        let key = self.path("accounts.key").display().to_string();
        succeed(Command::new("openssl").args(["genrsa", "-out", &key, "2048"]))?;
        fs::write(self.path("tokens.csv"), format!("{TOKEN},admin,1,\"system:masters\"\n"))?;
        let port = free_port()?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        });
        fs::write(self.path("config"), config.to_string())?;
        let mut server = self.program("kube-apiserver");
        server.args([
            &format!("--etcd-servers={etcd}"),
            &format!("--secure-port={port}"),
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            // It would refuse to announce a loopback address.
            "--endpoint-reconciler-type=none",
            &format!("--cert-dir={}", self.path("certificates").display()),
            "--service-account-issuer=https://samehost.invalid",
            &format!("--service-account-key-file={key}"),
            &format!("--service-account-signing-key-file={key}"),
            "--service-cluster-ip-range=10.0.0.0/24",
            &format!("--token-auth-file={}", self.path("tokens.csv").display()),
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--allow-privileged=false",
        ]);
        self.start_program("kube-apiserver", server)?;
        let ready = |cluster: &Self| text(&mut cluster.kubectl(&["get", "--raw", "/readyz"])).ok();
        self.wait("the API server", ready).map(drop)
    }

    fn nodes(&mut self, config: &str, images: &Path) -> anyhow::Result<()> {
        let [key, certificate] = ["node.key", "node.crt"].map(|name| self.path(name).display().to_string());
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node"]);
        succeed(openssl.args(["-keyout", &key, "-out", &certificate]))?;
        fs::write(self.path("commands.yaml"), COMMANDS)?;
        let port = free_port()?;
        let mut kwok = self.program("unshare");
        kwok.args(["--mount", "sh", "-c", WITH_PROGRAMS, "sh"]).arg(images).args([
            "kwok",
            config,
            "--manage-all-nodes",
            "--node-lease-duration-seconds=40",
            "--node-name=localhost",
            "--node-ip=127.0.0.1",
            &format!("--node-port={port}"),
            &format!("--server-address=127.0.0.1:{port}"),
            &format!("--tls-cert-file={certificate}"),
            &format!("--tls-private-key-file={key}"),
            &format!("--config={}", self.path("commands.yaml").display()),
        ]);
        for stage in STAGES {
            let file = KWOK.sources().join("kustomize/stage").join(stage).with_extension("yaml");
            ensure!(file.exists(), "{}", file.display());
            kwok.arg(format!("--config={}", file.display()));
        }
        self.start_program("kwok", kwok)
    }

    /// What kubectl prints as JSON.
    pub(super) fn get(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let json = text(&mut self.kubectl(&[&["get", "--output=json"], arguments].concat()))?;
        Ok(serde_json::from_str(&json)?)
    }

    /// Adds nodes, whose names begin with `node-`.
    pub(super) fn add_nodes(
        &self,
        numbers: std::ops::Range<usize>,
        os: &str,
        taint: Option<&str>,
    ) -> anyhow::Result<()> {
        let node = |number: usize| {
            let name = format!("node-{number:04}");
            let size = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
            let taints = taint.map(|key| json!({"key": key, "effect": "NoSchedule"}));
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/os": os, "kubernetes.io/hostname": name}},
                "spec": {"taints": taints.into_iter().collect::<Vec<_>>()},
                "status": {"allocatable": size, "capacity": size},
            })
        };
        let list =
            json!({"apiVersion": "v1", "kind": "List", "items": numbers.map(node).collect::<Vec<_>>()});
        let file = self.path("nodes.json");
        fs::write(&file, list.to_string())?;
        succeed(self.kubectl(&["create", "--filename"]).arg(&file))
    }
}
