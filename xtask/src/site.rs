//! `cargo xtask site`: README and docs as static pages with a search of their own. A page loads nothing from another host,
//! and a link between documents that leads nowhere fails the build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{bytes, succeed};
use crate::{files, has_extension, names, write};

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

/// Writes the site into a folder, which it makes, and returns the number of pages. HTML reports of
/// `reports` are shown too. mdBook would replace about 400 lines. Its chapters have to be in a
/// SUMMARY.md, which evidence (`.txt`), reports (`.html`) and what links to them are not, and its anchors
/// differ from those of the repository's pages, where people read the same documents. mdBook for docs/
/// alone was rejected: two kinds of page, and a search that finds half (docs/decisions/0136).
pub(crate) fn build(root: &Path, out: &Path, reports: Option<&Path>) -> anyhow::Result<usize> {
    let sources = sources(root)?;
    let mut links =
        Links { root, sources: &sources, images: BTreeSet::new(), fragments: Vec::new(), dead: Vec::new() };
    let mut documents = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(root.join(source)).with_context(|| source.display().to_string())?;
        let document = if has_extension(source, &["md"]) {
            of_markdown(&text, &mut |target| links.resolve(source, target))
        } else {
            of_output(&source.display().to_string(), &text)
        };
        documents.push((source.clone(), document));
    }
    let images = links.finish(&documents)?;
    let reports = reports.map(|folder| copy_reports(folder, out)).transpose()?.unwrap_or_default();
    let groups = groups(&documents, &reports);
    let mut index = Vec::new();
    for (source, document) in &documents {
        let place = output_of(source);
        write(&out.join(&place), page(&place, document, &groups))?;
        for section in &document.sections {
            let url = format!("{}#{}", url(&place), section.id);
            index.push(json!([url, document.title, section.title, section.text]));
        }
    }
    if !reports.is_empty() {
        write(&out.join(REPORTS), page(Path::new(REPORTS), &of_reports(&reports), &groups))?;
    }
    for image in images {
        copy(&root.join(&image), &out.join(&image))?;
    }
    write(&out.join("style.css"), STYLE)?;
    write(&out.join("search.js"), SEARCH)?;
    write(&out.join("search-index.js"), format!("window.samehostIndex = {};\n", json!(index)))?;
    Ok(documents.len() + usize::from(!reports.is_empty()))
}

const REPORTS: &str = "reports.html";

fn sources(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut sources: Vec<PathBuf> = OF_ROOT.iter().map(PathBuf::from).collect();
    for path in files(&root.join("docs"), &["md", "txt"])? {
        sources.push(path.strip_prefix(root)?.to_owned());
    }
    ensure!(sources.len() > OF_ROOT.len(), "no document below {}/docs", root.display());
    Ok(sources)
}

fn output_of(source: &Path) -> PathBuf {
    if source.file_name().is_some_and(|name| name == "README.md") {
        return source.with_file_name("index.html");
    }
    source.with_extension("html")
}

fn groups(documents: &[(PathBuf, Document)], reports: &[PathBuf]) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut left: Vec<_> = documents.iter().collect();
    for (title, paths) in GROUPS {
        let mut entries = Vec::new();
        for path in *paths {
            let found = left.iter().position(|(source, _)| source == Path::new(path));
            entries.extend(found.map(|at| entry(left.remove(at))));
        }
        groups.push(Group { title: (*title).to_owned(), entries });
    }
    let top = left.into_iter().filter(|(source, _)| is_top(source));
    let mut more: Vec<_> = top.map(entry).collect();
    if !reports.is_empty() {
        more.push((REPORTS.into(), "Reports".into()));
    }
    groups.push(Group { title: MORE.into(), entries: more });
    groups.retain(|group| !group.entries.is_empty());
    groups
}

fn entry((source, document): &(PathBuf, Document)) -> (PathBuf, String) {
    (output_of(source), document.title.clone())
}

/// Whether a document has a line of its own. The files of a folder stand in its index, or in the page that links to them.
fn is_top(source: &Path) -> bool {
    source.parent().is_some_and(|parent| parent == Path::new("") || parent == Path::new("docs"))
        || source.file_name().is_some_and(|name| name == "README.md")
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
    for name in names(folder)? {
        let place = Path::new("reports").join(&name);
        if has_extension(&place, &["html"]) {
            copy(&folder.join(&name), &out.join(&place))?;
            places.push(place);
        }
    }
    let folder = folder.display();
    ensure!(!places.is_empty(), "{folder}: no HTML report; samehost bench WORKLOAD --html FILE writes one");
    Ok(places)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    write(to, fs::read(from).with_context(|| from.display().to_string())?)
}

