//! The DaemonSet, the example of a shared socket and the plugin of kubectl: admitted, placed and asked in a real control
//! plane with simulated nodes; then the pods as they were admitted, by podman.

mod cluster;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::Account;
use crate::{succeed, text};
use cluster::{Cluster, Programs};

/// Programs that have to be on this machine, and their packages in Debian.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/etcd", "etcd-server"),
    ("/usr/bin/podman", "podman"),
    ("/usr/bin/crun", "crun"),
    ("/usr/bin/catatonit", "catatonit"),
    ("/usr/bin/redis-server", "redis-server"),
    ("/usr/bin/nc", "netcat-openbsd"),
    ("/usr/bin/openssl", "openssl"),
    ("/usr/bin/shellcheck", "shellcheck"),
];
/// Those of them that only the control plane needs.
const OF_CLUSTER: &[&str] = &["etcd-server", "openssl", "shellcheck"];
/// Nodes with Linux, of which the first ones are of the control plane, and others.
const NODES: usize = 1_000;
const OF_CONTROL_PLANE: usize = 3;
const OTHERS: usize = 2;
const PODS: &str = include_str!("kubernetes/pods.sh");

/// A right of the pod that may be left out, and how many clients of Redis are then seen: over TCP, over Unix sockets.
/// One is in the node's network, one in a pod's. With a plus, a right more.
const RIGHTS: &[(&str, [u32; 2])] = &[
    ("", [2, 1]),
    ("--cap-add=SYS_PTRACE", [0, 0]),
    ("--cap-add=DAC_READ_SEARCH", [0, 0]),
    ("--pid=host", [0, 0]),
    ("--network=host", [2, 0]),
    ("+--cap-add=SYS_ADMIN", [2, 2]),
];

/// The part that needs no control plane.
const SOCKET: &str = "socket";

pub(super) fn kubernetes(account: &mut Account<'_>) -> anyhow::Result<()> {
    let is_all = match account.only.as_deref() {
        None => true,
        Some(SOCKET) => false,
        Some(other) => bail!("`{other}` is not a part that runs by itself; there is: {SOCKET}"),
    };
    let needed = NEEDED.iter().filter(|(_, package)| is_all || !OF_CLUSTER.contains(package));
    super::need(&needed.copied().collect::<Vec<_>>())?;
    let folder = tempfile::tempdir()?;
    let packaging = account.root.join("packaging/kubernetes");
    let program = crate::dist::program()?;
    let pod = if is_all { Some(in_a_cluster(account, &program, &packaging, folder.path())?) } else { None };
    pods(account, &program, pod.as_ref(), &packaging, folder.path())
}

/// What the control plane makes of the files; the pod of a node as it was admitted.
fn in_a_cluster(
    account: &mut Account<'_>,
    program: &Path,
    packaging: &Path,
    folder: &Path,
) -> anyhow::Result<Value> {
    let built = Instant::now();
    let programs = Programs::build()?;
    account.tell(&format!("cluster | {}", programs.versions));
    account.tell(&format!("cluster | built in {} s (0: it was there)", built.elapsed().as_secs()));
    succeed(Command::new("shellcheck").arg(packaging.join("kubectl-samehost")))?;
    let image = folder.join("image");
    fs::create_dir(&image)?;
    fs::copy(program, image.join("samehost"))?;
    let home = folder.join("cluster");
    fs::create_dir(&home)?;
    let mut cluster = Cluster::start(&programs, &home, packaging, &image)?;
    admitted(account, &mut cluster, packaging)?;
    levels(account, &mut cluster, packaging)?;
    asked(account, &cluster)?;
    one_pod(&cluster)
}

/// The pods of the DaemonSet.
fn of_daemon_set(cluster: &Cluster<'_>) -> anyhow::Result<Vec<Value>> {
    let found =
        cluster.get(&["pods", "--namespace=samehost", "--selector=app.kubernetes.io/name=samehost"])?;
    Ok(found["items"].as_array().context("items")?.clone())
}

fn one_pod(cluster: &Cluster<'_>) -> anyhow::Result<Value> {
    of_daemon_set(cluster)?.into_iter().next().context("a pod")
}

fn node_of(pod: &Value) -> Option<String> {
    Some(pod["spec"]["nodeName"].as_str()?.to_owned())
}

