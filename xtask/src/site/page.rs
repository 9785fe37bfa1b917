//! The page around a document: head, search, menu.

use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, html};

use super::document::Document;
use super::links::relative;

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