#[derive(Debug)]
struct Group {
    title: String,
    /// Places of pages, and their titles.
    entries: Vec<(PathBuf, String)>,
}

/// A document with what is around it: head, search, menu.
fn page(place: &Path, document: &Document, groups: &[Group]) -> String {
    let title = escaped(&document.title);
    let named = if title == "samehost" { title } else { format!("{title} · samehost") };
    let [root, style, search, home] =
        ["", "style.css", "search.js", "index.html"].map(|name| relative(place, Path::new(name)));
    let (menu, body) = (menu(place, groups), &document.body);
    format!(
        r#"<!doctype html>
<html lang="en" data-root="{root}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{named}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{style}">
<script src="{search}" defer></script>
</head>
<body>
<header>
<a class="home" href="{home}">samehost</a>
<input id="search" type="search" placeholder="Search" aria-label="Search" autocomplete="off">
<ol id="results" aria-live="polite" hidden></ol>
</header>
<nav aria-label="Pages">
<details><summary>Pages</summary>
{menu}</details>
</nav>
<main>
{body}</main>
</body>
</html>
"#
    )
}

fn menu(of: &Path, groups: &[Group]) -> String {
    let mut menu = String::new();
    for group in groups {
        menu.push_str(&format!("<h2>{}</h2>\n<ul>\n", escaped(&group.title)));
        for (place, title) in &group.entries {
            let current = if place == of { " aria-current=\"page\"" } else { "" };
            let (target, title) = (relative(of, place), escaped(title));
            menu.push_str(&format!("<li><a href=\"{target}\"{current}>{title}</a></li>\n"));
        }
        menu.push_str("</ul>\n");
    }
    menu
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    html::push_html(&mut escaped, std::iter::once(Event::Text(text.into())));
    escaped
}

/// The text below one heading, for the search.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    id: String,
    title: String,
    text: String,
}

#[derive(Debug)]
struct Document {
    title: String,
    body: String,
    sections: Vec<Section>,
    /// Of its headings.
    ids: BTreeSet<String>,
}

/// Reads Markdown; `resolve` gives each link its target on the site.
fn of_markdown(text: &str, resolve: &mut dyn FnMut(&str) -> String) -> Document {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, options).collect();
    let (sections, ids) = name_headings(&mut events);
    let mut shown = Vec::with_capacity(events.len());
    for mut event in events {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = &mut event {
            *dest_url = CowStr::from(resolve(dest_url));
        }
        match event {
            // A table that is wider than the page is scrolled, and not the page.
            Event::Start(Tag::Table(alignments)) => {
                shown.push(Event::Html("<div class=\"wide\">".into()));
                shown.push(Event::Start(Tag::Table(alignments)));
            }
            Event::End(TagEnd::Table) => {
                shown.extend([Event::End(TagEnd::Table), Event::Html("</div>\n".into())]);
            }
            other => shown.push(other),
        }
    }
    let mut body = String::new();
    html::push_html(&mut body, shown.into_iter());
    let title = sections.first().map(|section| section.title.clone()).unwrap_or_default();
    Document { title, body, sections, ids }
}

/// The output of a command, as it is.
fn of_output(title: &str, text: &str) -> Document {
    let (id, title, shown) = (slug(title), title.to_owned(), escaped(text));
    let body = format!("<h1 id=\"{id}\">{title}</h1>\n<pre><code>{shown}</code></pre>\n");
    let section = Section { id: id.clone(), title: title.clone(), text: text.to_owned() };
    Document { title, body, sections: vec![section], ids: BTreeSet::from([id]) }
}

fn of_reports(reports: &[PathBuf]) -> Document {
    let title = "Reports".to_owned();
    let mut body = format!("<h1>{title}</h1>\n<p>As <code>samehost … --html FILE</code> wrote them.</p>\n");
    for report in reports {
        let (name, url) = (report.file_stem().unwrap_or_default().display(), url(report));
        let frame = format!("<iframe src=\"{url}\" title=\"{name}\" loading=\"lazy\"></iframe>");
        body.push_str(&format!("<h2><a href=\"{url}\">{name}</a></h2>\n{frame}\n"));
    }
    Document { title, body, sections: Vec::new(), ids: BTreeSet::new() }
}