fn apply(cluster: &Cluster<'_>, file: &Path, more: &[&str]) -> anyhow::Result<String> {
    text(cluster.kubectl(&["apply"]).args(more).arg("--filename").arg(file))
}

/// Where the scheduler puts the pods, and what their account may do.
fn admitted(account: &mut Account<'_>, cluster: &mut Cluster<'_>, packaging: &Path) -> anyhow::Result<()> {
    let daemon = packaging.join("samehost.yaml");
    apply(cluster, &daemon, &[])?;
    let begun = Instant::now();
    cluster.add_nodes(0..OF_CONTROL_PLANE, "linux", Some("node-role.kubernetes.io/control-plane"))?;
    cluster.add_nodes(OF_CONTROL_PLANE..NODES, "linux", None)?;
    cluster.add_nodes(NODES..NODES + OTHERS, "windows", None)?;
    let status = |cluster: &Cluster<'_>| {
        let found = cluster.get(&["daemonset", "samehost", "--namespace=samehost"]).ok()?;
        let count = |name: &str| found["status"][name].as_u64();
        let counts =
            [count("desiredNumberScheduled")?, count("currentNumberScheduled")?, count("numberReady")?];
        (counts == [NODES as u64; 3]).then_some(())
    };
    cluster.wait("a pod on each node", status)?;
    let nodes: BTreeSet<String> = of_daemon_set(cluster)?.iter().filter_map(node_of).collect();
    let wanted: BTreeSet<String> = (0..NODES).map(|number| format!("node-{number:04}")).collect();
    ensure!(nodes == wanted, "{nodes:?}");
    account.tell(&format!(
        "cluster | {NODES} nodes with Linux, {OF_CONTROL_PLANE} of them tainted as control plane: a pod on each, ready {} s \
         after the first node; none on the {OTHERS} nodes with Windows",
        begun.elapsed().as_secs()
    ));
    let again = apply(cluster, &daemon, &["--dry-run=server"])?;
    ensure!(again.lines().all(|line| line.contains("unchanged")), "{again}");
    account.tell("cluster | applied once more: unchanged, each object");
    let mut rights = cluster.kubectl(&["auth", "can-i", "get", "pods", "--all-namespaces"]);
    rights.arg("--as=system:serviceaccount:samehost:samehost");
    let rights = String::from_utf8(rights.output()?.stdout)?;
    ensure!(rights.trim() == "no", "{rights}");
    ensure!(
        !of_daemon_set(cluster)?.iter().any(|pod| pod.to_string().contains("serviceAccountToken")),
        "a pod has a token"
    );
    account.tell("cluster | its account may not read pods, and no pod has a token of it");
    Ok(())
}

/// What the API server takes and refuses where namespaces have a level of pod security.
fn levels(account: &mut Account<'_>, cluster: &mut Cluster<'_>, packaging: &Path) -> anyhow::Result<()> {
    let shared = packaging.join("shared-socket.yaml");
    for level in ["baseline", "restricted"] {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        succeed(&mut cluster.kubectl(&["create", "namespace", level]))?;
        succeed(&mut cluster.kubectl(&["label", "namespace", level, &label]))?;
        let pod = one_pod(cluster)?;
        let refusal = refused(cluster, &pod, level)?;
        account.tell(&format!("cluster | in a namespace of the level {level} the pod is refused: {refusal}"));
    }
    let strict = |cluster: &Cluster<'_>| apply(cluster, &shared, &["--namespace=restricted"]).ok();
    // A namespace has no account for pods at first.
    cluster.wait("the example", strict)?;
    let running = |cluster: &Cluster<'_>| {
        let pod = cluster.get(&["pod", "shared-socket", "--namespace=restricted"]).ok()?;
        (pod["status"]["phase"] == "Running").then(|| node_of(&pod))?
    };
    let node = cluster.wait("the example, running", running)?;
    account.tell(&format!(
        "cluster | the example of a shared socket is taken at the level restricted, and is on {node}"
    ));
    Ok(())
}

