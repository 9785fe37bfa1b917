//! Kubernetes manifests: which containers reach a database or a Redis over TCP, and what to write instead. Nothing is
//! edited: the cluster has the manifest, and what applies it (kubectl, Helm, Argo CD, `podman kube play`) would undo an
//! edit or lack it.
//!
//! A socket is shared inside one pod only, in a volume of the pod: an `emptyDir`, which is mode 0777. Containers of two pods
//! may run on two machines.

use std::collections::HashMap;
use std::path::Path;

use super::compose::host_of;
use super::image::{Server, is_loopback, leads};
use crate::editor::Editor;
use crate::files::{Edit, Files};
use crate::languages::yaml::{Document, Kind, Node};
use crate::lines;
use crate::refusal::{Refusal, Result};
use crate::setting::{Goal, Reading, Setting, Uptake};

#[derive(Debug)]
pub(crate) struct Kubernetes;

/// What has pods, and the way to the pod's own `spec`.
const WORKLOADS: &[(&str, &[&str])] = &[
    ("Pod", &["spec"]),
    ("Deployment", &["spec", "template", "spec"]),
    ("StatefulSet", &["spec", "template", "spec"]),
    ("DaemonSet", &["spec", "template", "spec"]),
    ("ReplicaSet", &["spec", "template", "spec"]),
    ("ReplicationController", &["spec", "template", "spec"]),
    ("Job", &["spec", "template", "spec"]),
    ("CronJob", &["spec", "jobTemplate", "spec", "template", "spec"]),
];

impl Editor for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn about(&self) -> &'static str {
        "Kubernetes manifests: says what to write; nothing is edited"
    }

    fn recognises(&self, path: &Path, text: &[u8]) -> bool {
        let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let (mut has_version, mut has_kind) = (false, false);
        for line in text.split(|byte| *byte == b'\n') {
            has_version |= line.starts_with(b"apiVersion:");
            if let Some(kind) = line.strip_prefix(b"kind:") {
                has_kind |= WORKLOADS.iter().any(|(name, _)| name.as_bytes() == kind.trim_ascii());
            }
        }
        is_yaml && has_version && has_kind
    }

    fn read(&self, file: &Path, files: &dyn Files) -> Result<Reading> {
        let text = lines::read_text(file, files, "it is not UTF-8")?;
        let by_hand = "an emptyDir volume that the server's and the client's container of one pod mount";
        let documents =
            Document::parse_all(&text).map_err(|refusal| refusal.in_file(file).by_hand(by_hand))?;
        let manifests = Manifests::of(file, &documents);
        Ok(Reading { settings: Vec::new(), refused: manifests.hops() })
    }

    fn edit(&self, _: &Path, _: &dyn Files, setting: &Setting, _: &Goal) -> Result<Vec<Edit>> {
        Err(setting.gone())
    }

    fn uptake(&self, _file: &Path) -> Uptake {
        Uptake::RestartApplication
    }
}

struct Manifests<'a> {
    file: &'a Path,
    documents: &'a [Document],
    /// The first Service of each name.
    services: HashMap<&'a str, &'a Document>,
}

struct Pods<'a> {
    all: Vec<Pod<'a>>,
    labelled: HashMap<(String, Option<String>), Vec<usize>>,
}

fn label(key: &Node, value: &Node) -> Option<(String, Option<String>)> {
    Some((key.text()?.to_owned(), value.text().map(str::to_owned)))
}

impl<'a> Pods<'a> {
    fn of(all: Vec<Pod<'a>>) -> Self {
        let mut labelled: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, pod) in all.iter().enumerate() {
            for (key, value) in pod.labels.map_or(&[][..], Node::pairs) {
                let Some(label) = label(key, value) else { continue };
                labelled.entry(label).or_default().push(place);
            }
        }
        Pods { all, labelled }
    }

    fn with(&self, (key, value): &(Node, Node)) -> &[usize] {
        let Some(label) = label(key, value) else { return &[] };
        self.labelled.get(&label).map_or(&[], Vec::as_slice)
    }
}

/// A pod, or what makes pods.
struct Pod<'a> {
    /// `Deployment web`.
    name: String,
    labels: Option<&'a Node>,
    containers: Vec<Container<'a>>,
    /// The containers with a server that a client could mean, as indexes.
    servers: Vec<(usize, Server)>,
    /// How many containers with a server have a name.
    server_names: HashMap<&'a str, usize>,
    server_count: usize,
}

struct Container<'a> {
    name: &'a str,
    image: &'a str,
    node: &'a Node,
}

impl<'a> Manifests<'a> {
    fn of(file: &'a Path, documents: &'a [Document]) -> Self {
        let mut services = HashMap::new();
        for document in documents {
            if document.root.value("kind").and_then(Node::text) != Some("Service") {
                continue;
            }
            if let Some(name) = at(&document.root, &["metadata", "name"]).and_then(Node::text) {
                services.entry(name).or_insert(document);
            }
        }
        Manifests { file, documents, services }
    }

    fn hops(&self) -> Vec<Refusal> {
        let pods = Pods::of(self.documents.iter().filter_map(|document| pod(&document.root)).collect());
        let mut hops = Vec::new();
        for pod in &pods.all {
            for client in &pod.containers {
                for (name, value) in client.variables() {
                    hops.extend(self.hop(&pods, pod, client, name, value));
                }
            }
        }
        hops
    }

