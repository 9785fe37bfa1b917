//! `cargo xtask site`: README and docs as static pages with a search of their own. A page loads nothing from another host,
//! and a link between documents that leads nowhere fails the build.

mod links;
mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::json;
use tempfile::TempDir;

use crate::files::names;
use crate::{bytes, succeed};
use links::Links;
use page::{Document, Group, Page};

/// Documents beside those of docs/.
const OF_ROOT: &[&str] = &["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];
/// What stands in the menu above all others, by its heading. Other pages of docs/ follow below "More".
const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["README.md", "docs/install.md", "docs/unix-socket-or-tcp.md", "docs/checkup.md"]),
    (
        "Measure",
        &[
            "docs/bench.md", "docs/workloads.md", "docs/own-program.md", "docs/report.md", "docs/compare.md",
            "docs/reproduce.md", "docs/serve.md",
        ],
    ),
    ("Find", &["docs/scan.md", "docs/your-own-requests.md", "docs/try.md", "docs/top.md", "docs/verify.md"]),
    ("Switch", &["docs/how.md", "docs/switch.md", "docs/switch-php.md", "docs/containers.md", "docs/run.md"]),
    ("Many hosts", &["docs/metrics.md", "docs/ansible.md", "docs/kubernetes.md"]),
    ("Why", &["docs/method.md", "docs/congestion.md", "docs/programs.md"]),
];
const MORE: &str = "More";
const STYLE: &str = include_str!("site/style.css");
const SEARCH: &str = include_str!("site/search.js");

/// Writes the site into a folder, which it makes, and returns the number of pages. HTML reports of `reports` are shown too.
pub(crate) fn build(root: &Path, out: &Path, reports: Option<&Path>) -> anyhow::Result<usize> {
    let sources = sources(root)?;
    let places: BTreeMap<PathBuf, PathBuf> =
        sources.iter().map(|path| (path.clone(), output_of(path))).collect();
    let mut links = Links::new(root, &places);
    let mut documents = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(root.join(source)).with_context(|| source.display().to_string())?;
        documents.push((source.clone(), read(source, &text, &mut links)));
    }
    for (source, document) in &documents {
        links.has_ids(source, &document.ids);
    }
    let images = links.finish()?;
    let reports = reports.map(|folder| copy_reports(folder, out)).transpose()?.unwrap_or_default();
    let groups = groups(&documents, &reports);
    let mut index = Vec::new();
    for (source, document) in &documents {
        let place = output_of(source);
        write(out, &place, &Page { place: &place, document, groups: &groups }.html())?;
        for section in &document.sections {
            let url = format!("{}#{}", links::url(&place), section.id);
            index.push(json!([url, document.title, section.title, section.text]));
        }
    }
    if !reports.is_empty() {
        let document = page::of_reports(&reports);
        let place = PathBuf::from(REPORTS);
        write(out, &place, &Page { place: &place, document: &document, groups: &groups }.html())?;
    }
    for image in images {
        copy(&root.join(&image), &out.join(&image))?;
    }
    write(out, Path::new("style.css"), STYLE)?;
    write(out, Path::new("search.js"), SEARCH)?;
    write(out, Path::new("search-index.js"), &format!("window.samehostIndex = {};\n", json!(index)))?;
    Ok(documents.len() + usize::from(!reports.is_empty()))
}

/// Page of the embedded reports.
const REPORTS: &str = "reports.html";

/// A document: Markdown, or the output of a command.
fn read(source: &Path, text: &str, links: &mut Links<'_>) -> Document {
    if source.extension().is_some_and(|extension| extension == "md") {
        page::of_markdown(text, &mut |target| links.resolve(source, target))
    } else {
        page::of_output(&source.display().to_string(), text)
    }
}

/// All documents, as paths below the root.
fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut sources: Vec<PathBuf> = OF_ROOT.iter().map(PathBuf::from).collect();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(root.join(&folder)).with_context(|| folder.display().to_string())? {
            entries.push(folder.join(entry?.file_name()));
        }
        entries.sort();
        for path in entries {
            if root.join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md" || extension == "txt") {
                sources.push(path);
            }
        }
    }
    ensure!(sources.len() > OF_ROOT.len(), "no document below {}/docs", root.display());
    Ok(sources)
}

/// Where a document's page goes: a README is its folder's index.
fn output_of(source: &Path) -> PathBuf {
    if source.file_name().is_some_and(|name| name == "README.md") {
        return source.with_file_name("index.html");
    }
    source.with_extension("html")
}

/// The menu.
fn groups(documents: &[(PathBuf, Document)], reports: &[PathBuf]) -> Vec<Group> {
    let entry = |(source, document): &(PathBuf, Document)| (output_of(source), document.title.clone());
    let named = |path: &&str| documents.iter().find(|(source, _)| source == Path::new(path)).map(entry);
    let is_named =
        |source: &Path| GROUPS.iter().any(|(_, paths)| paths.iter().any(|path| Path::new(path) == source));
    // The files of a folder stand in its index, or in the page that links to them.
    let is_top = |source: &Path| {
        source.parent().is_some_and(|parent| parent == Path::new("") || parent == Path::new("docs"))
            || source.file_name().is_some_and(|name| name == "README.md")
    };
    let group = |(title, paths): &(&str, &[&str])| Group {
        title: (*title).to_owned(),
        entries: paths.iter().filter_map(named).collect(),
    };
    let mut groups: Vec<Group> = GROUPS.iter().map(group).collect();
    let others = documents.iter().filter(|(source, _)| is_top(source) && !is_named(source));
    let mut more: Vec<(PathBuf, String)> = others.map(entry).collect();
    if !reports.is_empty() {
        more.push((REPORTS.into(), "Reports".into()));
    }
    groups.push(Group { title: MORE.into(), entries: more });
    groups.retain(|group| !group.entries.is_empty());
    groups
}

/// Renders the reports in docs/reports as HTML, in a folder that goes when the returned value is dropped.
pub(crate) fn render(root: &Path, program: &Path) -> anyhow::Result<TempDir> {
    let (folder, stored) = (tempfile::tempdir()?, root.join("docs/reports"));
    for name in names(&stored)? {
        if let Some(stem) = name.strip_suffix(".json.gz") {
            let json = folder.path().join(stem).with_extension("json");
            fs::write(&json, bytes(Command::new("gzip").arg("-dc").arg(stored.join(&name)))?)?;
            let html = json.with_extension("html");
            succeed(Command::new(program).arg("report").arg(&json).args(["--quiet", "--html"]).arg(&html))?;
        }
    }
    Ok(folder)
}

/// Copies the HTML reports of a folder, which load nothing; returns their places.
fn copy_reports(folder: &Path, out: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut places = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "html") {
            let place = Path::new("reports").join(path.file_name().unwrap_or_default());
            copy(&path, &out.join(&place))?;
            places.push(place);
        }
    }
    places.sort();
    if places.is_empty() {
        bail!("{}: no HTML report; samehost bench WORKLOAD --html FILE writes one", folder.display());
    }
    Ok(places)
}

fn write(out: &Path, place: &Path, text: &str) -> anyhow::Result<()> {
    let path = out.join(place);
    fs::create_dir_all(path.parent().unwrap_or(out))?;
    fs::write(&path, text).with_context(|| path.display().to_string())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map(|_| ()).with_context(|| from.display().to_string())
}