/// Why a pod is not taken into a namespace.
fn refused(cluster: &Cluster<'_>, pod: &Value, namespace: &str) -> anyhow::Result<String> {
    let mut pod = pod.clone();
    pod["metadata"] = serde_json::json!({"name": "refused", "namespace": namespace});
    pod["spec"]["serviceAccountName"] = "default".into();
    pod["spec"]["serviceAccount"] = "default".into();
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), pod.to_string())?;
    let begun = Instant::now();
    loop {
        let output =
            cluster.kubectl(&["create", "--dry-run=server", "--filename"]).arg(file.path()).output()?;
        let stderr = String::from_utf8(output.stderr)?;
        if let Some((_, why)) = stderr.split_once("violates PodSecurity ") {
            return Ok(why.trim().to_owned());
        }
        // A namespace has no account for pods at first.
        ensure!(
            stderr.contains("serviceaccount") && begun.elapsed() < Duration::from_secs(30),
            "{namespace}: {stderr}"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The plugin, through the API server and the nodes.
fn asked(account: &mut Account<'_>, cluster: &Cluster<'_>) -> anyhow::Result<()> {
    let begun = Instant::now();
    let found = text(&mut cluster.kubectl(&["samehost", "-nsamehost", "--parallel=16", "scan", "--json"]))?;
    let mut nodes = BTreeSet::new();
    for line in found.lines() {
        let answer: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        ensure!(answer["found"]["connections"].is_array(), "{line}");
        nodes.insert(answer["node"].as_str().context("a node")?.to_owned());
    }
    ensure!(nodes.len() == NODES && found.lines().count() == NODES, "{} nodes", nodes.len());
    account.tell(&format!(
        "plugin | kubectl samehost scan --json: a line of each of {NODES} nodes in {} s, through the API server",
        begun.elapsed().as_secs()
    ));
    let windows = format!("node-{NODES:04}");
    let mut two = cluster.kubectl(&["samehost", "--node", "node-0000", "--node", &windows, "how", "redis"]);
    let output = two.output()?;
    let (found, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    let first = found.lines().next().unwrap_or_default();
    ensure!(output.status.code() == Some(1) && first == "== node-0000", "{found}{said}");
    account.tell(&format!("plugin | a node without a pod: status 1, `{}`", said.trim()));
    Ok(())
}

/// What podman is told for a pod of one container, as the API server admitted it. podman 4.3 leaves `hostPID` out of what
/// it plays itself.
fn as_arguments(pod: &Value) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    let security = &container["securityContext"];
    let list = |value: &Value| {
        value.as_array().into_iter().flatten().map(text_of).collect::<anyhow::Result<Vec<_>>>()
    };
    let mut words = vec![format!("--user={}", security["runAsUser"])];
    let flags = [
        (&security["readOnlyRootFilesystem"], true, "--read-only"),
        (&security["allowPrivilegeEscalation"], false, "--security-opt=no-new-privileges"),
        (&security["privileged"], true, "--privileged"),
        (&spec["hostPID"], true, "--pid=host"),
    ];
    words.extend(
        flags.iter().filter(|(value, wanted, _)| **value == *wanted).map(|(.., word)| (*word).to_owned()),
    );
    let network = if spec["hostNetwork"] == true { "host" } else { "none" };
    words.push(format!("--network={network}"));
    let capabilities = &security["capabilities"];
    words.extend(list(&capabilities["drop"])?.iter().map(|name| format!("--cap-drop={name}")));
    words.extend(list(&capabilities["add"])?.iter().map(|name| format!("--cap-add={name}")));
    let memory = text_of(&container["resources"]["limits"]["memory"])?;
    words.push(format!("--memory={}", memory.replace("Mi", "m")));
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let mut volumes = spec["volumes"].as_array().into_iter().flatten();
        let volume = volumes.find(|volume| volume["name"] == mount["name"]).context("its volume")?;
        let (from, to) = (text_of(&volume["hostPath"]["path"])?, text_of(&mount["mountPath"])?);
        words.push(format!("--volume={from}:{to}"));
    }
    let image = text_of(&container["image"])?;
    Ok((words, [vec![image], list(&container["args"])?].concat()))
}

fn text_of(value: &Value) -> anyhow::Result<String> {
    value.as_str().map(str::to_owned).with_context(|| format!("a text: {value}"))
}

/// The pods for real, by podman.
fn pods(
    account: &mut Account<'_>,
    program: &Path,
    pod: Option<&Value>,
    packaging: &Path,
    folder: &Path,
) -> anyhow::Result<()> {
    let made = folder.join("packages");
    let (version, epoch) = (env!("CARGO_PKG_VERSION"), crate::dist::epoch()?);
    let packages = crate::package::all(program, version, epoch, &crate::dist::licences_of_others()?, &made)?;
    let image = packages
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "tar"))
        .context("no image: the program is not static")?;
    let [root, state, cases] = ["root", "state", "cases"].map(|name| folder.join(name));
    for made in [&root, &state, &cases] {
        fs::create_dir(made)?;
    }
    with_libraries(Path::new("/usr/bin/redis-server"), &root)?;
    let as_it_is = folder.join("as-it-is");
    if let Some(pod) = pod {
        let (rights, command) = as_arguments(pod)?;
        fs::write(&as_it_is, [rights.clone(), command.clone()].concat().join("\n"))?;
        write_cases(&rights, &command[0], &cases)?;
        account.tell(&format!("pod | as it was admitted: {}", rights.join(" ")));
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--", "timeout", "600"]);
    unshare.args(["bash", "-c", PODS]).env("STATE", &state).env("IMAGE", image).env("ROOT", &root);
    unshare
        .env("PROGRAM", program)
        .env("CASES", pod.map_or_else(PathBuf::new, |_| cases.clone()))
        .env("AS_IT_IS", &as_it_is)
        .env("SHARED", packaging.join("shared-socket.yaml"));
    let output = unshare.output().context("starting unshare")?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut seen = Vec::new();
    let mut shared = Vec::new();
    for (what, found) in said.lines().filter_map(|line| line.strip_prefix("held: ")?.split_once(" | ")) {
        match what {
            "shared" => shared.push(found),
            "user" => account.tell(&format!("pod | without runAsUser 0: {}", names(found)?)),
            "file" | "end" | "said" => account.tell(&format!("pod | {what}: {found}")),
            _ => seen.push(found),
        }
    }
    tell_rights(account, &seen).with_context(|| format!("{said}{errors}"))?;
    for line in &shared {
        account.tell(&format!("socket | {line}"));
    }
    let is_whole = seen.len() == pod.map_or(0, |_| RIGHTS.len()) && shared.first() == Some(&"exited 0");
    ensure!(output.status.success() && is_whole, "{}: {said}{errors}", output.status);
    ensure!(!said.contains("held: said | "), "the pod complains: {said}");
    ensure!(shared.iter().any(|line| is_decided(&line)), "the example reached no verdict: {said}");
    Ok(())
}