    fn hop(
        &self,
        pods: &Pods<'a>,
        pod: &Pod<'a>,
        client: &Container<'a>,
        name: &str,
        value: &Node,
    ) -> Option<Refusal> {
        if !leads(name) {
            return None;
        }
        let text = value.text()?;
        let host = host_of(text)?;
        let (home, server, served) = if is_loopback(&host) {
            let (server, served) = pod.server(client, text)?;
            (pod, server, served)
        } else {
            let other = self.behind(pods, &host)?;
            let (server, served) = other.first_server()?;
            (other, server, served)
        };
        let recipe = recipe(client, server, served, name);
        let (reason, by_hand) = if std::ptr::eq(home, pod) {
            (format!("it reaches {} of its pod over TCP; manifests are not edited", server.name), recipe)
        } else {
            (
                format!(
                    "it reaches {} in {} over TCP, and two pods may run on two machines: a socket is for one pod",
                    server.name, home.name
                ),
                format!(
                    "keep TCP between the pods; or make {} a container of {} as well, and there {recipe}",
                    server.name, pod.name
                ),
            )
        };
        let what = format!("{} in {}, {name}", client.name, pod.name);
        Some(Refusal::new(self.file, value.line, format!("{what}: {reason}"), by_hand))
    }

    fn behind<'p>(&self, pods: &'p Pods<'a>, host: &str) -> Option<&'p Pod<'a>> {
        let service = self.services.get(host.split('.').next()?)?;
        let selector = at(&service.root, &["spec", "selector"])?.pairs();
        // Only the pods with the rarest of the labels are looked at.
        let few = selector.iter().map(|pair| pods.with(pair)).min_by_key(|few| few.len())?;
        for place in few {
            let pod = &pods.all[*place];
            if selector.iter().all(|(key, value)| pod.has_label(key, value)) {
                return Some(pod);
            }
        }
        None
    }
}

fn at<'a>(mut node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    for name in path {
        node = node.value(name)?;
    }
    Some(node)
}

fn pod(root: &Node) -> Option<Pod<'_>> {
    let kind = root.value("kind")?.text()?;
    let (_, path) = WORKLOADS.iter().find(|(name, _)| *name == kind)?;
    let spec = at(root, path)?;
    // The pod's metadata stand beside its spec.
    let (_, above) = path.split_last()?;
    let own = at(root, above)?;
    let name = at(root, &["metadata", "name"]).and_then(Node::text).unwrap_or_default();
    let mut containers = Vec::new();
    for list in ["containers", "initContainers"] {
        let Some(Kind::List(items)) = spec.value(list).map(|list| &list.kind) else { continue };
        for node in items {
            let Some(name) = node.value("name").and_then(Node::text) else { continue };
            let image = node.value("image").and_then(Node::text).unwrap_or_default();
            containers.push(Container { name, image, node });
        }
    }
    let mut pod = Pod {
        name: format!("{kind} {name}"),
        labels: at(own, &["metadata", "labels"]),
        containers,
        servers: Vec::new(),
        server_names: HashMap::new(),
        server_count: 0,
    };
    pod.find_servers();
    Some(pod)
}

impl Pod<'_> {
    fn has_label(&self, key: &Node, value: &Node) -> bool {
        let (Some(labels), Some(name)) = (self.labels, key.text()) else { return false };
        labels.value(name).is_some_and(|own| own.text() == value.text())
    }

    /// Of the servers at one port only the first can be meant, or the first of another name, by a client in that one.
    fn find_servers(&mut self) {
        let mut known: HashMap<u16, Vec<&str>> = HashMap::new();
        for (place, container) in self.containers.iter().enumerate() {
            let Some(served) = Server::of_image(container.image) else { continue };
            self.server_count += 1;
            *self.server_names.entry(container.name).or_default() += 1;
            let names = known.entry(served.port()).or_default();
            if names.len() < 2 && !names.contains(&container.name) {
                names.push(container.name);
                self.servers.push((place, served));
            }
        }
    }
}

impl<'a> Pod<'a> {
    fn first_server(&self) -> Option<(&Container<'a>, Server)> {
        for container in &self.containers {
            if let Some(served) = Server::of_image(container.image) {
                return Some((container, served));
            }
        }
        None
    }

    /// The server that a client means by an address of the loopback: the one at its port, else the only one.
    fn server(&self, client: &Container<'_>, value: &str) -> Option<(&Container<'a>, Server)> {
        let mut others = self.servers.clone();
        others.retain(|(place, _)| self.containers[*place].name != client.name);
        let named = others.iter().find(|(_, served)| value.contains(&format!(":{}", served.port())));
        let own = self.server_names.get(client.name).copied().unwrap_or_default();
        let (place, served) = match named {
            Some(named) => named,
            None if self.server_count - own == 1 => others.first()?,
            None => return None,
        };
        Some((&self.containers[*place], *served))
    }
}

impl<'a> Container<'a> {
    fn variables(&self) -> Vec<(&'a str, &'a Node)> {
        let Some(Kind::List(items)) = self.node.value("env").map(|list| &list.kind) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items {
            let Some(name) = item.value("name").and_then(Node::text) else { continue };
            let Some(value) = item.value("value") else { continue };
            found.push((name, value));
        }
        found
    }
}

fn recipe(client: &Container<'_>, server: &Container<'_>, served: Server, variable: &str) -> String {
    let volume = format!("{}-socket", server.name);
    // Every container of the pod gets this group, and so does what is made in the volume.
    let needs = match served.arguments("770") {
        None => String::new(),
        Some(arguments) => format!(
            "args of {}: [{}]; spec.securityContext of the pod: {{fsGroup: 999}}; ",
            server.name,
            arguments.map(|word| format!("\"{word}\"")).join(", ")
        ),
    };
    format!(
        "volumes: [{{name: {volume}, emptyDir: {{}}}}]; in {} and {}: volumeMounts: [{{name: {volume}, mountPath: {}}}]; {needs}{variable} of {}: {}",
        server.name,
        client.name,
        served.directory,
        client.name,
        served.value(variable)
    )
}
