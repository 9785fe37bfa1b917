//! The list of components (SBOM) in the format of CycloneDX 1.5. Scanners of vulnerabilities read it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::Release;
use super::components::{Component, Components};
use crate::date;

/// Writes the list into a file.
pub(super) fn write(release: &Release, components: &Components, file: &Path) -> anyhow::Result<()> {
    let time = date(release.epoch, "+%FT%TZ")?;
    let mut properties = vec![("target".to_owned(), release.target.triple.clone())];
    let compilers = release.target.compilers()?.into_iter();
    properties.extend(compilers.map(|(name, version)| (format!("compiler:{name}"), version)));
    let list = list(&release.version, &properties, &time, components);
    Ok(fs::write(file, format!("{list:#}\n"))?)
}

fn list(version: &str, properties: &[(String, String)], time: &str, components: &Components) -> Value {
    let program = format!("pkg:cargo/samehost@{version}");
    let uses = components.all.iter().map(|one| json!({"ref": one.url, "dependsOn": one.uses}));
    let own = json!({"ref": program, "dependsOn": components.used});
    let properties = properties.iter().map(|(name, value)| json!({"name": name, "value": value}));
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time,
            "component": {
                "type": "application", "bom-ref": program, "name": "samehost", "version": version,
                "purl": program, "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
            "properties": properties.collect::<Vec<_>>(),
        },
        "components": components.all.iter().map(component).collect::<Vec<_>>(),
        "dependencies": std::iter::once(own).chain(uses).collect::<Vec<_>>(),
    })
}

fn component(one: &Component) -> Value {
    let mut value = json!({
        "type": "library", "bom-ref": one.url, "purl": one.url, "name": one.name, "version": one.version,
        // What only helped to compile the program is not in it.
        "scope": if one.is_linked { "required" } else { "excluded" },
        "licenses": [{"expression": one.licence}],
    });
    if !one.sha256.is_empty() {
        value["hashes"] = json!([{"alg": "SHA-256", "content": one.sha256}]);
    }
    if !one.repository.is_empty() {
        value["externalReferences"] = json!([{"type": "vcs", "url": one.repository}]);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_components_and_what_uses_them() {
        let component = |name: &str, is_linked| Component {
            name: name.into(),
            version: "1.0.0".into(),
            url: format!("pkg:cargo/{name}@1.0.0"),
            licence: "MIT".into(),
            sha256: if is_linked { "aa".into() } else { String::new() },
            is_linked,
            ..Component::default()
        };
        let components = Components {
            all: vec![component("a", true), component("builder", false)],
            used: vec!["pkg:cargo/a@1.0.0".into()],
        };
        let properties = [("compiler:rustc".to_owned(), "rustc 1.95.0".to_owned())];
        let list = list("0.1.0", &properties, "2026-11-23T00:00:00Z", &components);
        assert_eq!(list["components"][0]["hashes"][0]["content"], "aa");
        assert_eq!(list["components"][0]["scope"], "required");
        assert_eq!(
            (&list["components"][1]["scope"], &list["components"][1]["hashes"]),
            (&"excluded".into(), &Value::Null)
        );
        assert_eq!(list["dependencies"][0]["dependsOn"][0], "pkg:cargo/a@1.0.0");
        assert_eq!(list["metadata"]["properties"][0]["value"], "rustc 1.95.0");
    }
}