fn is_decided(line: &&&str) -> bool {
    line.starts_with("mean latency ") && line.trim_end().ends_with("faster")
}

/// What podman is told for each case: a file each, by its number.
fn write_cases(rights: &[String], image: &str, cases: &Path) -> anyhow::Result<()> {
    for (number, (right, _)) in RIGHTS.iter().enumerate() {
        let mut left: Vec<String> = rights.iter().filter(|word| word != right).cloned().collect();
        match right.strip_prefix('+') {
            Some(more) => left.push(more.to_owned()),
            None => ensure!(right.is_empty() || left.len() < rights.len(), "the pod has no {right}"),
        }
        if *right == "--network=host" {
            left.push("--network=none".to_owned());
        }
        left.extend([image, "scan", "--prometheus", "-"].map(String::from));
        fs::write(cases.join(number.to_string()), left.join("\n"))?;
    }
    Ok(())
}

/// How many clients were named, in words.
fn names(found: &str) -> anyhow::Result<String> {
    let (tcp, unix) = found.split_once(' ').with_context(|| format!("two numbers: {found}"))?;
    Ok(format!("of 2 clients over TCP it names {tcp}, of 2 over Unix sockets {unix}"))
}

/// How many clients were named in each case.
fn tell_rights(account: &mut Account<'_>, seen: &[&str]) -> anyhow::Result<()> {
    for ((right, wanted), found) in RIGHTS.iter().zip(seen) {
        let counts = found.split(' ').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
        let what = match right.strip_prefix('+') {
            _ if right.is_empty() => "as it is".to_owned(),
            Some(more) => format!("with {more} too"),
            None => format!("without {right}"),
        };
        let [tcp, unix] = counts[..] else { bail!("{what}: {found}") };
        account.tell(&format!("pod | {what}: {}", names(found)?));
        ensure!([tcp, unix] == *wanted, "{what}: expected {wanted:?} clients");
    }
    Ok(())
}

/// Copies a program and the libraries that it names into a root directory.
fn with_libraries(program: &Path, root: &Path) -> anyhow::Result<()> {
    let libraries = text(Command::new("ldd").arg(program))?;
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        let to = root.join(file.strip_prefix("/")?);
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::copy(file, to)?;
    }
    Ok(())
}