/// Gives each heading an id, as GitHub does, and returns the text below each.
fn name_headings(events: &mut [Event<'_>]) -> (Vec<Section>, BTreeSet<String>) {
    let mut sections: Vec<Section> = Vec::new();
    let mut ids = BTreeSet::new();
    let mut opened = None;
    for at in 0..events.len() {
        match &events[at] {
            Event::Start(Tag::Heading { .. }) => {
                opened = Some(at);
                sections.push(Section { id: String::new(), title: String::new(), text: String::new() });
            }
            Event::End(TagEnd::Heading(_)) => {
                let (Some(start), Some(section)) = (opened.take(), sections.last_mut()) else { continue };
                section.id = unique(&slug(&section.title), &mut ids);
                if let Event::Start(Tag::Heading { id, .. }) = &mut events[start] {
                    *id = Some(CowStr::from(section.id.clone()));
                }
            }
            Event::Text(text) | Event::Code(text) => {
                let Some(section) = sections.last_mut() else { continue };
                if opened.is_some() { section.title.push_str(text) } else { section.text.push_str(text) }
            }
            Event::SoftBreak
            | Event::HardBreak
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                if let (None, Some(section)) = (opened, sections.last_mut()) {
                    section.text.push(' ');
                }
            }
            _ => {}
        }
    }
    (sections, ids)
}

/// Lower case; letters, digits, `-` and `_` stay, blanks become `-`.
fn slug(title: &str) -> String {
    let mut slug = title.to_lowercase().replace(' ', "-");
    slug.retain(|c| c.is_alphanumeric() || c == '-' || c == '_');
    slug
}

/// A second heading of the same words gets a number.
fn unique(slug: &str, ids: &mut BTreeSet<String>) -> String {
    let mut id = slug.to_owned();
    let mut number = 0;
    while !ids.insert(id.clone()) {
        number += 1;
        id = format!("{slug}-{number}");
    }
    id
}

/// Where files that are not pages are published.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Where the links of all documents lead on the site: to a page, to an image, or to a file of the repository. Those that lead
/// nowhere are collected.
struct Links<'a> {
    root: &'a Path,
    sources: &'a [PathBuf],
    images: BTreeSet<PathBuf>,
    /// Headings that are linked to: from, document, id.
    fragments: Vec<(PathBuf, PathBuf, String)>,
    dead: Vec<String>,
}

impl Links<'_> {
    /// The target of a link of a document as its page has it.
    fn resolve(&mut self, from: &Path, target: &str) -> String {
        if target.starts_with("https://") || target.starts_with("http://") || target.starts_with("mailto:") {
            return target.to_owned();
        }
        let (path, fragment) = match target.split_once('#') {
            Some((path, id)) => (path, Some(id)),
            None => (target, None),
        };
        let parent = from.parent().unwrap_or(Path::new(""));
        let mut document = if path.is_empty() { from.to_owned() } else { normal(&parent.join(path)) };
        if self.root.join(&document).is_dir() && self.sources.contains(&document.join("README.md")) {
            document.push("README.md");
        }
        let found = self.root.join(&document);
        let own = output_of(from);
        let end = fragment.map(|id| format!("#{id}")).unwrap_or_default();
        if self.sources.contains(&document) {
            self.fragments.extend(fragment.map(|id| (from.to_owned(), document.clone(), id.to_owned())));
            return format!("{}{end}", relative(&own, &output_of(&document)));
        }
        if has_extension(&document, &["png", "svg"]) && found.is_file() {
            self.images.insert(document.clone());
            return relative(&own, &document);
        }
        if !found.exists() {
            self.dead.push(format!("{}: {target}", from.display()));
        }
        let kind = if found.is_dir() { "tree" } else { "blob" };
        format!("{REPOSITORY}/{kind}/main/{}{end}", url(&document))
    }

    /// Returns the images that are shown; fails if any link leads nowhere, or to a heading that its document has not.
    fn finish(mut self, documents: &[(PathBuf, Document)]) -> anyhow::Result<BTreeSet<PathBuf>> {
        for (from, document, id) in &self.fragments {
            let mut linked = documents.iter().filter(|(source, _)| source == document);
            if !linked.any(|(_, found)| found.ids.contains(id)) {
                self.dead.push(format!("{}: {} has no heading #{id}", from.display(), document.display()));
            }
        }
        if !self.dead.is_empty() {
            bail!("links that lead nowhere:\n{}", self.dead.join("\n"));
        }
        Ok(self.images)
    }
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(normal.pop()),
            Component::Normal(name) => normal.push(name),
            _ => {}
        }
    }
    normal
}

/// The URL of one page on another.
fn relative(from: &Path, to: &Path) -> String {
    let up = from.parent().map_or(0, |parent| parent.components().count());
    format!("{}{}", "../".repeat(up), url(to))
}

fn url(path: &Path) -> String {
    path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
