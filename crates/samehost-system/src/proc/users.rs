//! Names of users and groups by id.

use std::collections::HashMap;

use crate::accounts;

#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// User names in `/etc/passwd`.
    #[must_use]
    pub fn of_users() -> Self {
        Names::users_in(accounts::text_of_passwd().as_bytes())
    }

    /// Group names in `/etc/group`.
    #[must_use]
    pub fn of_groups() -> Self {
        let text = accounts::text_of_group();
        Names::first(accounts::groups(&text).map(|group| (group.gid, group.name)))
    }

    /// User names in a text with the format of `/etc/passwd`: that of another root directory.
    pub fn users_in(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        Names::first(accounts::users(&text).map(|user| (user.uid, user.name)))
    }

    /// The first name of an id counts, as in the C library.
    fn first<'a>(lines: impl Iterator<Item = (u32, &'a str)>) -> Self {
        let mut names = HashMap::new();
        for (number, name) in lines {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
        Names(names)
    }

    /// The id of a name; the lowest if a file has several.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.0.iter().filter(|(_, its)| its.as_str() == name).map(|(number, _)| *number).min()
    }

    pub fn name(&self, number: u32) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_counts_and_odd_lines_are_passed_over() {
        let names = Names::users_in(
            b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n#\nbad:x:no\n\xff:x:7:7::/:/x\n",
        );
        assert_eq!(names.name(0), Some("root"));
        assert_eq!(names.name(7), Some("\u{fffd}"));
        assert_eq!(names.name(1), None);
        assert_eq!((names.number("root"), names.number("nobody")), (Some(0), None));
        assert_eq!((Names::of_users().name(0), Names::of_groups().name(0)), (Some("root"), Some("root")));
    }
}
