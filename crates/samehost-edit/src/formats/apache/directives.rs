//! The directives of Apache that are in force, each with the sections around it: those of an included file are in the section that
//! includes it, those of a macro where it is used, and what Apache was started with decides `<IfDefine>`.
//!
//! They were read from the text of each file until 30 November: a variable in a file that one virtual host includes, and one in a
//! macro that nobody uses, barred the switch of another host's site.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::tree::{Node, Text, Tree};
use crate::budget;
use crate::files::Files;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub file: PathBuf,
    pub line: u32,
    /// In small letters.
    pub name: String,
    pub words: Vec<String>,
    pub around: Vec<Section>,
}

/// Its name in small letters, what is behind that, and which it is: two of a macro that is used twice are two.
pub type Section = (String, String, [usize; 3]);

/// The directives of a configuration, given the names of its `-D`; none if it is not understood.
#[must_use]
pub fn directives(file: &Path, files: &dyn Files, mut defined: BTreeSet<String>) -> Vec<Directive> {
    let found = budget::within(file, files, |files| {
        let (tree, mut found) = (Tree::read(file, files)?, Vec::new());
        for node in 0..tree.nodes.len() {
            for site in sites(&tree, node) {
                let one = directive(&tree, node, site, &defined);
                if let Some(Directive { name, words, .. }) = &one
                    && name == "define"
                {
                    defined.extend(words.first().cloned());
                }
                found.extend(one);
            }
        }
        Ok(found)
    });
    found.unwrap_or_default()
}

/// Where a directive counts: where it stands, or where its macro is used.
fn sites(tree: &Tree, node: usize) -> Vec<Option<usize>> {
    let Some(of) = tree.around(node).find(|one| one.name == "<macro") else { return vec![None] };
    let name = |one: &Node| one.words.first().map(|name| name.lossy().to_ascii_lowercase());
    let is_its = |user: &Node| budget::step(10) && user.name == "use" && name(user) == name(of);
    (0..tree.nodes.len()).filter(|user| is_its(&tree.nodes[*user])).map(Some).collect()
}

/// A directive as it counts at one place; `None` where a condition around it is not met.
fn directive(tree: &Tree, node: usize, site: Option<usize>, defined: &BTreeSet<String>) -> Option<Directive> {
    let of_macro = tree.around(node).find(|one| one.name == "<macro");
    let text = |word: &Text| {
        let users = site.map(|user| &tree.nodes[user].words);
        let values =
            of_macro.zip(users).into_iter().flat_map(|(of, words)| of.words.iter().zip(words).skip(1));
        let mut text = word.lossy().into_owned();
        for (name, value) in values.take_while(|_| budget::step(10)) {
            let (name, value) = (name.lossy(), value.lossy());
            if budget::hold(text.matches(&*name).count() * value.len()) {
                text = text.replace(&*name, &value);
            }
        }
        text
    };
    let inner = tree.around(node).take_while(|one| one.name != "<macro");
    let outer = site.into_iter().flat_map(|user| tree.around(user));
    let section = |one: &Node, site: usize| {
        let of = one.words.iter().map(text).collect::<Vec<_>>().join(" ");
        (one.name[1..].to_owned(), of, [site, one.source, one.start])
    };
    let inner = inner.map(|one| section(one, site.unwrap_or_default()));
    let around: Vec<Section> = inner.chain(outer.map(|one| section(one, 0))).collect();
    let is_met = |of: &str| defined.contains(of.trim_start_matches('!')) != of.starts_with('!');
    let one = &tree.nodes[node];
    let is_in_force = around.iter().all(|(name, of, _)| name != "ifdefine" || is_met(of));
    if one.name.starts_with('<') || !is_in_force || !budget::hold(size_of::<Directive>() * (1 + around.len()))
    {
        return None;
    }
    let words = one.words.iter().map(text).collect();
    Some(Directive {
        file: tree.path(node).to_owned(),
        line: one.line,
        name: one.name.clone(),
        words,
        around,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::files::{Overlay, TestDisk};

    fn shown(main: &str, defined: &[&str]) -> Vec<String> {
        let texts = BTreeMap::from([
            ("/nothing/apache2.conf".into(), main.into()),
            ("/nothing/part".into(), b"SetEnv IN part\n".to_vec()),
        ]);
        let defined = defined.iter().map(|name| (*name).to_owned()).collect();
        let found = directives(Path::new("/nothing/apache2.conf"), &Overlay::new(&TestDisk, texts), defined);
        let mut shown = Vec::new();
        for one in found.iter().filter(|one| one.name == "setenv") {
            let around: Vec<String> = one.around.iter().map(|(name, of, _)| format!("{name} {of}")).collect();
            shown.push(format!("{} in {}", one.words.join("="), around.join(", ")));
        }
        shown
    }

    #[test]
    fn an_included_file_is_in_the_section_around_and_a_macro_where_it_is_used() {
        let main = "<VirtualHost *:80>\nInclude /nothing/part\n</VirtualHost>
<Macro Site $name $dir>\n<VirtualHost $name>\nSetEnv ROOT $dir/x\n</VirtualHost>\n</Macro>
<Macro Unused>\nSetEnv UNUSED 1\n</Macro>
Use site a.test /srv/a
<Directory /srv>\nUse SITE b.test /srv/b\n</Directory>\n";
        assert_eq!(
            shown(main, &[]),
            [
                "IN=part in virtualhost *:80",
                "ROOT=/srv/a/x in virtualhost a.test",
                "ROOT=/srv/b/x in virtualhost b.test, directory /srv",
            ]
        );
        // Nothing grows without an end.
        assert!(shown("<Macro A>\nUse A\nUse A\n</Macro>\nUse A\n", &[]).is_empty());
    }

    #[test]
    fn what_apache_was_started_with_or_defines_itself_decides() {
        let main = "<IfDefine ENABLED>\nSetEnv A 1\n</IfDefine>\n<IfDefine !ENABLED>\nSetEnv B 1\n</IfDefine>
<IfDefine LATER>\nSetEnv C 1\n</IfDefine>\nDefine LATER\n<IfDefine LATER>\nSetEnv D 1\n</IfDefine>\n";
        assert_eq!(shown(main, &[]), ["B=1 in ifdefine !ENABLED", "D=1 in ifdefine LATER"]);
        assert_eq!(shown(main, &["ENABLED"]), ["A=1 in ifdefine ENABLED", "D=1 in ifdefine LATER"]);
    }
}
