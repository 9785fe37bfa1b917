//! A container of a Quadlet file: what of it says how it is reached, whom it reaches, and what of this machine it sees.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::super::compose::{Client, name_of};
use super::super::systemd::{Assignment, assignments, words};
use crate::files::Files;
use crate::lines;
use crate::refusal::Result;

/// The section of the container.
const SECTION: &str = "Container";
/// What a container with a network of its own calls this machine.
const THIS_MACHINE: &[&str] = &["host.containers.internal", "host.docker.internal"];
/// Options of `podman run` that say what keys of the file say as well.
const OPTIONS: &[&str] =
    &["-e", "--env", "-v", "--volume", "--mount", "--net", "--pod", "--tmpfs", "--add-host"];

pub(super) struct Container {
    pub(super) file_name: String,
    pub(super) text: String,
    /// Hosts by which others reach it.
    pub(super) names: Vec<String>,
    pub(super) image: String,
    pub(super) pod: Option<String>,
    /// Each variable as it is set at last.
    pub(super) variables: Vec<Variable>,
    /// Where each of them stands.
    places: BTreeMap<String, usize>,
    on_host: OnceCell<bool>,
    all: Vec<Assignment>,
}

pub(super) struct Variable {
    pub(super) name: String,
    /// None where podman or systemd fills something in.
    pub(super) value: Option<String>,
    pub(super) line: u32,
    /// Where its whole assignment stands, if that is in one line and sets nothing else.
    pub(super) alone: Option<Range<usize>>,
}

impl Client for Container {
    fn image(&self) -> Option<&str> {
        Some(name_of(&self.image))
    }

    fn value(&self, name: &str) -> Option<Option<String>> {
        self.places.get(name).map(|place| self.variables[*place].value.clone())
    }

    fn is_set(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    fn has_any(&self, prefix: &str) -> bool {
        let mut from = self.places.range(prefix.to_owned()..);
        from.next().is_some_and(|(name, _)| name.starts_with(prefix))
    }
}

/// A directory of this machine, and where the container has it.
struct Mount<'a> {
    here: &'a Path,
    there: &'a Path,
}

impl Container {
    pub(super) fn open(file: &Path, files: &dyn Files) -> Result<Self> {
        let text =
            lines::read_text(file, files, "it is not UTF-8").map_err(|refusal| refusal.in_file(file))?;
        // The syntax is that of systemd's units.
        let mut all = assignments(file, text.as_bytes())?;
        all.retain(|one| one.section == SECTION);
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut container = Container {
            file_name: file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            names: vec![format!("systemd-{stem}")],
            image: String::new(),
            pod: None,
            variables: Vec::new(),
            places: BTreeMap::new(),
            on_host: OnceCell::new(),
            text,
            all,
        };
        container.image = container.last("Image").unwrap_or_default().to_owned();
        container.pod = container.last("Pod").map(str::to_owned);
        if let Some(name) = container.last("ContainerName") {
            container.names[0] = name.to_owned();
        }
        let more = ["NetworkAlias", "HostName"].into_iter().flat_map(|key| container.list(key));
        let more: Vec<String> = more.map(|one| one.value.clone()).collect();
        container.names.extend(more);
        container.variables = container.environment();
        let names = container.variables.iter().map(|one| one.name.clone());
        container.places = names.enumerate().map(|(place, name)| (name, place)).collect();
        Ok(container)
    }

    /// The assignments of a key that count: those after the last empty one.
    fn list(&self, key: &str) -> Vec<&Assignment> {
        let all: Vec<&Assignment> = self.all.iter().filter(|one| one.key == key).collect();
        let start = all.iter().rposition(|one| one.value.is_empty()).map_or(0, |at| at + 1);
        all[start..].to_vec()
    }

    fn last(&self, key: &str) -> Option<&str> {
        self.list(key).last().map(|one| one.value.as_str())
    }

