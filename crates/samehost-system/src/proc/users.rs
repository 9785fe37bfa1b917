//! `/etc/passwd` and `/etc/group`: names of users and groups. Pure parsers; other sources of users are not asked.

use std::collections::HashMap;

/// Names by number.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// Reads `name:password:number:…` lines; the first name of a number counts, as for the C library.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut names = HashMap::new();
        for line in String::from_utf8_lossy(bytes).lines() {
            let mut fields = line.split(':');
            if let (Some(name), Some(_), Some(Ok(number))) =
                (fields.next(), fields.next(), fields.next().map(str::parse))
            {
                names.entry(number).or_insert_with(|| name.to_owned());
            }
        }
        Names(names)
    }

    /// Reads a file; no names when it cannot be read.
    pub fn read(path: &str) -> Self {
        Names::parse(&std::fs::read(path).unwrap_or_default())
    }

    /// The number of a name; the least where a file gives it several.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.0.iter().filter(|(_, its)| its.as_str() == name).map(|(number, _)| *number).min()
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.0.get(&number).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_counts_and_odd_lines_are_passed_over() {
        let names =
            Names::parse(b"root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n#\nbad:x:no\n\xff:x:7\n");
        assert_eq!(names.name(0), Some("root"));
        assert_eq!(names.name(7), Some("\u{fffd}"));
        assert_eq!(names.name(1), None);
        assert_eq!((names.number("root"), names.number("nobody")), (Some(0), None));
    }
}
