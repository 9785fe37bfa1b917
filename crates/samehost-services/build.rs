//! Lists the files in `services/` and `clients/`, so that a service or a language is one file: an enum with a variant for
//! each service, and the texts of all of them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("kinds.rs"), kinds(&files(&root.join("services"))?))?;
    fs::write(out.join("languages.rs"), texts(&files(&root.join("clients"))?))
}

/// Names and paths of the TOML files in a folder, by name.
fn files(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, path));
        }
    }
    files.sort();
    Ok(files)
}

fn kinds(files: &[(String, PathBuf)]) -> String {
    let (mut variants, mut names) = (String::new(), String::new());
    for (name, _) in files {
        let variant = variant(name);
        let _ = writeln!(variants, "    /// `services/{name}.toml`.\n    {variant},");
        let _ = writeln!(names, "    Kind::{variant},");
    }
    format!(
        "/// A kind of service. Its variants are the files in `services/`.\n\
         #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]\n\
         #[serde(rename_all = \"kebab-case\")]\n\
         pub enum Kind {{\n{variants}}}\n\n\
         const KINDS: &[Kind] = &[\n{names}];\n\n{}",
        texts(files)
    )
}

fn texts(files: &[(String, PathBuf)]) -> String {
    let mut texts = String::new();
    for (name, path) in files {
        let _ = writeln!(texts, "    ({name:?}, include_str!({:?})),", path.display().to_string());
    }
    format!("/// Name and text of each file, by name.\nconst TEXTS: &[(&str, &str)] = &[\n{texts}];\n")
}

/// `docker-proxy` becomes `DockerProxy`.
fn variant(name: &str) -> String {
    let mut variant = String::new();
    for word in name.split('-') {
        let mut letters = word.chars();
        variant.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        variant.push_str(letters.as_str());
    }
    variant
}