    fn environment(&self) -> Vec<Variable> {
        let (mut found, mut places): (Vec<Option<Variable>>, HashMap<String, usize>) = Default::default();
        for one in self.list("Environment") {
            let Some(words) = words(&one.value) else { continue };
            let is_one_line = !self.text[one.range.clone()].contains('\n');
            for word in &words {
                let Some((name, value)) = word.text.split_once('=') else { continue };
                // The last one counts, and stands where it is.
                if let Some(before) = places.insert(name.to_owned(), found.len()) {
                    found[before] = None;
                }
                found.push(Some(Variable {
                    name: name.to_owned(),
                    value: word.dynamic.is_none().then(|| value.to_owned()),
                    line: one.line,
                    alone: Some(one.range.clone()).filter(|_| words.len() == 1 && is_one_line),
                }));
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Why what is read here may not be what podman is told; `None` if it is.
    pub(super) fn unclear(&self, file: &Path, files: &dyn Files) -> Option<String> {
        let folders = [format!("{}.d", self.file_name), "container.d".to_owned()];
        let of_stem = file.file_stem().is_some_and(|stem| stem.to_string_lossy().contains('@'));
        if of_stem {
            return Some("it is a template, or an instance of one".to_owned());
        }
        for folder in folders {
            let found = files.list(&file.with_file_name(&folder)).unwrap_or_default();
            if found.iter().any(|path| path.extension().is_some_and(|end| end == "conf")) {
                return Some(format!("files in {folder} add to it"));
            }
        }
        for one in self.list("PodmanArgs") {
            let mut words = one.value.split_ascii_whitespace();
            if words.any(|word| OPTIONS.iter().any(|option| word.starts_with(option))) {
                return Some(format!("PodmanArgs= in line {} sets such things too", one.line));
            }
        }
        if self.last("DropCapability").is_some() && self.last("User").is_none() {
            return Some(
                "DropCapability= may take from root the right to use a socket of another user".to_owned(),
            );
        }
        if self.last("SecurityLabelDisable") != Some("true")
            && files.read(Path::new("/sys/fs/selinux/enforce")).is_ok_and(|text| text == b"1")
        {
            return Some(
                "SELinux keeps containers from sockets of this machine; SecurityLabelDisable=true would let it"
                    .to_owned(),
            );
        }
        None
    }

    /// Whether it has this machine's network.
    pub(super) fn is_on_host(&self) -> bool {
        *self.on_host.get_or_init(|| {
            self.pod.is_none() && self.list("Network").iter().any(|network| network.value == "host")
        })
    }

    /// Whether a host that it names is this machine.
    pub(super) fn means_this_machine(&self, host: &str) -> bool {
        if self.is_on_host() { super::is_loopback(host) } else { THIS_MACHINE.contains(&host) }
    }

    /// Volumes that are directories of this machine.
    fn mounts(&self) -> Vec<Mount<'_>> {
        let volumes = self.list("Volume").into_iter().filter_map(|one| {
            let mut parts = one.value.split(':');
            let (here, there) = (parts.next()?, parts.next()?);
            let is_plain = [here, there].iter().all(|path| path.starts_with('/') && !path.contains('%'));
            is_plain.then(|| Mount { here: Path::new(here), there: Path::new(there) })
        });
        volumes.collect()
    }

    /// What the container calls a path of this machine.
    pub(super) fn inside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = self.mounts();
        let fitting = mounts.iter().filter(|mount| path.starts_with(mount.here) && path != mount.here);
        let mount = fitting.max_by_key(|mount| mount.here.components().count())?;
        let found = mount.there.join(path.strip_prefix(mount.here).ok()?);
        // Another volume may lie over it.
        (self.outside(&found).as_deref() == Some(path)).then_some(found)
    }

    /// The path on this machine of what the container calls so.
    pub(super) fn outside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = self.mounts();
        let over = mounts.iter().filter(|mount| path.starts_with(mount.there));
        let mount = over.max_by_key(|mount| mount.there.components().count())?;
        let rest = path.strip_prefix(mount.there).ok()?;
        // Joined with nothing, it would end with a slash.
        Some(if rest == Path::new("") { mount.here.to_owned() } else { mount.here.join(rest) })
    }

    /// Why the directory of a socket of this machine cannot be mounted at the same path; `None` if it can.
    pub(super) fn cannot_mount(&self, socket: &Path) -> Option<String> {
        if self.mounts().iter().any(|mount| mount.here == socket) {
            return Some(
                "its Volume= mounts the socket's file, and the server makes another one when it starts; mount the directory"
                    .to_owned(),
            );
        }
        let directory = socket.parent().unwrap_or(Path::new("/"));
        let text = directory.display().to_string();
        if directory.components().count() < 3 {
            return Some(format!("{text} as a whole would hide the container's own"));
        }
        let volumes = self.list("Volume").into_iter().map(|one| one.value.split(':').nth(1));
        let temporary = self.list("Tmpfs").into_iter().map(|one| one.value.split(':').next());
        let is_taken = volumes.chain(temporary).flatten().any(|path| Path::new(path) == directory)
            || self.list("Mount").iter().any(|one| one.value.contains(&text));
        is_taken.then(|| format!("something else is mounted at {text} already"))
    }

    /// Where a new assignment goes: the bytes of the last one of this key, else of another one.
    pub(super) fn last_of(&self, key: &str) -> Option<Range<usize>> {
        for key in [key, "Environment"] {
            if let Some(last) = self.all.iter().rfind(|one| one.key == key) {
                return Some(last.range.clone());
            }
        }
        None
    }
}
