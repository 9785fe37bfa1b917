//! The page around a document: head, search, menu.
//!
//! A document as HTML, with what the menu and the search need: its title, and its text by headings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::links::{relative, url};

/// A part of the menu.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: String,
    /// Places of pages, and their titles.
    pub(super) entries: Vec<(PathBuf, String)>,
}

pub(super) struct Page<'a> {
    pub(super) place: &'a Path,
    pub(super) document: &'a Document,
    pub(super) groups: &'a [Group],
}

impl Page<'_> {
    pub(super) fn html(&self) -> String {
        let link = |place: &str| relative(self.place, Path::new(place));
        let title = escaped(&self.document.title);
        let named = if title == "samehost" { title } else { format!("{title} · samehost") };
        let root = relative(self.place, Path::new(""));
        let (menu, body) = (self.menu(), &self.document.body);
        let (style, search, home) = (link("style.css"), link("search.js"), link("index.html"));
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

    fn menu(&self) -> String {
        let mut menu = String::new();
        for group in self.groups {
            menu.push_str(&format!("<h2>{}</h2>\n<ul>\n", escaped(&group.title)));
            for (place, title) in &group.entries {
                let current = if place == self.place { " aria-current=\"page\"" } else { "" };
                let (target, title) = (relative(self.place, place), escaped(title));
                menu.push_str(&format!("<li><a href=\"{target}\"{current}>{title}</a></li>\n"));
            }
            menu.push_str("</ul>\n");
        }
        menu
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    html::push_html(&mut escaped, std::iter::once(Event::Text(text.into())));
    escaped
}

/// What stands below one heading.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Document {
    pub(super) title: String,
    /// HTML of everything.
    pub(super) body: String,
    pub(super) sections: Vec<Section>,
    pub(super) ids: BTreeSet<String>,
}

/// Reads Markdown; `resolve` gives each link its target on the site.
pub(super) fn of_markdown(text: &str, resolve: &mut dyn FnMut(&str) -> String) -> Document {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, options).collect();
    let (sections, ids) = name_headings(&mut events);
    let mut shown = Vec::with_capacity(events.len());
    for event in events {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = CowStr::from(resolve(&dest_url));
                shown.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
                let dest_url = CowStr::from(resolve(&dest_url));
                shown.push(Event::Start(Tag::Image { link_type, dest_url, title, id }));
            }
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
pub(super) fn of_output(title: &str, text: &str) -> Document {
    let (id, title) = (slug(title), title.to_owned());
    let mut shown = String::new();
    html::push_html(&mut shown, std::iter::once(Event::Text(text.into())));
    let body = format!("<h1 id=\"{id}\">{title}</h1>\n<pre><code>{shown}</code></pre>\n");
    let section = Section { id: id.clone(), title: title.clone(), text: text.to_owned() };
    Document { title, body, sections: vec![section], ids: BTreeSet::from([id]) }
}

/// The page of embedded reports.
pub(super) fn of_reports(reports: &[PathBuf]) -> Document {
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
            Event::End(TagEnd::Heading(level)) => {
                let level: HeadingLevel = *level;
                let (Some(start), Some(section)) = (opened.take(), sections.last_mut()) else { continue };
                section.id = unique(slug(&section.title), &mut ids);
                let id = Some(CowStr::from(section.id.clone()));
                events[start] =
                    Event::Start(Tag::Heading { level, id, classes: Vec::new(), attrs: Vec::new() });
            }
            Event::Text(text) | Event::Code(text) => {
                let Some(section) = sections.last_mut() else { continue };
                if opened.is_some() { section.title.push_str(text) } else { section.text.push_str(text) }
            }
            Event::SoftBreak
            | Event::HardBreak
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                let Some(section) = sections.last_mut() else { continue };
                if opened.is_none() {
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
    title
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

/// A second heading of the same words gets a number.
fn unique(slug: String, ids: &mut BTreeSet<String>) -> String {
    let numbered = (1..).map(|number| format!("{slug}-{number}"));
    let free = std::iter::once(slug.clone()).chain(numbered).find(|id| !ids.contains(id)).unwrap_or(slug);
    ids.insert(free.clone());
    free
}
