//! Names of prepared versions, beside the files that they replace.

use std::ffi::OsStr;

/// What marks a prepared file.
const MARK: &str = ".samehost-";
/// The length of a switch's id.
const ID: usize = "20261121-104455-abcd".len();
/// The longest name a file may have, in bytes.
const LONGEST_NAME: usize = 255;

/// Prefix of the names of all prepared versions of a file.
pub(crate) fn beginning(name: &str) -> String {
    // Id, token of 16 letters, number of the step, a letter, and the separators.
    let room = LONGEST_NAME - MARK.len() - ID - 16 - 12;
    let mut end = name.len().min(room);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!(".{}{MARK}", &name[..end])
}

/// Id of the switch that prepared a file of this name.
pub(crate) fn id_of(name: &OsStr) -> Option<String> {
    let (_, end) = name.to_str()?.rsplit_once(MARK)?;
    let ours = end.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    end.get(..ID).filter(|_| ours).map(str::to_owned)
}
