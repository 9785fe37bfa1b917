//! Where the links of documents lead on the site: to a page, to an image, or to a file of the repository. Those that lead
//! nowhere are collected.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::bail;

/// Where files that are not pages are published.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Links of all documents.
pub(super) struct Links<'a> {
    root: &'a Path,
    /// Documents, with the places of their pages.
    places: &'a BTreeMap<PathBuf, PathBuf>,
    images: BTreeSet<PathBuf>,
    /// Headings that are linked to: from, document, id.
    fragments: Vec<(PathBuf, PathBuf, String)>,
    ids: BTreeMap<PathBuf, BTreeSet<String>>,
    dead: Vec<String>,
}

impl<'a> Links<'a> {
    pub(super) fn new(root: &'a Path, places: &'a BTreeMap<PathBuf, PathBuf>) -> Self {
        Links {
            root,
            places,
            images: BTreeSet::new(),
            fragments: Vec::new(),
            ids: BTreeMap::new(),
            dead: Vec::new(),
        }
    }

    /// The target of a link of a document as its page has it.
    pub(super) fn resolve(&mut self, from: &Path, target: &str) -> String {
        if target.starts_with("https://") || target.starts_with("http://") || target.starts_with("mailto:") {
            return target.to_owned();
        }
        let (path, fragment) = target.split_once('#').map_or((target, None), |(path, id)| (path, Some(id)));
        let parent = from.parent().unwrap_or(Path::new(""));
        let document = if path.is_empty() { from.to_owned() } else { normal(&parent.join(path)) };
        let document =
            if self.root.join(&document).is_dir() && self.places.contains_key(&document.join("README.md")) {
                document.join("README.md")
            } else {
                document
            };
        let found = self.root.join(&document);
        let end = fragment.map(|id| format!("#{id}")).unwrap_or_default();
        if let Some(place) = self.places.get(&document) {
            self.fragments.extend(fragment.map(|id| (from.to_owned(), document.clone(), id.to_owned())));
            let own = self.places.get(from).cloned().unwrap_or_default();
            return format!("{}{end}", relative(&own, place));
        }
        let is_image = document.extension().is_some_and(|extension| extension == "png" || extension == "svg");
        if is_image && found.is_file() {
            self.images.insert(document.clone());
            let own = self.places.get(from).cloned().unwrap_or_default();
            return relative(&own, &document);
        }
        if !found.exists() {
            self.dead.push(format!("{}: {target}", from.display()));
        }
        let kind = if found.is_dir() { "tree" } else { "blob" };
        format!("{REPOSITORY}/{kind}/main/{}{end}", url(&document))
    }

    /// The ids of a document's headings.
    pub(super) fn has_ids(&mut self, document: &Path, ids: &BTreeSet<String>) {
        self.ids.insert(document.to_owned(), ids.clone());
    }

    /// The images that are shown; fails if any link leads nowhere.
    pub(super) fn finish(mut self) -> anyhow::Result<BTreeSet<PathBuf>> {
        for (from, document, id) in &self.fragments {
            if !self.ids.get(document).is_some_and(|ids| ids.contains(id)) {
                self.dead.push(format!("{}: {} has no heading #{id}", from.display(), document.display()));
            }
        }
        if !self.dead.is_empty() {
            bail!("links that lead nowhere:\n{}", self.dead.join("\n"));
        }
        Ok(self.images)
    }
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal
}

/// From one page to another.
pub(super) fn relative(from: &Path, to: &Path) -> String {
    let up = from.parent().map_or(0, |parent| parent.components().count());
    format!("{}{}", "../".repeat(up), url(to))
}

/// A path with slashes.
pub(super) fn url(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}
