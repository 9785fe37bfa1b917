//! The name of the user that this process is: what clients log in as when nobody says who.

/// By passwd(5); none where the user has no line there.
#[must_use]
pub fn own_name() -> Option<String> {
    let uid = rustix::process::geteuid().as_raw();
    name_in(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), uid)
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let mut names = passwd.lines().filter(|line| line.split(':').nth(2) == Some(uid.as_str()));
    names.next().and_then(|line| line.split(':').next()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_tells_the_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www:/var/www:/usr/sbin/nologin\n";
        assert_eq!(name_in(passwd, 33).as_deref(), Some("www-data"));
        assert_eq!(name_in(passwd, 3), None);
    }
}
