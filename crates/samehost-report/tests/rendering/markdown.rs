//! Markdown: snapshots, and that tables keep their cells.

use samehost_report::RENDERERS;

use crate::scenes::SCENES;

#[test]
fn snapshots_and_whole_tables() {
    let renderer = RENDERERS.iter().find(|renderer| renderer.name == "markdown").unwrap();
    for (name, scene) in SCENES {
        let mut out = Vec::new();
        (renderer.render)(&scene(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let mut cells = None;
        for line in text.lines() {
            let bars = line.replace("\\|", "").matches('|').count();
            if !line.starts_with('|') {
                cells = None;
                continue;
            }
            assert_eq!(*cells.get_or_insert(bars), bars, "{name}: {line}");
        }
        insta::assert_snapshot!(format!("markdown-{name}"), text);
    }
}
