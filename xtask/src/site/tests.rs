//! The site of this repository, built and opened: no link is dead, nothing comes from another host, and a browser with a
//! silent console shows every page without scrolling sideways, on a phone and on a screen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{STYLE, build};

fn site() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let reports = super::render(&crate::root(), &crate::tested_program()).unwrap();
    let pages = build(&crate::root(), folder.path(), Some(reports.path()))
        .unwrap_or_else(|error| panic!("{error:#}"));
    let mut found = Vec::new();
    collect(folder.path(), &mut found);
    assert_eq!(found.len(), pages + embedded(folder.path()).len());
    (folder, found)
}

fn collect(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
    pages.sort();
}

fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    page.split(begin.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_of_the_site_or_to_another_host() {
    let (folder, pages) = site();
    assert!(pages.len() > 100, "{}", pages.len());
    for path in &pages {
        let page = fs::read_to_string(path).unwrap();
        for target in values(&page, "href").into_iter().chain(values(&page, "src")) {
            if target.starts_with("https://") || target.starts_with("http://") || target.starts_with("data:")
            {
                continue;
            }
            let (file, id) = target.split_once('#').unwrap_or((target, ""));
            let leads = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(leads.is_file(), "{}: {target}", path.display());
            let has_id = |page: &str| page.contains(&format!("id=\"{id}\""));
            assert!(
                id.is_empty() || has_id(&fs::read_to_string(&leads).unwrap()),
                "{}: {target}",
                path.display()
            );
        }
        // What a page loads, and does not only link to.
        let loaded = values(&page, "src").into_iter().chain(
            page.split("<link ").skip(1).flat_map(|rest| values(rest.split('>').next().unwrap(), "href")),
        );
        for target in loaded {
            assert!(!target.contains("//"), "{}: {target}", path.display());
        }
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    let index = fs::read_to_string(folder.path().join("search-index.js")).unwrap();
    let sections: Vec<Value> = serde_json::from_str(
        index.trim_start_matches("window.samehostIndex = ").trim_end().trim_end_matches(';'),
    )
    .unwrap();
    for section in &sections {
        let (file, id) = section[0].as_str().unwrap().split_once('#').unwrap();
        let page = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(page.contains(&format!("id=\"{id}\"")), "{section}");
    }
}

#[test]
fn a_link_that_leads_nowhere_fails_the_build() {
    let folder = tempfile::tempdir().unwrap();
    let (root, out) = (folder.path().join("root"), folder.path().join("out"));
    fs::create_dir_all(root.join("docs")).unwrap();
    for name in super::OF_ROOT {
        fs::write(root.join(name), "# A\n\n## One\n\n## One\n").unwrap();
    }
    let with = |text: &str| {
        fs::write(root.join("docs/a.md"), format!("# A\n\n{text}\n")).unwrap();
        build(&root, &out, None).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(with("[x](../README.md#one-1), [y](#a), [z](../Cargo.toml)").unwrap_err().lines().count(), 2);
    fs::write(root.join("Cargo.toml"), "").unwrap();
    assert_eq!(with("[x](../README.md#one-1), [y](#a), [z](../Cargo.toml)"), Ok(5));
    let page = fs::read_to_string(out.join("docs/a.html")).unwrap();
    assert_eq!(values(&page, "href").iter().filter(|target| **target == "../index.html#one-1").count(), 1);
    assert!(page.contains("/blob/main/Cargo.toml"), "{page}");
    for (text, word) in
        [("[x](gone.md)", "gone.md"), ("[x](../README.md#two)", "#two"), ("![x](gone.png)", "gone.png")]
    {
        let error = with(text).unwrap_err();
        assert!(error.contains("docs/a.md") && error.contains(word), "{error}");
    }
}

/// What stands in the frames of the page of reports.
fn embedded(site: &Path) -> Vec<String> {
    let page = fs::read_to_string(site.join("reports.html")).unwrap();
    values(&page, "src").into_iter().filter(|url| url.starts_with("reports/")).map(str::to_owned).collect()
}

#[test]
fn real_reports_are_embedded() {
    let (folder, _) = site();
    assert_eq!(embedded(folder.path()), ["reports/proxy.html", "reports/raw.html"]);
    let raw = fs::read_to_string(folder.path().join("reports/raw.html")).unwrap();
    assert!(raw.contains("mean latency") && raw.contains("Plotly"), "{raw}");
    let empty = tempfile::tempdir().unwrap();
    assert!(build(&crate::root(), folder.path(), Some(empty.path())).is_err(), "there is none");
}

/// Opens each page in a frame of each width and says what it finds; searches in the first one.
const LOOK: &str = r##"<!doctype html><meta charset="utf-8"><body><script>
const found = { pages: 0, wide: [], results: [], remote: [] };
const open = (page, width) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width: ${width}px; height: 800px; border: 0`;
  frame.onload = () => done(frame);
  frame.src = page;
  document.body.append(frame);
});
(async () => {
  for (const page of PAGES) for (const width of [400, 1400]) {
    const frame = await open(page, width);
    const inside = frame.contentDocument;
    const over = inside.documentElement.scrollWidth - inside.documentElement.clientWidth;
    if (over > 0) found.wide.push(`${page} at ${width}: ${over} pixels too wide`);
    const loaded = frame.contentWindow.performance.getEntriesByType("resource").map((entry) => entry.name);
    found.remote.push(...loaded.filter((name) => !name.startsWith("file:") && !name.startsWith("data:")));
    found.pages += 1;
    frame.remove();
  }
  const frame = await open(PAGES[0], 400);
  const inside = frame.contentDocument;
  const input = inside.getElementById("search");
  input.value = "congestion cubic";
  input.dispatchEvent(new Event("input"));
  while (inside.getElementById("results").hidden) await new Promise((done) => setTimeout(done, 10));
  found.results = [...inside.querySelectorAll("#results a")].map((link) => link.href);
  found.searched_wide = inside.documentElement.scrollWidth - inside.documentElement.clientWidth;
  const shown = document.createElement("script");
  shown.type = "application/json";
  shown.id = "found";
  shown.textContent = JSON.stringify(found);
  document.body.append(shown);
})();
</script>"##;

#[test]
fn every_page_opens_in_a_browser_at_400_and_1400_pixels_with_programs() {
    let (folder, pages) = site();
    let urls: Vec<String> =
        pages.iter().map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string()).collect();
    let first = urls.iter().position(|url| url == "docs/congestion.html").unwrap();
    let urls = [&urls[first..], &urls[..first]].concat();
    let look = folder.path().join("look.html");
    fs::write(&look, LOOK.replace("PAGES", &serde_json::to_string(&urls).unwrap())).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args([
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--disable-extensions",
        ])
        .args(["--enable-logging=stderr", "--v=0", "--allow-file-access-from-files", "--hide-scrollbars"])
        .args(["--window-size=1500,900", "--virtual-time-budget=120000", "--timeout=120000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", look.display()))
        .env("HOME", profile.path())
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs (package chromium)");
    let (document, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:#?}");
    let json = document.split("id=\"found\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let found: Value = serde_json::from_str(json.expect("every page was opened")).unwrap();
    assert_eq!(found["pages"], 2 * urls.len());
    assert_eq!(
        (&found["wide"], &found["remote"]),
        (&Value::Array(vec![]), &Value::Array(vec![])),
        "{found:#}"
    );
    assert_eq!(found["searched_wide"], 0);
    let results = found["results"].as_array().unwrap();
    assert!(
        results.iter().any(|link| link.as_str().unwrap().contains("docs/congestion.html#")),
        "{results:#?}"
    );
}
